"""Indices, keywords, annotations and templates that are nearly right: an error of the usual class, and
nothing left behind."""

import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from helpers import module_at

# --- indices of fields and ndarrays ---------------------------------------------------------------

NO_INDICES = [{1}, {1: 2}, b"\1", bytearray(b"\1"), range(1, 2), frozenset({1})]
ITERATORS = [lambda: (k for k in (1,)), lambda: iter([1]), lambda: map(int, "1")]


def test_what_has_no_order_is_no_index(backend):
    line, plane = qd.field(qd.i32, 4), qd.field(qd.i32, (4, 4))
    rows, table = qd.ndarray(qd.i32, 4), qd.ndarray(qd.i32, (4, 4))
    vectors = qd.Vector.field(2, qd.i32, 4)
    for key in [*NO_INDICES, *(make() for make in ITERATORS)]:
        for field in (line, vectors):
            with pytest.raises(TypeError, match="Detected illegal element of type"):
                field[key]
        with pytest.raises(TypeError):
            rows[key]
    for key in ({1, 2}, {1: 0, 2: 0}, b"\1\2", range(1, 3)):
        with pytest.raises(AssertionError):
            plane[key]
        with pytest.raises(AssertionError):
            plane[key] = 1
        with pytest.raises(IndexError):
            table[key]
    assert not plane.to_numpy().any()
    plane[[1, 2]] = 7
    assert plane[1, 2] == plane[np.array([1, 2])] == plane[qd.Vector([1, 2])] == 7
    assert line[np.int8(1)] == line[np.array(1)] == line[(1,)] == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError])
@pytest.mark.parametrize("method", ["__len__", "__iter__", "__getitem__"])
def test_what_an_index_raises_comes_at_once(backend, error, method):
    def fail(self, *_):
        raise error("here")

    rest = {"__len__": lambda self: 1, "__getitem__": lambda self, k: [0][k]}
    key = type("Key", (), {**rest, method: fail})()
    for thing in (qd.field(qd.i32, 4), qd.Vector.field(2, qd.i32, 4), qd.ndarray(qd.i32, 4)):
        with pytest.raises((error, TypeError)):
            thing[key]
        assert sum(range(1000)) == 499500  # nothing comes later
    field = qd.field(qd.i32, 4)
    with pytest.raises((error, TypeError)):
        field[key] = 1
    assert sum(range(1000)) == 499500


def test_an_interrupt_amid_an_index(backend):
    class Key:
        def __len__(self):
            raise KeyboardInterrupt

        def __getitem__(self, k):
            raise IndexError

    field = qd.field(qd.i32, 4)
    with pytest.raises(KeyboardInterrupt):
        field[Key()]


# --- keywords -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", "abs sin cos tan tanh exp log sqrt rsqrt asin acos one zero frexp".split()
)
def test_other_keywords_are_refused(backend, name, tmp_path):
    (tmp_path / "calls.py").write_text(
        f"import quadrants as qd\n@qd.kernel\ndef wrong():\n    x = 0.5\n    qd.{name}(bananas=x)\n"
    )
    with pytest.raises(qd.QuadrantsTypeError, match="unexpected keyword argument 'bananas'"):
        module_at(tmp_path / "calls.py").wrong()


def test_the_clock_frequency_is_no_operation(backend):
    @qd.kernel
    def ticks() -> qd.f64:
        return qd.clock_freq_hz()

    with pytest.raises(qd.QuadrantsCompilationError, match="NotImplementedError"):
        ticks()


def test_a_block_dim_beyond_i32(backend):
    @qd.kernel
    def run():
        qd.loop_config(block_dim=2**40)
        for _ in range(4):
            pass

    with pytest.raises(qd.QuadrantsTypeError, match="block_dim"):
        run()


def test_static_takes_items(backend):
    numbers = (1, 2)

    @qd.kernel
    def run() -> qd.i32:
        a, b = qd.static(*numbers)
        c, d, e = qd.static(5, *[6, 7])
        return a + 10 * b + 100 * c + 1000 * d + 10000 * e + qd.static(*[100000])

    assert run() == 176521


# --- annotations ----------------------------------------------------------------------------------


def test_results_of_funcs_are_as_annotated(backend):
    @qd.func
    def two(x) -> (qd.i32, qd.f32):
        return x, x

    @qd.func
    def short(x) -> (qd.i32, qd.f32):
        return x

    @qd.func
    def long(x) -> (qd.i32, qd.f32):
        return x, x, x

    @qd.real_func
    def short_real(x: qd.f32) -> (qd.i32, qd.f32):
        return x

    @qd.real_func
    def long_real(x: qd.f32) -> (qd.i32, qd.f32):
        return x, x, x

    @qd.real_func
    def one(x: qd.i32) -> (qd.i32,):
        return x

    @qd.real_func
    def one_item(x: qd.i32) -> (qd.i32,):
        return (x,)

    @qd.kernel
    def run() -> qd.f32:
        a, b = two(2.5)
        return a * 10 + b + 100 * one(3) + 1000 * one_item(4)[0]

    assert run() == 20 + 2.5 + 300 + 4000

    def caller(f):
        @qd.kernel
        def call():
            f(2.5)

        return call

    for f in (short, long, short_real, long_real):
        with pytest.raises(qd.QuadrantsSyntaxError, match="number of returned values"):
            caller(f)()


