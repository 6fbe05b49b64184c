"""Eigenvalues: symmetric matrices up to 6x6 by Jacobi rotations, any real 2x2 matrix directly.

Jacobi sweeps run in serial `while` loops over run-time indices, so the code does not grow with the
matrix and a call outside any loop stays on one thread.
"""

import quadrants as qd
from quadrants._lib import core
from quadrants._library.decompose import turn
from quadrants.lang import impl as _impl
from quadrants.lang.kernel_impl import func

_SWEEPS = 16


@func
def jacobi(A, dt: qd.template(), n: qd.template()):
    """Diagonalises a symmetric matrix: the almost diagonal rest and the vectors as columns."""
    qd.static_assert(
        A.n == A.m and A.n <= 6, "Symmetric eigen solver currently supports sizes up to 6\u00d76."
    )
    D = qd.cast(A, dt)
    Q = qd.Matrix.identity(dt, n)
    tiny = qd.cast(1e-17 if qd.static(dt == qd.f64) else 1e-9, dt)
    sweep = 0
    while sweep < _SWEEPS:
        rotated = 0
        p = 0
        while p < n - 1:
            q = p + 1
            while q < n:
                g = (D[p, q] + D[q, p]) / 2
                least = tiny * (abs(D[p, p]) + abs(D[q, q]))
                c, s, _, needed = turn(g, D[q, q] - D[p, p], least, dt)
                rotated = qd.max(rotated, needed)
                if qd.static(core.differentiates()) or needed == 1:
                    for k in qd.static(range(n)):
                        x = D[k, p]
                        y = D[k, q]
                        D[k, p] = c * x - s * y
                        D[k, q] = s * x + c * y
                        v = Q[k, p]
                        w = Q[k, q]
                        Q[k, p] = c * v - s * w
                        Q[k, q] = s * v + c * w
                    for k in qd.static(range(n)):
                        x = D[p, k]
                        y = D[q, k]
                        D[p, k] = c * x - s * y
                        D[q, k] = s * x + c * y
                    D[p, q] = 0
                    D[q, p] = 0
                q += 1
            p += 1
        sweep += 1
        if rotated == 0:
            sweep = _SWEEPS
    return D, Q


@func
def sorted_pairs(D, Q, n: qd.template()):
    """Diagonal and columns, ascending."""
    values = qd.Vector([D[i, i] for i in range(n)])
    i = 0
    while i < n - 1:
        least = i
        j = i + 1
        while j < n:
            if values[j] < values[least]:
                least = j
            j += 1
        if least != i:
            x = values[i]
            values[i] = values[least]
            values[least] = x
            for k in qd.static(range(n)):
                y = Q[k, i]
                Q[k, i] = Q[k, least]
                Q[k, least] = y
        i += 1
    return values, Q


@func
def pair_of_two(A, dt: qd.template()):
    """One rotation, without loops: gradients go through it."""
    a, b = qd.cast(A[0, 0], dt), qd.cast(A[1, 1], dt)
    g = (qd.cast(A[0, 1], dt) + qd.cast(A[1, 0], dt)) / 2
    tiny = qd.cast(1e-17 if qd.static(dt == qd.f64) else 1e-9, dt)
    c, s, t, _ = turn(g, b - a, tiny * (abs(a) + abs(b)), dt)
    x, y = a - t * g, b + t * g
    values = qd.Vector([x, y])
    Q = qd.Matrix([[c, s], [-s, c]])
    if y < x:
        values = qd.Vector([y, x])
        Q = qd.Matrix([[s, c], [c, -s]])
    return values, Q


@func
def sym_eig_in(A, dt: qd.template()):
    if qd.static(A.n == 2 and A.m == 2):
        return pair_of_two(A, dt)
    D, Q = jacobi(A, dt, A.n)
    return sorted_pairs(D, Q, A.n)


