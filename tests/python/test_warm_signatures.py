"""What stands in a kernel's signature, in a second process: annotations by another name, tuples returned."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import quadrants as qd

T = getattr(qd, sys.argv[2])
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1])

@qd.kernel
def four_times(x: T) -> qd.f64:
    return qd.cast(x * 4, qd.f64)

@qd.kernel
def single(n: qd.i32) -> tuple[qd.i32]:
    return (n + 1,)

@qd.kernel
def pair(n: qd.i32) -> tuple[qd.i32, qd.f32]:
    return n, n * 0.5

out = [four_times(2**30), single(4), pair(3)]
counters = getattr(qd._lib.core, "counters", dict)()
print("RESULT", repr((out, counters.get("lowered"))))
"""


def run(tmp_path, annotation):
    path = tmp_path / "program.py"
    if not path.exists():
        path.write_text(PROGRAM)
    command = [sys.executable, path, tmp_path / "cache", annotation]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout.split("RESULT")[1])


@pytest.mark.oracle_differs("it keeps no kernel without fastcache, and counts nothing")
def test_annotations_and_tuples(tmp_path):
    fresh = {"i32": 0.0, "i64": 2.0**32, "f32": 2.0**32, "u32": 0.0}
    for annotation, expected in fresh.items():
        for warm in (False, True):
            (product, single, pair), lowered = run(tmp_path, annotation)
            assert product == expected, annotation
            assert pair == (3, 1.5) and isinstance(pair, tuple)
            assert single == (5,)
            assert lowered == 0 if warm else lowered > 0, annotation
