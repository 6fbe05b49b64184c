"""The checks of `benchmarks` notice work that was not done.

What a benchmark compares between contenders must differ if a program does nothing, and if any of its
results is finished for its first half only.
"""

import importlib
import pathlib
import sys
import types

import numpy as np
import pytest

import quadrants as qd

NAMES = (
    "child gradient_rivals gradients jacobi launch mpm nbody programs run saxpy user_kernels "
    "user_programs"
).split()


def benchmark_modules():
    """Their names are short and other tests have modules of the same ones: none stays importable."""
    folder = pathlib.Path(__file__).parents[2] / "benchmarks"
    path, others = sys.path[:], {n: sys.modules.pop(n) for n in NAMES if n in sys.modules}
    sys.path[:0] = [str(folder), str(folder / "cases")]
    try:
        return [importlib.import_module(n) for n in NAMES]
    finally:
        sys.path[:] = path
        for n in NAMES:
            sys.modules.pop(n, None)
        sys.modules.update(others)


(
    child,
    gradient_rivals,
    gradients,
    jacobi,
    launch,
    mpm,
    nbody,
    programs,
    run,
    saxpy,
    user_kernels,
    user_programs,
) = benchmark_modules()


def differ(case, arrays, others):
    """Whether `run.py` would withhold the times."""
    records = [child.fingerprint(**a) for a in (arrays, others)]
    measured = {
        who: {"result": {k: [v] for k, v in record.items()}}
        for who, record in zip(("established", "ours"), records)
    }
    return bool(run.disagreements(case, measured))


def half(done, before):
    flat = np.array(done).ravel()
    flat[flat.size // 2 :] = np.asarray(before).ravel()[flat.size // 2 :]
    return flat.reshape(np.shape(done))


def check(case, step, reset, results, steps):
    def copies():
        return {k: np.array(v) for k, v in results().items()}

    reset()
    before = copies()
    for _ in range(steps):
        step()
    done = copies()
    reset()
    for _ in range(steps):
        step()
    assert not differ(case, done, copies()), "another run from the start gives something else"
    for name in done:
        assert differ(case, done, done | {name: before[name]}), f"{name}: nothing done"
        assert differ(case, done, done | {name: half(done[name], before[name])}), f"{name}: half"


@pytest.mark.parametrize("name", user_programs.PROGRAMS)
def test_user_program(backend, name):
    step, reset, results = user_programs.PROGRAMS[name](qd)
    check(user_kernels, step, reset, results, user_programs.STEPS)


def test_mpm(backend):
    load, step, changes = programs.mpm(qd, 4096)
    check(mpm, step, load, changes, 20)


@pytest.mark.parametrize("name", ["field", "ndarrays", "dataclass"])
def test_launch(backend, name):
    call, reset, fetch = getattr(launch, name)(qd)
    check(launch, call, reset, lambda: {"x": fetch()}, 2)


@pytest.mark.parametrize("case", [jacobi, nbody, saxpy])
def test_arrays(backend, case, monkeypatch):
    seen = {}

    def check_instead(args, name, call, sync, reset, results, repeats=1):
        check(case, call, reset, results, min(repeats, 3))
        seen[name] = True
        return {}, {}

    monkeypatch.setattr(child, "start", lambda args: qd)
    monkeypatch.setattr(child, "checked", check_instead)
    monkeypatch.setattr(case, "N", 64)
    case.case(types.SimpleNamespace(contender="ours"))
    assert seen


@pytest.mark.parametrize("name", gradients.PROGRAMS)
def test_gradients(backend, name, monkeypatch):
    backend.init(ad_stack_experimental_enabled=True)
    for size, small in (("SIZE", 64), ("BODIES", 16), ("GRID", 12), ("RAGGED", 64)):
        monkeypatch.setattr(gradients, size, small)
    monkeypatch.setattr(gradients, "PARTICLES", 64)
    program = gradients.differentiable(qd, name)
    value = lambda: {"value": program.value()}
    check(gradients, program.kernel, program.reset, value, 1)
    each = lambda: {f"gradient {k}": g for k, g in enumerate(program.gradients())}
    check(gradients, program.reverse, program.reset, each, 1)


def test_results_of_every_round_are_compared():
    measured = {
        "established": {"result": {"x": [[1.0, 2.0]]}},
        "ours": {"result": {"x": [[1.0, 2.0], [1.0, 2.5]]}},
    }
    assert "x: ours differs" in run.disagreements(nbody, measured)[0]


def test_a_target_is_the_faster_row_of_a_rival():
    medians = {"ours": {"t": 1.0}, "cpp": {"t": 2.0}, "cpp-spin": {"t": 0.5}}
    assert run.verdict(("cpp", 0.95), "t", medians).endswith("NO")
    assert run.verdict(("cpp", 0.95), "t", medians | {"cpp-spin": {}}).endswith("yes")
