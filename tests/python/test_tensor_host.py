"""`qd.tensor` on the host: both backends, layouts, wrapping, errors; values of its elements."""

import copy
import pickle

import numpy as np
import pytest

import quadrants as qd
from helpers import raises

pytestmark = pytest.mark.usefixtures("backend")

BACKENDS = ["FIELD", "NDARRAY"]


@pytest.fixture(params=BACKENDS)
def kind(request):
    return getattr(qd.Backend, request.param)


def test_backends():
    assert qd.Backend.FIELD == 0 and qd.Backend.NDARRAY == 1


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
def test_canonical_face(kind):
    t = qd.tensor(qd.f32, (2, 3), backend=kind, layout=(1, 0))
    plain = qd.tensor(qd.f32, (2, 3), backend=kind)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    for x in (t, plain):
        x.from_numpy(values)
        assert x.shape == (2, 3) and x.dtype == qd.f32 and x[1, 0] == 3
        x[1, 2] = 9
        assert x.to_numpy()[1, 2] == 9 and x.to_numpy(copy=False)[1, 2] == 9
        x[1, 2] = 5
        assert (x.to_numpy(dtype=np.float64) == values).all()
    assert t.layout == (1, 0) and plain.layout is None
    assert t.to_numpy(copy=False).strides == (4, 8) and plain.to_numpy(copy=False).strides == (
        12,
        4,
    )
    assert qd.tensor(qd.f32, (2, 3), backend=kind, layout=(0, 1)).layout is None
    with pytest.raises(ValueError):
        t.from_numpy(values.T)


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
def test_three_axes(kind):
    t = qd.tensor(qd.i32, (2, 3, 4), backend=kind, layout=(2, 0, 1))
    values = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    t.from_numpy(values)
    assert t[1, 2, 3] == 23 and t[1, 0, 2] == values[1, 0, 2]
    assert t.to_numpy(copy=False).strides == (12, 4, 24)
    other = qd.tensor(qd.i32, (2, 3, 4), backend=kind)
    other.copy_from(t)
    assert (other.to_numpy() == values).all()
    other.copy_from(t._unwrap())


def test_classes_and_repr(kind):
    v = qd.Vector.tensor(3, qd.f32, (2,), backend=kind)
    m = qd.Matrix.tensor(2, 3, qd.f32, (2,), backend=kind)
    assert type(v) is qd.VectorTensor and v.element_shape == (3,)
    assert type(m) is qd.MatrixTensor and m.element_shape == (2, 3)
    assert type(qd.tensor(qd.types.vector(3, qd.f32), 2, backend=kind)) is qd.VectorTensor
    v[1] = [1, 2, 3]
    v[1].x = 5
    assert v.to_numpy().tolist() == [[0, 0, 0], [5, 2, 3]]
    t = qd.tensor(qd.f32, (2, 3), backend=kind, layout=(1, 0))
    text = f"Tensor(shape=(2, 3), dtype={qd.f32!r}, backend={kind.name}, layout=(1, 0))"
    assert repr(t) == text
    assert not isinstance(t, (qd.Field, qd.Ndarray)) and isinstance(v, qd.Tensor)
    assert t == t and hash(t) == hash(t) and t != v


def test_wrap():
    field, array = qd.field(qd.f32, 3), qd.Vector.ndarray(2, qd.f32, 3)
    assert qd.Tensor(field)._unwrap() is field and type(qd.wrap(array)) is qd.VectorTensor
    assert qd.wrap(array)._impl is array and qd._wrap is qd.wrap and qd._Tensor is qd.Tensor
    for bad in (3, qd.Tensor(field), np.zeros(3)):
        with raises(TypeError, "Tensor(impl) requires an Ndarray or Field; got "):
            qd.Tensor(bad)


def test_gradients(kind):
    t = qd.tensor(qd.f32, (2, 3), backend=kind, layout=(1, 0), needs_grad=True)
    assert t.has_grad() and t.grad is t.grad and t.grad.shape == (2, 3) and t.grad.layout == (1, 0)
    t.grad[1, 2] = 4
    assert t.grad.to_numpy()[1, 2] == 4 and t[1, 2] == 0
    plain = qd.tensor(qd.f32, 3, backend=kind)
    assert not plain.has_grad()
    if kind is qd.Backend.NDARRAY:
        assert plain.grad is None
    else:
        with raises(qd.QuadrantsRuntimeError, "Field has no allocation."):
            plain.grad.fill(0)