def test_a_number_is_no_buffer_view(backend):
    @qd.func
    def plain(x: qd.BufferView):
        return x

    @qd.real_func
    def real(x: qd.BufferView) -> qd.i32:
        return 1

    @qd.kernel
    def call_plain():
        plain(3)

    @qd.kernel
    def call_real() -> qd.i32:
        return real(3)

    with pytest.raises(qd.QuadrantsSyntaxError, match="expects a BufferView, got int"):
        call_plain()
    with pytest.raises(qd.QuadrantsTypeError, match="expects a BufferView, got int"):
        call_real()


def test_a_dtype_is_no_number(backend):
    @qd.kernel
    def run() -> qd.f32:
        r: qd.f32 = qd.i32
        return 1.0

    with pytest.raises(qd.QuadrantsTypeError, match="Invalid constant scalar data type"):
        run()


def test_types_are_no_sizes():
    for make in (
        lambda: qd.types.vector(int, 3),
        lambda: qd.types.matrix(int, 2, qd.f32),
        lambda: qd.Vector.field(int, qd.f32, 3),
    ):
        with pytest.raises(TypeError, match="rows and columns are ints, got <class 'int'>"):
            make()


def test_struct_fields_as_tensors(backend):
    pair = qd.types.struct(a=qd.f32, b=qd.i32)
    s, t, f = pair.field(shape=3), pair.field(shape=3), qd.field(qd.i32, 3)
    s[1].b, t[1].b = 4, 5

    @qd.kernel
    def second(x: qd.Tensor) -> qd.i32:
        return x[1].b

    @qd.kernel
    def maybe(x: qd.Tensor | None) -> qd.i32:
        r = -1
        if qd.static(x is not None):
            r = x[1].b
        return r

    for _ in range(2):
        assert (second(s), second(t), maybe(s), maybe(t), maybe(None)) == (4, 5, 4, 5, -1)
    with pytest.raises(qd.QuadrantsCompilationError):
        second(f)


# --- templates, and numbers of NumPy --------------------------------------------------------------

NESTED = """
import sys
import quadrants as qd

qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1])

@qd.kernel
def k(x: qd.template()) -> qd.i32:
    return 1

for v in ((1, 2), (1, [2]), (1, qd.ndarray(qd.i32, 3)), (1, (2, qd.ndarray(qd.i32, 3))), (1, 3)):
    try:
        print(k(v), end=" ")
    except TypeError as e:
        print(type(e).__name__, end=" ")
"""


def test_ndarrays_in_tuples_are_no_templates(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(NESTED)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", program, tmp_path / "cache"],
            capture_output=True,
            text=True,
            check=True,
        )
        refused = "QuadrantsRuntimeTypeError"
        assert done.stdout.splitlines()[-1] == f"1 TypeError {refused} {refused} 1 "


@pytest.mark.parametrize(
    "number", [np.int64(3), np.int32(3), np.uint8(3), np.array(3), np.bool_(True)]
)
def test_integers_of_numpy_lose_nothing(backend, number, capfd):
    @qd.kernel
    def run() -> qd.i32:
        x = 0
        x = number
        x += number
        return x

    assert run() == 2 * int(number)
    told = capfd.readouterr()
    assert "lose precision" not in told.out + told.err


def test_floats_of_numpy_do(backend, capfd, tmp_path):
    backend.init(log_level=qd.WARN)
    path = tmp_path / "program.py"  # a place is told of once in a process
    path.write_text("""import numpy as np
import quadrants as qd
number = np.float32(2.5)
@qd.kernel
def run() -> qd.i32:
    x = 0
    x = number
    return x
""")
    assert module_at(path, "program").run() == 2
    told = capfd.readouterr()
    assert "lose precision" in told.out + told.err


# --- threads --------------------------------------------------------------------------------------


