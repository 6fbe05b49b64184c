"""`qd.ad`: tapes, forward mode, checks of gradients and `clear_all_gradients`."""

import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import quadrants as qd
from helpers import raises
from quadrants.lang import impl


def scalar(dt=qd.f32, **options):
    """A field of shape () that has a gradient."""
    return qd.field(dt, (), needs_grad=True, **options)


class Square:
    """`y += x**2`, with the fields it takes; `by(a)` is `y += x * a`."""

    def __init__(self, dt=qd.f32, needs_dual=False):
        x, y = (scalar(dt, needs_dual=needs_dual) for _ in range(2))

        @qd.kernel
        def run():
            y[None] += x[None] * x[None]

        @qd.kernel
        def by(a: qd.f32):
            y[None] += x[None] * a

        self.x, self.y, self.run, self.by = x, y, run, by
        x[None] = 3


@pytest.fixture
def square(backend):
    return Square()


@pytest.fixture
def double(backend):
    """The same in f64 with duals."""
    return Square(qd.f64, needs_dual=True)


@qd.kernel
def array_square(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in range(1):
        y[i] += x[i] * x[i]


def one(value=0.0, needs_grad=True):
    """An ndarray of one f32."""
    a = qd.ndarray(qd.f32, 1, needs_grad=needs_grad)
    a.fill(value)
    return a


def recording():
    """What the runtime shows: tape and forward mode."""
    runtime = impl.get_runtime()
    return runtime.target_tape, runtime.fwd_mode_manager


# --- what a tape computes ---


def test_one_kernel(square):
    with qd.ad.Tape(square.y) as tape:
        square.run()
        assert recording() == (tape, None)
    assert recording() == (None, None)
    assert (square.y[None], square.x.grad[None], square.y.grad[None]) == (9, 6, 1)


def test_calls_in_reverse(backend):
    a, b, c = scalar(), scalar(), scalar()

    @qd.kernel
    def first():
        b[None] = a[None] * a[None]

    @qd.kernel
    def second(f: qd.f32):
        c[None] = b[None] * b[None] * f

    a[None] = 3
    with qd.ad.Tape(c):
        first()
        second(2)
    assert (c[None], a.grad[None]) == (162, 2 * 4 * 27)
    assert (b.grad[None], c.grad[None]) == (0, 0)  # assigned


def test_loss_and_gradients_begin_at_zero(square):
    square.y[None] = 7
    for _ in range(2):
        with qd.ad.Tape(loss=square.y):
            assert (square.y[None], square.x.grad[None], square.y.grad[None]) == (0, 0, 0)
            square.run()
        assert (square.y[None], square.x.grad[None]) == (9, 6)


def test_gradients_are_kept(square):
    square.x.grad[None] = 10
    with qd.ad.Tape(square.y, clear_gradients=False):
        square.run()
    assert square.x.grad[None] == 16


def test_every_field_is_cleared(square):
    other = qd.Vector.field(2, qd.f64, 3, needs_grad=True, needs_dual=True)
    array = one()
    for gradient in (other.grad, other.dual, array.grad):
        gradient.fill(5)
    with qd.ad.Tape(square.y):
        pass
    assert not other.grad.to_numpy().any()
    assert (other.dual.to_numpy() == 5).all() and array.grad[0] == 5


@pytest.mark.oracle_differs("keyword arguments are not seen")
def test_arguments_by_keyword(square):
    with qd.ad.Tape(square.y) as tape:
        square.by(a=4)
        square.by(2)
    assert (square.y[None], square.x.grad[None]) == (18, 6)
    assert [call[1] for call in tape.calls] == [(4,), (2,)]
    assert [call.kwargs for call in tape.calls] == [{}, {}]


def test_results_pass(square):
    x, y = square.x, square.y

    @qd.kernel
    def told() -> qd.f32:
        y[None] += x[None]
        return 5

    with qd.ad.Tape(y):
        assert told() == 5


def test_methods(backend):
    x, y = scalar(), scalar()

    @qd.data_oriented
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        @qd.kernel
        def run(self, a: qd.f32):
            y[None] += x[None] * self.factor * a

    x[None] = 1
    with qd.ad.Tape(y) as tape:
        scale = Scale(3)
        scale.run(2)
        Scale(5).run(1)
    assert x.grad[None] == 11
    assert tape.calls[0][1] == (scale, 2)


@pytest.mark.oracle_differs("records what these launch")
def test_accesses_from_python_are_not_recorded(square):
    values = qd.field(qd.f32, 4, needs_grad=True)
    array = qd.ndarray(qd.f32, 4)
    with qd.ad.Tape(square.y) as tape:
        values.from_numpy(values.to_numpy())
        values.fill(1)
        values[0] = values[1]
        array.from_numpy(array.to_numpy())
        array.fill(2)
        array.copy_from(array)
        square.run()
    assert len(tape.calls) == 1
    assert square.x.grad[None] == 6


def test_gradients_asked_for_inside_are_not_recorded(square):
    with qd.ad.Tape(square.y) as tape:
        square.y.grad[None] = 1
        square.run.grad()
        assert square.x.grad[None] == 6
        square.run()
    assert len(tape.calls) == 1
    assert square.x.grad[None] == 12


def test_attributes(square):
    tape = qd.ad.Tape(square.y, clear_gradients=False)
    assert (tape.calls, tape.modes, tape.entered, tape.gradient_evaluated) == ([], [], False, False)
    assert (tape.clear_gradients, tape.validation, tape.eval_on_exit) == (False, False, True)
    assert tape.loss is square.y and tape.grad_checker is None
    assert tape.runtime is impl.get_runtime()
    with tape as entered:
        assert entered is tape and tape.entered and not tape.gradient_evaluated
        square.by(2)
        square.run()
    assert tape.gradient_evaluated
    assert [call[1] for call in tape.calls] == [(2,), ()]
    assert all(mode.name == "NONE" for mode in tape.modes) and len(tape.modes) == 2
    assert all(func.autodiff_mode.name == "NONE" for func, _ in tape.calls)


# --- losses ---


def test_losses_of_every_kind(backend):
    x = scalar()
    vector = qd.Vector.field(2, qd.f32, (), needs_grad=True)
    struct = qd.Struct.field({"a": qd.f32, "b": qd.f32}, shape=(), needs_grad=True)

    @qd.kernel
    def to_vector():
        vector[None][0] += x[None] * x[None]
        vector[None][1] += x[None]

    @qd.kernel
    def to_struct():
        struct[None].a += x[None] * x[None]
        struct[None].b += x[None]

    @qd.kernel
    def to_array(out: qd.types.ndarray()):
        for i in range(1):
            out[i] += x[None] * x[None]

    x[None] = 3
    out = one(2)
    for loss, run, expect in (
        (vector, to_vector, 7),
        (struct, to_struct, 7),
        (out, lambda: to_array(out), 6),
    ):
        x.grad[None] = 0
        with qd.ad.Tape(loss):
            run()
        assert x.grad[None] == expect
    assert (out[0], out.grad[0]) == (9, 1)


@pytest.mark.oracle_differs("takes no qd.Tensor")
def test_field_tensors(backend):
    y = qd.tensor(qd.f32, (), needs_grad=True, backend=qd.Backend.FIELD)
    x = scalar()

    @qd.kernel
    def run(y: qd.Tensor):
        y[None] += x[None] * x[None]

    x[None] = 3
    with qd.ad.Tape(y) as tape:
        run(y)
    assert tape.loss is y._unwrap()
    assert (y[None], x.grad[None]) == (9, 6)


@pytest.mark.oracle_differs("takes no qd.Tensor")
def test_array_tensors(backend):
    x, y = (qd.tensor(qd.f32, 1, needs_grad=True, backend=qd.Backend.NDARRAY) for _ in range(2))
    x[0] = 3
    with qd.ad.Tape(y) as tape:
        array_square(x, y)
    assert tape.loss is y._unwrap()
    assert (y[0], x.grad[0]) == (9, 6)


def test_gradients_of_arrays_are_never_cleared(backend):
    x, y = one(3), one(5)
    for n in (1, 2):
        with qd.ad.Tape(y):
            array_square(x, y)
        assert (y[0], y.grad[0], x.grad[0]) == (9, 1, 6 * n)


@pytest.mark.needs_torch
def test_torch_losses(backend):
    torch = pytest.importorskip("torch")
    x = torch.tensor([3.0], requires_grad=True)
    y = torch.tensor([5.0], requires_grad=True)
    for n in (1, 2):
        with qd.ad.Tape(y):
            array_square(x, y)
        assert (y.item(), y.grad.item(), x.grad.item()) == (9, 1, 6 * n)
    fresh = torch.zeros(1, requires_grad=True)
    with qd.ad.Tape(fresh):
        pass
    assert fresh.grad.item() == 1
    for bad, text in (
        (torch.zeros(2, requires_grad=True), "must be a tensor only contains one element"),
        (
            torch.zeros(1),
            "Gradients of loss are not allocated, please set requires_grad=True for all tensors that are "
            "required by autodiff.",
        ),
    ):
        with raises(RuntimeError, text):
            with qd.ad.Tape(bad):
                pass


FIELD_LOSS = (
    "Gradients of loss are not allocated, please use qd.field(..., needs_grad=True) for all fields "
    "that are required by autodiff."
)
ARRAY_LOSS = (
    "Gradients of loss are not allocated, please set needs_grad=True for all ndarrays that are "
    "required by autodiff."
)
ONE_ELEMENT = "The loss of `Tape` must be an ndarray with only one element"
LOSSES = {
    "shape": (
        lambda: qd.field(qd.f32, 1, needs_grad=True),
        RuntimeError,
        "The loss of `Tape` must be a 0-D field, i.e. scalar",
    ),
    "no gradient": (lambda: qd.field(qd.f32, ()), RuntimeError, FIELD_LOSS),
    "integer": (lambda: qd.field(qd.i32, ()), RuntimeError, FIELD_LOSS),
    "array of none": (lambda: one(needs_grad=False), RuntimeError, ARRAY_LOSS),
    "array": (lambda: qd.ndarray(qd.f32, 2, needs_grad=True), RuntimeError, ONE_ELEMENT),
    "nothing": (lambda: None, AttributeError, ""),
    "number": (lambda: 5, AttributeError, ""),
}


@pytest.mark.parametrize("name", LOSSES)
def test_bad_losses(backend, name):
    make, kind, text = LOSSES[name]
    tape = qd.ad.Tape(make())
    with pytest.raises(kind) as info:
        with tape:
            raise NotImplementedError
    assert text in str(info.value)
    assert recording() == (None, None)


@pytest.mark.oracle_differs("has no text")
def test_what_else_is_no_loss(backend):
    with raises(AttributeError, "must be a field, an ndarray or a tensor, got None"):
        qd.ad.Tape().__enter__()


# --- life of a tape ---


def test_entered_once(square):
    tape = qd.ad.Tape(square.y)
    with tape:
        square.run()
    with raises(AssertionError, "Tape can be entered only once."):
        with tape:
            pass
    assert square.x.grad[None] == 6


def test_evaluated_once(square):
    tape = qd.ad.Tape(square.y)
    with raises(AssertionError, "Before evaluating gradients tape must be entered."):
        tape.grad()
    with tape:
        square.run()
    with raises(AssertionError, "Gradients of grad can be evaluated only once."):
        tape.grad()
    assert square.x.grad[None] == 6


def test_evaluated_by_hand(square):
    tape = qd.ad.Tape(square.y)
    tape.eval_on_exit = False
    with tape:
        square.run()
    assert (square.x.grad[None], tape.gradient_evaluated) == (0, False)
    tape.grad()
    assert (square.x.grad[None], tape.gradient_evaluated) == (6, True)


@pytest.mark.oracle_differs("fails with a field as its loss")
def test_evaluated_inside(square):
    with raises(AssertionError, "evaluated only once."):
        with qd.ad.Tape(square.y) as tape:
            square.run()
            tape.grad()
            assert square.x.grad[None] == 6
    assert recording() == (None, None)
    assert (square.x.grad[None], len(tape.calls)) == (6, 1)


def test_insert(square):
    tape = qd.ad.Tape(square.y)
    tape.insert(square.run._primal, ())
    with tape:
        pass
    assert square.x.grad[None] == 6
    assert len(tape.calls) == len(tape.modes) == 1


@pytest.mark.oracle_differs("takes no kernels")
def test_insert_kernels(square):
    with qd.ad.Tape(square.y) as tape:
        tape.insert(square.by, [4])
        tape.insert(square.by, (), {"a": 5})
    assert square.x.grad[None] == 9
    with raises(AssertionError, "Inserted funcs should be forward kernels."):
        tape.insert(square.run._adjoint, ())


class Stop(Exception):
    pass


def test_body_raises(square):
    with pytest.raises(Stop):
        with qd.ad.Tape(square.y) as tape:
            square.run()
            raise Stop
    assert recording() == (None, None)
    assert (square.x.grad[None], tape.gradient_evaluated) == (6, True)
    square.run()
    assert len(tape.calls) == 1


@pytest.mark.oracle_differs("evaluates then, too")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_body_is_stopped(square, kind):
    with pytest.raises(kind):
        with qd.ad.Tape(square.y) as tape:
            square.run()
            raise kind
    assert recording() == (None, None)
    assert not tape.gradient_evaluated and square.x.grad[None] == 0
    tape.grad()
    assert square.x.grad[None] == 6


def rejected(x, y):
    @qd.kernel
    def nodiff():
        y[None] += x[None]
        for i in range(3):
            y[None] += x[None]

    return nodiff


def test_kernel_without_gradient(square):
    nodiff = rejected(square.x, square.y)
    with pytest.raises(RuntimeError) as info:
        with qd.ad.Tape(square.y) as tape:
            nodiff()
            raise Stop
    assert isinstance(info.value.__context__, Stop)
    assert recording() == (None, None) and not tape.gradient_evaluated
    with qd.ad.Tape(square.y):
        square.run()
    assert square.x.grad[None] == 6


def test_failed_calls_are_not_recorded(square):
    with qd.ad.Tape(square.y) as tape:
        with pytest.raises(qd.QuadrantsSyntaxError):
            square.run(1)
        square.run()
    assert len(tape.calls) == 1 and square.x.grad[None] == 6


@pytest.mark.oracle_differs("crashes later")
def test_nesting(double):
    x, y = double.x, double.y
    modes = {"Tape": lambda: qd.ad.Tape(y), "FwdMode": lambda: qd.ad.FwdMode(y, x)}
    for outer in modes:
        for inner in modes:
            with raises(
                RuntimeError,
                f"`{inner}` cannot be entered inside of a `{outer}`",
                "first order only",
            ):
                with modes[outer]() as mode:
                    double.run()
                    with modes[inner]():
                        raise NotImplementedError
            assert recording() == (None, None)
            assert len(mode.calls) == 1
    with modes["Tape"]():
        double.run()
    assert x.grad[None] == 6


def test_streams(square):
    stream = qd.create_stream()
    with raises(RuntimeError, "qd_stream is not compatible with autograd Tape"):
        with qd.ad.Tape(square.y):
            square.run(qd_stream=stream)
    with qd.ad.Tape(square.y) as tape:
        square.run(qd_stream=None)
    assert square.x.grad[None] == 6 and len(tape.calls) == 1


@pytest.mark.oracle_differs("crashes", run=False)
@pytest.mark.parametrize("starts_anew", [False, True])
def test_runtime_ends_inside(backend, starts_anew):
    square = Square()
    with raises(RuntimeError, "The runtime was reset inside of a `Tape`"):
        with qd.ad.Tape(square.y):
            square.run()
            qd.reset()
            assert recording() == (None, None)
            if starts_anew:
                backend.init()
    backend.init()
    square = Square()
    with pytest.raises(Stop):
        with qd.ad.Tape(square.y) as tape:
            qd.reset()
            backend.init()
            raise Stop
    square = Square()
    square.run()
    assert square.y[None] == 9 and not tape.calls
    with qd.ad.Tape(square.y):
        square.run()
    assert square.x.grad[None] == 6


def in_thread(work):
    """Runs it to its end in another thread."""
    problems = []

    def run():
        try:
            work()
        except BaseException as e:
            problems.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]


