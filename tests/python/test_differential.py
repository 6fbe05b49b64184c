"""Random programs: compiled code against the IR interpreter, a typed model and Python itself.

The generator, the model and the comparison live in `tests/differential`; `run.py` there runs them
by the ten thousands. Here are a few hundred, in processes of their own: fixed seeds, and seeds that
hypothesis picks. A failure prints its seed; `run.py --seed N --count 1` repeats and reduces it.
"""

import pathlib
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "differential"))

import generate
import run


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
