"""Vectors and matrices: construction, operators, methods, slices, swizzles, runtime indices."""

import math

import numpy as np
import pytest

import quadrants as qd
from helpers import Array, assert_close, raises

vec2, vec3, vec4 = (qd.types.vector(n, qd.f32) for n in (2, 3, 4))
mat22, mat33 = qd.types.matrix(2, 2, qd.f32), qd.types.matrix(3, 3, qd.f32)
ivec3 = qd.types.vector(3, qd.i32)


def mats(n, m=None, count=50, seed=1, dtype=np.float32, spread=1.0):
    rng = np.random.default_rng(seed)
    shape = (count, n) if m is None else (count, n, m)
    return rng.uniform(-spread, spread, shape).astype(dtype)


def Mat(n, m):
    return qd.types.ndarray(dtype=qd.types.matrix(n, m, qd.f32), ndim=1)


def Vec(n, dt=qd.f32):
    return qd.types.ndarray(dtype=qd.types.vector(n, dt), ndim=1)


def test_construction_in_kernels(backend):
    @qd.kernel
    def k(x: qd.f32, n: qd.i32) -> qd.types.vector(24, qd.f32):
        a = qd.Vector([n, 2, 3])
        b = qd.Vector([1, x, 2.5])
        c = qd.Vector([1.9, x], dt=qd.i32)
        m = qd.Matrix([[1, 2], [n, 4]])
        r = qd.Matrix.rows([a, [7, 8, 9]])
        d = qd.Matrix.diag(2, x)
        e = qd.Matrix.identity(qd.f32, 2)
        u = qd.Vector.unit(3, 1)
        z = qd.Vector.zero(qd.f32, 2) + qd.Vector.one(qd.f32, 2) * 3
        return qd.Vector(
            [a[0], a[1], a[2], b[0], b[1], b[2], c[0], c[1], m[0, 0], m[1, 0], r[0, 2], r[1, 1],
             d[0, 0], d[0, 1], e[1, 1], e[1, 0], u[0], u[1], z[0], z[1], 0, 0, 0, 0]
        )  # fmt: skip

    got = k(5.75, 6).to_list()
    assert got[:20] == [6, 2, 3, 1, 5.75, 2.5, 1, 5, 1, 6, 3, 8, 5.75, 0, 1, 0, 0, 1, 3, 3]


def test_typed_constructors(backend):
    @qd.kernel
    def k(x: qd.f32) -> (vec4, vec4, mat22, ivec3):
        a = vec3(x)
        return (
            vec4(a, 1.0),
            vec4(vec2(1, 2), 3, x),
            mat22(1, 2, 3, x),
            ivec3(1.9, x, -x),
        )

    a, b, m, i = k(4.5)
    assert a.to_list() == [4.5, 4.5, 4.5, 1]
    assert b.to_list() == [1, 2, 3, 4.5]
    assert m.to_list() == [[1, 2], [3, 4.5]]
    assert i.to_list() == [1, 4, -4]


def test_construction_on_the_host():
    v = qd.Vector([1, 2, 3])
    assert (v.n, v.m, v.ndim, len(v)) == (3, 1, 1, 3) and v.to_list() == [1, 2, 3]
    m = qd.Matrix([[1, 2, 3], [4, 5, 6]], dt=qd.f32)
    assert (m.n, m.m, m.ndim) == (2, 3, 2) and m[1, 2] == 6
    assert m.to_numpy().dtype == np.float32
    assert vec3(1.5).to_list() == [1.5] * 3
    assert ivec3([1.9, 2.1, -3.7]).to_list() == [1, 2, -3]
    assert vec4(vec2(1, 2), [3, 4]).to_list() == [1, 2, 3, 4]
    assert qd.Matrix.rows([[1, 2], [3, 4]]).to_list() == [[1, 2], [3, 4]]
    assert qd.Matrix.cols([[1, 2], [3, 4]]).to_list() == [[1, 3], [2, 4]]
    assert qd.Matrix.diag(2, 3).to_list() == [[3, 0], [0, 3]]


