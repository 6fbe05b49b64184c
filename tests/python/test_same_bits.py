"""Cold, warm, quick tier, optimised tier, one thread and several: identical bits.

The benchmark and showcase kernels run in processes of their own, one for every way to run them, and
digests of all their results are compared. See bits_program.py for what is left out with several
threads (float atomics that the user wrote) and why.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


def digests(cache, threads, *options, **environment):
    command = [sys.executable, str(HERE / "bits_program.py"), str(cache), str(threads), *options]
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", **environment)
    env.pop("QD_CPU_TIER", None) if "QD_CPU_TIER" not in environment else None
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(next(t for t in done.stdout.splitlines() if t.startswith("DIGESTS "))[8:])


def check(base, other, label):
    assert base.keys() == other.keys()
    wrong = [k for k in base if base[k] != other[k]]
    assert not wrong, f"{label}: other bits in {wrong}"


@pytest.fixture(scope="module")
def base(tmp_path_factory, established):
    """Digests of a cold run of the optimised tier on one thread, and its cache."""
    if established:
        pytest.skip("a promise of this implementation")
    cache = tmp_path_factory.mktemp("bits")
    return digests(cache, 1, "showcases", "float-atomics", QD_CPU_TIER="1"), cache


WAYS = {
    "tier 0, one thread": (1, dict(QD_CPU_TIER="0")),
    "tier 0, two threads": (2, dict(QD_CPU_TIER="0")),
    "tier 1, two threads": (2, dict(QD_CPU_TIER="1")),
    "tier 1, three threads": (3, dict(QD_CPU_TIER="1")),
    "quick first, two threads": (2, {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_same_bits(base, way, tmp_path):
    threads, environment = WAYS[way]
    options = ["showcases"] + ["float-atomics"] * (threads == 1)
    got = digests(tmp_path, threads, *options, **environment)
    check({k: base[0][k] for k in got}, got, way)


def test_warm_has_the_bits_of_cold(base):
    options = ["showcases", "float-atomics"]
    check(base[0], digests(base[1], 1, *options, QD_CPU_TIER="1"), "warm")


def test_warm_quick_first(tmp_path, base):
    cold = digests(tmp_path, 2, "showcases")
    check(cold, digests(tmp_path, 2, "showcases"), "warm, quick first")
    check({k: base[0][k] for k in cold}, cold, "against tier 1")
