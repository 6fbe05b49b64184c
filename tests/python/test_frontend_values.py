"""Scalars, vectors and matrices in kernels: one row is a program text and what it yields.

A row's statements end with the expression that is returned as f64. In `AS_PYTHON` the same text
runs as Python and gives the expectation. Every group is one generated file with one kernel a row.
"""

import numpy as np
import pytest

import quadrants as qd
from helpers import module_at

ARGUMENTS = dict(i=3, j=-2, x=1.5, y=2.5)

AS_PYTHON = [
    # rounding and signs
    "7 // j", "7 % j", "7 / j", "-7.5 // i", "i % y", "x // 1", "abs(j)",
    "int(y)", "int(-y)", "bool(x) + 1", "max(1, x, 2.5, -3)", "min(i, x)",
    # powers
    "2 ** i", "i ** 3", "x ** i", "x ** -2", "2 ** x", "i ** 0", "(-x) ** 3", "pow(x, 2)",
    # bits and comparisons
    "i >> 1", "i << 2", "-40 >> i", "~i", "(i > 3) + (i > 2) * 2", "1 < i < 5",
    "i and j", "i or j", "0 or j", "i == 3 and j != 7",
    # containers, known while tracing
    "l = [i, i + 1]; k = l + [7]; len(k) * 100 + k[2]", "t = (i, 2.5); t[1]",
    "d = {'x': i}; d['x']", "v = [k * i for k in range(4)]; sum(v)", "min([i, i + 1])",
    "max(x, [i][0])", "s = 0\nfor k in range(i):\n    s += k * i\ns",
    "(i, j) if False else i", "x if i > 2 else y", "a = b = i; a += 1; a * 10 + b",
]  # fmt: skip

VECTOR = "v = qd.Vector([1.0, 2.0, 3.0, 4.0])\n"
MATRIX = "m = qd.Matrix([[1, 2, 3], [4, 5, 6], [7, 8, 9]])\n"
WIDE = "w = qd.Vector([1, 2, 3, 4, 5])\n"