@pytest.mark.oracle_differs("records calls of every thread")
def test_other_threads_are_not_recorded(square):
    out = one(1)
    with qd.ad.Tape(square.y) as tape:
        square.run()
        in_thread(lambda: array_square(out, out))
        in_thread(square.run)
        square.run()
    assert len(tape.calls) == 2
    assert (square.y[None], square.x.grad[None], out[0]) == (27, 12, 2)


@pytest.mark.oracle_differs("has one tape for all threads")
def test_every_thread_has_its_tape(square):
    x, y = one(3), one()

    def other():
        with qd.ad.Tape(y) as tape:
            array_square(x, y)
            assert len(tape.calls) == 1
        assert x.grad[0] == 6

    with qd.ad.Tape(square.y) as tape:
        in_thread(other)
        square.run()
    assert len(tape.calls) == 1
    assert square.x.grad[None] == 6


@pytest.mark.oracle_differs("has one tape for all threads")
def test_threads_at_once(square):
    """No call is lost or recorded twice while other threads launch and record, too."""
    x, y = one(3), one()
    begun = [threading.Event() for _ in range(2)]
    ends = threading.Event()

    def launch():
        while not ends.is_set():
            array_square(x, x)
            begun[0].set()

    def record():
        while not ends.is_set():
            with recorded(y) as tape:
                for _ in range(10):
                    array_square(x, y)
            assert len(tape.calls) == 10
            begun[1].set()

    def recorded(loss):
        tape = qd.ad.Tape(loss)
        tape.eval_on_exit = False
        return tape

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(work) for work in (launch, record)]
        try:
            for event in begun:
                event.wait(10)
            with recorded(square.y) as tape:
                for _ in range(10000):
                    square.run()
        finally:
            ends.set()
            sys.setswitchinterval(interval)
        for other in others:
            other.result()
    assert len(tape.calls) == 10000


