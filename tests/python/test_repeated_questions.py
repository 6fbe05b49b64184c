"""One expression of Python that a kernel evaluates more than once, and that changes something."""

import re
import subprocess
import sys
import time

import pytest

import quadrants as qd
from helpers import module_at
from quadrants._lib import core
from quadrants.lang._inspect.effects import may_change

PROGRAM = """
import heapq, sys
import quadrants as qd
qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache=True, offline_cache_file_path=sys.argv[1])
values = [1, int(sys.argv[2]), 7]
asked = []

class Source:
    def __init__(self):
        self.at = 0
    def take(self):
        self.at += 1
        asked.append(self.at)
        return values[self.at - 1]
    value = property(take)
    def __getattr__(self, name):
        if name == "other":
            return self.take()
        raise AttributeError(name)
    def __getitem__(self, key):
        return self.take()
    def __len__(self):
        return self.take()
    def __int__(self):
        return self.take()
    def __call__(self):
        return self.take()

source = Source()

def helper():
    asked.append(0)
    return values[len(asked) - 1]

def given(*positional, **named):
    return helper()

def smallest():
    asked.append(0)
    return heapq.heappop(values)

@qd.func
def one():
    return qd.static(helper())

@qd.func
def another():
    return qd.static(helper())

{kernel}

print(k(), len(asked))
"""
TWICE = """
@qd.kernel
def k() -> qd.i32:
    return qd.static({0}) * 10 + qd.static({0}) * 100
"""
KERNELS = {
    "function": TWICE.format("helper()"),
    "keywords": TWICE.format("given(of=1, by='a')"),
    "module": TWICE.format("smallest()"),
    "method": TWICE.format("source.take()"),
    "property": TWICE.format("source.value"),
    "getattr": TWICE.format("source.other"),
    "item": TWICE.format("source[0]"),
    "length": TWICE.format("len(source)"),
    "int": TWICE.format("int(source)"),
    "call": TWICE.format("source()"),
    "loop": """
@qd.kernel
def k() -> qd.i32:
    s = 0
    p = 1
    for i in qd.static(range(2)):
        p = p * 10
        s += qd.static(helper()) * p
    return s
""",
    "funcs": """
@qd.kernel
def k() -> qd.i32:
    return one() * 10 + another() * 100
""",
    "func": """
@qd.kernel
def k() -> qd.i32:
    return one() * 10 + one() * 100
""",
}


GROWING = """
import sys
import time
import quadrants as qd
qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache=True, offline_cache_file_path=sys.argv[1])
values = [1, 2]

def size():
    return len(values)

def grow():
    if sys.argv[2] == "2":
        values.append(9)
    return 0

@qd.kernel
def k() -> qd.i32:
    return qd.static(size()) + qd.static(grow()) + qd.static(size()) * 10

print(k(), len(values))
"""


