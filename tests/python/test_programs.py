"""Whole small programs in the style of the API's users, against recorded results.

`programs/expected.npz` holds the results of the established package. Record anew, on it, with
`python test_programs.py`.
"""

import importlib.util
import pathlib
import sys

import numpy as np
import pytest

import quadrants as qd

FOLDER = pathlib.Path(__file__).parent / "programs"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py"))

# Relative to the largest magnitude of each result. Chaotic programs amplify rounding.
TOLERANCE = {"flag": 2e-3, "rope": 2e-3, "sph": 2e-3, "plasma": 2e-3, "tracer": 2e-2, "image": 1e-2}
DEFAULT = 2e-4

# Integers that a rounding may shift by one here and there: at most 1 % of their sum may move.
ROUNDED = {"image.h", "mandelbrot.low", "mandelbrot.newton"}


def results(name):
    """Imports the program anew (its fields belong to the current runtime) and runs it."""
    spec = importlib.util.spec_from_file_location(f"program_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        return {key: np.asarray(a) for key, a in module.main().items()}
    finally:
        del sys.modules[spec.name]


@pytest.fixture(scope="module")
def expected():
    with np.load(FOLDER / "expected.npz") as data:
        return dict(data)


def compare(name, got, expected):
    keys = {k.split(".", 1)[1] for k in expected if k.startswith(name + ".")}
    assert set(got) == keys
    for key in keys:
        a, b = got[key], expected[f"{name}.{key}"]
        assert a.shape == b.shape, key
        if f"{name}.{key}" in ROUNDED:
            moved = np.abs(a.astype(np.int64) - b.astype(np.int64)).sum()
            assert moved <= 0.01 * np.abs(b.astype(np.int64)).sum(), key
            continue
        if b.dtype.kind in "iub":
            assert np.array_equal(a, b), key
            continue
        scale = max(np.abs(b).max(), 1e-12)
        error = np.abs(a.astype(np.float64) - b).max() / scale
        assert error <= TOLERANCE.get(name, DEFAULT), f"{key}: relative error {error:.2e}"


@pytest.mark.parametrize("name", NAMES)
def test_program(backend, expected, name):
    compare(name, results(name), expected)


@pytest.mark.parametrize("name", ["life", "wave", "scan"])
def test_program_on_one_thread(backend, expected, name):
    backend.init(cpu_max_num_threads=1)
    compare(name, results(name), expected)


@pytest.mark.parametrize("name", ["queens", "kalman", "scan"])
def test_program_in_debug(backend, expected, name):
    backend.init(debug=True)
    compare(name, results(name), expected)


def record():
    recorded = {}
    for name in NAMES:
        qd.init(arch=qd.cpu)
        for key, a in results(name).items():
            recorded[f"{name}.{key}"] = a.astype(np.float32) if a.dtype == np.float64 else a
    np.savez_compressed(FOLDER / "expected.npz", **recorded)


if __name__ == "__main__":
    record()