TABLE = {
    "promotion": ("", [
        ("qd.i8(100) + qd.u8(200)", 44),
        ("qd.i8(100) + qd.i8(100)", -56),
        ("qd.i64(5) * qd.i8(100)", 500),
        ("qd.u32(1) - qd.u32(2)", 2**32 - 1),
        ("qd.i32(-1) + qd.u32(0)", 2**32 - 1),
        ("qd.u8(200) + qd.u8(100)", 44),
        ("sum([qd.u8(200), qd.u8(100)])", 300),  # Python's begins with 0, an int
        ("sum([qd.u8(200), qd.u8(100)], qd.u8(1))", 45),
        ("sum([i, 2], 10) + sum([i, 2], start=i)", 23),
        ("qd.u8(300 - 45) + qd.u8(1)", 0),
        ("qd.max(qd.i32(-1), qd.u32(5))", 2**32 - 1),
        ("-qd.u32(1)", 2**32 - 1),
        ("qd.f64(1.0) / 3", 1 / 3),
        ("qd.f32(1.0) / 3", float(np.float32(1) / np.float32(3))),
        ("qd.i64(10) ** 12", 10**12),
        ("(qd.i64(1) << 40) + i", 2**40 + 3),
        ("d: qd.f64 = 0.1; d", 0.1),
        ("qd.cast(-y, qd.i32)", -2),
        ("qd.cast(qd.Vector([1.5, 2.5]), qd.i32).sum()", 3),
    ]),
    "the side that a known condition leaves out": ("", [
        ("v = x if False else 0; v += 0.75; v", 0.75),
        ("v = i if True else x; v += 0.75; v", 3.75),
        ("(qd.u8(200) if True else i) - qd.u8(250)", -50),
        ("v = qd.Vector([0, 0]) if True else qd.Vector([0.5, 0.5]); v += 0.5; v[1]", 0.5),
        ("v = 2 if True else qd.Vector([0.5, 0.5]); v[1] + v[0] / 4", 2.5),
        ("v = 1 if True else 2.5; v / 4 + v // 2", 0.25),
        ("l = [1]; v = 2 if True else l.append(i); v + len(l) * 10", 22),
        ("v = i if True else (i, j); v", 3),
        ("v = (i if False else 1.5) if False else True; v += 0.75; v", 1.75),
        ("v = 1 if True else (1 if True else x); v += 0.75; v", 1.75),
        ("v = (2 if True else qd.i64(i)) if True else 0; v * 65536 * 65536", 2**33),
    ]),
    "and, or with a known left side": ("", [
        ("(65536 and qd.i16(i * 100)) ** 3", 27e6), ("-(1 and qd.i8(-128))", 128),
        ("(2 or qd.i64(j)) * 65536 * (i * 65536)", 6 * 2**32),
        ("((0 and qd.i64(j)) + i * 65536) * 65536", 3 * 2**32),
        ("((0 or 1 or qd.i64(j)) + i) * 65536 * 65536", 4 * 2**32),
        ("(True and qd.u8(i)) - qd.u8(4)", 255), ("(False or i > 2) + qd.i32(1)", 2),
        ("False or qd.cast(j, qd.i8) or 4", -2), ("True and qd.cast(j, qd.i8) and i", 3),
        ("qd.cast(j, qd.i8) or False or i", -2),
        ("v = 1 or i; v += 7; v", 8), ("(True and i > 2) == 1", 1), ("(False and i > 2) + 1", 1),
        ("(1 or (2 if True else qd.i64(j))) * 65536 * 65536", 2**32),
        ("(1 or (2 or qd.i64(j))) * 65536 * 65536", 2**32),
    ]),
    "rounding": ("", [
        ("qd.round(y)", 3), ("qd.round(-y)", -3), ("round(y + 1)", 4), ("qd.floor(y)", 2),
        ("qd.ceil(y)", 3), ("qd.floor(y * 3, int)", 7), ("qd.raw_div(7, j)", -3),
        ("qd.raw_mod(-7, i)", -1), ("qd.raw_div(y, 2.0)", 1.25), ("qd.cast(y * 1e12, qd.i32)", -(2**31)),
    ]),
    "rounding of compile-time numbers": ("", [
        ("qd.floor(3) << 2", 12), ("qd.ceil(-3) // 2", -2), ("qd.round(0) | 5", 5),
        ("qd.floor(True) << 3", 8), ("qd.ceil(NUMPY_TWO) | 1", 3), ("qd.math.round(NUMPY_TRUE) << 1", 2),
        ("v = qd.Vector([1.0, 2.0, 4.0]); v[qd.floor(2)]", 4), ("qd.floor(3) / 2", 1.5),
        ("n = qd.floor(3); n = 2.7; n", 2), ("qd.static(qd.floor(3) << 1)", 6),
        ("s = 0\nfor k in range(qd.ceil(3)):\n    s += k\ns", 3), ("(qd.floor(7) + i) // 4", 2),
        ("qd.floor(7, qd.f32) // 2.0", 3), ("qd.ceil(7, dtype=qd.i64) << 33", 7 * 2**33), ("qd.round(7, float) / 2", 3.5),
        ("qd.floor(2.5) / 4", 0.5), ("qd.round(2.5)", 3), ("qd.round(-2.5, int) | 0", -3),
    ]),
    "bits": ("", [
        ("qd.math.popcnt(i + 37)", 2), ("qd.math.clz(i + 37)", 26), ("qd.math.ffs(i + 37)", 4),
        ("qd.math.ffs(i * 0)", 0), ("qd.bit_shr(-(i + 37), 28)", 15), ("qd.bit_shr(-8, 1)", -4), ("qd.bit_cast(x, qd.i32)", 0x3FC00000),
        ("qd.cast(qd.math.fns(qd.u32(0b1010), qd.u32(0), 1), qd.i32)", 1),
    ]),
    "choices": ("", [
        ("qd.select(i, x, 0)", 1.5),
        ("qd.select(qd.Vector([1, 0]), qd.Vector([x, x]), 2).sum()", 3.5),
        ("qd.select(i > 0, qd.Vector([1.0, 2.0]), 0).sum()", 3),
        ("v = qd.Vector([1.0, 2.0]) if j > 0 else qd.Vector([3.0, 4.0]); v.sum()", 7),
        ("qd.zero(x) + qd.one(i)", 1),
        ("qd.math.sign(-x)", -1),
    ]),
    "logic of vectors": ("a = qd.Vector([i, j, 0]); b = qd.Vector([1, 0, 1])\n", [
        ("(a and b).sum()", 1), ("(a or b).sum()", 3), ("any(a)", 1), ("all(a)", 0),
        ("(0 and a).sum() + (False and a).n", 3), ("(True or a).sum()", 3), ("(0 and i and a).n", 3),
        ("(1 or qd.Vector([1, 0])).sum()", 2), ("(False or True or a).sum()", 3),
        ("(2 and a).sum()", 2), ("(0 or a).sum()", 2), ("(i and a).sum()", 2), ("(i or a).sum()", 3),
        ("n = 0; (n and a).sum() + 10 * (n or a).sum()", 20), ("(a and 2).sum() + (a or 0).sum()", 4),
        ("(a > 0).any()", 1), ("(a > 0).all()", 0), ("qd.cast(a < b, qd.i32).sum()", 2), ("(a == a)[0]", 1),
        ("(not qd.Vector([0, 1]))[0]", 1), ("any([i, j])", 1), ("([8, 16, 32] | a).sum()", 41),
    ]),
    "vector methods": ("v = qd.Vector([1.0, 2.0, 3.0]); w = qd.Vector([4, 5, 6])\n", [
        ("v.dot(w)", 32), ("v.cross(w).x + v.cross(w).y * 10 + v.cross(w).z * 100", -3 + 60 - 300),
        ("v.norm_sqr()", 14), ("v.norm() ** 2", 14), ("v.max() * 10 + w.min()", 34),
        ("v.normalized().norm()", 1), ("v.norm_inv() ** -2", 14), ("v.n * 10 + len(v)", 33),
        ("v.outer_product(w).sum()", 90), ("qd.Vector([i, 2]).cross(qd.Vector([1, x]))", 2.5),
        ("v.norm(2.0) ** 2", 16), ("qd.Vector([1.7, 2.0], dt=qd.i32)[0]", 1),
    ]),
    "elementwise": ("a = qd.Vector([x, 2.0, 3.0])\n", [
        ("a = a * 2 + 1; a -= [1, 1, 1]; a /= 2; a **= 2; a.sum()", 15.25),
        ("(qd.Vector([5, 7]) // 2).sum() * 10 + (qd.Vector([5, 7]) % 3).sum()", 53),
        ("abs(-a).z", 3), ("qd.max(a, 2.5).sum()", 8), ("qd.floor(a / 2).sum()", 2),
        ("qd.sqrt(a * a).sum()", 6.5), ("(~qd.Vector([1, 2])).x", -2),
        ("(qd.Vector([1, 2]) << 2).y", 8), ("(1 / a).y", 0.5), ("(2 ** qd.Vector([1, 2])).y", 4),
    ]),
    "swizzles": (VECTOR, [
        ("v.xy = v.yx; v.x * 10 + v.y", 21),
        ("v.zx += [10, 20]; v.x * 100 + v.z", 2113),
        ("v.rgb *= 2; v.sum()", 16),
        ("v.xx = [7, 8]; v.x", 8),
        ("v.wzyx[0] * 10 + v.stp.sum()", 46),
        ("v.xyz = 0; v.sum()", 4),
        ("v[1:3] = [0, 1]; v.sum()", 6),
        ("v.x = 10; v[0] + v[i]", 14),
    ]),
    "slices of vectors": (WIDE, [
        ("w[::2] *= 10; w.sum()", 96), ("w[3:].sum()", 9), ("w[:2] = w[2:4]; w[0]", 3),
        ("u = w[4:1:-1]; u[0] * 10 + u.n", 53), ("w[1:5:2].sum()", 6),
    ]),
    "slices of matrices": (MATRIX, [
        ("a = m[:2, 1:]; a[0, 0] * 10 + a[1, 1]", 26),
        ("b = m[:, i - 1]; b[0] * 10 + b[2]", 39),
        ("m[1, :].sum()", 15),
        ("m[0, :] = [0, 0, 0]; m.sum()", 39),
        ("m[1:, 1:] += 1; m[1, 1] * 100 + m[2, 2]", 610),
        ("m[:, 0] = m[:, 1]; m[2, 0]", 8),
        ("r = m[0, :]; r[0] = 55; m[0, 0]", 1),
        ("m[1, :] += m[0, :]; m[1, 2]", 9),
        ("m[::2, ::2] = 0; m.sum()", 25),
        ("n = m; n[0, 0] = 100; m[0, 0]", 1),
        ("m[i - 1, i - 2] += 100; m[2, 1]", 108),
    ]),
    "constructors": ("", [
        ("qd.Matrix.identity(qd.f32, 3).sum()", 3), ("qd.Vector.zero(qd.f32, 3).sum()", 0),
        ("qd.Matrix.one(qd.f32, 2, 3).sum()", 6), ("qd.Vector.unit(3, 1)[1]", 1),
        ("qd.Matrix.diag(3, 2.5).trace()", 7.5),
        ("v = qd.Vector(range(3)); v[2] * 10 + v.n", 23), ("qd.Vector(range(1, 8, 3), qd.f32)[2] / 2", 3.5),
        ("qd.Vector(qd.static(range(3))).sum()", 3), ("qd.Matrix(range(4), dt=qd.i64)[3] << 40", 3 * 2**40),
        ("qd.math.vec3(range(1, 4)).z", 3), ("qd.math.vec3(0.5, range(2)).sum()", 1.5),
        ("qd.Matrix.rows([qd.Vector([1, 2]), [3, 4]])[1, 0]", 3),
        ("qd.Matrix.cols([[1, 2], [3, 4]])[1, 0]", 2),
        ("a = qd.math.vec4(qd.math.vec3(1), 2.0); a.sum() + a.w", 7),
        ("qd.math.vec4([1, 2], 3, 4).w", 4), ("qd.math.mat2(1, 2, 3, 4)[1, 0]", 3),
        ("qd.math.mat3(1).sum()", 9), ("qd.math.ivec3(1.7, 2.2, 3.9).sum()", 6),
        ("(qd.math.vec3(qd.math.ivec3(1, 2, 3)) / 2).x", 0.5), ("qd.math.uvec2(5).y", 5),
        ("qd.types.matrix(2, 3, qd.f32)(1, 2, 3, 4, 5, 6)[1, 2]", 6),
        ("a = qd.types.matrix(2, 3, qd.f32)(1, 2, 3, 4, 5, 6); a.transpose()[2, 1] + a.n * 10 + a.m", 29),
    ]),
    "products": ("", [
        ("(qd.Vector([1, 2]) @ qd.Matrix([[1, 2], [3, 4]]))[1]", 10),
        ("qd.Vector([1, 2]) @ qd.Vector([3, 4])", 11),
        ("a = qd.Matrix([[1.0, 2.0], [3.0, 4.0]]); (a @ a + a.transpose()).sum()", 54 + 10),
        ("m = qd.Matrix.identity(qd.f32, 2); m[0, 1] = i; (m @ m)[0, 1]", 6),
    ]),
    "math library": ("", [
        ("qd.math.clamp(x, 0, 1)", 1), ("qd.math.mix(1.0, 2.0, x)", 2.5),
        ("qd.math.mix(5, 1, 3) / 2 // 1", -4), ("qd.math.mix(qd.u32(i), 1, 3)", -3), ("n = qd.math.mix(i, 5, 1); n += 0.5; n", 5.5),
        ("n = qd.math.mix(qd.Vector([1, 2]), [3, 4], 2); n += 0.5; n.sum()", 12),
        ("qd.math.reflect(qd.Vector([qd.u32(3), qd.u32(4)]), qd.Vector([qd.u32(1), qd.u32(0)])).sum()", 1),
        ("qd.math.fract(2.25 + x)", 0.75), ("qd.math.length(qd.math.vec2(3, 4))", 5),
        ("qd.math.isnan(x * qd.math.nan) + qd.math.isinf(x / 0.0) * 2", 3),
        ("qd.math.refract(qd.math.vec2(0.6, -0.8), qd.math.vec2(0, 1), 1.0).y", -0.8),
        ("qd.math.cmul(qd.math.vec2(1, 2), qd.math.vec2(3, 4)).x", -5),
        ("qd.math.smoothstep(0.0, 3.0, x)", 0.5), ("qd.math.eye(3).trace()", 3),
        ("qd.math.rotation2d(x)[0, 0]", np.cos(1.5)),
        ("a, b = qd.frexp(x * 4); a * 100 + b", 75 + 3), ("a, b = qd.frexp(x * 0); a + b", 0),
    ]),
    "atomics on locals": ("a = qd.Vector([1, 2, 3])\n", [
        ("r = qd.atomic_add(a, [1, 1, 1]); r.sum() * 10 + a.sum()", 69),
        ("s = 1.5; r = qd.atomic_max(s, 7); r * 10 + s", 22),
        ("k = 3; r = qd.atomic_add(k, 4); r * 10 + k", 37),
        ("k = 7; r = qd.atomic_exchange(k, 1); r * 10 + k", 71),
        ("k = 1; r = qd.atomic_cas(k, 1, 11); r * 100 + k", 111),
    ]),
}  # fmt: skip