def test_without_a_runtime(backend):
    y = scalar()
    qd.reset()
    for use in (lambda: qd.ad.Tape(y), lambda: qd.ad.clear_all_gradients()):
        with pytest.raises(qd.QuadrantsRuntimeError):
            use()


@pytest.mark.needs_torch
@pytest.mark.oracle_differs("says that it is not initialised")
def test_python_backend(backend):
    pytest.importorskip("torch")
    qd.init(arch=qd.python)
    x, y = scalar(), scalar()
    for use in (
        lambda: qd.ad.Tape(y),
        lambda: qd.ad.FwdMode(y, x),
        lambda: qd.ad.clear_all_gradients(),
    ):
        with raises(qd.QuadrantsRuntimeError, "not available on the Python backend"):
            use()


# --- the global data access rule ---

NO_DEBUG = (
    "Debug mode is disabled, autodiff valid check will not work. Please specify "
    "`qd.init(debug=True)` to enable the check."
)


def test_validation_needs_debug(square):
    with pytest.warns(Warning) as caught:
        tape = qd.ad.Tape(square.y, validation=True)
    assert [str(w.message) for w in caught] == [NO_DEBUG]
    assert caught[0].category is Warning
    with tape:
        square.run()
    assert square.x.grad[None] == 6 and tape.validation is True


