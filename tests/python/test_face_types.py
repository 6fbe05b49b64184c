"""Dtypes, annotations, host operations and ndrange."""

import copy
import pickle

import numpy as np
import pytest

import quadrants as qd
from quadrants.types import primitive_types as prim
from quadrants.types.primitive_types import TensorType

ORDER = "u1 i8 i16 i32 i64 u8 u16 u32 u64 f16 f32 f64".split()


def test_dtypes():
    for number, name in enumerate(ORDER):
        dt = getattr(qd, name)
        assert dt.id == number and str(dt) == dt.to_string() == name
        assert (
            pickle.loads(pickle.dumps(dt)) == dt == copy.deepcopy(dt)
            and {dt: 1}[copy.copy(dt)] == 1
        )
        assert qd._lib.core.data_type_size(dt) == max(1, int(name[1:]) // 8)
    assert qd.float32 is qd.f32 and qd.types.uint1 is qd.u1 and qd.f32 != qd.f64
    with pytest.raises(qd.QuadrantsSyntaxError, match="cannot be called outside"):
        qd.f32(3)


def test_predicates():
    t = qd.types
    assert t.is_integral(qd.u1) and t.is_integral(qd.i8) and not t.is_integral(qd.f16)
    assert (
        t.is_signed(qd.i64)
        and not t.is_signed(qd.u8)
        and t.is_real(qd.f16)
        and not t.is_real(qd.u1)
    )
    assert t.is_tensor(TensorType((3,), qd.f32)) and not t.is_tensor(qd.f32)
    assert qd.f32 in prim.real_types and float in prim.real_types and bool in prim.integer_types
    assert id(qd.f32) in prim.type_ids and id(qd.f32) not in prim.integer_type_ids


def test_conversions():
    util = qd.lang.util
    assert util.to_numpy_type(qd.u1) is np.bool_ and util.to_numpy_type(qd.f16) is np.float16
    assert (
        util.to_quadrants_type(np.dtype("uint16")) is qd.u16
        and util.to_quadrants_type(np.bool_) is qd.u1
    )
    assert util.cook_dtype(float) is qd.f32 and util.cook_dtype(bool) is qd.u1
    for wrong in ("f32", np.float32, 3):
        with pytest.raises(ValueError, match="Invalid data type"):
            util.cook_dtype(wrong)


def test_ndarray_annotation():
    nd = qd.types.ndarray
    assert nd is qd.types.NDArray and isinstance(nd[qd.f32, 2], nd) and nd[qd.f32].ndim is None
    a = nd(qd.f32, ndim=2, needs_grad=True, boundary="clamp")
    assert (a.dtype, a.ndim, a.needs_grad, a.boundary.name) == (qd.f32, 2, True, "CLAMP")
    assert nd(qd.f32, element_shape=(2, 3)).dtype.to_string() == "MatrixType[2,3, f32]"
    assert nd(qd.f32, element_dim=1).dtype.n is None
    with pytest.raises(ValueError, match="deprecated"):
        nd(field_dim=1)
    for wrong in (
        dict(boundary="x"),
        dict(element_dim=4),
        dict(element_dim=1, element_shape=(2, 3)),
    ):
        with pytest.raises(ValueError):
            nd(**wrong)
    with pytest.raises(TypeError):
        nd(qd.types.vector(3, qd.f32), element_dim=1)


class ArrayType:
    def __init__(self, element_type, shape, needs_grad=False):
        self.element_type, self.shape, self.needs_grad = element_type, shape, needs_grad


def test_matching():
    nd = qd.types.ndarray
    vec3 = TensorType((3,), qd.i32)
    nd(qd.types.vector(3, qd.i32), ndim=1).check_matched(ArrayType(vec3, (4,)), "a")
    nd(qd.types.vector()).check_matched(ArrayType(vec3, (4,)), "a")
    nd().check_matched(ArrayType(vec3, (4,), True), "a")
    with pytest.raises(
        TypeError, match=r"Expect element type f32 for argument a, but get \[Tensor \(3\) i32\]"
    ):
        nd(qd.f32).check_matched(ArrayType(vec3, (4,)), "a")
    text = "Invalid value for argument a - required element type: VectorType.2, i32., but .* is provided"
    for element in (vec3, TensorType((2, 1), qd.i32), TensorType((2,), qd.f32), qd.i32):
        with pytest.raises(ValueError, match=text):
            nd(qd.types.vector(2, qd.i32)).check_matched(ArrayType(element, (4,)), "a")
    with pytest.raises(
        ValueError, match=r"required ndim=1, but 2d ndarray with shape \(12, 13\) is provided"
    ):
        nd(ndim=1).check_matched(ArrayType(qd.f32, (12, 13)), "a")
    with pytest.raises(ValueError, match="needs_grad"):
        nd(needs_grad=True).check_matched(ArrayType(qd.f32, (2,)), "a")


def test_exceptions():
    from quadrants._lib import core
    from quadrants.lang import exception as e

    for name, base in dict(
        Syntax=SyntaxError, Name=NameError, Type=TypeError, Index=IndexError
    ).items():
        cls = getattr(e, f"Quadrants{name}Error")
        assert issubclass(cls, (e.QuadrantsCompilationError,)) and issubclass(cls, base)
        assert issubclass(cls, getattr(core, f"Quadrants{name}Error"))
        assert str(cls("text")) == "text" and cls("text").args == ("text",)
    assert issubclass(qd.QuadrantsAssertionError, (qd.QuadrantsRuntimeError,))
    assert issubclass(qd.QuadrantsAssertionError, AssertionError)
    assert issubclass(qd.QuadrantsRuntimeTypeError, TypeError)
    assert not issubclass(core.QuadrantsRuntimeError, qd.QuadrantsRuntimeError)


def test_host_operations():
    v = qd.Vector([1.0, 4.0])
    assert isinstance(qd.sin(1.0), np.float64) and qd.max(3) == 3 and qd.max(1, 5, 2) == 5
    assert (
        type(qd.sqrt(v)) is qd.Matrix
        and list(qd.sqrt(v)) == [1, 2]
        and list(qd.max(v, 2)) == [2, 4]
    )
    assert (
        qd.round(2.5) == 2 and qd.floor(2.7, qd.i32) == 2 and qd.pow(2, 3) == 8 and qd.abs(-3) == 3
    )
    assert qd.raw_div(-7, 3) == -2 and qd.raw_mod(-7, 3) == -1 and qd.raw_mod(7, -3) == 1
    w = qd.Vector([7, -7, 9])
    assert list(qd.raw_div(w, [2, 2, -4])) == [3, -3, -2]
    assert list(qd.raw_div(9, [2, -2])) == [4, -4] and list(qd.raw_div((9, -8), 2)) == [4, -4]
    assert qd.raw_div(np.int64(-(2**62) - 1), np.int64(2)) == -(2**61)
    assert list(qd.raw_div(w, [2.0, 4.0, 2.0])) == [3.5, -1.75, 4.5]
    assert list(qd.select(qd.Vector([0, 2]), v, 9.0)) == [9, 4] and qd.rsqrt(4.0) == 0.5
    assert list(qd.lang.ops.logical_not(qd.Vector([0, 2]))) == [True, False]
    assert qd.static(3) == 3 and qd.static(3, 4) == [3, 4]
    qd.static_assert(True)
    with pytest.raises(AssertionError, match="text"):
        qd.static_assert(False, "text")
    for use in (lambda: qd.zero(v), lambda: qd.bit_shr(8, 1), lambda: qd.grouped(v)):
        with pytest.raises(AssertionError, match="cannot be called in Python-scope"):
            use()
    with pytest.raises(ValueError):
        qd.bit_cast(v, qd.i32)
    with pytest.raises(qd.QuadrantsSyntaxError, match="first operand of 'atomic_add'"):
        qd.atomic_add(1, 2)
    with pytest.raises(NotImplementedError, match="no Python fallback"):
        qd.lang.ops.popcnt(3)


def test_ndrange():
    assert list(qd.ndrange(2, (1, 3))) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert list(qd.ndrange()) == [()] and list(qd.ndrange((3, 1))) == []
    assert next(iter(qd.ndrange(2, (5, 2**31)))) == (0, 5)  # which no memory holds
    assert next(iter(qd.ndrange(2**31, 2, axes=(1, 0)))) == (0, 0)
    assert list(qd.ndrange(2, np.int32(2), axes=(1, 0))) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert qd.ndrange(2, 3, axes=(0, 1)).axes is None and qd.ndrange(2, (1, 3)).bounds == [
        (0, 2),
        (1, 3),
    ]
    assert [list(i) for i in qd.ndrange(1, 2).grouped()] == [[0, 0], [0, 1]]
    pair = "should be a scalar or a tuple/list like"
    integer = "should be an integer scalar or a tuple/list of"
    for arg, error, text in (
        ("a", qd.QuadrantsSyntaxError, pair),
        ((1, 2, 3), qd.QuadrantsSyntaxError, pair),
        (2.5, qd.QuadrantsTypeError, integer),
        ((1, 2.5), qd.QuadrantsTypeError, integer),
        ((i for i in range(2)), ValueError, "generator"),
    ):
        with pytest.raises(error, match=text):
            qd.ndrange(arg)


@pytest.mark.parametrize(
    "axes, error, text",
    [
        (
            (0, 1, 2),
            qd.QuadrantsSyntaxError,
            r"qd.ndrange\(axes=\(0, 1, 2\)\) has 3 entries but ndrange was called with 2",
        ),
        (
            (0, 0),
            qd.QuadrantsSyntaxError,
            r"qd.ndrange\(axes=\(0, 0\)\) is not a permutation of range\(2\)",
        ),
        (("1", 0), qd.QuadrantsTypeError, r"entries must be Python ints; got str \('1'\)"),
        ((True, 0), qd.QuadrantsTypeError, r"entries must be Python ints; got bool \(True\)"),
    ],
)
def test_ndrange_axes(axes, error, text):
    with pytest.raises(error, match=text):
        qd.ndrange(2, 3, axes=axes)


def test_quant():
    quant = qd.types.quant
    assert quant.int(5).bits == 5 and quant.int(5, False).compute is qd.u32
    assert quant.fixed(8).scale == 1 / 128 and quant.fixed(8, False, 2.0).scale == 2 / 256
    assert quant.float(5, 10).exponent.bits == 5 and quant.float(5, 10).compute is qd.f32


def test_external_arrays(monkeypatch):
    from quadrants._lib import core
    from quadrants.lang._data.arguments import check_array

    monkeypatch.setattr(core, "NdarrayBase", type("NdarrayBase", (), {}), raising=False)
    nd = qd.types.ndarray
    vec3, mat3 = qd.types.vector(3, qd.f32), qd.types.matrix(3, 3, qd.f32)
    check_array(nd, np.zeros(3), "a")
    check_array(nd(qd.f64, ndim=2), np.zeros((2, 3)), "a")
    check_array(nd(vec3, ndim=2), np.zeros((10, 10, 3), np.float32), "a")
    check_array(nd(vec3), np.zeros((10, 3), np.float64), "a")  # scalar type not enforced
    for annotation, array, text in (
        (nd(qd.f32), np.zeros(3), "required array has dtype=f32, array with dtype=f64 is provided"),
        (
            nd(ndim=2),
            np.zeros((1, 1, 1, 1)),
            "required array has ndim=2, array with 4 dimensions is provided",
        ),
        (
            nd(mat3, ndim=2),
            np.zeros((2, 3, 3)),
            "required array has ndim=2 element_dim=2, array with 3 dimensions is provided",
        ),
        (
            nd(mat3),
            np.zeros((4, 2, 3)),
            r"required element_shape=\(3, 3\), array with element shape of \(2, 3\) is provided",
        ),
    ):
        with pytest.raises(ValueError, match="Invalid value for argument a - " + text):
            check_array(annotation, array, "a")
    for wrong in (1.2, [1, 2], None):
        with pytest.raises(qd.QuadrantsRuntimeTypeError, match="Invalid type for argument a, got"):
            check_array(nd(), wrong, "a")
    for dtype in (np.complex64, "U3"):
        with pytest.raises(TypeError):
            check_array(nd(), np.zeros(2, dtype), "a")
