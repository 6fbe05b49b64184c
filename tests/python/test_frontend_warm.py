"""Warm starts by guards: what a second process recompiles after an edit, counted, not timed.

Each step runs the program in a fresh process on a shared cache folder and reads the counters.
"""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.oracle_differs("the established package has no such counters")

PROGRAM = """\
import json, sys
import quadrants as qd
{imports}
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)
from quadrants._lib import core

factor = 3
unused = 1
f = qd.field(qd.f32, shape=16)

@qd.func
def g(x):
    return x * factor

@qd.kernel
def k(n: qd.i32) -> qd.f32:
    for i in range(n):
        f[i] = g(i)
    s = 0.0
    for i in f:
        s += f[i]
    return s

@qd.data_oriented
class Sim:
    def __init__(self):
        self.a = qd.ndarray(qd.f32, (5,))
        self.n = 5
        self.v = qd.Vector([1.0, 2.0])
        self.l = [1, 2]

    @qd.func
    def get(self, i):
        return self.a[i] * self.n + self.v[0] + self.l[1]

    @qd.kernel
    def run(self):
        for i in self.a:
            self.a[i] = self.get(i)

sim = Sim()
out = [k(5)]
sim.run()
out += sim.a.to_numpy().tolist()
qd.sync()
print("RESULT " + json.dumps([out, core.counters()]))
"""


