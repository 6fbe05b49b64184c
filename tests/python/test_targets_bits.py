"""Each x86-64 feature level can be forced and gives right results; equal FMA means equal bits."""

import os
import pathlib
import platform
import subprocess
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
FLAGS = {
    "x86-64": set(),
    "haswell": {"avx2", "fma"},
    "skylake-avx512": {"avx512f", "avx512vl", "fma"},
}

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 only")


def cpu_flags():
    try:
        line = next(t for t in open("/proc/cpuinfo") if t.startswith("flags"))
    except (OSError, StopIteration):
        return set()
    return set(line.split())


def results(folder, target, tier, *options):
    file = folder / f"{target}-{tier}-{len(options)}.npz"
    command = [
        sys.executable,
        str(HERE / "bits_program.py"),
        str(folder / f"cache-{target}-{tier}"),
        "1",
    ]
    env = dict(
        os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", QD_CPU_TARGET=target, QD_CPU_TIER=tier
    )
    done = subprocess.run(
        [*command, *options, "save", str(file)],
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(file) as data:
        return {k: data[k] for k in data.files}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, established):
    if established:
        pytest.skip("targets of this implementation")
    folder, done = tmp_path_factory.mktemp("targets"), {}

    def get(target, tier, *options):
        if not FLAGS[target] <= cpu_flags():
            pytest.skip(f"this CPU does not run {target}")
        key = (target, tier, *options)
        if key not in done:
            done[key] = results(folder, target, tier, *options)
        return done[key]

    return get


def same(a, b):
    assert a.keys() == b.keys()
    wrong = [k for k in a if a[k].tobytes() != b[k].tobytes()]
    assert not wrong, f"other bits in {wrong}"


@pytest.mark.parametrize("target", FLAGS)
def test_both_tiers_agree(runs, target):
    same(runs(target, "0"), runs(target, "1"))


@pytest.mark.parametrize("options", [(), ("strict",)], ids=["fast_math", "strict"])
def test_width_does_not_matter(runs, options):
    """AVX2 and AVX-512 both fuse: identical bits."""
    same(runs("haswell", "1", *options), runs("skylake-avx512", "1", *options))


def test_targets_are_close(runs):
    """The baseline has no FMA: last digits may differ."""
    a, b = runs("x86-64", "1"), runs("haswell", "1")
    for k in a:
        np.testing.assert_allclose(a[k], b[k], rtol=2e-3, atol=2e-5, err_msg=k)
