"""Random programs: gradients of both modes, against differences, small tapes, tiers and threads.

The programs: gradient_programs.py, what is compared: gradient_checks.py, which run by itself goes on
for as long as one likes, and makes a failing program smaller; `gradient_checks.py SEED SEED+1`.
"""

import pytest

import gradient_checks as checks
import gradient_programs as programs
import quadrants as qd

EACH = 6
TAPES = {k: v for k, v in checks.VARIANTS.items() if k in ("budget 20000", "budget 700")}
# What a batch runs beside tier 0.
TURNS = [
    {**TAPES, "tier interpret": dict(tier="interpret")},
    {"calls": checks.AS_CALLS, "threads 2": dict(cpu_max_num_threads=2)},
    {"calls, budget 3000": checks.VARIANTS["calls, budget 3000"], "tier 1": dict(tier="1")},
]


@pytest.fixture
def checker(backend, batch, established, monkeypatch, tmp_path):
    if established:
        pytest.skip("control flow that it does not differentiate")
    if backend.name not in ("cpu", "cuda"):
        pytest.skip("no f64 or no tape")

    def start(tier, **options):
        monkeypatch.setenv("QD_CPU_TIER", tier)
        backend.init(default_fp=qd.f64, offline_cache=False, log_level=qd.ERROR, **options)

    variants = TURNS[batch % len(TURNS)]
    if backend.name != "cpu":  # sums of a launch come in any order
        variants = {}
    fast_math = checks.Options(10 * batch).fast_math
    return checks.Checker(start, tmp_path, variants, fast_math, tier="0")


@pytest.mark.parametrize("batch", range(12))
def test_gradients(checker, batch):
    found = []
    for seed in range(10 * batch, 10 * batch + EACH):
        p = programs.program(seed, checks.Options(seed).general)
        found += [f"seed {seed} {kind}: {text}\n{p.module()}" for kind, text in checker.check(p)]
    assert not found, "\n".join(found)
    assert checker.stats["refused"] + checker.stats["wild"] <= 1, checker.why
    assert checker.stats["dots"] >= EACH - 1
    assert checker.stats["differences"] >= EACH // 2


def test_programs_are_the_same_every_time():
    a, b = programs.program(12), programs.program(12)
    assert a.module() == b.module()
    assert all((v == b.inputs()[name]).all() for name, v in a.inputs().items())