def test_what_is_asked_before_and_after_a_change(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(GROWING)
    for grows, expected in (("1", "22 2"), ("2", "32 3"), ("1", "22 2"), ("2", "32 3")):
        done = subprocess.run(
            [sys.executable, path, tmp_path / "cache", grows],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == expected


@pytest.mark.parametrize("what", KERNELS)
def test_it_is_evaluated_as_often_as_the_source_says(what, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("{kernel}", KERNELS[what]))
    for second in (1, 2, 1, 2):
        done = subprocess.run(
            [sys.executable, path, tmp_path / "cache", str(second)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1].split() == [str(10 + second * 100), "2"]


kept = [3, 4]


def test_what_changes_only_its_own_variables_changes_nothing():
    def builds():
        out = []
        table = {}
        for i in range(3):
            out.append(i)
            table[i] = i
        return len(out) + len(kept)

    def reads_methods():
        return kept.index(3) + len(str(kept))

    def changes():
        kept[0] = 3
        return 1

    def calls_what_changes():
        return changes()

    assert not may_change(builds, ()) and not may_change(reads_methods, ())
    assert may_change(changes, ()) and may_change(calls_what_changes, ())


BOUND = [1, 2]


def rebinds():
    global BOUND
    BOUND = [5, 6]
    return 1


def test_a_name_that_is_bound_anew_amid_a_kernel():
    """As when Python runs it: what comes behind the call sees the new object."""
    qd.init(arch=qd.cpu, log_level="error", offline_cache=False)

    @qd.kernel
    def k() -> qd.i32:
        return BOUND[0] + rebinds() * 10 + BOUND[1] * 1000

    assert k() == 6011


HELPERS = """
import abc, collections, copy, dataclasses, datetime, enum, functools, itertools, operator, types, weakref
import numpy as np

LOG, L, A, B, A0 = [], [1, 2], np.arange(3), np.zeros(3, np.int64), np.array(1)
B0, IT, D, V = np.array(0), itertools.count(), {"k": L}, np.zeros((), [("b", "O")])[()]

class Noisy(type):
    def __instancecheck__(cls, o): LOG.append(1); return True
    def __getitem__(cls, k): LOG.append(1); return 1
class C(metaclass=Noisy):
    def __class_getitem__(cls, k): LOG.append(1); return 1
class Subscripted:
    def __class_getitem__(cls, k): LOG.append(1); return 1
class Texts(enum.Enum):
    A = 1
    def __format__(self, how): LOG.append(1); return "a"
    __str__ = __repr__ = lambda self: self.__format__("")
class Partial(enum.IntEnum):
    A = 1
    def _lt(self, a, b=0): LOG.append(1); return True
    __lt__ = functools.partialmethod(_lt)
class Proxy:
    @property
    def __class__(self): LOG.append(1); return str
class Key:
    def __hash__(self): return hash(1)
    def __eq__(self, o): LOG.append(1); return o == 1
class Slots:
    __slots__ = ("x",)
    def __getattr__(self, name): LOG.append(1); return 1
class Mangled:
    def __getattr__(self, name): return 1
    def get(self): return self.__x
    _Mangled__x = property(lambda self: LOG.append(1))
class Own(property):
    def __get__(self, o, kind=None): LOG.append(1); return 1
class HasOwn: x = Own(lambda self: 1)
class Length:
    def __len__(self): return Index()
class Index:
    def __index__(self): LOG.append(1); return 1
class Space(types.ModuleType):
    @property
    def x(self): LOG.append(1); return 1
class Ufunc:
    def __add__(self, o): return 1
    def __array_ufunc__(self, *a, **k): LOG.append(1); return 1
class Hashed:
    def __hash__(self): LOG.append(1); return 1
class True_:
    def __bool__(self): LOG.append(1); return True
    def __invert__(self): LOG.append(1); return 1
class Text:
    def __str__(self): LOG.append(1); return "1"
class Copied:
    def __deepcopy__(self, memo): LOG.append(1); return self
class Member:
    x = sum = property(lambda self: LOG.append(1))
class Reads:
    def __getattribute__(self, name): LOG.append(1); return object.__getattribute__(self, name)
class Sets:
    def __get__(self, o, kind=None): return 5
    def __set__(self, o, v): LOG.append(1)
@dataclasses.dataclass
class Described:
    x: int = Sets()
@dataclasses.dataclass
class Deleted:
    x: int = 1
    def __del__(self): LOG.append(1)
class Tag(str): pass
class Keys:
    def keys(self): LOG.append(1); return []
    def __getitem__(self, k): return 1
class Named(types.SimpleNamespace): pass
class Line(collections.deque): pass
class Perm(enum.Flag):
    R = 1
    W = 2
    @classmethod
    def _missing_(cls, value): LOG.append(1); return super()._missing_(value)
class Zone(datetime.tzinfo):
    def utcoffset(self, d): LOG.append(1); return datetime.timedelta(0)
    def dst(self, d): return None
def score(x): LOG.append(x); return x
@functools.lru_cache
def registry(): return []
@functools.lru_cache
def turns(): return zip([1, 2], [3, 4])
@functools.cache
def answer(o): return 1
class Kept:
    @functools.cached_property
    def ids(self): return []
MADE = {"LOG": LOG, "__name__": "made"}
exec("class Made:\\n def __init__(self, x): LOG.append(x)\\n def __add__(self, o): LOG.append(1)", MADE)
PLUS, KEPT = object.__new__(MADE["Made"]), Kept()
EQ, HASHED, IDX, TRUE, TEXT, COPIED, MEMBER = Key(), Hashed(), Index(), True_(), Text(), Copied(), Member()
FILLS = collections.defaultdict(lambda: LOG.append(1))
OBJECTS = np.array([TEXT, None], object).view(type("Arr", (np.ndarray,), {}))
SPACE, KEYS, U = Space("space"), {Key(): 1}, np.frompyfunc(lambda x: LOG.append(1), 1, 1)
VEC = np.vectorize(lambda x: LOG.append(1) or 1)

@functools.wraps(np.sum)
def wrapped(x): LOG.append(1); return 1

def zero_axes(): x = A0; x += 1; return 1
def zero_axes_param(x=A0): x += 1; return 1
def format_spec(): return f"{1:{L.pop()}}"
def popped_alias(): y = [L].pop(); y += [1]; return 1
def keyword_alias(): y = dict(k=L)["k"]; y += [1]; return 1
def default_alias(): y = min("", default=L); y += [1]; return 1
def breaks():
    for i in range(3):
        x = L
        if i == 0: break
        x = []
    x.append(1)
    return 1
def orelse():
    x = L
    for i in range(1): break
    else: x = []
    x.append(1)
    return 1
def three_turns():
    a = 0
    b = 0
    c = 0
    for i in range(6):
        c *= 2
        c = b
        b = a
        a = L
    return 1
def late_generator():
    x = []
    g = (x.append(i) for i in range(2))
    x = L
    return len(list(g))
def out_of_a_slice(): return int(A[0:2].sum(axis=0, out=B0))
def out_positional(): return int((A + 0).sum(0, None, B0))
def copy_false(): np.nan_to_num(A, copy=False); return 1
def fix_out(): np.fix(A, B); return 1
def clip_tuple(): np.clip(A, 3, 4, (B,)); return 1
def vectorised(): return VEC(1)
def from_function(): return U(1)
def piecewise(): return np.piecewise(A, [A > 0], [wrapped])
def by_wraps(): return wrapped(1)
def by_format(): return "{}".format(Texts.A)
def by_percent(): return "%s" % Texts.A
def in_a_list(): return str([Texts.A])
def partial_method(): return 2 > Partial.A
def instance(): return isinstance(1, C)
def instance_tuple(): return isinstance(1, (str, C))
def class_property(p=Proxy()): return isinstance(p, str)
def class_item(): return Subscripted[0]
def class_of_item(c=Subscripted()): return type(c)[0]
def keys_compare(): return KEYS[1]
def unset_slot(s=Slots()): return s.x
def mangled(m=Mangled()): return m.get()
def own_property(o=HasOwn()): return o.x
def odd_length(x=Length()): return len(x)
def module_property(): return SPACE.x
def ufunc_of_an_object(o=Ufunc()): return np.add(o, 1)
def asserts(): assert L, L.append(1)
def makes_a_type(): return type("X", (), {})
def iterates(): return any(x > 3 for x in IT)
def fills(): A.fill(1); return 1
def sorts_by(): return sorted([1, 2], key=lambda x: LOG.append(x) or x)
def largest_by(): return max(0, 1, key=score)
def kept_list(): registry().append(1); return 1
def kept_turns(): return list(turns())
def kept_by_hash(): return answer(HASHED)
def kept_member(): KEPT.ids.append(1); return 1
def is_in(): return EQ in (1, 2)
def is_in_a_set(): return HASHED in {1, 2}
def is_a_key(): return {HASHED: 1}
def is_an_element(): return {HASHED}
def are_elements(): return {x for x in [HASHED]}
def copies(): return copy.deepcopy(COPIED)
def as_dict(): return dataclasses.asdict(Described.__new__(Described))
def sets_a_member(): return Described(1)
def is_deleted(): return Deleted(1)
def makes_a_text(): return Tag(TEXT)
def reads_in_a_format(): return "{0.x}".format(MEMBER)
def fills_in_a_format(): return "{a}".format_map(FILLS)
def fills_by_percent(): return "%(a)s" % FILLS
def fills_by_a_getter(): return operator.itemgetter("k")(FILLS)
def fills_by_translate(): return "abc".translate(FILLS)
def asks_for_the_class(o=Reads()): return isinstance(o, int)
def is_not(): return operator.not_(TRUE)
def inverts(): return operator.inv(TRUE)
def counts(): return operator.countOf([1], EQ)
def formats(): return operator.mod("%" + "s", TEXT)
def repeats(): return ("a" + "b") * IDX
def item_of_a_list(): return operator.getitem(L, IDX)
def item_by_a_slice(): return L[slice(IDX, None)]
def made_by_exec(): return PLUS + 1
def makes_by_exec(): return MADE["Made"](3)
def sums_a_member(): return np.sum(MEMBER)
def makes_a_dict(): return dict(Keys())
def rounds(): return round(3.5, IDX)
def sums_from(): return sum([1], PLUS)
"""
# Objects whose operators, texts or iteration run code of the user.
HOOKED = (
    "Named(a=TEXT) Line([TEXT]) OBJECTS slice(IDX) ValueError(TEXT) Perm.R PLUS Reads() weakref.proxy(EQ) "
    "weakref.ref(EQ) [[[[[EQ]]]]] datetime.datetime(2020,1,1,tzinfo=Zone()) types.CellType(EQ) KEYS.items() IT"
).split()
NAMES = re.findall(r"^def (\w+)\(", HELPERS, re.M)


@pytest.fixture(scope="module")
def helpers_module(tmp_path_factory):
    path = tmp_path_factory.mktemp("helpers") / "holes.py"
    path.write_text(HELPERS)
    return module_at(path)


@pytest.mark.parametrize(
    "name", [n for n in NAMES if n not in ("wrapped", "score", "registry", "turns", "answer")]
)
def test_what_may_change_something_is_not_taken_to_look(helpers_module, name):
    """Nor is any of it run by looking at its text."""
    helpers_module.LOG.clear()
    before = list(helpers_module.L)
    assert may_change(getattr(helpers_module, name), ())
    assert helpers_module.LOG == [] and helpers_module.L == before


@pytest.mark.parametrize("made", HOOKED)
def test_operators_may_run_code(helpers_module, made):
    o = eval(made, vars(helpers_module))
    helpers_module.LOG.clear()
    assert core.operators_run_code(o)
    assert helpers_module.LOG == []


def test_looking_does_not_grow_with_what_is_looked_at_each_time(tmp_path):
    """A list of numbers is gone through once, not at each of its items."""
    path = tmp_path / "long.py"
    path.write_text("""
class Body:
    def __init__(self, i): self.i = i
BODIES, MASS, SEEN = [Body(i) for i in range(1000)], [], []
def total():
    t = 0.0
    for b in BODIES: t += MASS[b.i + 0]
    return t
""")
    module = module_at(path)
    counted, steps = [], []

    def trace(frame, event, arg):
        counted.append(event)
        return trace

    for module.MASS[:] in (list(range(500)), list(range(5000))):
        counted.clear()
        sys.settrace(trace)
        try:
            assert not may_change(module.total, ())
        finally:
            sys.settrace(None)
        steps.append(len(counted))
    assert steps[1] < steps[0] + 100_000


def test_looking_keeps_nothing(tmp_path):
    path = tmp_path / "kept.py"
    path.write_text("def f(items): return len(items)\n")
    module = module_at(path)
    items = [1, 2]
    before = sys.getrefcount(items)
    assert not may_change(module.f, (items,))
    assert sys.getrefcount(items) == before


def test_a_file_that_was_edited_says_nothing(tmp_path):
    path = tmp_path / "edited.py"
    path.write_text("L = []\ndef f():\n    return L.append(1)\n")
    module = module_at(path)
    path.write_text("L = []\ndef f():\n    return len(L)\n")
    assert may_change(module.f, ())


def test_looking_ends(tmp_path):
    """Nested loops and trees of calls: a helper that takes long to look at may change something."""
    path = tmp_path / "deep.py"
    loops = "".join("    " * k + f"for i{k} in R:\n" for k in range(1, 15))
    calls = "".join(f"def c{k}(): return {' + '.join([f'c{k + 1}()'] * 6)}\n" for k in range(8))
    path.write_text(
        f"R = range(3)\ndef deep():\n{loops}{'    ' * 15}pass\n{calls}def c8(): return 1\n"
    )
    module = module_at(path)
    start = time.process_time()
    may_change(module.deep, ()), may_change(module.c0, ())
    assert time.process_time() - start < 20  # it would be hours
