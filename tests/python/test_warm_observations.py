"""What a kernel reads through Python code of the user is looked up again by a later process, which
then runs the stored code without the front end, or misses if the answer differs."""

import json
import math
import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import json, math, sys, warnings
import numpy as np
import quadrants as qd
from quadrants._lib import core

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)

def pack(i, j, n):
    return i * n + j + {shift}

def blocks(model):
    return ((0, model.width), (model.width, 2.5))

Particle = qd.types.struct(position=qd.types.vector(2, qd.f32), mass=qd.f32)

class Computed:
    def __getattr__(self, name):
        if name == "twice":
            return 2 * {gain}
        raise AttributeError(name)

@qd.data_oriented
class Model:
    def __init__(self):
        self.particles = Particle.field(shape={size})
        self.computed = Computed()
        self.width = {width}

    @property
    def gain(self):
        return {gain}

    @property
    def members(self):
        return self.particles

    @qd.kernel
    def run(self) -> qd.f32:
        for i in self.particles:
            self.particles[i].mass = i * self.gain
        s = 0.0
        for i in range({size}):
            s += self.members[i].mass + self.computed.twice
        return s

    def scaled(self, k):
        return k * self.width

    @qd.func
    def weight(self, k: qd.template()):
        return qd.static(self.scaled(k)) + qd.static(pack(1, k, 2))

    @qd.kernel
    def calls(self) -> qd.f32:
        s = 0.0
        for begin, size in qd.static(blocks(self)):
            s += begin + 10 * size
        for k in qd.static(range(3)):
            s += self.weight(k)
        return s + pack(0, 0, 0)

@qd.kernel
def numbers() -> qd.f32:
    return math.floor(2.5) + np.maximum(1.0, 2.0) * {gain}

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    result = [Model().run(), numbers(), Model().calls()]
    names = sorted({{str(w.message).split('"')[1] for w in seen}})
print("RESULT " + json.dumps([result, names, core.counters()["lowered"]]))
"""


def run_text(tmp_path, text):
    """What the program prints as its result, in a process that keeps its cache in `tmp_path`."""
    path = tmp_path / "program.py"
    path.write_text(text)
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        [sys.executable, str(path), str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        env=env,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.split("RESULT ")[1])


def run(tmp_path, **changes):
    values = {"gain": 3, "size": 4, "shift": 1, "width": 2} | changes
    return run_text(tmp_path, textwrap.dedent(PROGRAM).format(**values))


def expected(gain=3, size=4, shift=1, width=2):
    calls = width + 10 * (width + 2.5) + sum(k * width + 2 + k + shift for k in range(3)) + shift
    return [sum(i * gain + 2 * gain for i in range(size)), 2.0 + 2.0 * gain, calls]


def test_a_second_process_lowers_nothing(tmp_path):
    cold, warm = run(tmp_path), run(tmp_path)
    assert cold[0] == warm[0] == expected()
    assert (
        cold[1] == warm[1] == ["math.floor", "np.maximum", "pack"]
    )  # the warnings of the first process
    assert (cold[2], warm[2]) == (3, 0)


@pytest.mark.parametrize("changes", [{"gain": 5}, {"size": 6}, {"shift": 7}, {"width": 3}])
def test_another_answer_is_a_miss(tmp_path, changes):
    run(tmp_path)
    assert run(tmp_path, **changes)[0] == expected(**changes)
    assert run(tmp_path)[0] == expected()


CONTAINERS = """
import json, sys
import quadrants as qd
from quadrants._lib import core

n = {n}
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)

class Part:
    def __init__(self, weight):
        self.weight = weight

@qd.data_oriented
class Model:
    def __init__(self):
        self.numbers = [n, 1]
        self.named = dict(n=n, m=1)
        self.turns = range(n)
        self.unordered = {{n, 1}}
        self.nested = [[n, 1], [2, 3]]
        self.parts = [Part(n), Part(1)]

{kernels}