def test_operators_on_the_host():
    a, b = qd.Vector([1.0, 2.0]), qd.Vector([3.0, 5.0])
    assert (a + b).to_list() == [4, 7] and (2 * a - b).to_list() == [-1, -1]
    assert (a / 2).to_list() == [0.5, 1] and (b**2).to_list() == [9, 25]
    assert (a < b).all() and (a == a).all() and not (a == b).any()
    m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
    assert (m @ a).to_list() == [5, 11] and (m @ m).to_list() == [[7, 10], [15, 22]]
    assert a.dot(b) == 13 and a.cross(b) == -1 and m.trace() == 5 and m.sum() == 10
    assert m.transpose().to_list() == [[1, 3], [2, 4]]
    assert_close(m.inverse().to_numpy(), [[-2, 1], [1.5, -0.5]], atol=1e-6)
    assert abs(qd.Vector([3.0, 4.0]).norm() - 5) < 1e-6
    assert a.max() == 2 and a.min() == 1 and a.norm_sqr() == 5
    assert a.outer_product(b).to_list() == [[3, 5], [6, 10]]


def test_host_swizzles():
    v = qd.Vector([1, 2, 3])
    assert v.x == 1 and v.zyx.to_list() == [3, 2, 1] and v.rg.to_list() == [1, 2]
    v.xy = [7, 8]
    v.b = 9
    assert v.to_list() == [7, 8, 9]
    with raises(qd.QuadrantsSyntaxError, "vec2 only has attributes=('x', 'y'), got=('z',)"):
        qd.Vector([1, 2]).z


def test_elementwise_operators(backend):
    a, b = mats(3, seed=1, spread=5), mats(3, seed=2, spread=5)
    b = np.where(np.abs(b) < 0.1, 1, b).astype(np.float32)
    out = np.zeros((10, 50, 3), np.float32)

    @qd.kernel
    def k(a: Vec(3), b: Vec(3), out: qd.types.ndarray(dtype=vec3, ndim=2)):
        for i in range(a.shape[0]):
            out[0, i] = a[i] + b[i]
            out[1, i] = a[i] - b[i] * 2
            out[2, i] = a[i] / b[i]
            out[3, i] = -a[i]
            out[4, i] = abs(a[i])
            out[5, i] = qd.max(a[i], b[i])
            out[6, i] = 1.0 - a[i]
            out[7, i] = qd.select(a[i] > b[i], a[i], b[i])
            out[8, i] = a[i] * [1, 2, 3] + (0.5, 1.5, 2.5)
            out[9, i] = qd.floor(a[i]) + qd.cast(a[i], qd.i32)

    k(a, b, out)
    e = [a + b, a - b * 2, a / b, -a, np.abs(a), np.maximum(a, b), 1 - a, np.maximum(a, b),
         a * np.float32([1, 2, 3]) + np.float32([0.5, 1.5, 2.5]),
         np.floor(a) + np.trunc(a)]  # fmt: skip
    assert_close(out, np.stack(e), rtol=1e-6, atol=1e-6)


