"""Host vectors and matrices."""

import warnings

import numpy as np
import pytest

import quadrants as qd

v = qd.Vector([1, 2, 3])
m = qd.Matrix([[1, 2], [3, 4]])


def same(got, want):
    np.testing.assert_array_equal(np.asarray(got), want)


def test_shape():
    assert (v.n, v.m, v.ndim, v.get_shape(), len(v), v.is_host_access) == (3, 1, 1, (3,), 3, False)
    assert (m.n, m.m, m.ndim, m.get_shape(), len(m)) == (2, 2, 2, (2, 2), 2)
    assert qd.Matrix([1, 2, 3]).ndim == 1 and qd.Vector([]).n == 0
    assert qd.Vector([1, 2], dt=qd.f32).entries.dtype == np.float32
    assert str(v) == "[1 2 3]" and repr(m) == "[[1 2]\n [3 4]]"
    assert m.to_list() == [[1, 2], [3, 4]] and list(v) == [1, 2, 3] and list(m) == [[1, 2], [3, 4]]


def test_construction_errors():
    with pytest.raises(
        qd.QuadrantsTypeError, match="can only be initialized with an array-like object"
    ):
        qd.Vector(3)
    with pytest.raises(Exception, match="cols/rows required when using list of vectors"):
        qd.Matrix([v, v])
    with pytest.warns(UserWarning, match="> 144 entries are not suggested"):
        qd.Matrix(np.zeros((13, 12)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qd.Matrix(np.zeros((12, 12)))


def test_operators():
    same(v + 1, [2, 3, 4])
    same([1, 2, 3] + v, [2, 4, 6])
    same(np.array([1, 2, 3]) * v, [1, 4, 9])
    same(2 / v, 2 / np.array([1, 2, 3]))
    same(np.float32(2) * v, [2, 4, 6])
    same(v == v, [True] * 3)
    same(-v % 2, [1, 0, 1])
    assert bool(qd.Vector([0])) and (v == v).all() and type(v + v) is qd.Matrix
    assert v @ v == 14 and type(m @ qd.Vector([1, 2])) is qd.Vector
    same(m @ m, [[7, 10], [15, 22]])
    with pytest.raises(qd.QuadrantsCompilationError, match="dimension mismatch between"):
        m @ v
    w = qd.Vector([1.0, 2.0])
    w += 1
    same(w, [2, 3])
    same(w == None, [False, False])


def test_indexing():
    assert v[0] == 1 and m[0, 1] == 2
    for use in (lambda: v[0, 0], lambda: m[0], lambda: m.x):
        with pytest.raises(AssertionError, match="Expected . indices, got ."):
            use()
    w = qd.Vector([1, 2, 3])
    w[1] = 2.5
    same(w, [1, 2, 3])
    w.fill(7)
    same(w, [7, 7, 7])


def test_swizzles():
    w = qd.Vector([1, 2, 3])
    same(w.zxy, [3, 1, 2])
    assert w.r == 1 and w.t == 2
    w.zxy = [7, 8, 9]
    same(w, [8, 9, 7])
    w.xx = [1, 2]
    assert w.x == 2
    w.rg += [1, 1]
    same(w, [3, 10, 7])
    with pytest.raises(qd.QuadrantsSyntaxError) as e:
        qd.Vector([1, 2]).z
    assert str(e.value) == "vec2 only has attributes=('x', 'y'), got=('z',)"
    with pytest.raises(
        qd.QuadrantsRuntimeError, match="value len does not match the swizzle pattern=xy"
    ):
        w.xy = [1, 2, 3]


def test_methods():
    assert v.sum() == 6 and v.max() == 3 and v.min() == 1 and v.any() is True and v.all() is True
    assert v.norm() == np.sqrt(14) and v.norm(2) == 4 and v.norm_sqr() == 14
    assert v.norm_inv() == 1 / np.sqrt(14) and v.dot(v) == 14
    same(v.cross(qd.Vector([0, 0, 1])), [2, -1, 0])
    assert qd.Vector([1, 2]).cross(qd.Vector([3, 4])) == -2
    same(v.outer_product(qd.Vector([1, 2])), np.outer([1, 2, 3], [1, 2]))
    assert m.trace() == 5 and m.frobenius_inner(m) == 30
    same(m.transpose(), [[1, 3], [2, 4]])
    np.testing.assert_allclose(np.asarray(m.inverse() @ m), np.eye(2), atol=1e-12)
    assert qd.Matrix([[1, 2], [3, 4]]).inverse().to_list() == [[-2, 1], [1.5, -0.5]]
    assert qd.Matrix([[0, 2, 0], [0, 0, 4], [1, 0, 0]]).inverse().to_list() == [
        [0, 0, 1], [0.5, 0, 0], [0, 0.25, 0],
    ]  # fmt: skip
    assert not np.isfinite(qd.Matrix([[0.0, 0.0], [0.0, 0.0]]).inverse().entries).any()


@pytest.mark.parametrize(
    "use, text",
    [
        (lambda: v.transpose(), "outer_product"),
        (lambda: m.normalized(), "expected a vector"),
        (lambda: m.dot(m), "lhs for dot is not a vector"),
        (lambda: qd.Vector([1] * 4).cross(qd.Vector([1] * 4)), "only dimension < 4 is supported"),
        (lambda: qd.Matrix([[1, 2]]).trace(), "expected a square matrix, got shape"),
        (lambda: qd.Matrix(np.eye(13)).inverse(), "only dimension < 13"),
        (lambda: qd.Matrix.cols([[1, 2], [3]]), "required shapes to be the same"),
        (lambda: qd.Matrix.cols([1, 2]), "cols takes a list of lists or vectors of numbers, got 1"),
        (lambda: qd.Matrix.rows([1, 2]), "rows takes a list of lists or vectors of numbers, got 1"),
        (lambda: qd.Matrix.rows([[v], [v]]), "lists or vectors of numbers"),
        (lambda: qd.Matrix.rows([[1, None], [2, 3]]), "lists or vectors of numbers"),
        (lambda: qd.Matrix.rows([[1, [2]]]), "lists or vectors of numbers"),
        (lambda: qd.Matrix.rows([]), "at least one"),
    ],
)
def test_preconditions(use, text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(qd.QuadrantsCompilationError, match=text):
            use()


def test_factories():
    same(qd.Matrix.diag(dim=2, val=3), [[3, 0], [0, 3]])
    same(qd.Matrix.rows([v, [4, 5, 6]]), [[1, 2, 3], [4, 5, 6]])
    same(qd.Vector.cols([v, [4, 5, 6]]), [[1, 4], [2, 5], [3, 6]])
    for name, args in dict(
        zero=(qd.f32, 2), one=(qd.f32, 2), identity=(qd.f32, 2), unit=(2, 0)
    ).items():
        with pytest.raises(AssertionError, match=f"{name} cannot be called in Python-scope"):
            getattr(qd.Matrix, name)(*args)
    for use in (m.determinant, lambda: m.cast(qd.f32)):
        with pytest.raises(AssertionError, match="cannot be called in Python-scope"):
            use()


def test_types():
    vec3 = qd.types.vector(3, qd.f32)
    assert vec3.to_string() == "VectorType[3, f32]" and vec3.get_shape() == (3,)
    assert qd.types.matrix(2, 3, int).to_string() == "MatrixType[2,3, i32]"
    assert vec3(1).entries.dtype == np.float32
    same(vec3(1), [1, 1, 1])
    same(qd.types.vector(4, qd.f32)([1, 2], qd.Vector([3, 4])), [1, 2, 3, 4])
    same(qd.types.vector(3, int)(1, 2, 3.7, 9), [1, 2, 3])
    same(qd.types.matrix(2, 2, qd.f32)(1, 2, 3, 4), [[1, 2], [3, 4]])
    assert vec3 != qd.types.vector(3, qd.f32)
    with pytest.raises(qd.QuadrantsSyntaxError, match="need to be created with an initial value"):
        vec3()
    with pytest.raises(IndexError):
        vec3(1, 2)
    with pytest.raises(ValueError, match="Invalid data type"):
        qd.types.vector(3, "f32")


class Cells:
    """Storage of one element, as fields offer it."""

    def __init__(self, values):
        self.values = np.array(values)

    def get(self, *i):
        return self.values[i].item()

    def set(self, value, *i):
        self.values[i] = value

    def array(self):
        return self.values.copy()


def test_live():
    cells = Cells([1, 2, 3])
    w = qd.Vector._live(cells, (3,))
    assert w.is_host_access and w[1] == 2
    w.xy = [5, 6]
    w[2] = 9
    same(cells.values, [5, 6, 9])
    cells.values[0] = 100
    assert w.x == 100 and w.sum() == 115
    w += 1
    assert not w.is_host_access and cells.values[0] == 100


def test_symbolic_arguments_are_traced(monkeypatch):
    from quadrants._lib import core

    class Symbol:
        def __radd__(self, other):
            return "reflected"

    monkeypatch.setattr(core, "is_expr", lambda x: isinstance(x, Symbol), raising=False)
    monkeypatch.setattr(core, "trace_op", lambda name, args, **kw: (name, args), raising=False)
    x = Symbol()
    assert qd.sin(x) == ("sin", (x,)) and qd.max(1, x) == ("max", (1, x))
    assert v.dot(x) == ("Matrix.dot", (v, x)) and v.norm(x) == ("Matrix.norm", (v, x))
    assert v + x == "reflected"
    assert qd.Vector([1, x]) == ("Vector", ([1, x], None))
    assert qd.Matrix.cols([[1, x], [2, 3]])[0] == "Matrix.cols"
    vec2 = qd.types.vector(2, qd.f32)
    assert vec2(1, x) == ("typed_tensor", (vec2, 1, x))
    assert qd.Struct(a=x) == ("Struct", ({"a": x},))
