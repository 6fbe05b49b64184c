"""Singular value and polar decompositions of 2x2 and 3x3 matrices.

One-sided Jacobi: columns of the matrix are rotated until they are orthogonal to working precision
relative to their lengths, which keeps small singular values accurate. It is a `while` loop, never a
`for`, because a `for` of a func called at the top of a kernel would run in parallel.

Gradients go through the rotations. One that is not needed still has the derivative of its angle, and columns
that are orthogonal as they are, their lengths equal, go into U alike: so U V^T has the right derivative at the
identity, where simulations start, though the vectors of equal values have none.
"""

import quadrants as qd
from quadrants._lib import core
from quadrants.lang import impl as _impl
from quadrants.lang.kernel_impl import func

_SWEEPS = 12


@func
def turn(g, gap, least, dt: qd.template()):
    """The rotation that diagonalises [[a, g], [g, a + gap]], unless g is below `least`.

    Cosine, sine and tangent, and whether it was needed.
    """
    one = qd.cast(1.0, dt)
    c, s, t = one, qd.cast(0.0, dt), qd.cast(0.0, dt)
    needed = 0
    if abs(g) > least:
        z = gap / (2 * g)
        t = one / (qd.select(z < 0, -z, z) + qd.sqrt(1 + z * z))
        t = qd.select(z < 0, -t, t)
        c = one / qd.sqrt(1 + t * t)
        s = c * t
        needed = 1
    elif qd.static(core.differentiates()):
        s = first_order(g, gap, dt)
        t = s
    return c, s, t, needed


@func
def rotation(p, q, dt: qd.template()):
    """Cosine and sine of the rotation that makes two columns orthogonal, and whether it was needed."""
    a = p.dot(p)
    b = q.dot(q)
    tiny = qd.cast(1e-16 if qd.static(dt == qd.f64) else 3e-8, dt)
    # Relative to the lengths, without squares of small numbers.
    c, s, _, needed = turn(p.dot(q), b - a, qd.sqrt(a) * qd.sqrt(b) * tiny, dt)
    return c, s, needed


@func
def first_order(g, gap, dt: qd.template()):
    """Sine of a rotation that is nearly none, whose cosine is 1."""
    s = qd.cast(0.0, dt)
    small = qd.cast(1e-9 if qd.static(dt == qd.f64) else 1e-5, dt)
    if gap != 0 and abs(g) <= abs(gap) * small:
        s = g / gap
    return s


@func
def well_apart(least, most, dt: qd.template()):
    """Whether a column is long enough to be a direction."""
    return least > most * qd.cast(1e-8 if qd.static(dt == qd.f64) else 1e-4, dt)


@func
def largest(A):
    """Largest absolute element."""
    m = abs(A[0, 0])
    for i, j in qd.static(qd.ndrange(A.n, A.m)):
        m = qd.max(m, abs(A[i, j]))
    return m


@func
def svd2(A, dt: qd.template()):
    """U, S, V of a 2x2 matrix; singular values are not negative."""
    scale = qd.cast(largest(A), dt)
    inv = qd.cast(1.0, dt)
    if scale > 0:
        inv = qd.cast(1.0, dt) / scale
    p = qd.Vector([qd.cast(A[0, 0], dt), qd.cast(A[1, 0], dt)]) * inv
    q = qd.Vector([qd.cast(A[0, 1], dt), qd.cast(A[1, 1], dt)]) * inv
    c, s, needed = rotation(p, q, dt)
    b0 = c * p - s * q
    b1 = s * p + c * q
    v0 = qd.Vector([c, -s])
    v1 = qd.Vector([s, c])
    if b1.dot(b1) > b0.dot(b0):
        b0, b1 = b1, -b0
        v0, v1 = v1, -v0
    s0 = b0.norm()
    u0 = qd.Vector([qd.cast(1.0, dt), qd.cast(0.0, dt)])
    if s0 > 0:
        u0 = b0 / s0
    u1 = qd.Vector([-u0[1], u0[0]])
    s1 = b1.norm()
    if (
        qd.static(core.differentiates()) and s1 > s0 / 2
    ):  # shorter ones have the direction that rounding gave them
        u1 = b1 / s1
        g = u0.dot(u1) / 2  # 0, but for its derivative
        u0, u1 = u0 - g * u1, u1 - g * u0
    s1 = u1.dot(b1)
    if s1 < 0:
        u1 = -u1
        s1 = -s1
    zero = qd.cast(0.0, dt)
    factor = qd.select(scale > 0, scale, qd.cast(1.0, dt))
    return (
        qd.Matrix([[u0[0], u1[0]], [u0[1], u1[1]]]),
        qd.Matrix([[s0 * factor, zero], [zero, s1 * factor]]),
        qd.Matrix([[v0[0], v1[0]], [v0[1], v1[1]]]),
    )