model = Model()
before = core.counters()["lowered"]
results = [getattr(model, name)() for name in sorted(vars(Model)) if name.startswith("k_")]
print("RESULT " + json.dumps([results, core.counters()["lowered"] - before]))
"""

READS = {
    "get": ("t += qd.static(self.named.get('n', 3))", lambda n: n),
    "sum": ("t += qd.static(sum(self.numbers))", lambda n: n + 1),
    "range": ("for i in qd.static(self.turns):\n            t += i + 1", lambda n: n * (n + 1) // 2),
    "sorted": ("t += qd.static(sorted(self.unordered)[1])", lambda n: n),
    "nested": ("for a, b in qd.static(self.nested):\n            t += a", lambda n: n + 2),
    "values": ("for v in qd.static(self.named.values()):\n            t += v", lambda n: n + 1),
    "items": ("for k, v in qd.static(self.named.items()):\n            t += v", lambda n: n + 1),
    "enumerate": (
        "for k, v in qd.static(enumerate(self.numbers)):\n            t += k * v",
        lambda n: 1,
    ),
    "zip": ("for a, b in qd.static(zip(self.numbers, self.turns)):\n            t += a", lambda n: n + 1),
    "objects": (
        "for k, part in qd.static(enumerate(self.parts)):\n            t += part.weight",
        lambda n: n + 1,
    ),
    "getattr": ("t += qd.static(getattr(self.parts[0], 'weight'))", lambda n: n),
    "len": ("t += qd.static(len(self.parts))", lambda n: 2),
    "vector": ("t += qd.Vector(self.numbers).sum()", lambda n: n + 1),
}  # fmt: skip


def test_contents_of_containers_are_observed(tmp_path):
    """All at once: one process that fills the cache, one that finds all, one with other contents."""
    kernels = "".join(
        f"    @qd.kernel\n    def k_{name}(self) -> qd.i32:\n        t = 0\n        {body}\n"
        "        return t\n\n"
        for name, (body, _) in READS.items()
    )
    for n, again in ((5, False), (5, True), (6, False)):
        results, lowered = run_text(tmp_path, CONTAINERS.format(n=n, kernels=kernels))
        assert dict(zip(sorted(READS), results, strict=True)) == {
            name: expect(n) for name, (_, expect) in READS.items()
        }
        if again:
            assert lowered <= 2  # objects behind enumerate and getattr are traced again


WARNINGS = """
import json, sys, warnings
import quadrants as qd
from quadrants._lib import core

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR, src_ll_cache={entries})
LIMIT = 4

@qd.func
def limited(a):
    return min(a, LIMIT)

@qd.kernel(fastcache=True)
def pure(x: qd.types.NDArray[qd.i32, 1]):
    for i in x:
        x[i] = limited(10) + limited(3)

@qd.kernel(graph=True)
def repeated(x: qd.types.NDArray[qd.i32, 1], n: qd.types.NDArray[qd.i32, 0]):
    while qd.graph_do_while(n):
        for i in x:
            x[i] += 1
        n[()] -= 1

x, n = qd.ndarray(qd.i32, 2), qd.ndarray(qd.i32, ())
n[()] = 3
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    pure(x)
    repeated(x, n)
found = [[w.category.__name__, str(w.message).split(" ")[0]] for w in seen]
print("RESULT " + json.dumps([x.to_numpy().tolist(), found, core.counters()["lowered"]]))
"""


@pytest.mark.parametrize("entries", [False, True])
def test_warnings_of_every_kind_are_given_again(tmp_path, entries):
    """But what an entry of `fastcache=True` stands for: captures that were analysed once."""
    text = WARNINGS.format(entries=entries)
    cold, warm = run_text(tmp_path, text), run_text(tmp_path, text)
    assert cold[0] == warm[0] == [10, 10]
    categories = [category for category, _ in cold[1]]
    assert categories == ["UserWarning", "DeprecationWarning"] and warm[1] == cold[1][entries:]
    assert (cold[2], warm[2]) == (2, 0)


LOGGED = """
import json, sys
import quadrants as qd
from quadrants import _logging
from quadrants._lib import core

seen = []
_logging.warn = seen.append
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)
x = qd.field(qd.i32, 4)
{comment}
@qd.func
def wide(i):
    x[i] = qd.i64(i) * 2

@qd.kernel
def stores(n: qd.i32):
    for i in range(n):
        wide(i)

@qd.kernel
def adds(n: qd.i32):
    for i in range(n):
        wide(i)
        x[i] += qd.i64(1)

for kernel in {kernels}:
    kernel(4)
print("RESULT " + json.dumps([seen, core.counters()["lowered"]]))
"""


def test_lost_precision_is_logged_again(tmp_path):
    """Once per place and process, whichever kernel of a func comes first, wherever the func now stands."""
    stored = "Assign may lose precision: i32 <- i64"
    added = "Atomic add may lose precision: i32 <- i64"
    first = {"kernels": "[stores, adds]", "comment": ""}
    assert run_text(tmp_path, LOGGED.format(**first)) == [[stored, added], 2]
    assert run_text(tmp_path, LOGGED.format(**first)) == [[stored, added], 0]
    for kernels, told in (
        ("[adds]", [stored, added]),
        ("[stores]", [stored]),
        ("[adds, stores]", [stored, added]),
    ):
        moved = {"kernels": kernels, "comment": "# moved"}
        assert run_text(tmp_path, LOGGED.format(**moved)) == [told, 0]


LOOPS = """
import json, sys
import quadrants as qd
from quadrants import _logging
from quadrants._lib import core

seen = []
_logging.warn = seen.append
qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)
x = qd.field(qd.i32, (4, 4))

@qd.kernel
def loops():
    for i in range(4):
        qd.loop_config(name="inner")
        for j in range(4):
            x[i, j] += j
    qd.loop_config(serialize=True)
    for i, j in x:
        x[i, j] += i

