"""Vectors and matrices in kernels, a row for each rule: expression and value, or expression and error.

Rows see the variables of SETUP, which the kernel computes, and those of CAPTURED, which it reads.
"""

import inspect

import numpy as np
import pytest

import quadrants as qd
from helpers import module_at, raises

SETUP = """\
a = qd.Vector([1.0, 2.0, 3.0])
b = qd.Vector([4, 5])
w = qd.Vector([-7, 2, 3])
m = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
r = qd.Matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
x = 2
y = 0.5
"""

CAPTURED = """\
import numpy as np
import quadrants as qd

big = qd.Vector([2**31 - 1, 7])
bools = qd.Vector([True, False])
bytes_ = qd.Vector([100, 3], dt=qd.i8)
halves = qd.Vector([1.5, 2.5], dt=qd.f16)
square = qd.Matrix([[1, 2], [3, 4]])
"""

VALUES = """
# construction
qd.Vector([1, 2.5])                          -> [1, 2.5]
qd.Vector([1.7, -2.2], dt=qd.i32)            -> [1, -2]
qd.Vector([True, False])                     -> [1, 0]
qd.Matrix.unit(3, 1)                         -> [0, 1, 0]
qd.Matrix.unit(3, x)                         -> [0, 0, 1]
qd.Matrix.zero(n=2, dt=qd.f32)               -> [0, 0]
qd.Matrix.diag(dim=2, val=y)                 -> [[0.5, 0], [0, 0.5]]
qd.Matrix.cols([qd.Vector([1, 2]), [3, 4]])  -> [[1, 3], [2, 4]]
qd.one(r)                                    -> [[1, 1, 1], [1, 1, 1]]
# captured constants have the kernel's types and operators
big + 1                                      -> [-2147483648, 8]
big * 2                                      -> [-2, 14]
~bools                                       -> [-2, -1]
-bools                                       -> [-1, 0]
bools + bools                                -> [2, 0]
bools - bools                                -> [0, 0]
bools[0] + bools[0]                          -> 2
not bools                                    -> [0, 1]
bytes_ + bytes_                              -> [200, 6]
bytes_[0] + bytes_.x                         -> 200
square[:, 0]                                 -> [1, 3]
square[1:, :]                                -> [[3, 4]]
square[x - 1, x - 1]                         -> 4
halves.yx                                    -> [2.5, 1.5]
halves.norm(x)                               -> 3.24037
square @ halves                              -> [6.5, 14.5]
square.determinant()                         -> -2
halves.cast(qd.i32)                          -> [1, 2]
# operators
w // 2                                       -> [-4, 1, 1]
w % 3                                        -> [2, 2, 0]
w / 2                                        -> [-3.5, 1, 1.5]
w ** 2                                       -> [49, 4, 9]
a ** -1                                      -> [1, 0.5, 0.333333]
w >> 1                                       -> [-4, 1, 1]
~w                                           -> [6, -3, -4]
a < 2                                        -> [1, 0, 0]
1 < a < 3                                    -> [0, 1, 0]
w and [0, 1, 1]                              -> [0, 1, 1]
a + [1, 2, 3]                                -> [2, 4, 6]
(3, 2, 1) - a                                -> [2, 0, -2]
m @ b                                        -> [14, 32]
b @ m                                        -> [19, 28]
b @ b                                        -> 41
m @ r                                        -> [[9, 12, 15], [19, 26, 33]]
m @ [1, 2]                                   -> [5, 11]
a if x > 1 else 0                            -> [1, 2, 3]
qd.select(a > 1, a, 0)                       -> [0, 2, 3]
qd.select(0.5, a, 0)                         -> [1, 2, 3]
qd.max(a, 2)                                 -> [2, 2, 3]
min(a, w, 0)                                 -> [-7, 0, 0]
qd.raw_div(w, 2)                             -> [-3, 1, 1]
qd.raw_mod(w, 3)                             -> [-1, 2, 0]
qd.round(a / 2, int)                         -> [1, 1, 2]
# elements
m[x - 1, x - 2]                              -> 3
m[qd.Vector([1, 0])]                         -> 3
a[::-1]                                      -> [3, 2, 1]
a[2:0:-1]                                    -> [3, 2]
a[:9]                                        -> [1, 2, 3]
r[:, x]                                      -> [3, 6]
r[x - 1, ::2]                                -> [4, 6]
a.zyx                                        -> [3, 2, 1]
a.rgb.stp.xxxx                               -> [1, 1, 1, 1]
len(r) * 10 + r.m                            -> 23
qd.max(*a, *b)                               -> 5
# methods
w.norm_sqr()                                 -> 62
a.norm(eps=2)                                -> 4
a.norm_inv(2)                                -> 0.25
a.normalized(eps=1)                          -> [0.210896, 0.421793, 0.632689]
a.cross([0, 0, 1])                           -> [2, -1, 0]
b.cross([1, 0])                              -> -5
a.outer_product(b)                           -> [[4, 5], [8, 10], [12, 15]]
m.frobenius_inner(m)                         -> 30
r.transpose()                                -> [[1, 4], [2, 5], [3, 6]]
m.inverse()                                  -> [[-2, 1], [1.5, -0.5]]
any(b - b)                                   -> 0
all(b)                                       -> 1
int(a)                                       -> [1, 2, 3]
"""