def module_of(path, rows, setup=""):
    """A file with a kernel `row_<n>` for every row; the last statement becomes its result."""
    lines = ["import numpy as np", "import quadrants as qd", "import quadrants.math"]
    lines += ["NUMPY_TWO, NUMPY_TRUE = np.int8(2), np.bool_(True)"]
    for n, row in enumerate(rows):
        *statements, result = (setup + row).replace("; ", "\n").split("\n")
        signature = "i: qd.i32, j: qd.i32, x: qd.f32, y: qd.f32"
        lines += ["@qd.kernel", f"def row_{n}({signature}) -> qd.f64:"]
        lines += [f"    {s}" for s in statements] + [f"    return {result}"]
    path.write_text("\n".join(lines) + "\n")
    return module_at(path)


def differences(module, rows, expect):
    for n, (row, e) in enumerate(zip(rows, expect)):
        got = getattr(module, f"row_{n}")(**ARGUMENTS)
        if not np.isclose(got, e, rtol=2e-6, atol=0):
            yield f"{row}: {got}, expected {e}"


@pytest.mark.oracle_differs("the established package aborts on one of the rows", run=False)
def test_same_text_in_python(backend, tmp_path):
    def python(row):
        *statements, result = row.replace("; ", "\n").split("\n")
        space = dict(ARGUMENTS)
        exec("\n".join(statements), space)
        return eval(result, space)

    module = module_of(tmp_path / "as_python.py", AS_PYTHON)
    assert not list(differences(module, AS_PYTHON, map(python, AS_PYTHON)))