def test_integer_vector_operators(backend):
    out = np.zeros((9, 3), np.int32)

    @qd.kernel
    def k(n: qd.i32, out: Vec(3, qd.i32)):
        a = qd.Vector([7, -7, n])
        b = qd.Vector([2, 3, 4])
        out[0] = a // b
        out[1] = a % b
        out[2] = a & b
        out[3] = a | b
        out[4] = a ^ b
        out[5] = a << b
        out[6] = a >> 1
        out[7] = ~a
        out[8] = (a > b) & (b < 4)

    k(13, out)
    a, b = np.array([7, -7, 13]), np.array([2, 3, 4])
    e = [a // b, a % b, a & b, a | b, a ^ b, a << b, a >> 1, ~a, (a > b) & (b < 4)]
    assert_close(out, np.stack(e).astype(np.int32))


def test_augmented_assignment_of_vectors(backend):
    f = qd.Vector.field(2, qd.f32, 3)

    @qd.kernel
    def k():
        for i in f:
            f[i] += [1, 2]
            f[i] *= 3
            f[i] -= qd.Vector([1.0, 0.5])
            f[i][0] += 10
            f[i] /= 2

    k()
    assert f.to_numpy().tolist() == [[6, 2.75]] * 3


@pytest.mark.parametrize(
    "n,m,p", [(2, 2, 2), (3, 3, 3), (2, 3, 4), (4, 4, 1), (1, 5, 2), (6, 6, 6)]
)
def test_matmul(backend, n, m, p):
    a, b = mats(n, m), mats(m, p, seed=2)
    v, w = mats(m, seed=3), mats(n, seed=4)
    out = np.zeros((50, n, p), np.float32)
    mv, vm = np.zeros((50, n), np.float32), np.zeros((50, m), np.float32)

    @qd.kernel
    def k(a: Mat(n, m), b: Mat(m, p), v: Vec(m), w: Vec(n), out: Mat(n, p), mv: Vec(n), vm: Vec(m)):
        for i in range(a.shape[0]):
            out[i] = a[i] @ b[i]
            mv[i] = a[i] @ v[i]
            vm[i] = w[i] @ a[i]

    k(a, b, v, w, out, mv, vm)
    assert_close(out, a @ b, atol=1e-5)
    assert_close(mv, np.einsum("cij,cj->ci", a, v), atol=1e-5)
    assert_close(vm, np.einsum("ci,cij->cj", w, a), atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_determinant_and_inverse(backend, n):
    a = mats(n, n) + np.eye(n, dtype=np.float32) * 2
    det, inv = np.zeros(50, np.float32), np.zeros_like(a)

    @qd.kernel
    def k(a: Mat(n, n), det: Array, inv: Mat(n, n)):
        for i in range(a.shape[0]):
            det[i] = a[i].determinant()
            inv[i] = a[i].inverse()

    k(a, det, inv)
    assert_close(det, np.linalg.det(a.astype(np.float64)), rtol=1e-4, atol=1e-4)
    assert_close(inv, np.linalg.inv(a.astype(np.float64)), rtol=2e-4, atol=2e-4)


def test_inverse_of_larger_matrices(backend):
    n = 6
    a = mats(n, n, count=5, dtype=np.float64) + np.eye(n) * 3
    inv = np.zeros_like(a)
    M = qd.types.ndarray(dtype=qd.types.matrix(n, n, qd.f64), ndim=1)

    @qd.kernel
    def k(a: M, inv: M):
        for i in range(a.shape[0]):
            inv[i] = a[i].inverse()

    k(a, inv)
    assert_close(inv, np.linalg.inv(a), rtol=1e-9, atol=1e-10)


def test_methods(backend):
    a, b = mats(3, seed=5), mats(3, seed=6)
    out = np.zeros((12, 50), np.float32)
    cross, outer, unit = np.zeros_like(a), np.zeros((50, 3, 3), np.float32), np.zeros_like(a)

    @qd.kernel
    def k(a: Vec(3), b: Vec(3), out: Array, cross: Vec(3), outer: Mat(3, 3), unit: Vec(3)):
        for i in range(a.shape[0]):
            out[0, i] = a[i].dot(b[i])
            out[1, i] = a[i].norm()
            out[2, i] = a[i].norm_sqr()
            out[3, i] = a[i].norm_inv()
            out[4, i] = a[i].sum()
            out[5, i] = a[i].max()
            out[6, i] = a[i].min()
            out[7, i] = (a[i] > 0).any()
            out[8, i] = (a[i] > 0).all()
            m = a[i].outer_product(b[i])
            out[9, i] = m.trace() + m.transpose()[0, 1] - m[1, 0]
            out[10, i] = m.frobenius_inner(m)
            out[11, i] = a[i].norm(0.5) + a[i].xy.cross(b[i].xy)
            cross[i] = a[i].cross(b[i])
            outer[i] = m
            unit[i] = a[i].normalized()

    k(a, b, out, cross, outer, unit)
    norm = np.linalg.norm(a, axis=1)
    m = a[:, :, None] * b[:, None, :]
    e = [(a * b).sum(1), norm, norm**2, 1 / norm, a.sum(1), a.max(1), a.min(1),
         (a > 0).any(1), (a > 0).all(1), np.trace(m, axis1=1, axis2=2), (m * m).sum((1, 2)),
         np.sqrt(norm**2 + 0.5) + a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]]  # fmt: skip
    assert_close(out, np.stack(e).astype(np.float32), rtol=2e-5, atol=2e-6)
    assert_close(cross, np.cross(a, b), atol=1e-6)
    assert_close(outer, m, atol=1e-6)
    assert_close(unit, a / norm[:, None], rtol=1e-5, atol=1e-6)


def test_builtins_on_vectors(backend):
    @qd.kernel
    def k() -> qd.types.vector(6, qd.f32):
        v = qd.Vector([3, 1, 2])
        w = qd.Vector([0.5, -1.5, 2.0])
        return qd.Vector([len(v), any(v > 2), all(v > 2), abs(w).sum(), qd.max(*v), v.n])

    assert k().to_list() == [3, 1, 0, 4, 3, 3]


def test_runtime_indices(backend):
    out = np.zeros((4, 9), np.int32)
    f = qd.Matrix.field(3, 3, qd.i32, 2)

    @qd.kernel
    def k(out: Array):
        for i in range(9):
            m = qd.Matrix([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
            m[i // 3, i % 3] += 100
            out[0, i] = m[i // 3, i % 3]
            v = qd.Vector([0, 0, 0])
            v[i % 3] = i
            out[1, i] = v[0] * 100 + v[1] * 10 + v[2]
            out[2, i] = m[qd.Vector([i % 3, i // 3])]
            f[1][i // 3, i % 3] = i
        for i in range(9):
            out[3, i] = f[1][i % 3, i // 3]

    k(out)
    assert out[0].tolist() == [101 + i for i in range(9)]
    assert out[1].tolist() == [i * 10 ** (2 - i % 3) for i in range(9)]
    m = np.arange(1, 10).reshape(3, 3)
    assert out[2].tolist() == [m[i % 3, i // 3] + 100 * (i % 4 == 0) for i in range(9)]
    assert out[3].tolist() == [(i % 3) * 3 + i // 3 for i in range(9)]


def test_slices(backend):
    out = np.zeros((8, 3), np.int32)

    @qd.kernel
    def k(j: qd.i32, out: Vec(3, qd.i32)):
        v = qd.Vector([0, 1, 2, 3, 4, 5])
        m = qd.Matrix([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
        out[0] = v[1:4]
        out[1] = v[::2]
        out[2] = v[4:1:-1]
        out[3] = m[:, j]
        out[4] = m[j, :]
        v[:3] = [7, 8, 9]
        v[3:] += [1, 1, 1]
        out[5] = v[:3]
        out[6] = v[3:]
        s = m[1:, :2]
        out[7] = [s[0, 0], s[1, 1], s.n * 10 + s.m]

    @qd.kernel
    def store(out: Vec(3, qd.i32)):
        m = qd.Matrix([[0, 0, 0], [0, 0, 0], [0, 0, 0]])
        m[1, :] = [1, 2, 3]
        m[:, 2] = [9, 8, 7]
        for i in qd.static(range(3)):
            out[i] = m[i, :]

    k(1, out)
    assert out.tolist() == [[1, 2, 3], [0, 2, 4], [4, 3, 2], [2, 5, 8], [4, 5, 6], [7, 8, 9],
                            [4, 5, 6], [4, 8, 22]]  # fmt: skip
    store(out)
    assert out[:3].tolist() == [[0, 0, 9], [1, 2, 8], [0, 0, 7]]


def test_swizzles(backend):
    out = np.zeros((6, 4), np.int32)

    @qd.kernel
    def k(out: Vec(4, qd.i32)):
        v = qd.Vector([1, 2, 3, 4])
        out[0] = v.wzyx
        out[1] = v.xxyy
        v.xy = [10, 20]
        v.a = 40
        out[2] = v
        v.yx += [1, 2]
        out[3] = v
        out[4].xz = v.rg
        w = v.zw
        out[5] = [w.x, w.y, v.stp.sum(), v.w]

    k(out)
    assert out.tolist() == [[4, 3, 2, 1], [1, 1, 2, 2], [10, 20, 3, 40], [12, 21, 3, 40],
                            [12, 0, 21, 0], [3, 40, 36, 40]]  # fmt: skip


def test_values_are_copied(backend):
    @qd.kernel
    def k() -> ivec3:
        a = qd.Vector([1, 2, 3])
        b = a
        b[0] = 100
        a[1] = 50
        return qd.Vector([a[0], a[1], b[0]])

    assert k().to_list() == [1, 50, 100]


def test_broadcast_fill_and_cast(backend):
    f = qd.Vector.field(3, qd.f32, 4)

    @qd.kernel
    def k() -> ivec3:
        v = qd.Vector([0.0, 0.0, 0.0])
        v = 2.5
        w = qd.Vector([1.0, 2.0, 3.0])
        w.fill(7)
        for i in range(4):
            f[i].fill(i)
        return v.cast(qd.i32) + int(w)

    assert k().to_list() == [9, 9, 9]
    assert f.to_numpy()[:, 0].tolist() == [0, 1, 2, 3]


def test_zero_and_one_of_a_value(backend):
    @qd.kernel
    def k() -> mat22:
        m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        return qd.one(m) * 5 + qd.zero(m)

    assert k().to_list() == [[5, 5], [5, 5]]


def test_unpacking_and_comprehension(backend):
    @qd.kernel
    def k() -> qd.i32:
        a, b, c = qd.Vector([1, 2, 3])
        s = [x * 2 for x in qd.Vector([a, b, c])]
        return s[0] + s[1] * 10 + s[2] * 100

    assert k() == 642

    @qd.kernel
    def same_name(i: qd.i32) -> qd.i32:
        n = 5
        s = [i * 10 + n for i in qd.static(range(2)) for n in qd.static(range(i, 3))]
        return s[0] + s[4] + i * 100 + n * 1000

    assert same_name(7) == 0 + 12 + 700 + 5000


def test_long_matmul_chain(backend):
    a, b = mats(9, 12, count=3), mats(12, 12, count=3, seed=9)
    out = np.zeros((3, 9, 9), np.float32)

    @qd.kernel
    def k(a: Mat(9, 12), b: Mat(12, 12), out: Mat(9, 9)):
        for i in range(3):
            out[i] = a[i] @ b[i] @ a[i].transpose()

    k(a, b, out)
    assert_close(out, a @ b @ a.transpose(0, 2, 1), atol=5e-4)


def recompose(u, s, v):
    return u @ s @ v.transpose(0, 2, 1)


@pytest.mark.parametrize("n", [2, 3])
def test_svd_and_polar(backend, n):
    a = mats(n, n, count=30)
    a[0] = np.eye(n)
    u, s, v, r, p = (np.zeros_like(a) for _ in range(5))

    @qd.kernel
    def k(a: Mat(n, n), u: Mat(n, n), s: Mat(n, n), v: Mat(n, n), r: Mat(n, n), p: Mat(n, n)):
        for i in range(a.shape[0]):
            u[i], s[i], v[i] = qd.svd(a[i])
            r[i], p[i] = qd.polar_decompose(a[i])

    k(a, u, s, v, r, p)
    eye = np.broadcast_to(np.eye(n), a.shape)
    assert_close(recompose(u, s, v), a, atol=5e-5)
    for q in (u, v, r):
        assert_close(q @ q.transpose(0, 2, 1), eye, atol=5e-5)
    assert_close(r @ p, a, atol=5e-5)
    assert_close(p, p.transpose(0, 2, 1), atol=5e-5)
    sigma = s[:, range(n), range(n)]
    assert_close(s - sigma[:, :, None] * eye, np.zeros_like(a), atol=0.0)
    assert (np.diff(np.abs(sigma), axis=1) <= 1e-5).all()
    if n == 3:
        assert_close(np.linalg.det(u), np.ones(30), atol=5e-5)
        assert_close(np.linalg.det(v), np.ones(30), atol=5e-5)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_sym_eig(backend, n):
    a = mats(n, n, count=20)
    a = (a + a.transpose(0, 2, 1)) / 2
    a[0] = np.eye(n) * 2
    a[1] = 0
    w, q = np.zeros((20, n), np.float32), np.zeros_like(a)

    @qd.kernel
    def k(a: Mat(n, n), w: Vec(n), q: Mat(n, n)):
        for i in range(a.shape[0]):
            w[i], q[i] = qd.sym_eig(a[i])

    k(a, w, q)
    tolerance = 1e-5 * 5 if n < 4 else 5e-3
    assert_close(w, np.linalg.eigvalsh(a), atol=tolerance)
    assert_close(q @ (w[:, :, None] * q.transpose(0, 2, 1)), a, atol=tolerance)
    assert_close(q @ q.transpose(0, 2, 1), np.broadcast_to(np.eye(n), a.shape), atol=tolerance)


def test_eig_of_rotation_like_matrices(backend):
    @qd.kernel
    def k(m: mat22) -> qd.types.matrix(2, 2, qd.f32):
        w, v = qd.eig(m)
        return w

    w = np.array(k(qd.Matrix([[0.0, -2.0], [2.0, 0.0]])).to_list())
    assert_close(w[np.argsort(w[:, 1])], [[0, -2], [0, 2]], atol=1e-5)
    w = np.array(k(qd.Matrix([[2.0, 1.0], [0.0, 3.0]])).to_list())
    assert_close(w[np.argsort(w[:, 0])], [[2, 0], [3, 0]], atol=1e-5)


@pytest.mark.parametrize("n", [2, 3])
def test_solve(backend, n):
    a, b = mats(n, n) + 2 * np.eye(n, dtype=np.float32), mats(n, seed=3)
    x = np.zeros_like(b)

    @qd.kernel
    def k(a: Mat(n, n), b: Vec(n), x: Vec(n)):
        for i in range(a.shape[0]):
            x[i] = qd.solve(a[i], b[i])

    k(a, b, x)
    assert_close(np.einsum("cij,cj->ci", a, x), b, atol=2e-5)


Syntax, Type = qd.QuadrantsSyntaxError, qd.QuadrantsTypeError
Compilation = qd.QuadrantsCompilationError
MISUSE = {}


def snippet(cls, text):
    def add(fn):
        MISUSE[fn.__name__] = (qd.kernel(fn), cls, text)
        return fn

    return add


@snippet(Type, "unsupported operand type(s) for '+': '[Tensor (3) i32]' and '[Tensor (2) i32]'")
def add_shapes(n: qd.i32):
    a = qd.Vector([n, 1, 2]) + qd.Vector([n, 2])


@snippet(Type, "cannot assign '[Tensor (3) i32]' to '[Tensor (4) i32]'")
def assign_shape(n: qd.i32):
    a = qd.Vector([n, 1, 2, 3])
    a = qd.Vector([n, 1, 2])


@snippet(Compilation, "dimension mismatch between (2, 2) and (1, 3) for matrix multiplication")
def matmul_shapes(n: qd.i32):
    a = qd.Matrix([[n, 1], [2, 3]]) @ qd.Matrix([[n, 1, 2]])


@snippet(Compilation, "Expected 2 indices, got 1")
def index_count(n: qd.i32):
    a = qd.Matrix([[n, 1], [2, 3]])
    b = a[0]


@snippet(Type, "indices must be integers")
def float_index(n: qd.i32):
    a = qd.Vector([n, 1])
    b = a[0.5]


@snippet(Syntax, "Negative indices are not supported in Quadrants kernels.")
def negative_index(n: qd.i32):
    a = qd.Vector([n, 1])
    b = a[-1]


@snippet(Compilation, "Quadrants does not support variables in slice now")
def runtime_slice(n: qd.i32):
    a = qd.Vector([n, 1, 2])
    b = a[n:]


@snippet(Syntax, "vec2 only has attributes=('x', 'y'), got=('z',)")
def bad_swizzle(n: qd.i32):
    a = qd.Vector([n, 1])
    b = a.z


@snippet(Compilation, "expected a square matrix, got shape (3, 2)")
def trace_of_rectangle(n: qd.i32):
    a = qd.Matrix([[n, 1], [2, 3], [4, 5]]).trace()


@snippet(Compilation, "only dimension < 5 is supported")
def big_determinant(n: qd.i32):
    a = qd.Matrix.identity(qd.f32, 5).determinant()


@snippet(Compilation, "only dimension < 13")
def big_inverse(n: qd.i32):
    a = qd.Matrix.identity(qd.f32, 13).inverse()


@snippet(Compilation, "outer_product")
def transpose_of_vector(n: qd.i32):
    a = qd.Vector([n, 1]).transpose()


@snippet(Compilation, "only dimension < 4 is supported")
def cross_of_four(n: qd.i32):
    a = qd.Vector([n, 1, 2, 3]).cross(qd.Vector([n, 1, 2, 3]))


@snippet(Type, "conditions must be an integer")
def vector_condition(n: qd.i32):
    if qd.Vector([n, 1]) > 0:
        pass


@snippet(Syntax, "qd.select")
def vector_conditional(n: qd.i32):
    a = 1 if qd.Vector([n, 1]) > 0 else 2


CAPTURED = qd.Vector([0, 0, 0])


@snippet(Syntax, "qd.select")
def captured_vector_conditional(n: qd.i32):
    a = 1 if CAPTURED else 2


@snippet(Syntax, "neither true nor false")
def static_vector_condition(n: qd.i32):
    if qd.static(CAPTURED):
        pass


@snippet(Type, "Element type of the matrix is invalid.")
def string_element(n: qd.i32):
    a = qd.Vector([n, "a"])


@snippet(Compilation, "SVD only supports 2")
def big_svd(n: qd.i32):
    u, s, v = qd.svd(qd.Matrix.identity(qd.f32, 4))


@snippet(Syntax, "need to be created with an initial value")
def empty_typed_constructor(n: qd.i32):
    a = vec3()


@pytest.mark.parametrize("name", MISUSE)
def test_misuse(backend, name):
    kernel, cls, text = MISUSE[name]
    with raises(cls, text):
        kernel(1)


def test_lists_beside_vectors_combine_by_element(backend):
    @qd.kernel
    def k() -> qd.types.matrix(4, 4, qd.i32):
        v = qd.Vector([2, 0, 4, 0])
        a = [0, 1, 0, 3] or v
        b = (0, 0, 0, 0) or v * 1
        c = [0, 1, 0, 3] and v
        d = v or [0, 1, 0, 3]
        return qd.Matrix.rows([a, b, c, d])

    assert k().to_list() == [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]


def test_misuse_on_the_host():
    with raises(Type, "can only be initialized with an array-like object"):
        qd.Vector(3)
    with raises(Exception, "cols/rows required when using list of vectors"):
        qd.Matrix([qd.Vector([1, 2]), qd.Vector([3, 4])])
    with raises(AssertionError, "Expected 2 indices, got 1"):
        qd.Matrix([[1, 2], [3, 4]])[0]
    with pytest.warns(UserWarning, match="> 144 entries are not suggested"):
        qd.Matrix(np.zeros((13, 13)))
    with raises(AssertionError, "cannot be called in Python-scope"):
        qd.Vector.zero(qd.f32, 3)


def test_components_of_a_field(backend):
    f = qd.Matrix.field(2, 3, qd.f32, shape=2)
    f[1] = [[1, 2, 3], [4, 5, 6]]
    assert f.get_scalar_field(1, 2)[1] == 6
    for wrong in (6, 7), (2, 0):
        with pytest.raises(IndexError):
            f.get_scalar_field(*wrong)
    g = qd.field(qd.f32, 2)  # the mistake leaves the runtime usable
    g[0] = f.get_scalar_field(0, 1)[1]
    assert g[0] == 2


@pytest.mark.parametrize("value", ["3", "[[1, 2], [3, 4]]"])
def test_returned_rank(backend, tmp_path, value):
    path = tmp_path / "rank.py"
    path.write_text(
        "import quadrants as qd\n@qd.kernel\ndef k() -> qd.types.vector(2, qd.f32):\n"
        f"    return {value}\n"
    )
    space = {"__name__": "rank"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    with raises(Compilation, "Return matrix ndim mismatch"):
        space["k"]()


def test_products_of_singular_matrices_cancel(backend):
    m, out = qd.Matrix.field(2, 2, qd.f32, ()), qd.field(qd.f32, 3)

    @qd.kernel
    def run():
        for _ in range(1):
            out[0] = m[None].determinant()
            out[1] = m[None].inverse()[0, 0]
            v = qd.Vector([m[None][0, 0], m[None][1, 0], 0.1])
            out[2] = v.cross(v * 3.0).norm()

    m[None] = [[1.1, 1.1], [2.3, 2.3]]
    run()
    assert out[0] == 0 and np.isinf(out[1])


PRIMES = qd.Vector([73856093, 19349663, 83492791])
SMALL_AND_LARGE = qd.Vector([0.1, 1e8])
COUNTS = qd.Matrix([[1, 2], [3, 4]])
BEYOND = qd.Vector([2**40, 5], dt=qd.i64)


@qd.func
def sum_below(n: qd.template()):
    s = 0
    for i in qd.static(range(n)):
        s += i
    return s


def test_elements_of_captured_matrices_are_numbers_of_the_kernel(backend):
    """They wrap and round as the default types do, and are known where Python asks."""
    backend.init(fast_math=False)
    hashed, rounded, wide = qd.field(qd.i32, 3), qd.field(qd.f64, 4), qd.field(qd.i64, 1)

    @qd.kernel
    def k() -> qd.i32:
        for i in range(3):
            hashed[i] = (PRIMES[0] * 37) ^ (PRIMES[1] * i) ^ (PRIMES.z << 4)
        for i in range(1):
            rounded[0] = (SMALL_AND_LARGE[0] + SMALL_AND_LARGE[1]) - SMALL_AND_LARGE[1]
            rounded[1] = SMALL_AND_LARGE.x / 3
            rounded[2] = SMALL_AND_LARGE[0]
            rounded[3] = max(SMALL_AND_LARGE[0], 0) + qd.sqrt(SMALL_AND_LARGE[1])
            wide[i] = qd.i64(BEYOND[0]) + BEYOND[1] + COUNTS.m
        s = sum_below(n=COUNTS[1, 1]) + math.isqrt(COUNTS[1, 1])
        for i in qd.static(range(COUNTS[1, 0])):
            s += i * 10
        if qd.static(COUNTS[0, 0] == 1):
            s += 100
        for i in range(COUNTS[0, 1]):
            s += 1000
        return s

    assert k() == 6 + 2 + 30 + 100 + 2000

    def wrap(x):
        return (x + 2**31) % 2**32 - 2**31

    expected = [wrap(73856093 * 37) ^ wrap(19349663 * i) ^ wrap(83492791 << 4) for i in range(3)]
    assert hashed.to_numpy().tolist() == expected
    assert wide[0] == 2**40 + 7
    f = np.float32
    assert rounded.to_numpy()[:3].tolist() == [0.0, f(0.1) / f(3), f(0.1)]
    np.testing.assert_allclose(rounded[3], 1e4 + 0.1, rtol=1e-6)