Syntax, Type = qd.QuadrantsSyntaxError, qd.QuadrantsTypeError
Compilation = qd.QuadrantsCompilationError
Index = qd.lang.exception.QuadrantsIndexError

ERRORS = [
    (Compilation, "required shapes to be the same, got shapes [(3,), (2,)]", "a.cross(b)"),
    (Compilation, "required shapes to be the same, got shapes [(2, 2), (2, 3)]",
     "m.frobenius_inner(r)"),
    (Compilation, "required shapes to be the same, got shapes [(2,), (1,)]",
     "qd.Matrix.rows([[1, 2], [3]])"),
    (Compilation, "lhs for dot is not a vector", "m.dot(b)"),
    (Compilation, "rhs for dot is not a vector", "b.dot(m)"),
    (Compilation, "rhs for dot is not a vector", "b.dot(2)"),
    (Compilation, "lhs for cross is not a vector", "m.cross(m)"),
    (Compilation, "lhs for outer_product is not a vector", "m.outer_product(b)"),
    (Compilation, "rhs for outer_product is not a vector", "b.outer_product(m)"),
    (Compilation, "expected a vector, got", "m.normalized()"),
    (Compilation, "expected a square matrix, got shape (2, 3)", "r.determinant()"),
    (Compilation, "dimension mismatch between (2, 2) and (3,) for matrix multiplication", "m @ a"),
    (Type, "unsupported operand type(s) for '&'", "a & a"),
    (Type, "unsupported operand type(s) for '+': '[Tensor (3) f32]' and '[Tensor (2, 2) f32]'",
     "a + m"),
    (Type, "takes integral inputs only", "~a"),
    (Type, "'floor' takes real inputs only", "qd.floor(w)"),
    (Compilation, "Cannot broadcast tensor to tensor", "a if x > 1 else b"),
    (Syntax, "vec2 only has attributes=('x', 'y'), got=('x', 'z')", "b.xz"),
    (Index, "Expected 2 indices, got 1", "m[0]"),
    (Index, "Expected 2 indices, got 3", "m[0, 1, 0]"),
    (Index, "Expected 1 indices, got 2", "a[0, 1]"),
    (Type, "indices must be integers", "a[a.x]"),
    (Syntax, "Negative indices are not supported in Quadrants kernels.", "a[:-1]"),
    (Syntax, "compound type", "qd.i32(a)"),
    (Type, "literals must be annotated", "qd.f64(3)"),
    (Compilation, "unit", "qd.Matrix.unit(3, 3)"),
]  # fmt: skip

DIFFERS = {
    "w // 2", "w % 3", "not bools", "a[2:0:-1]", "a[::-1]", "a[:9]", "(3, 2, 1) - a", "m @ [1, 2]",
    "a.cross([0, 0, 1])", "b.cross([1, 0])", "qd.raw_div(w, 2)", "qd.Matrix.unit(3, 3)",
}  # fmt: skip


def rows(text):
    for line in text.strip().splitlines():
        if line[0] != "#":
            yield tuple(part.strip() for part in line.split("->"))


def cases(table, expression):
    reason = "undefined, refused or cut towards zero there"
    marks = [pytest.mark.oracle_differs(reason)]
    return [
        pytest.param(*row, id=row[expression], marks=marks if row[expression] in DIFFERS else [])
        for row in table
    ]


def kernel(tmp_path, expression, result):
    body = inspect.cleandoc(SETUP).replace("\n", "\n    ")
    text = f"{CAPTURED}\n@qd.kernel\ndef k() -> {result}:\n    {body}\n    return {expression}\n"
    path = tmp_path / "rows.py"
    path.write_text(text)
    module = module_at(path, "rows")
    return module.k


@pytest.mark.parametrize("expression, expected", cases(rows(VALUES), 0))
def test_value(backend, tmp_path, expression, expected):
    expected = np.array(eval(expected))
    result = {
        0: "qd.f32",
        1: f"qd.types.vector({expected.shape[0] if expected.ndim else 0}, qd.f32)",
        2: f"qd.types.matrix({', '.join(map(str, expected.shape))}, qd.f32)",
    }[expected.ndim]
    found = kernel(tmp_path, expression, result)()
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)


@pytest.mark.parametrize("cls, text, expression", cases(ERRORS, 2))
def test_error(backend, tmp_path, cls, text, expression):
    with raises(cls, text):
        kernel(tmp_path, expression, "qd.f32")()


def test_captured_matrices_are_constants(backend):
    c = qd.Vector([1.5, 2.5])

    @qd.kernel
    def static_use() -> qd.i32:
        n = 0
        for i in qd.static(range(c.n)):
            if qd.static(c.n == 2):
                n += i + 1
        return n

    assert static_use() == 3


@pytest.mark.oracle_differs("the statement is without effect there")
def test_captured_matrices_cannot_be_filled(backend):
    c = qd.Vector([1.5, 2.5])

    @qd.kernel
    def fill():
        c.fill(9)

    with pytest.raises(qd.QuadrantsSyntaxError):
        fill()
    assert c.to_list() == [1.5, 2.5]
