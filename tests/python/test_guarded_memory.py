"""Memory of fields and ndarrays that the host may not touch (QD_GUARDED_MEMORY, docs/internals/data.md).

`make guarded` runs the whole suite so; here, what must hold of the guard itself.
"""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mprotect and its signal")

HEAD = """
import ctypes
import os
import numpy as np
import quadrants as qd

qd.init(arch=qd.cpu, print_full_traceback=False)
x = qd.field(qd.i32, 5)
a = qd.ndarray(qd.f64, 3)


@qd.kernel
def step():
    for i in x:
        x[i] += i + 1
"""

# Interleaved members, uneven components, blocks: what windows of one tree share.
EVERYTHING = """
block = qd.root.dense(qd.ij, (2, 3)).dense(qd.ij, (4, 2))
b = qd.field(qd.i16)
block.place(b)
v = qd.Vector.field(2, qd.f32, shape=(4, 3), layout=qd.Layout.AOS)
s = qd.Struct.field({"p": qd.types.vector(2, qd.f32), "q": qd.u1}, shape=6, layout=qd.Layout.AOS)
big, small = qd.field(qd.f32), qd.field(qd.u8)
qd.root.dense(qd.i, 7).place(big, small)
m = qd.Matrix.ndarray(2, 2, qd.i64, 3)
t = qd.ndarray(qd.f32, (2, 3))
values = np.arange(48).reshape(8, 6)

b.from_numpy(values.astype(np.int16))
b[5, 3] += 1
v.fill(1.5)
v[1, 2] = [2, 3]
v[1, 2][0] += 1
s.fill(0)
s[2].p = [4, 5]
s.q.fill(True)
big.from_numpy(np.linspace(0, 1, 7, dtype=np.float32))
small.fill(200)
big.fill(0.1)
small[6] = 3
m.from_numpy(values[:6, :2].reshape(3, 2, 2))
m[1][0, 1] = -9
t.fill(2)
t[1, 1] = 8
a.copy_from(qd.ndarray(qd.f64, 3))
x.fill(3)
step()
for c in (b, v, s.p, s.q, big, small, m, t, a, x):
    print(c, c.to_numpy().dtype, c.to_numpy().tolist())
print(s.to_numpy(), x[2], b[5, 3], v[1, 2], m[1][0, 1], t[1, 1])
qd.reset()
"""


def run(tmp_path, body, guarded=True):
    program = tmp_path / "program.py"
    program.write_text(HEAD + body)
    environment = {**os.environ, "QD_OFFLINE_CACHE_FILE_PATH": str(tmp_path / "cache")}
    environment.pop("QD_GUARDED_MEMORY", None)
    if guarded:
        environment["QD_GUARDED_MEMORY"] = "1"
    return subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, timeout=120
    )


def printed(tmp_path, body, guarded=True):
    done = run(tmp_path, body, guarded)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith("[Quadrants]")]


def test_programs_print_what_they_print(tmp_path):
    lines = printed(tmp_path, EVERYTHING)
    assert len(lines) > 10 and lines == printed(tmp_path, EVERYTHING, guarded=False)


@pytest.mark.parametrize("container, before", [
    ("x", "step()"), ("a", "a[1] = 2"), ("x", "x.from_numpy(x.to_numpy())"), ("a", "a.fill(1)"),
])  # fmt: skip
def test_the_host_dies_of_touching_it(tmp_path, container, before):
    touch = f"x[0], a[0]\n{before}\nctypes.string_at({container}._address, 4)"
    assert run(tmp_path, touch).returncode == -signal.SIGSEGV


def test_what_is_exported_is_the_hosts(tmp_path):
    body = """
view = x.to_numpy(copy=False)
view[:] = 5
step()
x[0] += 10
print(view.tolist(), x.to_numpy().tolist())
capsule = a.to_dlpack()
print(ctypes.string_at(a._address, 4), ctypes.string_at(x._address, 1))
"""
    numbers = "[16, 7, 8, 9, 10]"
    assert printed(tmp_path, body) == [
        f"{numbers} {numbers}",
        "b'\\x00\\x00\\x00\\x00' b'\\x10'",
    ]


def test_children_launch(tmp_path):
    body = """
step()
if os.fork() == 0:
    step()
    x[4] += 1
    print(x.to_numpy().tolist(), flush=True)
    os._exit(0)
os.wait()
print(x.to_numpy().tolist())
"""
    assert printed(tmp_path, body) == ["[2, 4, 6, 8, 11]", "[1, 2, 3, 4, 5]"]