def test_copy_backends():
    f = qd.tensor(qd.f32, 3, backend=qd.Backend.FIELD)
    a = qd.tensor(qd.f32, 3, backend=qd.Backend.NDARRAY)
    with pytest.raises(TypeError):
        f.copy_from(a)
    with pytest.raises(AssertionError):
        a.copy_from(f)


def test_pickle_and_deepcopy(kind):
    t = qd.tensor(qd.f32, (2, 3), backend=kind, layout=(1, 0), needs_grad=True)
    t[1, 2] = 4
    for c in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert type(c) is type(t) and c.layout == (1, 0) and c.shape == (2, 3) and c.dtype == qd.f32
        assert (c.to_numpy() == t.to_numpy()).all() and not c.has_grad()
        c[0, 0] = 7
        assert t[0, 0] == 0


def test_layout_keys():
    t = qd.tensor(qd.f32, (2, 3), layout=(1, 0))
    with pytest.raises(TypeError):
        t[0]
    assert qd.tensor(qd.f32, 8)[2:5].size == 3


def test_bare_arrays_are_physical():
    t = qd.tensor(qd.f32, (2, 3), layout=(1, 0))
    t[1, 2] = 4
    bare = t._unwrap()
    assert bare[2, 1] == 4 and bare.shape == (2, 3) and bare._physical_shape == (3, 2)
    f = qd.tensor(qd.f32, (2, 3), layout=(1, 0), backend=qd.Backend.FIELD)
    f[1, 2] = 4
    assert f._unwrap()[1, 2] == 4


def test_tagging():
    from quadrants._tensor import Tensor, _with_layout

    assert Tensor is qd.Tensor
    a = qd.ndarray(qd.f32, (3, 2), needs_grad=True)
    _with_layout(a, (1, 0))
    assert a.shape == (2, 3) and a._qd_layout == (1, 0) and a.grad._qd_layout == (1, 0)
    b = qd.ndarray(qd.f32, (3, 2))
    b._qd_layout = (1, 0)
    assert b.shape == (2, 3) and b._physical_shape == (3, 2)
    with raises(ValueError, "layout has "):
        _with_layout(qd.ndarray(qd.f32, (3, 2)), (0,))
    with raises(ValueError, "not a permutation"):
        _with_layout(qd.ndarray(qd.f32, (3, 2)), (0, 0))


VEC = qd.types.vector(2, qd.f32)


@pytest.mark.parametrize(
    "make, cls, text",
    [
        (
            lambda: qd.tensor(qd.f32, 2, backend=7),
            ValueError,
            "backend=7 is not a valid qd.Backend",
        ),
        (
            lambda: qd.tensor(qd.f32, 2, order="i"),
            TypeError,
            "does not accept order=; pass layout=(...) instead",
        ),
        (lambda: qd.tensor(qd.f32, 2, foo=1), TypeError, "got unexpected keyword argument(s)"),
        (
            lambda: qd.Vector.tensor(2, qd.f32, 2, order="i"),
            TypeError,
            "does not accept order= (or layout=)",
        ),
        (
            lambda: qd.Vector.tensor(2, qd.f32, 2, foo=1),
            TypeError,
            "got unexpected keyword argument(s)",
        ),
        (lambda: qd.tensor(qd.f32, (2, 3), layout=(0,)), ValueError, "layout has 1 entries"),
        (
            lambda: qd.tensor(qd.f32, (2, 3), layout=(0, 0)),
            ValueError,
            "is not a permutation of range(2)",
        ),
        (
            lambda: qd.tensor(VEC, 2, layout=(0,)),
            TypeError,
            "layout= is not supported with compound dtypes",
        ),
        (lambda: qd.tensor(qd.field(qd.f32, 2), 2), TypeError, "qd.wrap"),
        (lambda: qd.tensor(qd.i32, 2, needs_grad=True), qd.QuadrantsRuntimeError, "needs_grad"),
    ],
)
def test_errors(make, cls, text):
    with raises(cls, text):
        make()


def test_backend_numbers():
    assert isinstance(qd.tensor(qd.f32, 2, backend=0)._unwrap(), qd.Field)


def test_public_names():
    names = "copy_from dtype fill from_numpy from_torch grad has_dual has_grad layout shape to_dlpack to_numpy to_torch"
    assert [n for n in dir(qd.Tensor) if not n.startswith("_")] == names.split()