@func
def perpendicular(u, dt: qd.template()):
    """A unit vector at right angles to u."""
    one = qd.cast(1.0, dt)
    zero = qd.cast(0.0, dt)
    e = qd.Vector([zero, one, zero])
    if abs(u[1]) > qd.cast(0.8, dt):
        e = qd.Vector([zero, zero, one])
    w = e - u.dot(e) * u
    return w / w.norm()


@func
def svd3(A, dt: qd.template()):
    """U, S, V of a 3x3 matrix; both rotations, so the sign of det A shows in the last value."""
    scale = qd.cast(largest(A), dt)
    inv = qd.cast(1.0, dt)
    if scale > 0:
        inv = qd.cast(1.0, dt) / scale
    b0 = qd.Vector([qd.cast(A[0, 0], dt), qd.cast(A[1, 0], dt), qd.cast(A[2, 0], dt)]) * inv
    b1 = qd.Vector([qd.cast(A[0, 1], dt), qd.cast(A[1, 1], dt), qd.cast(A[2, 1], dt)]) * inv
    b2 = qd.Vector([qd.cast(A[0, 2], dt), qd.cast(A[1, 2], dt), qd.cast(A[2, 2], dt)]) * inv
    one = qd.cast(1.0, dt)
    zero = qd.cast(0.0, dt)
    v0 = qd.Vector([one, zero, zero])
    v1 = qd.Vector([zero, one, zero])
    v2 = qd.Vector([zero, zero, one])
    sweep = 0
    while sweep < _SWEEPS:
        c, s, first = rotation(b0, b1, dt)
        b0, b1 = c * b0 - s * b1, s * b0 + c * b1
        v0, v1 = c * v0 - s * v1, s * v0 + c * v1
        c, s, second = rotation(b0, b2, dt)
        b0, b2 = c * b0 - s * b2, s * b0 + c * b2
        v0, v2 = c * v0 - s * v2, s * v0 + c * v2
        c, s, third = rotation(b1, b2, dt)
        b1, b2 = c * b1 - s * b2, s * b1 + c * b2
        v1, v2 = c * v1 - s * v2, s * v1 + c * v2
        sweep += 1
        if first + second + third == 0:
            sweep = _SWEEPS
    # Longest column first; a swap with one sign flipped keeps V a rotation.
    if b1.dot(b1) > b0.dot(b0):
        b0, b1 = b1, -b0
        v0, v1 = v1, -v0
    if b2.dot(b2) > b0.dot(b0):
        b0, b2 = b2, -b0
        v0, v2 = v2, -v0
    if b2.dot(b2) > b1.dot(b1):
        b1, b2 = b2, -b1
        v1, v2 = v2, -v1
    s0 = b0.norm()
    u0 = qd.Vector([one, zero, zero])
    if s0 > 0:
        u0 = b0 / s0
    u1 = perpendicular(u0, dt)
    u2 = u1
    s2 = b2.norm()
    if qd.static(core.differentiates()) and well_apart(s2, s0, dt):
        u1 = b1 / b1.norm()
        u2 = b2 / s2
        if u0.cross(u1).dot(u2) < 0:
            u2 = -u2
        g, h, k = u0.dot(u1) / 2, u0.dot(u2) / 2, u1.dot(u2) / 2  # 0, but for their derivatives
        u0, u1, u2 = u0 - g * u1 - h * u2, u1 - g * u0 - k * u2, u2 - h * u0 - k * u1
    else:
        rest = b1 - u0.dot(b1) * u0
        size = rest.norm()
        if size > 0:
            u1 = rest / size
            u1 = u1 - u0.dot(u1) * u0  # once more: `rest` may be what rounding left
            u1 = u1 / u1.norm()
        u2 = u0.cross(u1)
    factor = qd.select(scale > 0, scale, one)
    s1 = u1.dot(b1) * factor
    s2 = u2.dot(b2) * factor
    s0 = s0 * factor
    return (
        qd.Matrix([[u0[0], u1[0], u2[0]], [u0[1], u1[1], u2[1]], [u0[2], u1[2], u2[2]]]),
        qd.Matrix([[s0, zero, zero], [zero, s1, zero], [zero, zero, s2]]),
        qd.Matrix([[v0[0], v1[0], v2[0]], [v0[1], v1[1], v2[1]], [v0[2], v1[2], v2[2]]]),
    )


