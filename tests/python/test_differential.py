"""Random programs: compiled code against the IR interpreter, a typed model and Python itself.

The generator, the model and the comparison live in `tests/differential`; `run.py` there runs them
by the ten thousands. Here are a few hundred, in processes of their own: fixed seeds, and seeds that
hypothesis picks. A failure prints its seed; `run.py --seed N --count 1` repeats and reduces it.
"""

import pathlib
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quadrants as qd

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "differential"))

import generate  # noqa: E402

import run  # noqa: E402


def agree(batch, seeds, profile="full"):
    found, stats = run.run_batch(batch, seeds, profile)
    text = "\n".join(f"seed {s}: {kind}: {t}" for s, kind, t in found)
    assert not found, f"batch {batch}, {profile}:\n{text}"
    return stats


@pytest.mark.parametrize("batch", range(9))
def test_batches(batch, established):
    if established:
        pytest.skip("compares this implementation's tiers")
    seeds = list(range(batch * run.BATCH, (batch + 1) * run.BATCH))
    stats = agree(batch, seeds)
    assert stats["programs"] == run.BATCH
    if batch % 7 != 3:  # the model has no fast_math
        assert stats["model"] > run.BATCH // 3


LEVELS = {  # what a CPU must have, and a batch: of 16-bit floats, of 64 bits, of 32
    "x86-64": ("sse2", 10),
    "x86-64-v2": ("sse4_2", 7),
    "x86-64-v3": ("avx2", 10),
    "x86-64-v4": ("avx512vl", 0),
}


@pytest.mark.parametrize("level", LEVELS)
def test_batches_of_every_level_that_the_machine_can(level, established, monkeypatch):
    if established:
        pytest.skip("compares this implementation's tiers")
    flag, batch = LEVELS[level]
    if flag not in pathlib.Path("/proc/cpuinfo").read_text().split():
        pytest.skip(f"this CPU has no {flag}")
    monkeypatch.setenv("QD_CPU_TARGET", level)
    agree(batch, list(range(batch * run.BATCH, (batch + 1) * run.BATCH)))


@pytest.mark.parametrize("first", [9000, 9025])
def test_batches_that_python_runs_too(first, established):
    if established:
        pytest.skip("compares this implementation's tiers")
    stats = agree(run.PLAIN_BATCH, list(range(first, first + run.BATCH)), "plain")
    assert stats["python"] > run.BATCH // 2


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.integers(0, 2**40), min_size=4, max_size=8, unique=True), st.integers(0, 9))
def test_drawn_seeds(seeds, batch):
    agree(batch, seeds)


def test_generation_is_deterministic():
    a, b = generate.program(1234), generate.program(1234)
    assert a.source == b.source
    assert all((a.inputs()[k].tobytes() == b.inputs()[k].tobytes()) for k in a.inputs())


def test_long_uniform_computation_compiles(backend):
    """LLVM 22's vectoriser took forever where it interleaved such a loop."""
    f = qd.field(qd.f32, 4)
    f.fill(1)

    @qd.kernel
    def fill(y: qd.types.ndarray()):
        for i in y:
            y[i] = qd.tan(0.5 / f[2])

    y = np.zeros(50, np.float32)
    fill(y)
    qd.sync()
    np.testing.assert_allclose(y, np.tan(0.5), rtol=1e-6)


def test_augmented_assignment_converts_its_operand_first(backend):
    @qd.kernel
    def run_it(y: qd.types.ndarray()):
        for i in range(1):
            a = 3
            a += -1.5
            b = qd.cast(200, qd.u8)
            b += 100.75
            c = 3
            c *= -1.5
            y[0], y[1], y[2] = a, b, c

    y = np.zeros(3, np.int32)
    run_it(y)
    assert y.tolist() == [2, 44, -4]


def test_float_literal_has_the_default_type_first(backend):
    """Whether it is stored, cast or computed with: only `qd.f64(0.1)` is the double."""
    single = float(np.float32(0.1))

    @qd.kernel
    def literals(y: qd.types.ndarray(), s: qd.f64) -> qd.f64:
        v = qd.Vector([0.1, s], dt=qd.f64)
        a: qd.f64 = 0.1
        y[0], y[1], y[2], y[3] = 0.1, v[0], a, qd.cast(0.1, qd.f64)
        y[4] += 0.1
        y[5] = qd.f64(0.1)
        return 0.1

    y = np.zeros(6)
    assert literals(y, 1.0) == single
    assert y.tolist() == [single] * 5 + [0.1]


def test_square_is_a_product(backend):
    """Whether the compiler sees the exponent or not."""
    backend.init(fast_math=False, default_fp=qd.f64)

    @qd.kernel
    def squares(x: qd.types.ndarray(), y: qd.types.ndarray(), n: qd.i32):
        for i in range(x.shape[0]):
            y[i, 0] = x[i] ** 2
            y[i, 1] = x[i] ** n
            y[i, 2] = x[i] ** qd.cast(n, qd.f64)

    x = np.random.default_rng(0).normal(0, 3, 500)
    y = np.zeros((500, 3))
    squares(x, y, 2)
    for k in range(3):
        np.testing.assert_array_equal(y[:, k], x * x)
