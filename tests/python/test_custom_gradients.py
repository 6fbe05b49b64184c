"""Gradients that users define: `grad_replaced`, `grad_for` and `no_grad`."""

import pytest

import quadrants as qd
from helpers import raises
from quadrants.lang import impl


class Sums:
    """Kernels over fields of f32: `y += x * a`, and `n += 1`."""

    def __init__(self):
        x, y = (qd.field(qd.f32, (), needs_grad=True, needs_dual=True) for _ in range(2))
        n = qd.field(qd.i32, ())

        @qd.kernel
        def by(a: qd.f32):
            y[None] += x[None] * a

        @qd.kernel
        def count():
            n[None] += 1

        self.x, self.y, self.n, self.by, self.count = x, y, n, by, count
        x[None] = 3


@pytest.fixture
def sums(backend):
    return Sums()


def show():
    runtime = impl.get_runtime()
    return runtime.grad_replaced, runtime.target_tape is not None


def test_gradient_is_replaced(sums):
    seen = []

    @qd.ad.grad_replaced
    def forward(a, b=5):
        seen.append((a, b, *show()))
        sums.by(a)
        return "dropped"

    @qd.ad.grad_for(forward)
    def backward(a, b=5):
        seen.append((a, b, *show()))
        sums.by.grad(100 * a)
        return "dropped"

    with qd.ad.Tape(sums.y) as tape:
        assert forward(1) is None
        sums.by(7)
        assert forward(2, 6) is None
        assert show() == (False, True)
    assert seen == [
        (1, 5, True, True), (2, 6, True, True), (2, 6, False, False), (1, 5, False, False),
    ]  # fmt: skip
    assert (sums.y[None], sums.x.grad[None]) == (30, 307)
    assert [call[1] for call in tape.calls] == [(1,), (7,), (2, 6)]
    assert tape.calls[0][0] is forward
    assert [mode.name for mode in tape.modes] == ["NONE"] * 3


def test_outside_of_tapes(sums):
    seen = []

    @qd.ad.grad_replaced
    def forward(a):
        seen.append(show())
        sums.by(a)

    assert forward.grad is None and forward.autodiff_mode.name == "NONE"

    @qd.ad.grad_for(forward)
    def backward(a):
        seen.append(a)

    assert forward.grad is backward
    assert forward(2) is None and forward.grad(3) is None and backward(4) is None
    assert seen == [(True, False), 3, 4]
    assert sums.y[None] == 6 and show() == (False, False)


@pytest.mark.oracle_differs("calls it `decorated`")
def test_names_and_docs(backend):
    @qd.ad.grad_replaced
    def forward():
        """Says what it does."""

    @qd.ad.no_grad
    def constant():
        """So does this."""

    assert (forward.__name__, forward.__doc__) == ("forward", "Says what it does.")
    assert (constant.__name__, constant.__doc__) == ("constant", "So does this.")


@pytest.mark.oracle_differs("drops them")
def test_arguments_by_keyword(sums):
    seen = []

    @qd.ad.grad_replaced
    def forward(a, b=0):
        sums.by(a + b)

    @qd.ad.grad_for(forward)
    def backward(a, b=0):
        seen.append((a, b))

    with qd.ad.Tape(sums.y) as tape:
        forward(1, b=2)
        forward(b=3, a=4)
    assert seen == [(4, 3), (1, 2)]
    assert [call[1] for call in tape.calls] == [(1,), ()]


def test_no_grad(sums):
    @qd.ad.no_grad
    def constant(a):
        assert show()[0]
        sums.by(a)
        return "dropped"

    assert constant.autodiff_mode.name == "NONE" and constant.grad is not None
    assert constant.grad(1) is None
    with qd.ad.Tape(sums.y) as tape:
        assert constant(7) is None
        sums.by(2)
    assert (sums.y[None], sums.x.grad[None], len(tape.calls)) == (27, 2, 2)