class Broken:
    """`y += x`, and kernels that write x, which is read already."""

    def __init__(self):
        x, y = scalar(), scalar()

        @qd.kernel
        def read():
            y[None] += x[None]

        @qd.kernel
        def overwrite():
            x[None] = 2.0

        @qd.kernel
        def twice():
            x[None] = 2 * x[None]

        @qd.kernel
        def add():
            x[None] += 1.0

        self.x, self.y, self.read, self.overwrite, self.twice, self.add = (
            x, y, read, overwrite, twice, add,
        )  # fmt: skip


@pytest.fixture
def broken(debug_backend):
    return Broken()


def test_validation(broken):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Debug mode is disabled")
        for body in (
            lambda: (broken.read(), broken.overwrite()),
            lambda: broken.twice(),
        ):
            with raises(qd.QuadrantsAssertionError, "reaks the global data access rule"):
                with qd.ad.Tape(broken.y, validation=True):
                    body()
            assert recording() == (None, None)
        for body in (
            lambda: (broken.overwrite(), broken.read(), broken.read()),
            lambda: (broken.add(), broken.read()),
        ):
            with qd.ad.Tape(broken.y, validation=True):
                body()
        broken.read()
        broken.overwrite()  # outside of a tape nobody looks
        with qd.ad.Tape(broken.y):
            broken.read()
            broken.overwrite()


def test_validation_exempts_custom_gradients(broken):
    @qd.ad.no_grad
    def rewrite():
        broken.overwrite()

    with qd.ad.Tape(broken.y, validation=True) as tape:
        broken.read()
        rewrite()
    assert len(tape.calls) == 2


# --- clear_all_gradients ---