class Project:
    def __init__(self, folder):
        self.folder = folder
        self.text = PROGRAM.replace("{imports}", "")

    def run(self, text=None):
        """What the program prints and its counters."""
        (self.folder / "program.py").write_text(text or self.text)
        env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", PYTHONDONTWRITEBYTECODE="1")
        env["QD_CPU_TIER"] = "1"  # else a launch that others hold up would load the compiler
        done = subprocess.run(
            [sys.executable, "program.py", str(self.folder / "cache")],
            capture_output=True, text=True, env=env, cwd=self.folder, timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        line = [t for t in done.stdout.splitlines() if t.startswith("RESULT ")][-1]
        return json.loads(line[7:])


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


EDITS = {
    # what changes: (old text, new text, kernels traced anew, compiler loaded, result changes)
    "nothing": ("", "", 0, False, False),
    "a global that no kernel reads": ("unused = 1", "unused = 2", 0, False, False),
    "a comment in a kernel": ("    s = 0.0\n", "    # why\n    s = 0.0\n", 1, False, False),
    "the shape of an ndarray": ("qd.f32, (5,)", "qd.f32, (7,)", 0, False, True),
    "the type of an ndarray": ("qd.f32, (5,)", "qd.i32, (5,)", 1, True, False),
    "the shape of a field": ("shape=16", "shape=20", 1, True, False),
    "a captured number": ("factor = 3", "factor = 4", 1, True, True),
    "a number in a member": ("self.n = 5", "self.n = 6", 1, True, False),
    "an element of a list": ("[1, 2]", "[1, 3]", 1, True, True),
    "the body of a func": ("x * factor", "x * factor + 1", 1, True, True),
}


def test_an_edit_redoes_only_what_it_touches(project):
    first, counters = project.run()
    assert first == [30.0] + [3.0] * 5
    assert counters["lowered"] == 2 and counters["compiler_loaded"]
    wrong = []
    for name, (old, new, traced, loaded, changes) in EDITS.items():
        assert old in project.text
        values, counters = project.run(project.text.replace(old, new) if old else None)
        got = counters["lowered"], counters["compiler_loaded"], values != first
        if got != (traced, loaded, changes):
            wrong.append(f"{name}: {got}, expected {(traced, loaded, changes)}")
    assert not wrong
    values, counters = project.run()  # all edits undone
    assert values == first and counters["lowered"] == 0 and not counters["compiler_loaded"]


def test_kernels_of_two_modules_share_no_guard(project):
    """Globals of the same name in an imported module are told apart from the program's own."""
    (project.folder / "other.py").write_text(
        "import quadrants as qd\nfactor = 100\n\n@qd.func\ndef h(x):\n    return x * factor\n"
    )
    text = PROGRAM.replace("{imports}", "from other import h").replace(
        "g(x):", "g(x):\n    x = h(x)"
    )
    project.text = text
    cold, warm = project.run(), project.run()
    assert cold[0] == warm[0] == [3000.0] + [3.0] * 5
    assert warm[1]["lowered"] == 0
    other = project.folder / "other.py"
    other.write_text(other.read_text().replace("100", "10"))
    values, counters = project.run()
    assert values[0] == 300.0 and counters["lowered"] == 1


STRUCTS = """\
import json, sys
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)
from quadrants._lib import core

vec2 = qd.types.vector(2, qd.f32)
inner = qd.types.struct(a=qd.i32, v=vec2)

@qd.dataclass
class Both:
    one: inner
    x: float

    def total(self):
        return self.one.a + self.one.v[1] + self.x

@qd.kernel
def make(n: qd.i32) -> Both:
    return Both(one=inner(a=n, v=[1.0, 2.0]), x=0.5)

both = make(3)
out = [float(both.total()), float(both.one.v[0])]
qd.sync()
print("RESULT " + json.dumps([out, core.counters()]))
"""


def test_structs_are_returned_warm(tmp_path):
    project = Project(tmp_path)
    out, cold = project.run(STRUCTS)
    assert out == [5.5, 1] and cold["lowered"] == 1
    out, warm = project.run(STRUCTS)
    assert out == [5.5, 1] and warm["lowered"] == 0 and warm["compiler_loaded"] == 0
    for old, new in (
        ("a=qd.i32, v=vec2", "v=vec2, a=qd.i32"),
        ("a=qd.i32,", "b=qd.i32, a=qd.i32,"),
    ):
        assert project.run(STRUCTS.replace(old, new))[0] == [5.5, 1]


ROADS = """\
import json, sys
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)
from quadrants._lib import core

@qd.data_oriented
class Other:
    def __init__(self, offset):
        self.offset = offset
        self.hidden = qd.field(qd.i32, shape=4)
        self.hidden.fill(10)

    @qd.func
    def task(self, i):
        return self.hidden[i] + self.offset

@qd.data_oriented
class Sim:
    def __init__(self):
        self.wrapped = qd.tensor(qd.i32, (4,), backend=qd.Backend.FIELD)
        self.size = np.array([3, 4])
        self.other = Other(1)
        self.kept = Other(5).task

    @qd.func
    def task(self, i):
        return 0

    @qd.func
    def each(self, task: qd.template(), i):
        return task(i)

    @qd.kernel
    def through_argument(self) -> qd.i32:
        return self.each(self.other.task, 0)

    @qd.kernel
    def through_member(self) -> qd.i32:
        return self.kept(0)

    @qd.kernel
    def through_wrapper(self) -> qd.i32:
        self.wrapped.fill(self.size[1])
        return self.wrapped[1] + self.wrapped[3]

sim = Sim()
out = [sim.through_argument(), sim.through_member(), sim.through_wrapper()]
qd.sync()
print("RESULT " + json.dumps([out, core.counters()]))
"""


def test_every_road_to_a_value_is_recorded(tmp_path):
    """Methods passed and kept, fields behind qd.Tensor, library funcs, NumPy arrays of constants."""
    project = Project(tmp_path)
    out, cold = project.run(ROADS)
    assert out == [11, 15, 8] and cold["lowered"] == 3
    for old, new, expected, traced in (
        ("qd.sync", "qd.sync", [11, 15, 8], 0),
        ("Other(1)", "Other(2)", [12, 15, 8], 1),
        ("Other(5)", "Other(6)", [11, 16, 8], 1),
        ("np.array([3, 4])", "np.array([3, 5])", [11, 15, 10], 1),
        ("np.array([3, 4])", "np.array([3, 4], np.int8)", [11, 15, 8], 1),
        ("(4,), backend", "(5,), backend", [11, 15, 8], 1),
    ):
        out, warm = project.run(ROADS.replace(old, new))
        assert (out, warm["lowered"]) == (expected, traced), new