@pytest.mark.oracle_differs("records again once the inner one is done")
def test_nesting(sums):
    @qd.ad.no_grad
    def inner():
        sums.by(1)

    @qd.ad.grad_replaced
    def outer():
        inner()
        assert show() == (True, True)
        sums.by(2)
        inner()
        sums.by(4)

    @qd.ad.grad_for(outer)
    def backward():
        sums.by.grad(50)

    with qd.ad.Tape(sums.y) as tape:
        outer()
        sums.by(8)
    assert [call[0] for call in tape.calls][:1] == [outer] and len(tape.calls) == 2
    assert (sums.y[None], sums.x.grad[None]) == (48, 58)


def test_raising(sums):
    @qd.ad.grad_replaced
    def forward(fails):
        sums.by(1)
        if fails:
            raise KeyError("of the user")

    @qd.ad.grad_for(forward)
    def backward(fails):
        sums.by.grad(1)

    with qd.ad.Tape(sums.y):
        with pytest.raises(KeyError):
            forward(True)
        assert show() == (False, True)
        sums.by(2)
        forward(False)
    assert show() == (False, False)
    assert sums.y[None] == 12


@pytest.mark.oracle_differs("records it before it runs")
def test_what_raised_is_not_recorded(sums):
    @qd.ad.grad_replaced
    def forward():
        raise KeyError("of the user")

    with qd.ad.Tape(sums.y) as tape:
        with pytest.raises(KeyError):
            forward()
    assert not tape.calls


def test_without_a_gradient(sums):
    @qd.ad.grad_replaced
    def forward():
        sums.by(1)

    with pytest.raises(TypeError):
        with qd.ad.Tape(sums.y):
            forward()
    assert show() == (False, False)
    with pytest.raises(TypeError):
        forward.grad()


def test_methods(sums):
    @qd.data_oriented
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        @qd.kernel
        def run(self, a: qd.f32):
            sums.y[None] += sums.x[None] * self.factor * a

        @qd.ad.grad_replaced
        def forward(self, a):
            self.run(a)

        @qd.ad.grad_for(forward)
        def backward(self, a):
            self.run.grad(10 * a)

        @qd.ad.no_grad
        def constant(self):
            self.run(1)

    two, three = Scale(2), Scale(3)
    with qd.ad.Tape(sums.y) as tape:
        two.forward(1)
        three.forward(2)
        three.constant()
        two.run(1)
    assert sums.x.grad[None] == 10 * 2 + 10 * 6 + 2
    assert [call[1] for call in tape.calls] == [(two, 1), (three, 2), (three,), (two, 1)]
    sums.x.grad[None], sums.y.grad[None] = 0, 1
    two.forward.grad(two, 1)
    two.backward(1)
    Scale.forward.grad(two, 1)
    assert sums.x.grad[None] == 60


@pytest.mark.oracle_differs("AttributeError")
def test_gradient_for_a_bound_method(backend):
    @qd.data_oriented
    class Step:
        @qd.ad.grad_replaced
        def forward(self):
            pass

    seen = []
    step = Step()

    @qd.ad.grad_for(step.forward)
    def backward(self):
        seen.append(self)

    Step.forward.grad(step)
    assert seen == [step]


PYTHON_FUNCTION = (
    "Primal function must be a **python** function instead of a quadrants kernel. Please wrap the "
    "quadrants kernel in a @qd.ad.grad_replaced decorated python function instead."
)


def register(primal):
    @qd.ad.grad_for(primal)
    def backward():
        pass


def test_errors(sums):
    def plain():
        pass

    @qd.ad.grad_replaced
    def forward():
        pass

    @qd.ad.no_grad
    def constant():
        pass

    with raises(RuntimeError, "Primal function `plain` must be decorated by qd.ad.grad_replaced"):
        register(plain)
    register(forward)
    for primal in (forward, constant, sums.by, sums.by._primal):
        with raises(RuntimeError, PYTHON_FUNCTION):
            register(primal)