def test_clear(backend):
    x = qd.field(qd.f32, 4, needs_grad=True, needs_dual=True)
    v = qd.Vector.field(3, qd.f64, (2, 2), needs_grad=True, layout=qd.Layout.SOA)
    s = qd.Struct.field({"p": qd.f32, "n": qd.i32}, shape=3)
    n = qd.field(qd.i32, 2)
    a = one()
    fields = [x, x.grad, x.dual, v, v.grad, n]

    def fill():
        for c in [*fields, s, a, a.grad]:
            c.fill(5)

    def cleared():
        flat = [not f.to_numpy().any() for f in fields]
        return flat + [not s.p.to_numpy().any() and not s.n.to_numpy().any()]

    kinds = qd.types.enums.SNodeGradType
    fill()
    qd.ad.clear_all_gradients()
    assert cleared() == [False, True, False, False, True, False, False]
    fill()
    qd.ad.clear_all_gradients(gradient_type=kinds.DUAL)
    assert cleared() == [False, False, True, False, False, False, False]
    fill()
    qd.ad.clear_all_gradients(kinds.PRIMAL)
    assert cleared() == [True, False, False, True, False, True, True]
    assert a[0] == a.grad[0] == 5


@pytest.mark.oracle_differs("ignores it")
def test_clear_what(backend):
    with raises(TypeError, "a member of SNodeGradType is expected, got 'ADJOINT'"):
        qd.ad.clear_all_gradients("ADJOINT")


def test_clear_counts_containers(backend):
    def compiled():
        return impl.get_runtime().get_num_compiled_functions()

    scalar(), scalar()
    qd.field(qd.f32, 4, needs_grad=True)
    qd.Vector.field(3, qd.f32, 4, needs_grad=True)
    qd.Vector.field(3, qd.f32, 4, needs_grad=True, layout=qd.Layout.SOA)
    qd.Struct.field({"p": qd.f32, "q": qd.types.vector(2, qd.f32)}, shape=3, needs_grad=True)
    a, b, c = (qd.field(qd.f32) for _ in range(3))
    qd.root.dense(qd.i, 4).place(a, b).dense(qd.j, 3).place(c)
    qd.root.lazy_grad()
    qd.sync()
    before = compiled()
    qd.ad.clear_all_gradients()
    assert compiled() - before == 2 + 1 + 1 + 3 + 1 + 2
    before = compiled()
    for _ in range(2):
        qd.ad.clear_all_gradients()
    assert compiled() == before


def test_clear_trees(backend):
    builder = qd.FieldsBuilder()
    x = qd.field(qd.f32)
    builder.dense(qd.ij, (2, 2)).place(x, x.grad)
    with raises(qd.QuadrantsRuntimeError, "is not finalized"):
        qd.ad.clear_all_gradients()
    builder.finalize()
    x.grad.fill(3)
    y = scalar()
    y.grad[None] = 2
    qd.ad.clear_all_gradients()
    assert y.grad[None] == 0 and not x.grad.to_numpy().any()


@pytest.mark.oracle_differs("crashes", run=False)
def test_clear_after_a_tree(backend):
    builder = qd.FieldsBuilder()
    x, y = qd.field(qd.f32), scalar()
    builder.dense(qd.ij, (2, 2)).place(x, x.grad)
    tree = builder.finalize()
    y.grad[None] = 2
    tree.destroy()
    qd.ad.clear_all_gradients()
    assert y.grad[None] == 0


# --- forward mode ---


def test_forward(double):
    x, y = double.x, double.y
    mode = qd.ad.FwdMode(loss=y, param=x)
    assert (mode.calls, mode.modes, mode.kernels_recovered) == ([], [], False)
    with mode:
        assert recording() == (None, mode)
        assert x.dual[None] == 1
        double.run()
        assert (y[None], y.dual[None]) == (9, 6)
    assert recording() == (None, None)
    assert (x.dual[None], y.dual[None], mode.kernels_recovered) == (0, 6, True)
    assert len(mode.calls) == len(mode.modes) == 1 and mode.modes[0].name == "NONE"
    double.run()
    assert (y[None], y.dual[None]) == (18, 6)


def test_forward_results_pass(double):
    x, y = double.x, double.y

    @qd.kernel
    def told(a: qd.f32) -> qd.f32:
        y[None] += x[None] * a
        return 5

    with qd.ad.FwdMode(y, x):
        assert told(a=4) == 5
    assert y.dual[None] == 4


class Weighted:
    """`y += sum((i + 1) * x[i])` and `z` twice that."""

    def __init__(self, n=4):
        x = qd.field(qd.f32, n, needs_dual=True)
        y, z = (qd.field(qd.f32, (), needs_dual=True) for _ in range(2))

        @qd.kernel
        def run():
            for i in x:
                y[None] += (i + 1) * x[i]
                z[None] += 2 * (i + 1) * x[i]

        self.x, self.y, self.z, self.run = x, y, z, run


def test_seeds(backend):
    w = Weighted()
    for seed, expect in (([0, 0, 1, 0], 3), ([1, 1, 1, 1], 10), ((0.5, 0, 0, -1), -3.5)):
        with qd.ad.FwdMode([w.y, w.z], w.x, seed=seed):
            w.run()
        assert (w.y.dual[None], w.z.dual[None]) == (expect, 2 * expect)
        assert not w.x.dual.to_numpy().any()


@pytest.mark.oracle_differs("takes one axis only")
def test_seeds_are_in_row_major_order(backend):
    x = qd.field(qd.f32, (2, 3), needs_dual=True)
    with qd.ad.FwdMode(Weighted().y, x, [1, 2, 3, 4, 5, 6]):
        assert [x.dual[i, j] for i in range(2) for j in range(3)] == [1, 2, 3, 4, 5, 6]


def test_seed_of_one_element(backend):
    w = Weighted(1)
    with qd.ad.FwdMode(w.y, w.x):
        w.run()
    assert w.y.dual[None] == 1


