"""Values that are not what a parameter, a variable or a method takes."""

import array
import collections
import re

import numpy as np
import pytest

import quadrants as qd
from helpers import module_at


@pytest.mark.parametrize("kind", ["field", "ndarray", "tensor"])
def test_a_matrix_may_come_from_anything_of_two_dimensions(backend, kind):
    @qd.kernel
    def digits(m: qd.types.matrix(2, 3, qd.f32)) -> qd.f32:
        return m[0, 0] + 10 * m[0, 1] + 100 * m[1, 0] + 1000 * m[1, 2]

    x = getattr(qd, kind)(qd.f32, shape=(2, 3))
    x.from_numpy(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    for _ in range(2):
        assert digits(x) == 6421.0
    x[0, 0] = 9.0
    assert digits(x) == 6429.0


@pytest.mark.parametrize("value", [{"x": 1}, qd.types.struct(x=qd.f32, y=qd.f32)])
def test_what_is_no_vector_is_refused_for_one(backend, value):
    @qd.kernel
    def first(v: qd.types.vector(2, qd.f32)) -> qd.f32:
        return v[0]

    with pytest.raises(qd.QuadrantsRuntimeTypeError, match="cannot be converted"):
        first(value if isinstance(value, dict) else value(1, 2))
    assert first([3, 4]) == 3


class Mine(np.ndarray):
    pass


@pytest.mark.parametrize(
    "value",
    [
        bytearray(b"\1"),
        array.array("i", [1]),
        collections.deque([1]),
        collections.UserList([1]),
        np.ma.array([1]),
        np.array([1]).view(Mine),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_may_change_is_no_template_argument(backend, value):
    @qd.kernel
    def first(x: qd.template()) -> qd.i32:
        return x[0]

    for _ in range(2):
        with pytest.raises(TypeError, match="(?s)unhashable type.*annotate arrays"):
            first(value)
    assert first((1,)) == 1


def test_containers_are_not_declared_in_kernels(backend):
    x = qd.field(qd.f32)

    @qd.kernel
    def declares():
        qd.root.dense(qd.i, 3)

    @qd.kernel
    def places():
        qd.root.place(x)

    @qd.kernel
    def one() -> qd.i32:
        return 1

    qd.root.dense(qd.i, 2).place(x)
    for kernel, name in ((declares, "dense"), (places, "place")):
        with pytest.raises(qd.QuadrantsCompilationError, match=f"{name} cannot be called in"):
            kernel()
        assert one() == 1


@pytest.mark.parametrize("spec", ["zz", "hhh", "q", "lll", "1000000d", ".1000000d"])
def test_specs_that_are_none(backend, spec, tmp_path):
    path = tmp_path / "shows.py"
    path.write_text(
        "import quadrants as qd\n\n@qd.kernel\ndef show(x: qd.i32):\n"
        f"    print(f'[{{x:{spec}}}]')\n"
    )
    with pytest.raises(qd.QuadrantsTypeError, match=rf"'{re.escape(spec)}'"):
        module_at(path).show(7)


def test_numbers_hold_no_structs_and_no_vectors(backend):
    Pair = qd.types.struct(x=qd.f32, y=qd.i32)

    @qd.kernel
    def annotated(a: qd.i32) -> qd.f32:
        y: qd.i32 = Pair(a + 0.5, a)
        return y.x

    @qd.real_func
    def second(x: qd.i32) -> qd.f32:
        return x[1]

    @qd.kernel
    def passed(a: qd.i32) -> qd.f32:
        return second(qd.Vector([a + 0.5, a + 1.5]))

    with pytest.raises(qd.QuadrantsTypeError, match="cannot hold a struct"):
        annotated(3)
    with pytest.raises(qd.QuadrantsTypeError, match="expected to be a number"):
        passed(3)


def test_devices_and_tensors_of_torch_are_checked(backend):
    torch = pytest.importorskip("torch")
    for x in (qd.ndarray(qd.i32, 3), qd.field(qd.i32, 3)):
        for device in (1.5, True, object()):
            with pytest.raises(TypeError, match="'device' must be torch.device"):
                x.to_torch(device)
        for tensor in (None, "x", np.zeros(3, np.int32)):
            with pytest.raises(TypeError, match=r"takes a torch\.Tensor"):
                x.from_torch(tensor)
        assert x.to_torch(torch.device("cpu")).dtype == torch.int32


def test_lists_are_indexed_by_what_is_known(backend):
    known = [10, 20, 30]

    @qd.kernel
    def own(n: qd.i32) -> qd.i32:
        items = [1, 2, 3]
        return items[n]

    @qd.kernel
    def captured(n: qd.i32) -> qd.i32:
        return known[n]

    @qd.kernel
    def of_tuple(n: qd.i32) -> qd.i32:
        return (1, 2, 3)[n]

    @qd.kernel
    def vector(n: qd.i32) -> qd.i32:
        return qd.Vector(known)[n]

    for k in (own, captured, of_tuple):
        with pytest.raises(qd.QuadrantsCompilationError, match="indices must be known while"):
            k(1)
    assert vector(1) == 20


@pytest.mark.parametrize("call", ["eval('n')", "locals()['n']", "len(vars())", "len(dir())"])
def test_readers_of_frames_are_refused(backend, call, tmp_path):
    path = tmp_path / "reads_frames.py"
    path.write_text(f"""
import quadrants as qd
n = 42
@qd.kernel
def k(x: qd.i32) -> qd.i32:
    return x + {call}
@qd.kernel
def with_names(x: qd.i32) -> qd.i32:
    return x + eval("n", {{"n": 5}}) + len(vars(qd.i32.__class__)) * 0
""")
    module = module_at(path, "reads_frames")
    with pytest.raises(qd.QuadrantsCompilationError, match="looks at the variables"):
        module.k(1)
    assert module.with_names(1) == 6


def test_numpy_arrays_take_run_time_values_from_the_right(backend):
    a = np.arange(3, dtype=np.int32)

    @qd.kernel
    def k(n: qd.i32) -> qd.types.vector(4, qd.i32):
        return qd.Vector([(a + n)[1], (a * n)[2] - (a - n)[0], (a + n).sum(), (a // 2 % n)[2]])

    for n in (4, 3):
        expected = [(a + n)[1], (a * n)[2] - (a - n)[0], (a + n).sum(), (a // 2 % n)[2]]
        assert k(n).to_list() == expected


def test_vector_types_take_what_their_numbers_can_be(backend):
    pair, small = qd.types.vector(2, qd.i32), qd.types.vector(2, qd.u8)
    for make in (lambda: pair(float("nan"), 1), lambda: qd.types.struct(a=pair)([float("nan"), 1])):
        with pytest.raises(ValueError):
            make()
    for make in (
        lambda: pair(float("inf"), 1),
        lambda: pair(2**40, 1),
        lambda: pair(3e9, 1),
        lambda: small(300, 1),
        lambda: small(1, -1),
        lambda: qd.types.matrix(1, 2, qd.i32)([1, 2**40]),
    ):
        with pytest.raises(OverflowError):
            make()
    assert pair(1.9, -(2**31)).to_list() == [1, -(2**31)] and small(255, 0).to_list() == [255, 0]


LONG = np.longdouble(1.5)
LONGS, LONG_ARRAY, LONG_VECTOR = [LONG], np.array([1.5, 2], np.longdouble), qd.Vector([LONG, LONG])
ITSELF, NESTED = np.empty((), object), np.empty((), object)
ITSELF[()], NESTED[()] = ITSELF, np.array(3)


@pytest.mark.parametrize(
    "text",
    ["LONG", "LONG * 1", "qd.cast(LONG, qd.f64)", "qd.max(LONG, 1)", "qd.static(LONG)", "LONGS[0]", "LONG_ARRAY[0]",
     "qd.Vector([LONG, LONG])[1]", "LONG_VECTOR[0]", "np.longdouble(1.5)", "same(LONG)", "same_real(LONG)", "t",
     "np.array(1.5, np.longdouble)"],
)  # fmt: skip
def test_a_long_double_is_a_number(backend, text, tmp_path):
    """Its item() is one again."""
    path = tmp_path / "long.py"
    path.write_text(f"""
import numpy as np
import quadrants as qd
@qd.func
def same(x): return x
@qd.real_func
def same_real(x: qd.f32) -> qd.f32: return x
@qd.kernel
def k(t: qd.template()) -> float: return {text}
""")
    module = module_at(path)
    vars(module).update({n: v for n, v in globals().items() if n.startswith("LONG")})
    assert module.k(LONG) == 1.5


@pytest.mark.parametrize("array", ["ITSELF", "NESTED"])
def test_an_array_in_an_array_is_no_number(backend, array):
    held = globals()[array]

    @qd.kernel
    def k() -> qd.f32:
        return held

    with pytest.raises(qd.QuadrantsTypeError, match="Invalid constant scalar data type"):
        k()
