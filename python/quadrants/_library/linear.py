"""Linear systems of two or three unknowns."""

import quadrants as qd
from quadrants.lang import impl as _impl
from quadrants.lang.kernel_impl import func


@func
def eliminated(A, b, dt: qd.template(), n: qd.template()):
    """The solution, by elimination with partial pivoting."""
    M = qd.cast(A, dt)
    x = qd.cast(b, dt)
    for k in qd.static(range(n)):
        pivot = k
        best = abs(M[k, k])
        for i in qd.static(range(k + 1, n)):
            if abs(M[i, k]) > best:
                pivot = i
                best = abs(M[i, k])
        if qd.static(k == 0 or n > 2):
            assert best != 0, "Matrix is singular in linear solve."
        for i in qd.static(range(k + 1, n)):
            if pivot == i:
                for j in qd.static(range(n)):
                    m = M[k, j]
                    M[k, j] = M[i, j]
                    M[i, j] = m
                y = x[k]
                x[k] = x[i]
                x[i] = y
        for i in qd.static(range(k + 1, n)):
            f = M[i, k] / M[k, k]
            for j in qd.static(range(k, n)):
                M[i, j] = M[i, j] - f * M[k, j]
            x[i] = x[i] - f * x[k]
    for r in qd.static(range(n)):
        for j in qd.static(range(n - r, n)):
            x[n - 1 - r] = x[n - 1 - r] - M[n - 1 - r, j] * x[j]
        x[n - 1 - r] = x[n - 1 - r] / M[n - 1 - r, n - 1 - r]
    return x


@func
def solve(A, b, dt=None):
    """Solution x of `A @ x = b`, by Gaussian elimination with partial pivoting.

    Args:
        A: 2x2 or 3x3 matrix, of integers or floats.
        b: right side, a vector of as many components.
        dt: f32 or f64 to compute in, the default float if None.

    Returns:
        The vector x; infinite or NaN if A is singular.

    Raises:
        QuadrantsCompilationError: A or b has another shape.
        QuadrantsAssertionError: A is singular, with `debug=True`.
    """
    qd.static_assert(A.n == A.m, "Only square matrix is supported")
    qd.static_assert(A.n == 2 or A.n == 3, "Only 2\u00d72 and 3\u00d73 matrices are supported")
    qd.static_assert(A.m == b.n, "Matrix and Vector dimension dismatch")
    if qd.static(dt in (None, float)):
        if qd.static(_impl.pyquadrants.default_fp == qd.f64):
            return eliminated(A, b, qd.f64, A.n)
        return eliminated(A, b, qd.f32, A.n)
    return eliminated(A, b, dt, A.n)