@func
def sym_eig(A, dt=None):
    """Eigenvalues and orthonormal eigenvectors of a symmetric matrix.

    By cyclic Jacobi rotations (Golub and Van Loan, "Matrix Computations", section 8.5).

    Args:
        A: symmetric matrix of 1 to 6 rows, of integers or floats.
        dt: f32 or f64 to compute in, the default float if None.

    Returns:
        The values ascending as a vector, and a matrix with the vectors as columns in that order.

    Raises:
        QuadrantsCompilationError: A is not square or too large.
    """
    if qd.static(dt in (None, float)):
        if qd.static(_impl.pyquadrants.default_fp == qd.f64):
            return sym_eig_in(A, qd.f64)
        return sym_eig_in(A, qd.f32)
    return sym_eig_in(A, dt)


@func
def make_spd_in(A, dt: qd.template()):
    D, Q = jacobi(A, dt, A.n)
    S = qd.zero(Q)
    for j in qd.static(range(A.n)):
        for i in qd.static(range(A.n)):
            S[i, j] = Q[i, j] * qd.max(D[j, j], qd.cast(0.0, dt))
    return S @ Q.transpose()


@func
def make_spd(A, dt=None):
    """The positive semidefinite matrix nearest to a symmetric one: negative eigenvalues become 0.

    Nearest in the Frobenius norm (Higham, "Computing a nearest symmetric positive semidefinite
    matrix", 1988).

    Args:
        A: symmetric matrix of 1 to 6 rows, of integers or floats.
        dt: f32 or f64 to compute in, the default float if None.

    Returns:
        A symmetric matrix of the same shape.

    Raises:
        QuadrantsCompilationError: A is not square or too large.
    """
    if qd.static(dt in (None, float)):
        if qd.static(_impl.pyquadrants.default_fp == qd.f64):
            return make_spd_in(A, qd.f64)
        return make_spd_in(A, qd.f32)
    return make_spd_in(A, dt)


@func
def eigenvector2(a, b, c, d, re, im, dt: qd.template()):
    """Unit vector in the null space of [[a, b], [c, d]] - (re + i im): (x re, x im, y re, y im)."""
    zero = qd.cast(0.0, dt)
    first = qd.Vector([b, zero, re - a, im])
    second = qd.Vector([re - d, im, c, zero])
    v = qd.select(second.norm_sqr() > first.norm_sqr(), second, first)
    return v / v.norm()


@func
def eig2(A, dt: qd.template()):
    a, b = qd.cast(A[0, 0], dt), qd.cast(A[0, 1], dt)
    c, d = qd.cast(A[1, 0], dt), qd.cast(A[1, 1], dt)
    zero = qd.cast(0.0, dt)
    one = qd.cast(1.0, dt)
    mean = (a + d) / 2
    half = (a - d) / 2
    gap = half * half + b * c
    root = qd.sqrt(abs(gap))
    re = qd.select(gap > 0, root, zero)
    im = qd.select(gap > 0, zero, root)
    other = qd.select(gap > 0, zero, -root)  # -im, without a negative zero
    v0 = qd.Vector([one, zero, zero, zero])
    v1 = qd.Vector([zero, zero, one, zero])
    if b != 0 or c != 0 or half != 0:
        v0 = eigenvector2(a, b, c, d, mean + re, im, dt)
        v1 = eigenvector2(a, b, c, d, mean - re, other, dt)
    return (
        qd.Matrix([[mean + re, im], [mean - re, other]]),
        qd.Matrix([[v0[0], v1[0]], [v0[1], v1[1]], [v0[2], v1[2]], [v0[3], v1[3]]]),
    )


@func
def eig(A, dt=None):
    """Eigenvalues and eigenvectors of a real 2x2 matrix, from its characteristic polynomial.

    Args:
        A: the matrix, of integers or floats.
        dt: f32 or f64 to compute in, the default float if None.

    Returns:
        The values as rows (re, im), and a 4x2 matrix whose columns are the unit eigenvectors, rows
        alternating real and imaginary parts.

    Raises:
        QuadrantsCompilationError: A has another shape.
    """
    qd.static_assert(A.n == 2 and A.m == 2, "Eigen solver only supports 2\u00d72 matrices.")
    if qd.static(dt in (None, float)):
        if qd.static(_impl.pyquadrants.default_fp == qd.f64):
            return eig2(A, qd.f64)
        return eig2(A, qd.f32)
    return eig2(A, dt)