@func
def svd_in(A, dt: qd.template()):
    qd.static_assert(
        A.n == A.m and 2 <= A.n <= 3, "SVD only supports 2\u00d72 and 3\u00d73 matrices."
    )
    if qd.static(A.n == 2):
        return svd2(A, dt)
    return svd3(A, dt)


@func
def svd(A, dt=None):
    """Singular value decomposition `A = U @ S @ V.transpose()` of a 2x2 or 3x3 matrix.

    By one-sided Jacobi rotations (Hestenes, "Inversion of matrices by biorthogonalization and related
    results", 1958; Demmel and Veselic, "Jacobi's method is more accurate than QR", 1992).

    Args:
        A: the matrix, of integers or floats.
        dt: f32 or f64 to compute in, the default float if None.

    Returns:
        U, S, V. S is diagonal, descending. In 3-D U and V are rotations, so the last singular value
        of a reflection is negative; in 2-D none is.

    Raises:
        QuadrantsCompilationError: A has another shape.
    """
    if qd.static(dt in (None, float)):
        if qd.static(_impl.pyquadrants.default_fp == qd.f64):
            return svd_in(A, qd.f64)
        return svd_in(A, qd.f32)
    return svd_in(A, dt)


@func
def polar2(A, dt: qd.template()):
    """R, P of a 2x2 matrix: closed form, through a reflection if the determinant is negative."""
    one = qd.cast(1.0, dt)
    a, b = qd.cast(A[0, 0], dt), qd.cast(A[0, 1], dt)
    c, d = qd.cast(A[1, 0], dt), qd.cast(A[1, 1], dt)
    flip = qd.select(a * d - b * c < 0, -one, one)
    x = a + flip * d
    y = c - flip * b
    size = qd.Vector([x, y]).norm()
    R = qd.Matrix.identity(dt, 2)
    P = qd.Matrix([[a, b], [c, d]])
    if size > 0:
        x = x / size
        y = y / size
        R = qd.Matrix([[x, -flip * y], [y, flip * x]])
        P = R.transpose() @ P
    return R, P


@func
def polar_in(A, dt: qd.template()):
    qd.static_assert(
        A.n == A.m and 2 <= A.n <= 3,
        "Polar decomposition only supports 2\u00d72 and 3\u00d73 matrices.",
    )
    if qd.static(A.n == 2):
        return polar2(A, dt)
    U, S, V = svd3(A, dt)
    return U @ V.transpose(), V @ S @ V.transpose()


@func
def polar_decompose(A, dt=None):
    """Polar decomposition `A = R @ P` of a 2x2 or 3x3 matrix, R orthogonal and P symmetric.

    In closed form in 2-D (Higham, "Computing the polar decomposition", 1986), in 3-D from the
    singular value decomposition: R = U V^T, P = V S V^T.

    Args:
        A: the matrix, of integers or floats.
        dt: f32 or f64 to compute in, the default float if None.

    Returns:
        R and P. In 3-D R is a rotation, so P is indefinite if det A < 0; in 2-D R has the sign of
        det A and P has no negative eigenvalue.

    Raises:
        QuadrantsCompilationError: A has another shape.
    """
    if qd.static(dt in (None, float)):
        if qd.static(_impl.pyquadrants.default_fp == qd.f64):
            return polar_in(A, qd.f64)
        return polar_in(A, qd.f32)
    return polar_in(A, dt)
