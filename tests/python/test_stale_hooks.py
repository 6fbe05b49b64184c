"""Code of the user that no call in a kernel shows: properties, operators, iterators of its classes.

It runs as often as the source says, and what it changes is seen by the next call of a func.
"""

import json
import subprocess
import sys

import pytest

from helpers import module_at

pytestmark = pytest.mark.filterwarnings("ignore:Calling non-quadrants function")

COUNTERS = """
import quadrants as qd

class Counter:
    def __init__(self):
        self.n = 0
    def count(self, *_):
        self.n += 1
        return self.n

class Counts(Counter):
    {hook}

counts = Counts()

@qd.func
def next_one():
    {body}

@qd.kernel
def three() -> qd.i32:
    return next_one() * 10000 + next_one() * 100 + next_one()
"""
TRUE_AFTER_ONE = "    r = 1\n    if qd.static({}):\n        r = 2\n    return r".strip()
HOOKS = {  # how the class counts, how a func asks, what three calls give
    "property": ("v = property(Counter.count)", "return counts.v", 10203),
    "property_of_a_property": (
        "v = property(Counter.count)\n    @property\n    def w(self):\n        return self.v",
        "return counts.w",
        10203,
    ),
    "getattr": ("__getattr__ = lambda self, name: self.count()", "return counts.v", 10203),
    "getattr_call": ("v = property(Counter.count)", "return getattr(counts, 'v')", 10203),
    "item": ("__getitem__ = Counter.count", "return counts[0]", 10203),
    "len": ("__len__ = Counter.count", "return len(counts)", 10203),
    "add": ("__add__ = Counter.count", "return counts + 1", 10203),
    "neg": ("__neg__ = Counter.count", "return -counts", 10203),
    "int": ("__int__ = Counter.count", "return int(counts)", 10203),
    "hash": ("__hash__ = Counter.count", "return qd.static(hash(counts))", 10203),
    "call": ("__call__ = Counter.count", "return counts()", 10203),
    "bool": ("__bool__ = lambda self: self.count() > 1", TRUE_AFTER_ONE.format("counts"), 10202),
    "eq": (
        "__eq__ = lambda self, o: self.count() > 1",
        TRUE_AFTER_ONE.format("counts == 3"),
        10202,
    ),
    "in": (
        "__contains__ = lambda self, o: self.count() > 1",
        TRUE_AFTER_ONE.format("3 in counts"),
        10202,
    ),
    "iter": (
        "__iter__ = lambda self: iter([self.count()])",
        "r = 0\n    for i in qd.static(counts):\n        r += i\n    return r",
        10203,
    ),
}


@pytest.mark.parametrize("what", HOOKS)
def test_hooks_run_once_for_each_call(backend, what, tmp_path):
    hook, body, expected = HOOKS[what]
    path = tmp_path / f"hook_{what}.py"
    path.write_text(COUNTERS.format(hook=hook, body=body))
    for options in ({}, {"offline_cache": False}, {}):
        backend.init(**options)
        module = module_at(path)
        assert [module.three(), module.three()] == [expected, expected]


CHANGES = """
import functools
import quadrants as qd

class Config:
    n = 1

config, table, items, N = Config(), {{"n": 1}}, [1], 1

def change(*_):
    global N
    config.n += 1
    table["n"] += 1
    items.append(0)
    N += 1
    return 0

class Hooks:
    v = property(change)
    __add__ = change
    __format__ = lambda self, how: str(change())
    __hash__ = change
    __eq__ = lambda self, other: False

class Meta(type):
    __instancecheck__ = change

class Class(metaclass=Meta):
    pass

class Each:
    def __iter__(self):
        for k in range(1):
            change()
            yield k

hooks, each, part = Hooks(), Each(), functools.partial(change)
steps = (change() for _ in range(3))
scope = {{"change": change}}

@qd.func
def now():
    return {what}

@qd.kernel
def twice() -> qd.i32:
    a = now()
    {between}
    return a * 100 + now()
"""
BETWEEN = {
    "helper": "change()",
    "partial": "qd.static(part())",
    "property": "b = hooks.v",
    "operator": "b = qd.static(hooks + 1)",
    "generator": "qd.static(next(steps))",
    "iteration": "for k in qd.static(each):\n        pass",
    "comprehension": "b = qd.static([change() for _ in range(1)])",
    "lookup": "qd.static(table.get(hooks))",
    "isinstance": "b = qd.static(isinstance(3, Class))",
    "exec": "qd.static(exec('change()', scope))",
    "iterator": "b = qd.static(len(list(each)))",
}


