"""Determinants and inverses of square matrices.

Up to 4 rows closed forms by cofactors. Above, Gauss-Jordan elimination with partial pivoting in
serial `while` loops over run-time indices: its code does not grow with the matrix.
"""

import quadrants as qd
from quadrants.lang.kernel_impl import func


@func
def minor3(
    A,
    i0: qd.template(),
    i1: qd.template(),
    i2: qd.template(),
    j0: qd.template(),
    j1: qd.template(),
    j2: qd.template(),
):
    """Determinant of three rows and columns."""
    return (
        A[i0, j0] * (A[i1, j1] * A[i2, j2] - A[i1, j2] * A[i2, j1])
        - A[i0, j1] * (A[i1, j0] * A[i2, j2] - A[i1, j2] * A[i2, j0])
        + A[i0, j2] * (A[i1, j0] * A[i2, j1] - A[i1, j1] * A[i2, j0])
    )


@func
def determinant(A):
    """Determinant of a square matrix of at most 4 rows."""
    qd.static_assert(A.n == A.m, "expected a square matrix")
    qd.static_assert(A.n < 5, "only dimension < 5 is supported")
    if qd.static(A.n == 1):
        return A[0, 0]
    if qd.static(A.n == 2):
        return A[0, 0] * A[1, 1] - A[0, 1] * A[1, 0]
    if qd.static(A.n == 3):
        return minor3(A, 0, 1, 2, 0, 1, 2)
    return (
        A[0, 0] * minor3(A, 1, 2, 3, 1, 2, 3)
        - A[0, 1] * minor3(A, 1, 2, 3, 0, 2, 3)
        + A[0, 2] * minor3(A, 1, 2, 3, 0, 1, 3)
        - A[0, 3] * minor3(A, 1, 2, 3, 0, 1, 2)
    )


@func
def inverse2(A):
    det = A[0, 0] * A[1, 1] - A[0, 1] * A[1, 0]
    return qd.Matrix([[A[1, 1], -A[0, 1]], [-A[1, 0], A[0, 0]]]) / det


@func
def inverse3(A):
    r0 = qd.Vector([A[0, 0], A[0, 1], A[0, 2]])
    r1 = qd.Vector([A[1, 0], A[1, 1], A[1, 2]])
    r2 = qd.Vector([A[2, 0], A[2, 1], A[2, 2]])
    c0 = r1.cross(r2)
    c1 = r2.cross(r0)
    c2 = r0.cross(r1)
    det = r0.dot(c0)
    return qd.Matrix([[c0[0], c1[0], c2[0]], [c0[1], c1[1], c2[1]], [c0[2], c1[2], c2[2]]]) / det


@func
def inverse4(A):
    # 2x2 minors of the upper and of the lower two rows; all cofactors are sums of their products.
    s0 = A[0, 0] * A[1, 1] - A[1, 0] * A[0, 1]
    s1 = A[0, 0] * A[1, 2] - A[1, 0] * A[0, 2]
    s2 = A[0, 0] * A[1, 3] - A[1, 0] * A[0, 3]
    s3 = A[0, 1] * A[1, 2] - A[1, 1] * A[0, 2]
    s4 = A[0, 1] * A[1, 3] - A[1, 1] * A[0, 3]
    s5 = A[0, 2] * A[1, 3] - A[1, 2] * A[0, 3]
    c0 = A[2, 0] * A[3, 1] - A[3, 0] * A[2, 1]
    c1 = A[2, 0] * A[3, 2] - A[3, 0] * A[2, 2]
    c2 = A[2, 0] * A[3, 3] - A[3, 0] * A[2, 3]
    c3 = A[2, 1] * A[3, 2] - A[3, 1] * A[2, 2]
    c4 = A[2, 1] * A[3, 3] - A[3, 1] * A[2, 3]
    c5 = A[2, 2] * A[3, 3] - A[3, 2] * A[2, 3]
    det = s0 * c5 - s1 * c4 + s2 * c3 + s3 * c2 - s4 * c1 + s5 * c0
    adjugate = qd.Matrix(
        [
            [
                A[1, 1] * c5 - A[1, 2] * c4 + A[1, 3] * c3,
                -A[0, 1] * c5 + A[0, 2] * c4 - A[0, 3] * c3,
                A[3, 1] * s5 - A[3, 2] * s4 + A[3, 3] * s3,
                -A[2, 1] * s5 + A[2, 2] * s4 - A[2, 3] * s3,
            ],
            [
                -A[1, 0] * c5 + A[1, 2] * c2 - A[1, 3] * c1,
                A[0, 0] * c5 - A[0, 2] * c2 + A[0, 3] * c1,
                -A[3, 0] * s5 + A[3, 2] * s2 - A[3, 3] * s1,
                A[2, 0] * s5 - A[2, 2] * s2 + A[2, 3] * s1,
            ],
            [
                A[1, 0] * c4 - A[1, 1] * c2 + A[1, 3] * c0,
                -A[0, 0] * c4 + A[0, 1] * c2 - A[0, 3] * c0,
                A[3, 0] * s4 - A[3, 1] * s2 + A[3, 3] * s0,
                -A[2, 0] * s4 + A[2, 1] * s2 - A[2, 3] * s0,
            ],
            [
                -A[1, 0] * c3 + A[1, 1] * c1 - A[1, 2] * c0,
                A[0, 0] * c3 - A[0, 1] * c1 + A[0, 2] * c0,
                -A[3, 0] * s3 + A[3, 1] * s1 - A[3, 2] * s0,
                A[2, 0] * s3 - A[2, 1] * s1 + A[2, 2] * s0,
            ],
        ]
    )
    return adjugate / det


@func
def inverse_by_elimination(A, n: qd.template()):
    """Gauss-Jordan on a copy beside the identity."""
    # Division makes integers default floats and keeps every float type.
    M = A / qd.one(A)
    R = qd.zero(M)
    for i in qd.static(range(n)):
        R[i, i] = 1
    k = 0
    while k < n:
        pivot = k
        i = k + 1
        while i < n:
            if abs(M[i, k]) > abs(M[pivot, k]):
                pivot = i
            i += 1
        if pivot != k:
            for j in qd.static(range(n)):
                m = M[k, j]
                M[k, j] = M[pivot, j]
                M[pivot, j] = m
                r = R[k, j]
                R[k, j] = R[pivot, j]
                R[pivot, j] = r
        inv = qd.one(M[k, k]) / M[k, k]
        for j in qd.static(range(n)):
            M[k, j] = M[k, j] * inv
            R[k, j] = R[k, j] * inv
        i = 0
        while i < n:
            if i != k:
                f = M[i, k]
                for j in qd.static(range(n)):
                    M[i, j] = M[i, j] - f * M[k, j]
                    R[i, j] = R[i, j] - f * R[k, j]
            i += 1
        k += 1
    return R


@func
def inverse(A):
    """Inverse of a square matrix of at most 12 rows; inf or nan if it has none."""
    qd.static_assert(A.n == A.m, "expected a square matrix")
    qd.static_assert(A.n < 13, "only dimension < 13 is supported")
    if qd.static(A.n == 1):
        return qd.one(A) / A
    if qd.static(A.n == 2):
        return inverse2(A)
    if qd.static(A.n == 3):
        return inverse3(A)
    if qd.static(A.n == 4):
        return inverse4(A)
    return inverse_by_elimination(A, A.n)
