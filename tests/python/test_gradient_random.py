"""Random numbers in kernels that are differentiated (ad_general_control): the way back has those of
the way there, which a Tape knows."""

import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from gradient_helpers import field
from quadrants._lib import core

N = 6
GENERAL = {"ad_general_control": True}


@pytest.fixture(params=[{}, {"debug": True}, {"ad_tape_bytes": 4000}], ids=str)
def general(backend, request):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    return backend.init(default_fp=qd.f64, **GENERAL, **request.param)


@qd.func
def jitter(v):
    return v * qd.random() + qd.sin(v)


@qd.func
def walk(v, steps):
    for _ in range(steps):
        if qd.random() < 0.5:
            v = v * (1 + 0.1 * qd.random())
        else:
            v = v - 0.1 * v * qd.cos(v)
    return v


def programs():
    x, loss = field(N), field()

    @qd.kernel
    def straight():
        for i in x:
            loss[None] += qd.random() * x[i] ** 2 + qd.sin(qd.random() * x[i])

    @qd.kernel
    def funcs():
        for i in x:
            loss[None] += jitter(x[i]) * jitter(jitter(x[i]))

    @qd.kernel
    def loops():
        for i in x:
            loss[None] += walk(x[i], 10 + 30 * i)

    @qd.kernel
    def whiles():
        for i in x:
            v = x[i]
            while v < 5.0:
                v *= 1.0 + qd.random()
                if qd.random() < 0.1:
                    break
            loss[None] += v * v

    @qd.kernel
    def dtypes():
        for i in x:
            k = qd.cast(qd.cast(qd.random(qd.u32), qd.u64) % 5, qd.f64) + qd.random(qd.f32)
            loss[None] += k * x[i] * x[i]

    @qd.kernel
    def two_loops():
        for i in x:
            loss[None] += qd.random() * x[i] ** 2
        for i, j in qd.ndrange((2, N), 3):
            loss[None] += qd.random() * x[i] ** 3

    @qd.kernel
    def serial():
        s = qd.random() * x[0]
        s += qd.random() * x[1] * s
        if qd.random() < 2:
            s *= qd.random() * x[2]
        loss[None] += s

    @qd.kernel
    def serial_loop():
        for i in x:
            loss[None] += qd.random() * x[i]
        qd.loop_config(serialize=True)
        for i in range(N):
            loss[None] += walk(x[i], 4) * qd.random()

    @qd.kernel
    def stencil():
        for i in range(1, N - 1):
            loss[None] += qd.random() * (x[i - 1] * x[i + 1] + x[i])

    return x, loss, {
        k.__name__: k
        for k in (straight, funcs, loops, whiles, dtypes, two_loops, serial, serial_loop, stencil)
    }  # fmt: skip