@pytest.mark.oracle_differs("the established package aborts on some of the rows", run=False)
@pytest.mark.parametrize("group", TABLE)
def test_table(backend, tmp_path, group):
    setup, table = TABLE[group]
    rows = [row for row, _ in table]
    module = module_of(tmp_path / "table.py", rows, setup)
    assert not list(differences(module, rows, [e for _, e in table]))


def test_a_whole_length_is_one(backend, recwarn):
    @qd.kernel
    def k(out: qd.template()):
        for i in range(qd.ceil(3)):
            out[i] = qd.floor(2) + i

    out = qd.field(qd.i32, 4)
    k(out)
    assert out.to_numpy().tolist() == [2, 3, 4, 0] and not recwarn.list


def test_vectors_captured_from_the_host(backend):
    v, m = qd.Vector([1, 2, 3]), qd.Matrix([[1.5, 2], [3, 5]])
    a = qd.Vector([1.0, 2.0, 3.0])
    out = qd.field(qd.f32, 10)

    @qd.kernel
    def k(i: qd.i32, x: qd.f32):
        w = qd.Vector([x, 0, 1])
        out[0], out[1], out[2] = v[1], v[i], (m @ qd.Vector([1, 1]))[1]
        out[3], out[4] = v.norm_sqr(), (v + 1).sum()
        out[5], out[6], out[7] = a.dot(w), a.cross(w).y, a.outer_product(w).sum()
        out[8], out[9] = a.norm(x), m.inverse()[0, 0]

    k(2, 2.0)
    expect = [2, 3, 8, 14, 9, 5, 5, 18, 4, np.linalg.inv([[1.5, 2], [3, 5]])[0, 0]]
    np.testing.assert_allclose(out.to_numpy(), expect, rtol=1e-5)


