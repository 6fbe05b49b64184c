"""Debug mode names stores that every iteration of a parallel loop makes to one element."""

import subprocess
import sys

import pytest

import quadrants as qd

pytestmark = pytest.mark.oracle_differs("has no such hints")


def init(**options):
    qd.init(arch=qd.cpu, offline_cache=False, debug=True, **options)


def hints(capfd):
    """The first line and the code of each."""
    err = capfd.readouterr().err
    return [
        (("updates" if "updates are lost" in part else "own"), part.splitlines()[2].strip())
        for part in err.split("Race: ")[1:]
    ]


@pytest.fixture
def places():
    init()
    total, pair = qd.field(qd.f32, ()), qd.Vector.field(2, qd.f32, 3)
    return total, pair, qd.ndarray(qd.f32, 8)


def test_updates_are_lost(places, capfd):
    total, pair, a = places

    @qd.kernel
    def k(a: qd.types.ndarray(), n: qd.i32):
        for i in range(n):
            total[None] = total[None] + a[i]
        for i in a:
            a[0] = max(a[i], a[0])
        for i in a:
            pair[2].y = 2.0 * pair[2].y
        for i, j in qd.ndrange(2, 3):
            a[1] = a[1] + 1.0

    k(a, 4)
    assert hints(capfd) == [
        ("updates", "total[None] = total[None] + a[i]"),
        ("updates", "a[0] = max(a[i], a[0])"),
        ("updates", "pair[2].y = 2.0 * pair[2].y"),
        ("updates", "a[1] = a[1] + 1.0"),
    ]
    k(a, 5)
    assert hints(capfd) == []  # once a place


def test_values_of_iterations(places, capfd):
    total, pair, a = places

    @qd.kernel
    def k(a: qd.types.ndarray()):
        for i in a:
            total[None] = i
        for i in a:
            a[0] = a[i] * 2.0

    k(a)
    assert hints(capfd) == [("own", "total[None] = i"), ("own", "a[0] = a[i] * 2.0")]


def test_what_may_be_meant(places, capfd):
    total, pair, a = places

    @qd.kernel
    def k(a: qd.types.ndarray(), s: qd.f32):
        for i in a:
            total[None] += a[i]
            qd.atomic_max(a[0], s)
        for i in a:
            total[None] = s  # all the same
            pair[1].x = pair[1].y * 0.0 + s
        for i in a:
            if i == 3:
                total[None] = a[i]
        for i in a:
            if i != 3:
                continue
            total[None] = a[i]
        for i in a:
            a[i] = a[i] + s
        qd.loop_config(serialize=True)
        for i in range(8):
            total[None] = total[None] + a[i]
        for i in range(1):
            total[None] = total[None] + a[i]
        for i in range(3, 3):
            total[None] = total[None] + a[i]
        for i in range(2):
            a[i] = a[0]

    @qd.kernel
    def serial(a: qd.types.ndarray()):
        total[None] = total[None] + a[0]

    k(a, 2.0)
    serial(a)
    assert hints(capfd) == []


def test_only_in_debug_mode(capfd):
    qd.init(arch=qd.cpu, offline_cache=False, check_out_of_bound=True)
    total = qd.field(qd.f32, ())

    @qd.kernel
    def k():
        for i in range(8):
            total[None] = total[None] + 1.0

    k()
    assert hints(capfd) == []
    qd.reset()
    init(log_level=qd.ERROR)
    total = qd.field(qd.f32, ())
    k()
    assert hints(capfd) == []


PROGRAM = """
import sys
import quadrants as qd
qd.init(arch=qd.cpu, debug=True, offline_cache_file_path=sys.argv[1])
@qd.kernel
def k(a: qd.types.ndarray(qd.f32, 1)):
    for i in a:
        a[0] = a[0] + a[i]
k(qd.ndarray(qd.f32, 8))
print("lowered", qd._lib.core.counters()["lowered"])
"""


def test_warm_starts_say_it_too(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for lowered in (1, 0):
        command = [sys.executable, program, str(tmp_path / "cache")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert f"lowered {lowered}" in done.stdout, done.stderr
        assert done.stderr.count("Race: ") == 1 and "a[0] = a[0] + a[i]" in done.stderr