NAMES = (
    "straight", "funcs", "loops", "whiles", "dtypes", "two_loops", "serial", "serial_loop", "stencil",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_of_the_same_numbers(general, name, capsys):
    x, loss, kernels = programs()
    for _ in range(2):
        x.from_numpy(np.linspace(0.3, 1.4, N))
        with qd.ad.Tape(loss, grad_check=[x]):
            kernels[name]()
        assert capsys.readouterr().out.count("passes grad check") == 1
        assert np.abs(x.grad.to_numpy()).max() > 0.01


def test_each_number_is_drawn_again(general):
    x, r, loss = field(N, 300), qd.field(qd.f64, (N, 300)), field()

    @qd.kernel
    def weigh(by: qd.f64):
        for i in range(N):
            for j in range(300):
                v = qd.random()
                r[i, j] = v
                loss[None] += by * v * x[i, j]

    with qd.ad.Tape(loss):
        weigh(2.0)
    assert core.last_drawn() > 0
    first = r.to_numpy()
    assert np.unique(first).size == first.size
    np.testing.assert_array_equal(x.grad.to_numpy(), 2.0 * first)
    # Several calls, each with its own; what else draws stands in between.
    total = np.zeros((N, 300))
    with qd.ad.Tape(loss):
        for by in (1.0, 3.0, 5.0):
            weigh(by)
            assert np.all(r.to_numpy() != first)
            total += by * r.to_numpy()
    np.testing.assert_allclose(x.grad.to_numpy(), total, rtol=1e-14)

    @qd.kernel
    def draws_none():
        loss[None] = 0

    draws_none()
    assert core.last_drawn() == 0


def test_the_way_back_takes_no_numbers_of_its_own(backend):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")

    def numbers(tapes):
        backend.init(default_fp=qd.f64, random_seed=3, **GENERAL)
        x, loss, r = field(N), field(), qd.field(qd.f64, ())

        @qd.kernel
        def draw():
            r[None] = qd.random()

        @qd.kernel
        def use():
            for i in x:
                loss[None] += qd.random() * x[i]

        out = []
        for _ in range(3):
            if tapes:
                with qd.ad.Tape(loss):
                    use()
            else:
                use()
            draw()
            out.append(r[None])
        return out

    assert numbers(True) == numbers(False)


def test_arrays(general):
    @qd.kernel
    def weigh(
        x: qd.types.ndarray(dtype=qd.f64, ndim=1),
        r: qd.types.ndarray(dtype=qd.f64, ndim=1),
        loss: qd.types.ndarray(dtype=qd.f64, ndim=1),
    ):
        for i in x:
            v = qd.random()
            r[i] = v
            loss[0] += v * x[i] * x[i]

    x = qd.ndarray(qd.f64, 50, needs_grad=True)
    loss = qd.ndarray(qd.f64, 1, needs_grad=True)
    r = qd.ndarray(qd.f64, 50)
    x.from_numpy(np.linspace(1, 2, 50))
    with qd.ad.Tape(loss):
        weigh(x, r, loss)
    np.testing.assert_allclose(
        x.grad.to_numpy(), 2 * np.linspace(1, 2, 50) * r.to_numpy(), rtol=1e-14
    )


def test_validation(backend):
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64")
    backend.init(default_fp=qd.f64, debug=True, **GENERAL)
    x, r, loss = field(N), qd.field(qd.f64, N), field()

    @qd.kernel
    def weigh():
        for i in x:
            v = qd.random()
            r[i] = v
            loss[None] += v * x[i]

    with qd.ad.Tape(loss, validation=True):
        weigh()
    np.testing.assert_array_equal(x.grad.to_numpy(), r.to_numpy())


def test_forward_mode(general):
    x = qd.field(qd.f64, N, needs_dual=True)
    r, loss = qd.field(qd.f64, N), qd.field(qd.f64, N, needs_dual=True)

    @qd.kernel
    def weigh():
        for i in x:
            v = qd.random()
            r[i] = v
            loss[i] += v * x[i]

    with qd.ad.FwdMode(loss=loss, param=x, seed=[1.0] * N):
        weigh()
    np.testing.assert_array_equal(loss.dual.to_numpy(), r.to_numpy())


def test_other_ways_back_are_refused(general):
    x, loss, kernels = programs()
    with pytest.raises(
        RuntimeError, match="'straight' needs the random numbers of the way there.*Tape"
    ):
        kernels["straight"].grad()
    with (
        pytest.raises(RuntimeError, match="'straight' needs the random numbers"),
        qd.ad.Tape(loss) as tape,
    ):
        tape.insert(kernels["straight"], ())
    x.fill(1)
    with qd.ad.Tape(loss):
        kernels["straight"]()
    assert np.abs(x.grad.to_numpy()).min() > 0

    @qd.kernel
    def serial_loops():
        for i in x:
            loss[None] += x[i]
        qd.loop_config(serialize=True)
        for i in range(N):
            loss[None] += qd.random() * x[i]
        qd.loop_config(serialize=True)
        for i in range(N):
            loss[None] += qd.random() * x[i]

    with pytest.raises(RuntimeError, match=r"Random numbers in several serial loops"):
        serial_loops.grad()


def test_without_the_option_they_are_refused(backend):
    backend.init()
    x, loss = qd.field(qd.f32, N, needs_grad=True), qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def weigh():
        for i in x:
            loss[None] += qd.random() * x[i]

    with pytest.raises(RuntimeError, match="RandStmt not supported.*ad_general_control=True"):
        weigh.grad()


WARM = """
import sys
import numpy as np
import quadrants as qd
from quadrants._lib import core

qd.init(arch=qd.cpu, ad_general_control=True, random_seed=int(sys.argv[2]), offline_cache_file_path=sys.argv[1],
        log_level=qd.ERROR)
x, r, loss = qd.field(qd.f32, 9, needs_grad=True), qd.field(qd.f32, 9), qd.field(qd.f32, (), needs_grad=True)

@qd.kernel
def weigh():
    for i in x:
        v = qd.random()
        r[i] = v
        loss[None] += v * x[i]

with qd.ad.Tape(loss):
    weigh()
np.testing.assert_array_equal(x.grad.to_numpy(), r.to_numpy())
print(r[3])
"""


def test_other_processes_have_numbers_of_their_own(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(WARM)
    out = [
        subprocess.run(
            [sys.executable, program, tmp_path / "cache", seed],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "1", "2")
    ]
    assert out[0] == out[1] != out[2]