def test_matrix_fields(backend):
    m = qd.Matrix.field(2, 2, qd.f32, 3)
    total = qd.field(qd.f32, ())

    @qd.kernel
    def k():
        for i in range(3):
            m[i] = qd.Matrix([[1, 2], [3, 4]]) * i
            m[i] += 1
            m[i][0, :] = [7.0, 8.0]
            m[i][:, 1] *= 2
        total[None] = 0
        for i in range(3):
            total[None] += m[i].sum()
        m[1].fill(2)

    k()
    base = np.array([[1.0, 2], [3, 4]])
    expect = np.stack([base * i + 1 for i in range(3)])
    expect[:, 0] = [7, 8]
    expect[:, :, 1] *= 2
    assert total[None] == expect.sum()
    expect[1] = 2
    assert m.to_numpy().tolist() == expect.tolist()


@pytest.mark.parametrize("layout", ["AOS", "SOA"])
def test_element_access_in_either_layout(backend, layout):
    f = qd.Vector.field(3, qd.f32, 4, layout=getattr(qd.Layout, layout))
    m = qd.Matrix.field(2, 2, qd.f32, 3, layout=getattr(qd.Layout, layout))

    @qd.kernel
    def k(r: qd.i32, c: qd.i32):
        for i in f:
            f[i] = [i, i + 1, i + 2]
            f[i].x += 10
            f[i][2] *= 2
            f[i].yz += qd.Vector([1, 1])
            for j in range(2):
                f[i][j] += 100 * j
        for p in m:
            m[p][r, c] = p + 1

    k(1, 0)
    assert f.to_numpy().tolist() == [[10 + i, i + 102, 2 * (i + 2) + 1] for i in range(4)]
    assert m.to_numpy().tolist() == [[[0, 0], [p + 1, 0]] for p in range(3)]