# --- integers of 64 bits: NumPy makes floats of lists without a common integer type ---

TOP, MOST = 2**64 - 1, 2**63 - 1
U2, I2 = qd.types.vector(2, qd.u64), qd.types.vector(2, qd.i64)
U22, I22 = qd.types.matrix(2, 2, qd.u64), qd.types.matrix(2, 2, qd.i64)


@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda: U2(TOP, 5), [TOP, 5]),
        (lambda: U2([TOP, 5]), [TOP, 5]),
        (lambda: U2(np.array([TOP, 5], np.uint64)), [TOP, 5]),
        (lambda: U2(qd.Vector([TOP, 5], qd.u64)), [TOP, 5]),
        (lambda: U2(qd.Vector([TOP], qd.u64), 5), [TOP, 5]),
        (lambda: U2(TOP, 2.5), [TOP, 2]),
        (lambda: I2(MOST, 2.5), [MOST, 2]),
        (lambda: I2(2**62 + 1, -5.7), [2**62 + 1, -5]),
        (lambda: I2(2**62 + 1, np.float32(2.5)), [2**62 + 1, 2]),
        (lambda: I2(np.int64(2**62 + 1), np.uint64(MOST)), [2**62 + 1, MOST]),
        (lambda: U22(TOP, 5, 7, TOP - 2), [[TOP, 5], [7, TOP - 2]]),
        (lambda: U22([[TOP, 5], [7, TOP - 2]]), [[TOP, 5], [7, TOP - 2]]),
        (lambda: I22([[MOST, 2.5], [1, -MOST]]), [[MOST, 2], [1, -MOST]]),
        (lambda: qd.types.struct(v=U2)(v=[TOP, 5]).v, [TOP, 5]),
        (lambda: qd.types.struct(v=U2)(v=U2(TOP, 5)).v, [TOP, 5]),
        (lambda: qd.types.vector(2, qd.u1)(2, 0.5), [True, True]),
        (lambda: qd.types.vector(2, qd.f64)(TOP, 0.5), [2.0**64, 0.5]),
        (lambda: U2(TOP, 5).yx, [5, TOP]),
    ],
)
def test_made_of_mixed_integers(make, expected):
    values = make().to_list()
    assert values == expected
    assert type(values[-1]) is type(expected[-1])


def test_elements_of_mixed_integers(kind):
    t = qd.Vector.tensor(2, qd.u64, 2, backend=kind)
    t[0] = [TOP - 2, 7]
    read = t[0].to_list()
    assert read == [TOP - 2, 7] and [type(x) for x in read] == [int, int]
    assert t[0].max() == TOP - 2 and t[0].yx.to_list() == [7, TOP - 2]
    t[1] = t[0]
    assert t.to_numpy().tolist() == [[TOP - 2, 7]] * 2
    t[1] = t[1] + 1
    assert t[1].to_list() == [TOP - 1, 8]
    t[1] = [3, 5]
    assert (t[1] - 10).to_list() == [-7, -5]  # small ones are Python's numbers, as ever
    t[1].fill(TOP)
    t[1].yx = [TOP - 9, 1]
    assert t[1].to_list() == [1, TOP - 9]
    m = qd.Matrix.tensor(2, 2, qd.u64, 2, backend=kind)
    m[0] = [[TOP, 1], [2, TOP - 9]]
    m[1] = m[0]
    assert (
        m[1].to_list() == [[TOP, 1], [2, TOP - 9]] and m[1].transpose().to_list()[1][1] == TOP - 9
    )


def test_filled_with_mixed_integers(kind):
    t = qd.Vector.tensor(2, qd.u64, 2, backend=kind)
    for value in ([TOP - 5, 3], (TOP - 5, 3), U2(TOP - 5, 3)):
        t.fill(0)
        t.fill(value)
        assert t.to_numpy().tolist() == [[TOP - 5, 3]] * 2
    t[1] = [TOP, 1]
    t.fill(t[1])
    assert t.to_numpy().tolist() == [[TOP, 1]] * 2
    t = qd.Vector.tensor(2, qd.i64, 1, backend=kind)
    t.fill([MOST, -2.5])
    assert t.to_numpy().tolist() == [[MOST, -2]]
    m = qd.Matrix.tensor(2, 2, qd.u64, 1, backend=kind)
    m.fill([[TOP, 1], [2, TOP - 9]])
    assert m.to_numpy().tolist() == [[[TOP, 1], [2, TOP - 9]]]
    with pytest.raises(TypeError):
        t.fill(["a", "b"])