@pytest.mark.oracle_differs("asks an array for its truth")
def test_seed_of_numpy(backend):
    w = Weighted()
    with qd.ad.FwdMode(w.y, w.x, np.arange(4)):
        w.run()
    assert w.y.dual[None] == 20


def test_several_seeds_are_f32(double):
    x = qd.field(qd.f64, 2, needs_dual=True)
    with qd.ad.FwdMode(double.y, x, [0.1, 0.2]):
        assert (x.dual[0], x.dual[1]) == (np.float32(0.1), np.float32(0.2))
    with qd.ad.FwdMode(double.y, double.x, [0.1]):
        assert double.x.dual[None] == 0.1


def test_duals_are_cleared(double):
    other = qd.field(qd.f32, 3, needs_dual=True)
    for clears in (False, True):
        other.dual.fill(4)
        double.y.dual[None] = 5
        double.y[None] = 0
        with qd.ad.FwdMode(double.y, double.x, clear_gradients=clears):
            double.run()
        assert double.y.dual[None] == (6 if clears else 11)
        assert (other.dual.to_numpy() == (0 if clears else 4)).all()


def test_bad_modes(backend):
    x, y, w = (qd.field(qd.f32, (), needs_dual=True) for _ in range(3))
    many = qd.field(qd.f32, 3, needs_dual=True)
    vector = qd.Vector.field(2, qd.f32, (), needs_dual=True)
    for arguments in (
        (5, x), ((y, w), x), ([y, 5], x), (vector, x), (one(), x),
        (y, [x]), (y, vector), (y, one()), (y, 5), (y, None),
        (y, x, [1.0, 2.0]), (y, many, [1, 2]), (y, many, [1, 2, 3, 4]),
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            with qd.ad.FwdMode(*arguments):
                raise NotImplementedError
    with raises(RuntimeError, "`seed` is not set for non 0-D field"):
        with qd.ad.FwdMode(y, many):
            raise NotImplementedError
    with raises(qd.QuadrantsRuntimeError, "Field has no allocation"):
        with qd.ad.FwdMode(y, qd.field(qd.f32, ())):
            raise NotImplementedError
    assert recording() == (None, None)
    mode = qd.ad.FwdMode(y, x)
    with mode:
        pass
    with raises(AssertionError, "Forward mode manager can be entered only once."):
        with mode:
            raise NotImplementedError


@pytest.mark.oracle_differs("TypeError")
def test_integers_have_no_direction(backend):
    with raises(AssertionError, "must be a scalar field of floats"):
        with qd.ad.FwdMode(scalar(), qd.field(qd.i32, ())):
            raise NotImplementedError


@pytest.mark.oracle_differs("takes no qd.Tensor")
def test_forward_tensors(backend):
    w = Weighted()
    with qd.ad.FwdMode([qd.wrap(w.y)], qd.wrap(w.x), [1, 0, 0, 0]):
        w.run()
    assert w.y.dual[None] == 1


def test_forward_body_raises(double):
    mode = qd.ad.FwdMode(double.y, double.x)
    with pytest.raises(KeyboardInterrupt):
        with mode:
            double.run()
            raise KeyboardInterrupt
    assert recording() == (None, None)
    assert mode.kernels_recovered and double.x.dual[None] == 0
    assert double.y.dual[None] == 6


def test_forward_takes_no_arrays(double):
    with pytest.raises(RuntimeError):
        with qd.ad.FwdMode(double.y, double.x):
            array_square(one(), one())
    assert recording() == (None, None)


@pytest.mark.oracle_differs("ignores the stream")
def test_forward_streams(double):
    with raises(RuntimeError, "qd_stream is not compatible with autodiff kernels"):
        with qd.ad.FwdMode(double.y, double.x):
            double.run(qd_stream=qd.create_stream())


@pytest.mark.oracle_differs("asserts that no gradient is asked for")
def test_reverse_inside_forward(double):
    with qd.ad.FwdMode(double.y, double.x) as mode:
        double.y.grad[None] = 1
        double.run.grad()
        double.run()
    assert (double.x.grad[None], double.y.dual[None], len(mode.calls)) == (6, 6, 1)


@pytest.mark.oracle_differs("transforms calls of every thread")
def test_forward_is_of_its_thread(double):
    with qd.ad.FwdMode(double.y, double.x) as mode:
        in_thread(double.run)
        assert (double.y[None], double.y.dual[None]) == (9, 0)
    assert not mode.calls


@pytest.mark.oracle_differs("crashes", run=False)
def test_runtime_ends_inside_forward(backend):
    square = Square(needs_dual=True)
    mode = qd.ad.FwdMode(square.y, square.x)
    with mode:
        qd.reset()
        backend.init()
    assert mode.kernels_recovered and recording() == (None, None)
    square = Square()
    square.run()
    assert square.y[None] == 9 and not mode.calls


# --- grad_check ---


@pytest.fixture
def checked(backend):
    if backend.name in ("metal", "vulkan"):
        pytest.skip("has no f64")
    return Checked()


class Checked:
    """A loss of f64 over fields of several kinds, and a kernel whose gradient is wrong."""

    def __init__(self):
        x, y = scalar(qd.f64), scalar(qd.f64)
        z = qd.field(qd.f64, 4, needs_grad=True)
        v = qd.Vector.field(2, qd.f64, 3, needs_grad=True)
        f = scalar()
        n = qd.field(qd.i32, ())

        @qd.kernel
        def of_x():
            y[None] += x[None] * x[None]
            n[None] += 1

        @qd.kernel
        def of_z():
            for i in z:
                y[None] += z[i] * z[i] * (i + 1)

        @qd.kernel
        def of_v():
            for i in v:
                y[None] += (v[i][0] * v[i][0] + 3 * v[i][1]) * (i + 1)

        @qd.kernel
        def of_f(a: qd.f32):
            y[None] += f[None] * a

        self.x, self.y, self.z, self.v, self.f, self.n = x, y, z, v, f, n
        self.of_x, self.of_z, self.of_v, self.of_f = of_x, of_z, of_v, of_f
        x[None], f[None] = 3, 2
        z.from_numpy(np.arange(4) + 0.5)
        v.fill(1.5)

    def state(self):
        return [c.to_numpy().tolist() for c in (self.x, self.y, self.z, self.v, self.f, self.n)]


def test_gradients_pass(checked, capsys):
    def body():
        checked.of_x(), checked.of_z(), checked.of_v(), checked.of_f(2)

    with qd.ad.Tape(checked.y, grad_check=[checked.v, checked.x, checked.z, checked.f]) as tape:
        body()
    assert capsys.readouterr().out == "".join(f"variable {n} passes grad check\n" for n in range(4))
    assert tape.grad_checker.result == [True] * 4
    assert (checked.x.grad[None], checked.f.grad[None], checked.y.grad[None]) == (6, 2, 1)


@pytest.mark.oracle_differs("takes the loss that was there before")
def test_state_after_a_check(checked, capsys):
    checked.of_x()
    state = checked.state()
    checked.y[None], checked.n[None] = 70, 0
    with qd.ad.Tape(checked.y, grad_check=[checked.x]):
        checked.of_x()
    assert checked.state() == state


def test_the_loss_itself_passes(checked, capsys):
    with qd.ad.Tape(checked.y, grad_check=[checked.x, checked.y]):
        checked.of_x()
    assert capsys.readouterr().out == "variable 0 passes grad check\n"


def test_what_is_not_used_passes(checked, capsys):
    with qd.ad.Tape(checked.y, grad_check=[checked.z]):
        checked.of_x()
    assert capsys.readouterr().out == "variable 0 passes grad check\n"


def wrong(checked):
    """A step whose gradient is twice what it should be."""

    @qd.ad.grad_replaced
    def step():
        checked.of_x()

    @qd.ad.grad_for(step)
    def backward():
        checked.of_x.grad()
        checked.of_x.grad()

    return step


def test_wrong_gradients(checked, capsys):
    with raises(AssertionError, "Grad check failed: Not all variables pass grad check"):
        with qd.ad.Tape(checked.y, grad_check=[checked.z, checked.x]) as tape:
            wrong(checked)()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "variable 0 passes grad check"
    begin, _, end = lines[1].partition("error ")
    assert begin == "variable 1 has relative " and end.endswith(" , expected relative error 0.01")
    assert float(end.split()[0]) == pytest.approx(0.5, rel=1e-3)
    assert recording() == (None, None)
    assert tape.gradient_evaluated


@pytest.mark.oracle_differs("leaves what it tried last")
def test_state_after_wrong_gradients(checked, capsys):
    with pytest.raises(AssertionError):
        with qd.ad.Tape(checked.y, grad_check=[checked.x]):
            wrong(checked)()
    assert (checked.x[None], checked.y[None], checked.n[None]) == (3, 9, 1)


def test_missing_gradients_are_wrong(checked, capsys):
    @qd.ad.no_grad
    def step():
        checked.of_x()

    with pytest.raises(AssertionError):
        with qd.ad.Tape(checked.y, grad_check=[checked.x]):
            step()
    assert capsys.readouterr().out == (
        "variable 0 has relative error inf , expected relative error 0.01\n"
    )


def test_bad_checks(checked):
    for bad in ((checked.x,), checked.x, {checked.x}):
        with raises(
            AssertionError, "grad_check should be a list of fields that need to check gradients."
        ):
            with qd.ad.Tape(checked.y, grad_check=bad):
                raise NotImplementedError
    with raises(AssertionError, "Only f64 is supported when checking grad."):
        with qd.ad.Tape(checked.f, grad_check=[checked.x]):
            raise NotImplementedError
    assert qd.ad.Tape(checked.y, grad_check=[]).grad_checker is None


@pytest.mark.oracle_differs("fails with other errors")
def test_what_cannot_be_checked(checked):
    with raises(AssertionError, "grad_check should be a list of fields"):
        qd.ad.Tape(checked.y, grad_check=[5])
    for bad in (checked.n, qd.field(qd.f64, ())):
        with raises(RuntimeError, "Gradients of the fields in grad_check are not allocated"):
            with qd.ad.Tape(checked.y, grad_check=[bad]):
                raise NotImplementedError
    assert recording() == (None, None)


@pytest.mark.oracle_differs("cannot repeat them")
def test_writes_are_repeated(checked, capsys):
    x, y, z, v = checked.x, checked.y, checked.z, checked.v
    with qd.ad.Tape(y, grad_check=[z]):
        x[None] = 2
        checked.of_x()
        v[0] = [1, 2]
        v[1][0] = 5
        checked.of_v()
        x.fill(4)
        v.from_numpy(np.ones((3, 2)))
        checked.of_x()
        checked.of_v()
        checked.of_z()
    value = 4 + 16 + (7 + (25 + 4.5) * 2 + (2.25 + 4.5) * 3) + 4 * 6
    value += sum((i + 0.5) ** 2 * (i + 1) for i in range(4))
    assert y[None] == pytest.approx(value)
    assert x[None] == 4 and v[1][0] == 1
    x[None] = 5  # as ever again
    assert x[None] == 5 and "__setitem__" not in vars(type(x))


@pytest.mark.oracle_differs("notices the others alone")
def test_checked_fields_are_not_written(checked):
    def into(write, field):
        with raises(AssertionError, "Overwritten is prohibitive when doing grad check."):
            with qd.ad.Tape(checked.y, grad_check=[field]):
                write()

    x, v = checked.x, checked.v

    def part():
        v[0][1] = 2

    for write in (
        lambda: x.fill(2), lambda: x.from_numpy(np.array(2.0)), lambda: x.copy_from(checked.y),
        lambda: x.__setitem__(None, 2),
    ):  # fmt: skip
        into(write, x)
    for write in (
        part, lambda: v.__setitem__(0, [1, 2]), lambda: v.fill(1),
        lambda: v.get_scalar_field(1).__setitem__(0, 2),
    ):  # fmt: skip
        into(write, v)
    assert x[None] == 3 and (v.to_numpy() == 1.5).all()
    x[None] = 4
    assert x[None] == 4


@pytest.mark.oracle_differs("records other things")
def test_what_kernels_write_is_not_guarded(checked, capsys):
    x, y, z = checked.x, checked.y, checked.z

    @qd.kernel
    def run():
        z.fill(2.0)
        for i in range(1):
            y[None] += x[None] * 3.0

    with qd.ad.Tape(y, grad_check=[x]) as tape:
        tape.eval_on_exit = False
        run()
        assert len(tape.calls) == len(tape.grad_checker.calls) == 1
        z.fill(1)
        z[0] = 5
        assert len(tape.grad_checker.calls) == 3
    assert z.to_numpy().tolist() == [5, 1, 1, 1]


@pytest.mark.oracle_differs("records into one checker")
def test_checks_of_several_threads(checked, capsys):
    other = Checked()

    def check():
        with qd.ad.Tape(other.y, grad_check=[other.x]):
            begun.set()
            proceed.wait(10)
            other.v.fill(1)
            other.of_x()

    begun, proceed = threading.Event(), threading.Event()
    thread = threading.Thread(target=check)
    with qd.ad.Tape(checked.y, grad_check=[checked.x]) as tape:
        thread.start()
        begun.wait(10)
        checked.of_x()
    proceed.set()
    thread.join()
    assert len(tape.grad_checker.calls) == 1
    assert capsys.readouterr().out.count("passes grad check") == 2
    assert "__setitem__" not in vars(type(checked.x)) and "fill" not in vars(type(checked.x))
    assert other.x.grad[None] == 6


@pytest.mark.oracle_differs("cannot repeat it")
def test_gradients_are_not_guarded(checked, capsys):
    with qd.ad.Tape(checked.y, grad_check=[checked.x]):
        checked.x.grad[None] = 0
        checked.of_x()


@pytest.mark.oracle_differs("only knows fields")
def test_checks_with_arrays_and_structs(checked, capsys):
    s = qd.Struct.field({"p": qd.f64, "v": qd.types.vector(2, qd.f64)}, shape=2, needs_grad=True)

    @qd.kernel
    def run(out: qd.types.ndarray()):
        for i in s:
            out[0] += s[i].p * s[i].p + s[i].v[0] * s[i].v[1]

    s.fill(2)
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    with qd.ad.Tape(loss, grad_check=[s, qd.wrap(checked.x), checked.v.get_scalar_field(0)]):
        run(loss)
    assert loss[0] == 16
    assert capsys.readouterr().out.count("passes grad check") == 3


# --- the module ---


def test_module():
    names = dir(qd.ad)
    assert [n for n in names if n[0] not in "_@"] == sorted(
        "FwdMode Tape clear_all_gradients grad_for grad_replaced no_grad".split()
    )
    assert "_ad" in names and qd.ad._ad.__name__ == "quadrants.ad._ad"
    for name in "Tape FwdMode clear_all_gradients grad_replaced grad_for no_grad".split():
        assert getattr(qd.ad, name) is getattr(qd.ad._ad, name)
    assert qd.ad._ad.GradChecker.__name__ == "GradChecker"


@pytest.mark.oracle_differs("imports it at once")
def test_import_is_light():
    code = (
        "import sys, quadrants as qd; dir(qd.ad); assert 'quadrants.ad._ad' not in sys.modules; "
        "qd.ad.Tape; assert 'quadrants.ad._ad' in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_mode_without_exit_ends_with_its_frame(square):
    """As an interrupt between two instructions leaves it, or a thread that ends amid it."""

    def abandon():
        qd.ad.Tape(square.y).__enter__()
        square.run()

    abandon()
    in_thread(abandon)
    assert recording() == (None, None)
    square.x.grad.fill(0)
    with qd.ad.Tape(square.y):
        square.run()
    assert square.x.grad[None] == 6


def test_fields_made_inside_of_a_validated_tape_are_checked(debug_backend):
    y = scalar()
    with raises(qd.QuadrantsAssertionError, "reaks the global data access rule"):
        with qd.ad.Tape(y, validation=True):
            w = qd.field(qd.f32, 4, needs_grad=True)

            @qd.kernel
            def twice():
                for i in w:
                    w[i] = w[i] * 2

            twice()