@pytest.mark.parametrize("what", ["config.n", "table['n']", "len(items)", "N"])
@pytest.mark.parametrize("between", BETWEEN)
def test_what_code_of_the_user_changes_amid_a_kernel(backend, what, between, tmp_path):
    path = tmp_path / "changes.py"
    path.write_text(CHANGES.format(what=what, between=BETWEEN[between]))
    for options in ({}, {"offline_cache": False}, {}):
        backend.init(**options)
        assert module_at(path).twice() == 102


PLAIN = """
import quadrants as qd

class Sizes:
    def __init__(self, n):
        self.items = list(range(n))
    @property
    def count(self):
        \"\"\"How many.\"\"\"
        extra = 1 if self.items else 0
        return len(self.items) + extra

sizes = Sizes({n})

@qd.func
def count(x):
    return x + sizes.count

@qd.kernel
def many() -> qd.i32:
    return count(1) + count(2) + count(3) + count(4)
"""


def test_properties_that_only_look_share_a_body(backend, tmp_path, capfd):
    path = tmp_path / "plain.py"
    for n in (3, 5, 3):
        path.write_text(PLAIN.format(n=n))
        backend.init()
        assert module_at(path).many() == 10 + 4 * (n + 1)
    backend.init(offline_cache=False, compile_report=2)
    capfd.readouterr()
    assert module_at(path).many() == 10 + 4 * 4
    assert "1 lowered, 0 reused; 4 calls" in "".join(capfd.readouterr())


OPTIONS = """
import quadrants as qd
from quadrants.lang import impl

@qd.kernel
def through_a_call() -> qd.i32:
    return qd.static(impl.current_cfg().cpu_max_num_threads)

@qd.kernel
def through_the_program() -> qd.i32:
    return qd.static(impl.get_runtime().prog.config().cpu_max_num_threads)

@qd.kernel
def through_a_name() -> qd.i32:
    return qd.static(qd.cfg.cpu_max_num_threads)
"""


@pytest.mark.parametrize("name", ["through_a_call", "through_the_program", "through_a_name"])
def test_options_that_a_kernel_reads(backend, name, tmp_path):
    """Options that have no part in a kernel's code otherwise."""
    path = tmp_path / "reads_options.py"
    path.write_text(OPTIONS)
    for n in (1, 2, 1):
        backend.init(cpu_max_num_threads=n)
        assert getattr(module_at(path), name)() == n


KEPT_METHODS = """
import json, sys
import quadrants as qd
from quadrants.lang import impl
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path=sys.argv[1])
value = int(sys.argv[2])
items, table, some = [1, value], {1: value}, {value}
take, give, drop, pop_item = items.pop, table.pop, some.pop, [3, value].pop

def scope():
    return 10 if impl.get_runtime().inside_kernel else 20

def scope_itself():
    return 1 if impl.inside_kernel() else 2

@qd.kernel
def by_name(x: qd.i32) -> qd.i32:
    return x + take()

@qd.kernel
def of_others() -> qd.types.vector(3, qd.i32):
    return qd.Vector([give(1), drop(), qd.static(pop_item())])

@qd.kernel
def asks() -> qd.types.vector(2, qd.i32):
    return qd.Vector([scope(), qd.static(scope_itself())])

def make():
    @qd.kernel
    def k() -> qd.i32:
        return take_next()
    return k

take_next = [9, 8, 7, 6][::-1].pop
made = [make()() for _ in range(3)]
print("RESULT", json.dumps([by_name(5), of_others().to_list(), asks().to_list(), made, items, table, list(some)]))
"""


def test_methods_that_change_their_object_and_helpers_that_ask_for_the_scope(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(KEPT_METHODS)
    for value in (3, 3, 4, 4, 3):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", path, str(tmp_path / "cache"), str(value)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        seen = json.loads(done.stdout.split("RESULT ")[1])
        assert seen == [5 + value, [value] * 3, [10, 1], [9, 8, 7], [1], {}, []]


def test_a_module_whose_name_begins_like_ours_is_the_user_s(tmp_path):
    """Its helper asks for the scope: what it answers is no fact for later processes."""
    (tmp_path / "quadrants_extra.py").write_text(
        "from quadrants.lang import impl\n"
        "def scope():\n    return 10 if impl.get_runtime().inside_kernel else 20\n"
    )
    (tmp_path / "program.py").write_text("""
import sys
import quadrants as qd
from quadrants_extra import scope
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path=sys.argv[1])
@qd.kernel
def k() -> qd.i32:
    return scope()
print("RESULT", k())
""")
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", tmp_path / "program.py", str(tmp_path / "cache")],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.split("RESULT ")[1].split() == ["10"]