def test_names_are_listed_while_others_are_used():
    program = """
import sys, threading
sys.setswitchinterval(1e-6)
import quadrants as qd
wrong = []
def look():
    try:
        for _ in range(1000):
            dir(qd)
    except RuntimeError as e:
        wrong.append(e)
def use():
    for name in list(dir(qd)):
        getattr(qd, name)
threads = [threading.Thread(target=look) for _ in range(3)] + [threading.Thread(target=use)]
for t in threads: t.start()
for t in threads: t.join()
assert not wrong, wrong
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- declarations that cannot be made --------------------------------------------------------------


def test_a_tree_that_cannot_be_made_stops_nobody(backend):
    x = qd.field(qd.i32, 8)

    @qd.kernel
    def k():
        x[0] += 1

    builder = qd.FieldsBuilder()
    node = builder.dense(qd.i, 3)
    with pytest.raises(RuntimeError, match="must have at least one child"):
        builder.finalize()
    k()
    assert x[0] == 1
    y = qd.field(qd.i32)
    node.place(y)
    builder.finalize()
    y[2] = 5
    k()
    assert x[0] == 2 and y[2] == 5


@pytest.mark.parametrize("word", [7, "a"])
@pytest.mark.oracle_differs("leaves a node without children")
def test_a_word_that_cannot_be_leaves_no_node(backend, word):
    with pytest.raises((RuntimeError, TypeError)):
        qd.root.quant_array(qd.i, 3, word)
    x = qd.field(qd.i32, 8)
    x[1] = 3
    assert x[1] == 3


# --- arrays of NumPy for parameters that are no arrays ---------------------------------------------

NO_NUMBERS = [
    np.array(["a"]),
    np.array(3, object),
    np.zeros(3, ">i4"),
    np.zeros(3),
    np.zeros((), complex),
    np.array("2020", "M8[D]"),
    np.zeros(1, [("a", "i4")]),
]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_arrays_are_no_numbers(backend, value):
    structure = qd.types.struct(a=qd.i32)

    @qd.kernel
    def integer(a: qd.i32) -> qd.i32:
        return a

    @qd.kernel
    def real(a: qd.f32) -> qd.f32:
        return a

    @qd.kernel
    def struct(a: structure) -> qd.i32:
        return a.a

    for k in (integer, real, struct):
        with pytest.raises(
            qd.QuadrantsRuntimeTypeError, match="cannot be converted into required type"
        ):
            k(value)
    assert integer(3) == real(3) == 3


@pytest.mark.parametrize("dtype", [">f4", ">i2", object, np.float16, np.uint8])
def test_vectors_are_read_from_arrays_of_any_numbers(backend, dtype):
    vec3, square = qd.types.vector(3, qd.f32), qd.types.matrix(2, 2, qd.f32)

    @qd.kernel
    def total(a: vec3) -> qd.f32:
        return a.sum()

    @qd.kernel
    def corner(a: square) -> qd.f32:
        return a[0, 1]

    assert total(np.array([1, 2, 4], dtype)) == 7
    assert corner(np.array([[1, 2], [3, 4]], dtype)) == 2


@pytest.mark.parametrize(
    "value", ["a", "abc", 2**40, 5, 3.0, np.array(["a", "b", "c"]), np.zeros(3, complex)], ids=repr
)
@pytest.mark.oracle_differs("raises what indexing raised")
def test_what_is_no_vector(backend, value):
    @qd.kernel
    def total(a: qd.types.vector(3, qd.i32)) -> qd.i32:
        return a.sum()

    with pytest.raises(
        qd.QuadrantsRuntimeTypeError, match="cannot be converted into required type"
    ):
        total(value)
    assert total([1, 2, 3]) == 6


def test_vectors_in_a_row_are_no_matrix(backend):
    @qd.kernel
    def corner(a: qd.types.matrix(2, 2, qd.f32)) -> qd.f32:
        return a[0, 1]

    for value in (qd.Vector.field(3, qd.f32, 4), qd.Vector.ndarray(3, qd.f32, 4)):
        with pytest.raises((qd.QuadrantsRuntimeTypeError, AssertionError)):
            corner(value)
    square = qd.field(qd.f32, (2, 2))
    square[0, 1] = 3
    assert corner(square) == 3


# --- mistakes in kernels ---------------------------------------------------------------------------


@qd.real_func
def set_to_seven(a: qd.ref(qd.i32)):
    a = 7  # noqa: F841


@pytest.mark.parametrize("given", ["3", "n", "n + 1", "qd.static(3)", "2 + 1", "True"])
def test_a_reference_is_to_what_can_be_written(backend, given, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(f"""import quadrants as qd
from test_odd_calls import set_to_seven
@qd.kernel
def k(n: qd.i32) -> qd.i32:
    set_to_seven({given})
    return n
""")
    with pytest.raises(qd.QuadrantsCompilationError):
        module_at(path, "program").k(3)


def test_what_a_helper_raises_is_wrapped(backend):
    def helper(x):
        raise qd.QuadrantsRuntimeError("boom")

    @qd.kernel
    def k() -> qd.i32:
        return qd.static(helper(4))

    with pytest.raises(qd.QuadrantsCompilationError, match="boom"):
        k()


def test_loops_over_what_is_not_asked_for(backend):
    x = qd.field(qd.i32, 4)

    @qd.kernel
    def keyword():
        for i in qd.ndrange(3, 2, foo=1):
            x[0] = i

    @qd.kernel
    def nothing():
        for i in qd.grouped():
            x[0] = 1

    @qd.kernel
    def two():
        for i in qd.grouped(x, x):
            x[0] = 1

    for k in (keyword, nothing, two):
        with pytest.raises(qd.QuadrantsTypeError):
            k()


def test_slices_of_arrays_are_not_assigned_to(backend):
    @qd.kernel
    def k(a: qd.types.ndarray()):
        a[:] = 1

    with pytest.raises(qd.QuadrantsSyntaxError, match="slice"):
        k(qd.ndarray(qd.i32, 4))


def test_a_tape_that_nobody_entered_does_not_exit(backend):
    loss = qd.field(qd.f32, (), needs_grad=True)
    with pytest.raises(AssertionError, match="tape must be entered"):
        qd.ad.Tape(loss).__exit__(None, None, None)
