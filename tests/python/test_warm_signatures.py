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


# Texts that are longer than what is kept of them, and differ behind that.
LONG = """
import dataclasses, sys
import quadrants as qd

LAST = getattr(qd, sys.argv[2])
TABLE = (*range(300), LAST is qd.i32)
Many = qd.types.struct(**{f"member_{n}": qd.f64 for n in range(60)}, last=LAST)
Class = dataclasses.make_dataclass("Class", [(f"m{n}", qd.types.NDArray[qd.f32, 1]) for n in range(60)] + [("last", LAST)])
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1])

@qd.func
def of_default(table=TABLE):
    return table[300] + 1

@qd.func
def of_annotation(s: Many):
    return s.last

@qd.kernel
def from_default() -> qd.i32:
    return of_default()

@qd.kernel
def from_struct() -> qd.f64:
    return Many(last=2.5).last

@qd.kernel
def from_func() -> qd.f64:
    return of_annotation(Many(last=2.5))

arrays = [qd.ndarray(qd.f32, 1) for _ in range(60)]

@qd.func
def of_class(s: Class):
    return s.last

@qd.kernel
def from_class(s: Class) -> qd.f64:
    return of_class(s)

out = [from_default(), from_struct(), from_func(), from_class(Class(*arrays, 2 if LAST is qd.i32 else 2.5))]
print("RESULT", repr((out, qd._lib.core.counters()["lowered"])))
"""


@pytest.mark.oracle_differs("it keeps no kernel without fastcache, and counts nothing")
def test_long_texts_that_differ_at_their_end(tmp_path):
    (tmp_path / "program.py").write_text(LONG)
    expected = {"i32": [2, 2.0, 2.0, 2.0], "f32": [1, 2.5, 2.5, 2.5], "f64": [1, 2.5, 2.5, 2.5]}
    for n, last in enumerate(["i32", "f32", "i32", "f64", "f32"]):
        found, lowered = run(tmp_path, last)
        assert found == expected[last]
        # of_default's text does not tell f32 from f64
        assert lowered == [4, 4, 0, 3, 0][n]
    recipes = list((tmp_path / "cache" / "native" / "kernels").glob("*/*"))
    assert recipes and not any(
        b"member_59:" in r.read_bytes() for r in recipes
    )  # nor any long text whole