loops()
print("RESULT " + json.dumps([seen, core.counters()["lowered"]]))
"""


def test_settings_without_effect_are_logged_again(tmp_path):
    cold, warm = run_text(tmp_path, LOOPS), run_text(tmp_path, LOOPS)
    assert cold[0] == warm[0] and [cold[1], warm[1]] == [1, 0]
    assert [next(w for w in ("name=", "serialize=") if w in line) for line in cold[0]] == [
        "name=",
        "serialize=",
    ]


REPLACED = """
import json, sys
import quadrants as qd
from quadrants._lib import core

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)

@qd.func
def mine(a, b):
    return a + b

if {replace}:
    qd.raw_mod = mine

@qd.kernel
def run(n: qd.i32) -> qd.i32:
    return qd.raw_mod(n, 5)

print("RESULT " + json.dumps([run(7), core.counters()["lowered"]]))
"""


def test_a_replaced_name_of_the_package_is_seen(tmp_path):
    """Names that nobody touched are not looked up; those that a client replaced are."""
    runs = [run_text(tmp_path, REPLACED.format(replace=r)) for r in (0, 0, 1, 1, 0)]
    assert [value for value, _ in runs] == [2, 2, 12, 12, 2]
    assert [lowered for _, lowered in runs] == [1, 0, 1, 0, 0]


COUNTED = """
import json, sys
import quadrants as qd

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)
calls = 0

def answer():
    global calls
    calls += 1
    with open(sys.argv[1] + ".answer") as f:
        return int(f.read())

@qd.kernel
def k() -> qd.i32:
    return qd.static(answer())

print("RESULT " + json.dumps([k(), calls]))
"""


def test_what_a_helper_costs_a_warm_process(tmp_path):
    """It is asked once: the front end takes the answer that did not fit what is stored."""
    answer = tmp_path / "cache.answer"
    for text, asked in (("3", 1), ("3", 1), ("4", 1)):
        answer.write_text(text)
        assert run_text(tmp_path, COUNTED) == [int(text), asked]


ASKED_OF_ALL = """
import json, pathlib, sys
import quadrants as qd
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path=sys.argv[1])
answer = int((pathlib.Path(sys.argv[1] + ".answer")).read_text())
asked = 0

def answers():
    global asked
    asked += 1
    if answer < 0 and asked == 1:
        raise LookupError("not there yet")
    return abs(answer)

class Source:
    @property
    def value(self):
        return answers()
    def __getitem__(self, index):
        return answers()
    def __getattr__(self, name):
        return answers()
    def __len__(self):
        return answers()
    def method(self):
        return answers()

source = Source()

@qd.kernel
def of_property() -> qd.i32:
    return source.value

@qd.kernel
def of_item() -> qd.i32:
    return source[0]

@qd.kernel
def of_getattr() -> qd.i32:
    return source.anything

@qd.kernel
def of_method() -> qd.i32:
    return source.method()

@qd.kernel
def of_length() -> qd.i32:
    return len(source)

@qd.kernel
def of_helper() -> qd.i32:
    return answers()

result = []
for kernel in (of_property, of_item, of_getattr, of_method, of_length, of_helper):
    asked, outcomes = 0, []
    for _ in range(2):
        try:
            outcomes.append(kernel())
        except qd.QuadrantsCompilationError as e:
            outcomes.append(str(e).strip().splitlines()[-1])
    result.append([*outcomes, asked])
print("RESULT", json.dumps(result))
"""


def test_every_answer_is_asked_for_once(tmp_path):
    """An answer that fits no stored recipe, be it an exception, is the one that the body gets."""
    answer = tmp_path / "cache.answer"
    for value in (3, 3, -3, -3, 4, -4, 3):
        answer.write_text(str(value))
        seen = run_text(tmp_path, ASKED_OF_ALL)
        expected = [value, value, 1] if value > 0 else ["LookupError: not there yet", -value, 2]
        assert seen == [expected] * 6


OTHER_KINDS = """
import json, sys
import quadrants as qd
from quadrants._lib import core

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR)

@qd.func
def own(x):
    return x + 1

helper = {helper}
A = (1, 2)
if {both}:
    B = (3, 4)

@qd.kernel
def calls() -> qd.f32:
    return helper(1.5)

@qd.kernel
def pairs() -> qd.i32:
    s = 0
    for a, b in qd.static(zip(A, B)):
        s += a * b
    return s

def answer(kernel):
    try:
        return kernel()
    except qd.QuadrantsCompilationError as e:
        return str(e).splitlines()[-1]

print("RESULT " + json.dumps([answer(calls), answer(pairs), core.counters()["lowered"]]))
"""


def test_what_is_another_thing_or_gone_in_a_later_process(tmp_path):
    """A func became a function of the package, or nothing that can be called; a name is no more."""
    programs = ("own", True), ("own", True), ("qd.cos", True), ("None", False)
    first, warm, other, none = (
        run_text(tmp_path, OTHER_KINDS.format(helper=helper, both=both))
        for helper, both in programs
    )
    assert (first, warm) == ([2.5, 11, 2], [2.5, 11, 0])
    assert other == [pytest.approx(math.cos(1.5)), 11, 1]
    assert "object is not callable" in none[0] and '"B" is not defined' in none[1]