def test_elements_of_vector_fields_are_places(backend):
    f = qd.Vector.field(3, qd.f32, 2)
    out = qd.field(qd.f32, 4)

    @qd.kernel
    def k():
        s = f[0]
        s[0] = 5
        out[0] = f[0][0]
        f[1] = s
        f[1][0] = 7
        out[1], out[2] = s[0], f[1].x
        copies = [f[0], f[1]]
        copies[1][0] = 50
        out[3] = f[1][0]

    k()
    assert out.to_numpy().tolist() == [0, 5, 7, 7]


def test_vector_arguments_are_read_only_copies(backend):
    out = qd.field(qd.f32, 2)

    @qd.kernel
    def k(a: qd.types.vector(3, qd.f32)):
        b = a
        b[0] = 9
        out[0], out[1] = b.sum(), a.x

    k([1, 2, 3])
    assert out.to_numpy().tolist() == [14, 1]


def test_vector_reductions_in_parallel(backend):
    out = qd.Vector.field(3, qd.f32, ())

    @qd.kernel
    def k():
        total = qd.Vector([0.0, 0.0, 0.0])
        most = 0
        for i in range(1000):
            total += [1.0, 2.0, 3.0]
            qd.atomic_max(most, i)
        out[None] = total + most

    k()
    assert out.to_numpy().tolist() == [1999, 2999, 3999]


def test_long_types(backend):
    reals, ints = qd.field(qd.f64, 4), qd.field(qd.i64, 3)

    @qd.kernel
    def k(a: qd.f64, b: qd.i64):
        reals[0], reals[1], reals[2], reals[3] = qd.sqrt(a), a / 3, b / 2, a**3
        ints[0], ints[1], ints[2] = b * b, qd.cast(a, qd.i64) << 40, b**2

    k(3.7, 3_000_000_000)
    np.testing.assert_allclose(reals.to_numpy(), [3.7**0.5, 3.7 / 3, 1.5e9, 3.7**3], rtol=1e-14)
    assert ints.to_numpy().tolist() == [9 * 10**18, 3 << 40, 9 * 10**18]


def test_half_floats(backend):
    h, out = qd.field(qd.f16, 2), qd.field(qd.f32, 3)

    @qd.kernel
    def k(x: qd.f32):
        h[0] = x
        h[1] = h[0] * 2
        out[0], out[1], out[2] = h[1] + 1, qd.atan2(h[0], h[0]), h[0] ** 2

    k(1.5)
    np.testing.assert_allclose(out.to_numpy(), [4, np.pi / 4, 2.25], rtol=1e-3)
