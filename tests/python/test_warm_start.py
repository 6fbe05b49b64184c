"""Kernels are cached across processes without annotation: same results, no compiler loaded.

Each case runs a script in fresh processes that share a cache folder.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import json, sys
import numpy as np
import quadrants as qd

SCALE = {scale}
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], {options})
x = qd.field(qd.{dt}, {shape})
v = qd.Vector.field(3, qd.f32, 7)

@qd.func
def shade(a):
    return {body}

@qd.data_oriented
class Model:
    def __init__(self, gain):
        self.gain = gain
        self.f = qd.field(qd.f32, 8)

    @qd.kernel
    def run(self) -> qd.f32:
        s = 0.0
        for i in self.f:
            self.f[i] = shade(i * self.gain) * SCALE
        for i in self.f:
            s += self.f[i]
        return s

@qd.kernel
def fields(k: qd.i32):
    for i in x:
        x[i] = i * k * SCALE
    for i in v:
        v[i] = [i, qd.sin(float(i)), SCALE]

@qd.kernel
def arrays(a: qd.types.NDArray, n: qd.template()) -> qd.f64:
    s = qd.f64(0.0)
    for i in a:
        a[i] += n * 0.5
        s += a[i]
    return s

out = {{}}
out["model"] = [Model(2.0).run(), Model(3.0).run()]
fields(3)
out["x"], out["v"] = x.to_numpy().tolist(), v.to_numpy().tolist()
out["a"] = [arrays(np.arange(9, dtype=t), n) for t in (np.float32, np.float64) for n in (1, 2)]
qd.sync()
try:
    out["maps"] = [line.split()[-1] for line in open("/proc/self/maps") if "libqd_compiler" in line]
except OSError:
    out["maps"] = []
print("RESULT " + json.dumps(out))
"""
DEFAULT = dict(scale="2", options="", dt="i32", shape="20", body="a * a + 1")


def run(tmp_path, cache, name="program", **changes):
    """Runs the program; its file keeps its name so that only content distinguishes the versions."""
    path = tmp_path / f"{name}.py"
    path.write_text(textwrap.dedent(PROGRAM).format(**{**DEFAULT, **changes}))
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", PYTHONDONTWRITEBYTECODE="1")
    env["QD_CPU_TIER"] = "1"  # else a launch that others hold up would load the compiler
    done = subprocess.run(
        [sys.executable, str(path), str(cache)],
        capture_output=True,
        text=True,
        env=env,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    line = [t for t in done.stdout.splitlines() if t.startswith("RESULT ")][-1]
    return json.loads(line[7:])


def values(result):
    return {k: r for k, r in result.items() if k != "maps"}


def expect_x(scale=2, n=20):
    return [i * 3 * scale for i in range(n)]


def test_second_process(tmp_path, established):
    cache = tmp_path / "cache"
    cold, warm = run(tmp_path, cache), run(tmp_path, cache)
    assert values(cold) == values(warm)
    assert cold["x"] == expect_x()
    assert cold["model"] == [sum((i * g) ** 2 + 1 for i in range(8)) * 2 for g in (2.0, 3.0)]
    if not established:
        assert cold["maps"] and not warm["maps"], "a warm process must not load the compiler"


@pytest.mark.parametrize(
    "changes",
    [dict(scale="5"), dict(dt="f32"), dict(shape="30"), dict(body="a * a + 2"),
     dict(options="default_fp=qd.f64"), dict(options="debug=True")],
    ids=["global", "dtype", "shape", "func", "default_fp", "debug"],
)  # fmt: skip
def test_a_change_is_a_miss(tmp_path, changes):
    cache, fresh = tmp_path / "cache", tmp_path / "fresh"
    before = run(tmp_path, cache)
    after = run(tmp_path, cache, **changes)
    assert values(after) == values(run(tmp_path, fresh, **changes))
    if "debug" not in changes.get("options", ""):
        assert changes.get("options") or values(after) != values(before) or "dt" in changes
    assert values(run(tmp_path, cache)) == values(before)


def test_two_processes_at_once(tmp_path):
    cache = tmp_path / "cache"
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM).format(**DEFAULT))
    jobs = [
        subprocess.Popen([sys.executable, str(path), str(cache)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    texts = [job.communicate(timeout=100)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0]
    lines = [[t for t in x.splitlines() if t.startswith("RESULT ")][-1] for x in texts]
    results = [values(json.loads(t[7:])) for t in lines]
    assert results[0] == results[1] == values(run(tmp_path, cache))


def files(cache):
    return [os.path.join(d, f) for d, _, names in os.walk(cache) for f in names]


@pytest.mark.oracle_differs("the established package may refuse or crash on damaged files")
@pytest.mark.parametrize("damage", ["truncate", "garbage", "empty", "delete"])
def test_damaged_cache(tmp_path, damage):
    cache = tmp_path / "cache"
    good = values(run(tmp_path, cache))
    assert files(cache)
    for path in files(cache):
        size = os.path.getsize(path)
        if damage == "delete":
            os.unlink(path)
            continue
        with open(path, "r+b") as f:
            if damage == "garbage":
                f.seek(size // 2)
                f.write(b"\xa5" * (size - size // 2))
            else:
                f.truncate(size // 2 if damage == "truncate" else 0)
    assert values(run(tmp_path, cache)) == good
    assert values(run(tmp_path, cache)) == good


@pytest.mark.oracle_differs("the established package aborts the process")
def test_cache_folder_cannot_be_used(tmp_path):
    """A folder that cannot exist: results stay right, nothing crashes."""
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    assert run(tmp_path, blocker / "cache")["x"] == expect_x()


def test_cache_can_be_turned_off(tmp_path):
    cache = tmp_path / "cache"
    assert run(tmp_path, cache, options="offline_cache=False")["x"] == expect_x()
    assert not [f for f in files(cache) if os.path.getsize(f) > 4096]