@pytest.mark.oracle_differs("AttributeError")
def test_what_is_no_function(backend):
    with raises(RuntimeError, "Primal function `5` must be decorated by qd.ad.grad_replaced"):
        register(5)


def test_checkpointing(sums):
    """A backward function runs forward kernels again; these are not recorded."""
    x, y = sums.x, sums.y
    kept = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def square():
        kept[None] = x[None] * x[None]

    @qd.kernel
    def add():
        y[None] += kept[None] * kept[None]

    @qd.ad.grad_replaced
    def step():
        square()
        add()
        kept[None] = 0

    @qd.ad.grad_for(step)
    def backward():
        square()
        add.grad()
        square.grad()

    with qd.ad.Tape(y) as tape:
        step()
        step()
    assert x.grad[None] == 2 * 4 * 27
    assert len(tape.calls) == 2 and y[None] == 162


@pytest.mark.oracle_differs("fails with a field as its loss")
def test_evaluation_inside_records_nothing(sums):
    @qd.ad.grad_replaced
    def step():
        sums.by(1)

    @qd.ad.grad_for(step)
    def backward():
        sums.count()
        sums.by.grad(1)

    tape = qd.ad.Tape(sums.y)
    tape.eval_on_exit = False
    with tape:
        step()
        tape.grad()
        assert len(tape.calls) == 1
        sums.by(5)
    assert len(tape.calls) == 2
    assert (sums.x.grad[None], sums.n[None]) == (1, 1)


def test_inner_tapes_in_a_gradient(sums):
    """At the end of a tape another one may be used."""
    z = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def square():
        z[None] += sums.x[None] * sums.x[None]

    @qd.ad.grad_replaced
    def step():
        sums.by(1)

    @qd.ad.grad_for(step)
    def backward():
        with qd.ad.Tape(z, clear_gradients=False):
            square()

    with qd.ad.Tape(sums.y):
        step()
    assert sums.x.grad[None] == 6


@pytest.mark.oracle_differs("records nothing in there")
def test_tapes_inside(sums):
    @qd.ad.no_grad
    def step():
        with qd.ad.Tape(sums.y) as tape:
            sums.by(2)
        assert len(tape.calls) == 1 and sums.x.grad[None] == 2

    step()
    assert sums.x.grad[None] == 2


def test_forward_mode(sums):
    @qd.ad.grad_replaced
    def step():
        assert show()[0]
        sums.by(5)

    with qd.ad.FwdMode(sums.y, sums.x) as mode:
        step()
        assert (sums.y[None], sums.y.dual[None]) == (15, 0)


@pytest.mark.oracle_differs("its entry gives nothing")
def test_forward_mode_goes_on(sums):
    @qd.ad.no_grad
    def step():
        sums.by(5)

    with qd.ad.FwdMode(sums.y, sums.x) as mode:
        step()
        sums.by(2)
        assert len(mode.calls) == 1
    assert (sums.y[None], sums.y.dual[None]) == (21, 2)


def test_inserted_by_hand(sums):
    @qd.ad.grad_replaced
    def step(a):
        sums.by(a)

    @qd.ad.grad_for(step)
    def backward(a):
        sums.by.grad(a)

    with qd.ad.Tape(sums.y) as tape:
        tape.insert(step, (4,))
    assert (sums.y[None], sums.x.grad[None]) == (0, 4)


@pytest.mark.needs_torch
def test_python_backend(backend):
    pytest.importorskip("torch")
    qd.init(arch=qd.python)
    seen = []

    @qd.ad.grad_replaced
    def forward(a):
        seen.append(("forward", a))

    @qd.ad.grad_for(forward)
    def backward(a):
        seen.append(("backward", a))

    forward(1)
    forward.grad(2)
    assert seen == [("forward", 1), ("backward", 2)]