def test_members_of_mixed_integers():
    kind = qd.types.struct(v=U2, i=I2, m=U22)
    field = kind.field(shape=2)
    for s in (kind(), field[1]):
        s.v = [TOP - 2, 5]
        s.i = (-MOST, 3)
        s.m = [[TOP, 1], [2, TOP - 1]]
        assert s.v.to_list() == [TOP - 2, 5] and s.i.to_list() == [-MOST, 3]
        assert s.m.to_list() == [[TOP, 1], [2, TOP - 1]]
        s.v = np.array([TOP, 1], np.uint64)
        assert s.v.to_list() == [TOP, 1]
        s.v = [np.uint64(TOP - 1), 2]
        assert s.v.to_list() == [TOP - 1, 2]
    field[0] = field[1]
    assert field.v.to_numpy().tolist() == [[TOP - 1, 2]] * 2
    field[1].i = np.array([[3], [4]])  # a column, too
    assert field[1].i.to_list() == [3, 4]
    with pytest.raises(TypeError):
        field[1].i = np.float32(3)
    whole = kind()
    whole.i = [MOST, 2.5]
    assert whole.i.to_list() == [MOST, 2]
    whole.i = [300.5, -1]
    assert whole.i.to_list() == [300, -1]
    with pytest.raises(TypeError):
        field[1].i = ["a", "b"]


def test_operands_of_mixed_integers():
    v = U2(TOP, 5)
    assert (v == [TOP - 1, 5]).to_list() == [False, True]
    assert (U2(1, 2) + [TOP - 7, 5]).to_list() == [TOP - 6, 7]
    assert (
        U2(1, 0).dot([TOP, 1]) == TOP and U22(1, 0, 0, 0).frobenius_inner([[TOP, 1], [1, 1]]) == TOP
    )
    assert (U2(1, 2) + [TOP, -1]).entries.dtype == np.float64  # no integer type holds both
    assert (U2(1, 2) + [1.5, 1]).to_list() == [2.5, 3]


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"])
def test_sums_wrap_as_in_kernels(name):
    """In the type of the elements, products and sums alike."""
    dtype, bits = getattr(qd, name), int(name[1:])
    signed, big = name[0] == "i", int(0.8 * 2 ** (bits // 2))

    def wrapped(x):
        x %= 2**bits
        return x - 2**bits if signed and x >= 2 ** (bits - 1) else x

    most = 2 ** (bits - 1) - 1 if signed else 2**bits - 1
    v, w = qd.Vector([big, big], dtype), qd.Vector([most, 1], dtype)
    m, square = qd.Matrix([[big, 1], [1, big]], dtype), 2 * big * big
    products = wrapped(square)
    assert v.norm_sqr() == products and v.norm_sqr().dtype == v.entries.dtype
    assert v.dot(v) == products and m.norm_sqr() == wrapped(square + 2)
    assert m.frobenius_inner(m) == wrapped(square + 2)
    assert w.sum() == wrapped(most + 1) and w.sum().dtype == w.entries.dtype
    assert qd.Matrix([[most, 0], [0, 1]], dtype).trace() == wrapped(most + 1)
    with np.errstate(invalid="ignore"):
        root = np.sqrt(np.float64(products))
        assert v.norm().dtype == np.float64 and np.array_equal(v.norm(), root, equal_nan=True)
        assert np.array_equal(v.norm_inv(), 1 / root, equal_nan=True)
        assert np.array_equal(v.normalized().entries, v.entries / root, equal_nan=True)


def test_kernels_agree_on_integers():
    vector, i32s = qd.types.struct(v=U2), qd.types.vector(2, qd.i32)

    @qd.kernel
    def made(a: qd.u64) -> vector:
        return vector(U2(a, 1))

    @qd.kernel
    def square(v: i32s) -> qd.i32:
        return v.norm_sqr() + v.dot(v)

    assert made(TOP).v.to_list() == [TOP, 1]
    v = i32s(50000, 50000)
    assert v.norm_sqr() == 705032704 and square(v) == v.norm_sqr() + v.dot(v)
    assert abs(v.norm() - 26552.451939510218) < 1e-9


def test_truths_are_counted():
    assert (qd.Vector([1, 2, 3]) > 1).sum() == 2
