"""Integers that `fill` takes: what does not fit raises, where the established package raises too."""

import numpy as np
import pytest

import quadrants as qd

I32, U32, I64, U64 = 2**31, 2**32, 2**63, 2**64
# dtype -> what fields (and ndarrays of numbers) take and what they become; what they do not take.
TAKEN = {
    qd.i8: ({-129: 127, 128: -128, I32 - 1: -1, -I32: 0}, (I32, -I32 - 1, U64)),
    qd.u8: ({-1: 255, 256: 0, I32 - 1: 255}, (I32, U32 - 1, -I32 - 1)),
    qd.i16: ({-32769: 32767, 32768: -32768}, (I32, -I32 - 1)),
    qd.u16: ({-1: 65535, 65536: 0}, (I32, -I32 - 1)),
    qd.u1: ({2: 1, -1: 1, 0: 0}, (I32, -I32 - 1)),
    qd.i32: ({I32 - 1: I32 - 1, -I32: -I32}, (I32, -I32 - 1, U32, U64)),
    qd.u32: ({0: 0, U32 - 1: U32 - 1}, (U32, U64, -I32 - 1)),
    qd.i64: ({I64 - 1: I64 - 1, -I64: -I64, U32: U32}, (I64, U64 - 1, -I64 - 1)),
    qd.u64: ({-1: U64 - 1, U64 - 1: U64 - 1, -I64: I64}, (U64, -I64 - 1)),
}
ROWS = [pytest.param(dtype, *row, id=str(dtype)) for dtype, row in TAKEN.items()]
KINDS = [int, lambda n: np.int64(n) if -I64 <= n < I64 else int(n)]


@pytest.fixture(autouse=True)
def start():
    qd.init(arch=qd.cpu)


def filled(container, value):
    container.fill(value)
    return {int(n) for n in container.to_numpy().ravel()}


@pytest.mark.oracle_differs("refuses what default_ip does not hold for i64 and u64 too")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype, taken, refused", ROWS)
def test_fields(dtype, taken, refused, kind):
    x, v = qd.field(dtype, 3), qd.Vector.field(2, dtype, 3)
    for value, becomes in taken.items():
        assert filled(x, kind(value)) == {becomes}
        assert filled(v, kind(value)) == {becomes} == filled(v, [kind(value)] * 2)
    kept = filled(x, 1) | filled(v, 1)
    for value in refused:
        for container, given in ((x, value), (v, value), (v, [0, value])):
            with pytest.raises(qd.QuadrantsTypeError, match=f"^{value} is out of range"):
                container.fill(kind(given) if given is value else given)
            assert filled(container, 1) == kept
    if dtype == qd.u32:
        assert filled(x, -1) == {U32 - 1}


@pytest.mark.oracle_differs("refuses what default_ip does not hold for i64 and u64 too")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype, taken, refused", ROWS)
def test_ndarrays(dtype, taken, refused, kind):
    x = qd.ndarray(dtype, 3)
    for value, becomes in taken.items():
        assert filled(x, kind(value)) == {becomes}
    for value in (*refused, -1) if dtype == qd.u32 else refused:
        with pytest.raises(TypeError, match=f"^{value} is out of range.* type {dtype} ") as caught:
            x.fill(kind(value))
        assert (caught.type is TypeError) == (dtype in (qd.i32, qd.u32))
        assert filled(x, 1) == {1}


@pytest.mark.parametrize(
    "dtype, value",
    [
        (dtype, value)
        for dtype, low, high in (
            (qd.i8, -128, 127), (qd.u8, 0, 255), (qd.i16, -32768, 32767), (qd.u16, 0, 65535),
            (qd.i32, -I32, I32 - 1), (qd.u32, 0, U32 - 1), (qd.i64, -I64, I64 - 1),
        )
        for value in (low - 1, high + 1, U64)
    ] + [(qd.u64, -1), (qd.u64, U64)],
)  # fmt: skip
def test_vectors_and_matrices_of_ndarrays(dtype, value):
    v, m = qd.Vector.ndarray(2, dtype, 3), qd.Matrix.ndarray(1, 2, dtype, 3)
    for container, given in ((v, value), (m, value), (v, [0, value]), (m, [[0, value]])):
        with pytest.raises(OverflowError):
            container.fill(given)
    good = value + 1 if value < 0 else 1
    assert filled(v, good) == {good} == filled(m, good)


def test_struct_fields_and_sparse_ones():
    s = qd.Struct.field({"a": qd.i32, "b": qd.f32}, shape=3)
    with pytest.raises(qd.QuadrantsTypeError, match="out of range"):
        s.fill(I32)
    x = qd.field(qd.i32)
    qd.root.pointer(qd.i, 4).place(x)
    x[1] = 5
    with pytest.raises(qd.QuadrantsTypeError, match="out of range"):
        x.fill(I32)
    assert x[1] == 5


def test_what_is_no_integer_is_cast():
    x, a = qd.field(qd.i16, 3), qd.ndarray(qd.i64, 3)
    assert filled(x, 2.7) == {2} and filled(a, True) == {1} and filled(a, np.float32(3)) == {3}
    f = qd.ndarray(qd.f32, 3)
    f.fill(U64)
    assert f.to_numpy().tolist() == [float(U64)] * 3
