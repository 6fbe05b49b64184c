"""Which helpers are proved to look only, and how long the question takes."""

import collections
import datetime
import pathlib
import re
import subprocess
import sys

import pytest

from helpers import module_at
from quadrants._lib import core
from quadrants.lang._inspect.effects import may_change

HEAD = """
import abc, collections, dataclasses, datetime, enum, fractions, functools, math, operator, types, typing, weakref
import numpy as np
LOG = []
def noted(x=5):
    LOG.append(1)
    return x
"""
# Definitions, and what the helper returns (or its statements).
CHANGES = {
    # Python asks __getattr__ after a property, or a __getattribute__, that raises AttributeError.
    "raising_property": ("""
class O:
    @property
    def x(self): raise AttributeError("x")
    def __getattr__(self, name): return noted()
o = O()
""", ["o.x", "getattr(o, 'x')", "getattr(o, 'x', 1)", "hasattr(o, 'x')"]),
    "raising_lookup": ("""
class O:
    def __getattribute__(self, name): raise AttributeError(name)
    def __getattr__(self, name): return noted()
o = O()
""", ["o.x", "getattr(o, 'x', 1)", "hasattr(o, 'x')", "isinstance(o, int)"]),
    "raising_descriptor": ("""
class D:
    def __get__(self, o, kind): raise AttributeError("x")
class O:
    x = D()
    def __getattr__(self, name): return noted()
o = O()
""", ["o.x", "getattr(o, 'x', 1)"]),
    "raising_inherited": ("""
class B:
    @property
    def x(self): raise AttributeError("x")
class O(B):
    def get(self): return super(O, self).x
    def __getattr__(self, name): return noted()
o = O()
""", ["o.x"]),
    "format_spec": ("""
TEXTS = {"": len, "x": noted}
class F:
    def __format__(self, spec): return str(TEXTS[spec]("ab"))
f, s = F(), "x"
""", ["f'{f:x}'", "format(f, 'x')", "f'{f:{s}}'", "format(f, s)", "f'{f!s:x}' + f'{f:x}'"]),
    "subclass": ("""
class M(type):
    def __instancecheck__(cls, o): return True
    def __subclasscheck__(cls, c): return noted()
class C(metaclass=M): pass
class Fake:
    @property
    def __bases__(self): return noted((int,))
class Any:
    def __getattr__(self, name): return noted()
class Shown:
    @property
    def __class__(self): return noted(int)
fake, any_, shown = Fake(), Any(), [Shown()]
""", ["issubclass(int, C)", "issubclass(int, (str, C))", "issubclass(fake, int)", "issubclass(any_, int)",
      "[isinstance(s, int) for s in shown]", "isinstance(shown[len(shown) - 1], int)"]),
    "enum": ("""
class E(enum.Enum):
    A = 1
    B = 2
    def item(self): return noted()
class V(enum.Enum):
    A = 1
    def __getattribute__(self, name):
        LOG.append(1)
        return enum.Enum.__getattribute__(self, name)
class W(enum.Enum):
    A = 1
    def __getattr__(self, name): return noted()
class Value(enum.Enum):
    A = 1
    @property
    def value(self): return noted()
ES, i, T = [E.A, E.B], 3, {E.A: 1}
def pick(i): return ES[i % 2].item()
""", ["ES[i % 2].item()", "pick(1)", "V.A.value", "V.A.name", "W.A.x", "Value.A.value", "[e.item() for e in E]"]),
    "compared_keys": ("""
KEY = functools.cmp_to_key(lambda a, b: noted(0))
a, b = KEY(1), KEY(2)
KEYS = [a, b]
""", ["a < b", "a == b", "min(KEYS)", "sorted(KEYS)", "KEYS.index(b)", "min(a, b)", "sorted([2, 1], key=KEY)"]),
    "dates": ("""
class D(datetime.date):
    def __new__(cls, *a):
        LOG.append(1)
        return super().__new__(cls, *a)
class T(datetime.timedelta):
    def __new__(cls, *a):
        LOG.append(1)
        return super().__new__(cls, *a)
class S(datetime.datetime):
    def __new__(cls, *a):
        LOG.append(1)
        return super().__new__(cls, *a)
d, t, s, one = D(2020, 1, 2), T(3), S(2020, 1, 2), datetime.timedelta(1)
""", ["d + one", "one + d", "d - one", "d.replace(2021)", "t * 2", "s + one", "D.fromordinal(5)", "d.today()"]),
    "fractions": ("""
class I(int):
    def __mul__(self, o): return noted()
class F(fractions.Fraction):
    def __new__(cls, *a):
        LOG.append(1)
        return super().__new__(cls, *a)
f, g = fractions.Fraction(3, 2), F(1, 2)
f._numerator = I(3)
""", ["f * 4", "int(f * 4)", "abs(g)", "g + 1", "f * f"]),
    "arrays_of_objects": ("""
class A:
    def __getattr__(self, name):
        LOG.append(name)
        raise AttributeError(name)
class P:
    @property
    def __array_interface__(self): return noted()
a, p = [A()], [P()]
""", ["np.asarray(a)", "np.array(a)", "np.sum(a)", "np.asarray(p)", "np.array([p])", "np.stack([a, a])", "np.asarray(a[0])"]),
    "generated": ("""
space = {"LOG": LOG}
exec("def __init__(self, x):\\n    LOG.append(1)\\n    self.x = x", space)
exec("def __eq__(self, o):\\n    LOG.append(1)\\n    return True", space)
exec("def __new__(cls, x):\\n    LOG.append(1)\\n    return tuple.__new__(cls, (x,))", space)
exec("def item(self):\\n    LOG.append(1)\\n    return 5", space)
exec("def __setattr__(self, n, v):\\n    LOG.append(1)", space)
@dataclasses.dataclass(init=False)
class P:
    x: int
    __init__ = space["__init__"]
@dataclasses.dataclass
class Q:
    x: int
    __init__ = space["__init__"]
@dataclasses.dataclass
class R:
    x: int
    item = space["item"]
@dataclasses.dataclass
class S:
    x: int
    __setattr__ = space["__setattr__"]
class N(collections.namedtuple("N", "x")):
    pass
N.__new__ = space["__new__"]
M = collections.namedtuple("M", "x")
M.__new__ = space["__new__"]
L = collections.namedtuple("L", "x")
L.item = space["item"]
class E(enum.Enum):
    A = 1
    item = space["item"]
i, rs, ls, es = 3, [R(1), R(2)], [L(1), L(2)], [E.A]
""", ["P(3)", "Q(3)", "R(1).item()", "S(1)", "N(1)", "M(1)", "L(1).item()", "rs[i % 2].item()", "ls[i % 2].item()",
      "es[i % 1].item()", "[r.item() for r in rs]"]),
    "caches": ("""
G = [3]
@functools.lru_cache(maxsize=1)
def one(i): return G[0] + i
@functools.lru_cache
def many(i): return 3 + i
@functools.cache
def all_(i): return G[0] + i
class O:
    @functools.lru_cache
    def m(self): return G[0]
o = O()
""", ["one(1)", "many(1)", "all_(1)", "o.m()"]),
    "class_members": ("""
class D:
    def __get__(self, o, kind): return noted() if o is None else 5
class C:
    x = D()
class E(enum.Enum):
    A = 1
    x = D()
class Meta(type):
    @property
    def x(cls): return noted()
    def __getattr__(cls, name): return noted()
class M(metaclass=Meta): pass
class EMeta(enum.EnumMeta):
    def __getattr__(cls, name): return noted()
    def __call__(cls, *a): return noted()
class F(enum.Enum, metaclass=EMeta): A = 1
""", ["C.x", "getattr(C, 'x')", "hasattr(C, 'x')", "E.x", "M.x", "M.y", "F.y", "F(1)", "getattr(M, 'y', 1)"]),
    "properties": ("""
class p(property): pass
class O:
    @p
    def x(self): return noted()
    @abc.abstractproperty
    def y(self): return noted()
    @classmethod
    @property
    def z(self): return noted()
class B(O):
    pass
o = O()
s = super(B, B())
class S(super):
    def __getattribute__(self, name): return noted()
class Own(property):
    def __get__(self, o, kind): return noted()
class W:
    x = Own(lambda self: 1)
w = W()
""", ["o.x", "o.y", *(["o.z", "O.z", "s.z", "hasattr(o, 'z')"] if sys.version_info < (3, 13) else []), "s.x", "s.y", "w.x",
      "getattr(s, 'x', 1)"]),
    "modules": ("""
class M(types.ModuleType):
    @property
    def x(self): return noted()
    def __getattr__(self, name): return noted()
class L(types.ModuleType):
    def __getattribute__(self, name): return noted()
m, l, g = M("m"), L("l"), types.ModuleType("g")
h = type("H", (types.ModuleType,), {})("h")
g.__getattr__ = h.__getattr__ = lambda name: noted()
""", ["m.x", "m.y", "l.x", "getattr(m, 'x', 1)", "getattr(m, 'y', 1)", "g.x", "h.x", "hasattr(h, 'x')", "getattr(h, 'x', 1)"]),
    "proxies": ("""
class O:
    @property
    def x(self): return noted()
    def __getattr__(self, name): return noted()
    def __getitem__(self, i): return noted()
    def __add__(self, o): return noted()
    def __len__(self): return noted()
    def __call__(self): return noted()
    def __bool__(self): return noted(True)
o = O()
p = weakref.proxy(o)
class D(dict):
    def __getitem__(self, i): return noted()
    def get(self, i): return noted()
    def __len__(self): return noted()
    def __missing__(self, i): return noted()
    def __contains__(self, i): return noted()
    def keys(self): return noted()
    def __iter__(self): return noted(iter([1]))
m = types.MappingProxyType(D(a=1))
""", ["p.x", "p.y", "hasattr(p, 'y')", "getattr(p, 'x', 1)", "p[1]", "operator.getitem(p, 1)", "p + 1", "1 + p", "len(p)", "p()",
      "1 if p else 2", "not p", "m['b']", "operator.getitem(m, 'b')", "m.get('a')", "len(m)", "'a' in m", "[1 for x in m]",
      "dict(m)", "list(m)", "isinstance(p, int)", "str(m)"]),
    "left_early": ("""
class O:
    @property
    def x(self): return noted()
    def __del__(self): LOG.append(1)
o, L = O(), [[1]]
class B:
    def m(self): return noted()
class C(B):
    def m(self): return super().m()
    def n(self):
        self = L[0]
        return super().m()
c = C()
def passes(f):
    def w(*args, **kwargs): return f(*args, **kwargs)
    return w
@passes
def takes(a, b=1, *rest): return a.x if b else 1
def star(*args): return args[0]
def starstar(**kw): return kw["a"]
class E(enum.Enum):
    A = 1
    def __hash__(self): return noted()
    __eq__ = object.__eq__
class K(enum.Enum):
    A = 1
T, U = {E.A: 1}, {K.A: o}
LOG.clear()
""", ["y = []\n    for z in (1, 2):\n        if z:\n            y = L[0]\n            break\n        y = []\n    y.append(1)",
      "y = []\n    for z in (1, 2):\n        if z == 1:\n            y = L[0]\n            continue\n        y.append(1)\n        y = []",
      "y = []\n    for z in (): pass\n    else: y = L[0]\n    y.append(1)",
      "y = []\n    while True:\n        y = L[0]\n        break\n    y.append(1)",
      "y = []\n    try:\n        y = L[0]\n        y.nothing\n        y = []\n    except AttributeError: y.append(1)",
      "try: y = o.x\n    except AttributeError: return 1", "try: y = 1\n    finally: o.x",
      "try: y = 1\n    except Exception as e: o.x", "try: y = 1\n    except Exception: return 2\n    else: o.x",
      "try: raise ValueError(o)\n    except ValueError as e: return e.args[0].x", "try: L[9]\n    except noted(IndexError): return 1",
      "y = []\n    try: z = 1\n    finally: y = L[0]\n    y.append(1)", "return c.m()", "return c.n()", "return takes(o)", "return takes(b=1, a=o)",
      "return takes(*[o, 1])", "return takes(**{'a': o})", "return star(o).x", "return starstar(a=o).x", "return star(*L)[0].append(1)",
      "star(L)[0].append(1)", "star(*L).append(1)", "return sorted([2, 1], key=lambda v: noted())", "return max([o], key=lambda v: v.x)",
      "return min([2, 1], key=lambda v: o.x)", "a, b = L, o\n    return b.x", "a, b = L, 1\n    a.append(2)", "a, b = [], L\n    a, b = b, a\n    a.append(1)",
      "a, b = (L[0], 1)\n    a.append(1)", "return T[E.A]", "return U[K.A].x", "return {o.x: 1 for v in L}", "return {1: o.x for v in L}",
      "y = {1: v for v in L}\n    y[1].append(1)", "y = {v: o for v in (1, 2)}\n    return y[1].x", "for v in L:\n        v.append(1)\n        break"]),
    "many_and_made_here": ("""
class D(dict):
    def items(self): return noted([])
    def __iter__(self): return iter([noted()])
d = D(a=1)
class S(str):
    def __format__(self, s): return noted("a")
    def __hash__(self): return noted(3)
    def __eq__(self, o): return noted(True)
s = S("a")
class T(tuple):
    def __getitem__(self, i): return noted()
    def __iter__(self): return iter([noted()])
TS = [T((1, 2)) for _ in range(20)]
class N(collections.namedtuple("N", "a b")):
    @property
    def a(self): return noted()
NS = [N(1, 2) for _ in range(3000)]
class P:
    def __init__(self, k): self.k = k
    def __lt__(self, o): return noted(True)
    def __call__(self): return noted()
PS = [P(k) for k in range(3000)]
class Q:
    def __init__(self, k): self.k = k
    def __getattr__(self, name): return noted()
QS = [Q(k) for k in range(3000)]
del QS[2999].k
class R:
    __slots__ = ("k",)
    def __getattr__(self, name): return noted()
RS = [R() for k in range(3000)]
for r in RS[:-1]: r.k = 1
def mine(*a, key=None): return noted(key)
def sorted(x, key): return [key(v) for v in x]
def calls(f, *a, **k): return f(*a, **k)
L = [[1]]
LOG.clear()
""", ["f'{s}'", "{1: 2}[s]", "[x for x in d]", "{**d}", "calls(noted, 1)", "calls(noted)", "calls(LOG.append, 1)", "calls(f=noted)", "[y[0] for y in TS]", "[x for y in TS for x in y]", "sum(y.a for y in NS)", "min(PS)", "sorted(PS, key=lambda p: noted())",
      "sorted([o for o in PS], key=lambda p: p())", "[q.k for q in QS]", "[r.k for r in RS]", "[q.z for q in QS]", "try:\n        return PS[5000]\n    except IndexError:\n        return noted()", "for x in PS:\n        if x.k: break\n    else:\n        noted()",
      "y = []\n    for p in PS:\n        if p.k > 5:\n            y = L\n            continue\n        y.append(1)", "y = L[0]\n    y += [1]", "y = L[:][0]\n    y.append(1)", "y = PS[:2]\n    return y[0]()", "y = {k: p for k, p in enumerate(PS)}\n    return y[0]()", "y = sorted(L, key=lambda v: 1)[0]\n    y.append(2)",
      "y = max(L, key=lambda v: len(v))\n    y.append(2)", "y = list(L)[0]\n    y.append(1)", "return [y.append(1) for y in L]", "x, y = L[0], 1\n    x.append(y)", "(x, y), z = (L[0], 1), 2\n    x.append(y)", "for i, (x, y) in [(1, (L[0], 2))]: x.append(1)",
      "y = reversed(L)\n    for z in y: z.append(1)", "y = tuple(L)\n    y[0].append(1)", "y = L * 2\n    y[0].append(1)", "y = L + [1]\n    y[0].append(1)", "y = [*L]\n    y[0].append(1)", "y = {'a': L[0]}\n    y['a'].append(1)",
      "return calls(lambda: noted())", "y = [1]\n    y[0] = L[0]\n    y[0].append(2)", "return min(3, 1, key=lambda v: L.append(v))", "return calls(*[noted, 3])", "return calls(**{'f': noted})"]),
    "items_of_classes": ("""
class M(type):
    def __getitem__(cls, i): return noted()
    def __len__(cls): return noted()
    def __iter__(cls): return iter([noted()])
class C(metaclass=M): pass
class G(type):
    def __getattr__(cls, name): return noted()
class A(metaclass=G): pass
""", ["C[1]", "operator.getitem(C, 1)", "A[1]", "operator.getitem(A, 1)", "len(C)", "[x for x in C]", "list(C)"]),
}  # fmt: skip
LOOKS = {
    "members": ("""
class P:
    k = 2
    def __init__(self, x): self.x, self.w = x, [1, 2]
    @property
    def y(self): return self.x + 1
    @staticmethod
    def s(): return 3
    @classmethod
    def c(cls): return cls.k
    def __getattr__(self, name):
        if name == "z": return 4
        raise AttributeError(name)
    def __format__(self, spec): return spec + str(self.x)
    def __len__(self): return self.k
    def __getitem__(self, i): return self.w[i]
class D:
    def __get__(self, o, kind): return 5
class Q(P):
    d = D()
    def up(self): return super(Q, self).y
p, q, ps = P(1), Q(2), [P(1), Q(2)]
""", ["p.x", "p.y", "p.z", "p.s() + p.c()", "getattr(p, 'y', 1)", "hasattr(p, 'x')", "f'{p:>3}'", "f'{p!r:>3}'.strip() if 0 else 1", "q.d", "q.up()",
      "sum(a.y for a in ps)", "[a.w[0] for a in ps]", "len(p) + p[1]", "isinstance(p, P)", "isinstance(p, (int, P))",
      "issubclass(Q, P)", "issubclass(int, (int, str))", "Q.d", "Q.k", "format(p, 'x')"]),
    "enums": ("""
class E(enum.Enum):
    A = 1
    B = 2
    def twice(self): return self.value * 2
class I(enum.IntEnum):
    A = 1
    B = 2
ES, T, i = [E.A, E.B], {E.A: 1, E.B: 2}, 5
""", ["E.A.value", "E.A.twice()", "I.A + 1", "E.A is E.B", "E.A == E.B", "sum(x.value for x in ES)", "ES[0].twice()", "[x.name for x in ES]",
      "isinstance(E.A, E)", "I.B.value"]),
    "made": ("""
@dataclasses.dataclass
class P:
    x: int
    y: float = 1.0
    z: list = dataclasses.field(default_factory=list)
@dataclasses.dataclass(frozen=True, order=True)
class F:
    x: int
class N(typing.NamedTuple):
    x: int
    y: int = 1
M = collections.namedtuple("M", "a b")
p, f, n, m = P(1), F(1), N(1), M(1, 2)
""", ["P(3)", "F(3)", "N(3)", "M(1, 2)", "p.x", "f.x + n.x + m.a", "p == P(1)", "f == F(1)", "m[0]", "m == (1, 2)", "f < F(2)", "str(p)"]),
    "flow": ("""
class B:
    k = 2
    def m(self, x=1): return self.k + x
    @property
    def p(self): return self.k
class C(B):
    def m(self, x=1): return super().m(x) + 1
    @property
    def p(self): return super().p * 2
c, L, D = C(), [3, 1, 2], {"a": 1}
CS = [C() for _ in range(20)]
def passes(f):
    @functools.wraps(f)
    def w(*args, **kwargs): return f(*args, **kwargs)
    return w
@passes
def takes(a, b=1, *, d=3): return a + b + d
class K(enum.Enum):
    A = 1
    B = 2
T, P = {K.A: c, K.B: 3}, {(1, 2): c}
BOX = ((1, c), (2, c))
""", ["for x in L:\n        if x == 1: break\n        if x == 2: continue\n    else: return 3\n    return x", "i = 0\n    while True:\n        i += 1\n        if i > 3: break\n    return i",
      "try: return D['b']\n    except KeyError: return 0", "try: return c.nothing\n    except (AttributeError, TypeError): return 0", "try: x = L[0]\n    except Exception as e: x = 1\n    else: x = 2\n    finally: y = 1\n    return c.p",
      "try: return int('a')\n    except ValueError: raise TypeError('no') from None", "return c.m() + c.p", "return c.m(x=2)", "return takes(1) + takes(1, b=2)", "return takes(1, d=2)", "return takes(*(1, 2))",
      "return {k: 1 for k in L}", "return {k: v for k, v in D.items()}[3]", "return sorted(CS, key=lambda o: o.k)[0].p", "return max(L, key=lambda v: -v)", "return min(CS, key=lambda o: (o.k, o.p))",
      "a, b = c, 1\n    return a.p + b", "a, b = (c, 2)\n    return a.m(b)", "return T[K.A].p", "return P[1, 2].p", "return P[(1, 2)].m()", "for n, o in BOX: o.m(n)", "return sum(o.m() for o in CS)", "return [o.p for n, o in BOX]",
      "return sum(o.value for o in K)"]),
    "library": ("""
A, L, D, day = np.arange(3), [3, 1, 2], {"a": 1, 2: 3}, datetime.timedelta(1)
Q, ns, part = collections.deque([1, 2]), types.SimpleNamespace(x=1), functools.partial(max, 2)
def table(i): return D["a"] + L[i]
class Mod: pass
when = datetime.date(2020, 1, 2)
""", ["np.sum(A)", "A + 1", "A.shape[0]", "np.float32(1) * 2", "math.sqrt(2)", "sorted(L)", "max(L) + len(D)", "day * 2", "when + day", "len(Q) + 1",
      "ns.x", "part(1)", "table(1)", "[x for x in L if x > 1]", "sum(x * 2 for x in L)", "D.get('a', 1)", "'%d' % 3", "f'{L[0]:>3}'",
      "y = 0\n    for x in L: y += x\n    return y", "np.linalg.norm(A)", "operator.add(1, 2)", "math.pi * np.pi"]),
}  # fmt: skip
HELPER = "def f{k}():\n    {text}\n"


def _is_statement(text):
    return "\n" in text or text.startswith(("return ", "star(", "for "))


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    folder = tmp_path_factory.mktemp("looking")
    made = {}
    for name, (definitions, texts) in [*CHANGES.items(), *LOOKS.items()]:
        path = folder / f"looking_{name}.py"
        helpers = [
            HELPER.format(k=k, text=x if _is_statement(x) else f"return {x}")
            for k, x in enumerate(texts)
        ]
        path.write_text("\n".join([HEAD, definitions, *helpers]))
        made[name] = module_at(path)
    return made


@pytest.mark.parametrize("name, text", [(n, x) for n, (_, xs) in CHANGES.items() for x in xs])
def test_what_may_change_something(modules, name, text):
    """Nor is any of it run by the question."""
    module = modules[name]
    module.LOG.clear()
    assert may_change(getattr(module, f"f{CHANGES[name][1].index(text)}"), ())
    assert module.LOG == []


@pytest.mark.parametrize("name, text", [(n, x) for n, (_, xs) in LOOKS.items() for x in xs])
def test_what_only_looks(modules, name, text):
    assert not may_change(getattr(modules[name], f"f{LOOKS[name][1].index(text)}"), ())


def test_errors_of_numpy_that_call_something(tmp_path):
    path = tmp_path / "errors.py"
    path.write_text("import numpy as np\nZ, A = np.float64(0), np.zeros(2)\n"
                    "def f(): return int(np.isfinite(np.divide(1.0, Z)))\ndef g(): return A / Z\n")  # fmt: skip
    m = module_at(path)
    assert not may_change(m.f, ()) and not may_change(m.g, ())
    before = m.np.seterrcall(lambda *a: None)
    try:
        assert may_change(m.f, ()) and may_change(m.g, ())
    finally:
        m.np.seterrcall(before)
    with m.np.errstate(divide="print"):
        assert may_change(m.f, ()) and may_change(m.g, ())
    assert not may_change(m.f, ()) and not may_change(m.g, ())


BODIES = """
class Body:
    def __init__(self, i): self.i, self.m, self.of = i, 1.0, [i]
    @property
    def heavy(self): return self.m * 2
    def energy(self): return self.heavy * self.i
BODIES = [Body(i) for i in range({count})]
"""
LOOPS = (
    "    t = 0\n    for a in BODIES:\n        for b in BODIES: t += a.m * b.heavy\n    return t\n"
)
# Definitions with `f`, and whether it is found to look only.
LONG = {
    "pairs": (BODIES.format(count=800) + "def f():\n" + LOOPS, True),
    "many": (
        BODIES.format(count=4000) + "def f(): return sum(b.energy() + b.of[0] for b in BODIES)\n",
        True,
    ),
    "key": (
        BODIES.format(count=3000) + "def f(): return sorted(BODIES, key=lambda b: b.i)[0].m\n",
        True,
    ),
    "numbers": ("L = list(range(60000))\ndef f(): return sum(x for x in L) + max(L)\n", True),
    "rows": (
        "L = [[i, 1.0] for i in range(3000)]\ndef f():\n    t = 0\n    for a in L: t += a[0]\n    return t\n",
        True,
    ),
    "calls": (
        "".join(
            f"def c{k}(x): return {'+'.join([f'c{k + 1}(x + {j})' for j in range(3)])}\n"
            for k in range(7)
        )
        + "def c7(x): return x\ndef f(): return c0(1)\n",
        True,
    ),
    "enum": (
        "import enum\nE = enum.Enum('E', [f'A{i}' for i in range(1000)])\ndef f(): return sum(e.value for e in E)\n",
        True,
    ),
    "variables": (
        "def f():\n"
        + "".join(f"    v{k} = {k}\n" for k in range(1000))
        + "".join(f"    if v{k}: v{k} = 3\n" for k in range(1000)),
        False,
    ),
    "lists": ("L = {i: [i] for i in range(30000)}\ndef f(k=3): return L[k % 4][0]\n", False),
    "loops": (
        "R = range(3)\ndef f():\n"
        + "".join("    " * k + f"for i{k} in R:\n" for k in range(1, 15))
        + "    " * 15
        + "pass\n",
        False,
    ),
    "one_that_does": (
        BODIES.format(count=500)
        + "LOG = []\ndef note(b): LOG.append(b)\nBODIES[77].energy = lambda: note(1)\n"
        + "def f(): return [b.energy() for b in BODIES]\n",
        False,
    ),
    "one_of_another_class": (
        BODIES.format(count=500)
        + "LOG = []\nclass Other(Body):\n    def energy(self): return LOG.append(1)\nBODIES[300] = Other(1)\n"
        + "def f(): return [b.energy() for b in BODIES]\n",
        False,
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_the_question_is_short(tmp_path, name):
    definitions, looks = LONG[name]
    path = tmp_path / f"long_{name}.py"
    path.write_text(definitions)
    module = module_at(path)
    assert may_change(module.f, ()) is not looks  # which reads the text too
    called = [0]

    def count(*_):
        called[0] += 1

    sys.setprofile(count)
    try:
        may_change(module.f, ())
    finally:
        sys.setprofile(None)
    assert called[0] < 150_000  # calls and returns of Python's; it would be millions


PLAINLY = """
import math
import quadrants as qd
K, WORDS, LIST, COUNTS = 3, ("a", (1, 2)), [1], [0]
class Config:
    n = 3
    def __init__(self): self.dt = 2
    @property
    def steps(self): return self.n * self.dt
    def scaled(self, k): return self.steps * k + math.sqrt(4)
    def bump(self): self.dt += 1
    @property
    def counted(self):
        COUNTS[0] += 1
        return 1
class Whole(Config):
    def __len__(self): return 1
class Given(list): pass
config, whole, given = Config(), Whole(), Given()
config.inner = Config()
def plus(x, y=K): return x + y * K
def tagged(): return 1
tagged.kept = LIST
import dataclasses
@dataclasses.dataclass
class Computed:
    x: int
    @property
    def x(self):
        COUNTS[0] += 1
        return COUNTS[0]
    @x.setter
    def x(self, v): pass
one, other = Computed(1), Computed(2)
@dataclasses.dataclass
class Pair:
    x: int
    y: int = 2
pair = Pair(1)
class Named(dict): pass
class Own:
    def g(self): return 0
own = Own()
own.__dict__ = Named(g=lambda: COUNTS.append(1))
"""
PLAIN_CALLS = {  # of a function whose body is this: whether it is seen at a glance to look only
    "return plus(2) + WORDS[1][0]": True,
    "return config.scaled(3) + config.inner.n + sum(k for k in (1, 2))": True,
    "x = 0\n    for k in range(K): x += k if k else config.steps\n    return x": True,
    "return len(WORDS) + min(K, 2) + int(2.5) + round(config.dt / 2)": True,
    "raise ValueError(K)": True,
    "config.bump()": False,
    "return config.counted": False,
    "return len(whole)": False,
    "return LIST[0]": False,
    "return given": False,
    "tagged.kept": False,
    "global K\n    K = 4": False,
    "config.dt = 4": False,
    "del config.dt": False,
    "import os": False,
    "class C: pass": False,
    "return '{0.counted}'.format(config)": False,
    "return (lambda: COUNTS.append(1))()": False,
    "x = 1\n    def f(): return x\n    return f()": False,
    "yield 1": False,
    "return qd.static(1)": False,
    "return Config()": False,
    "return print(1)": False,
    "with config: pass": True,  # it has none of the methods
    "return missing": False,
    "return one == other": False,
    "return len(f'{one}')": False,
    "return pair.x + len(f'{pair}') + (pair == pair)": True,
    "return own.g()": False,
}


@pytest.mark.parametrize("text", PLAIN_CALLS)
def test_what_is_seen_at_a_glance(tmp_path, text):
    path = tmp_path / "plainly.py"
    path.write_text(f"{PLAINLY}\ndef f():\n    {text}\n")
    space: dict = {"__name__": "plainly"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    assert core.looks_plainly(space["f"], []) == PLAIN_CALLS[text]


def test_helpers_over_objects_whose_hooks_note():
    tool = pathlib.Path(__file__).parents[1] / "differential" / "effects.py"
    done = subprocess.run(
        [sys.executable, tool, "--share", "0.03", "--seconds", "12", "--seed", "5"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    tried, looked = map(
        int, re.match(r"(\d+) helpers, (\d+) taken", done.stdout.splitlines()[-1]).groups()
    )
    assert looked > 100 and tried > looked


def test_operators_that_make_objects_of_the_users_class():
    class Queue(collections.deque):
        def __init__(self, *args):
            super().__init__(*args)

    class Plain(collections.deque):
        pass

    class Day(datetime.date):
        def __new__(cls, *args):
            return super().__new__(cls, *args)

    makers, others = [Queue(), Day(2020, 1, 2)], [Plain(), datetime.date(2020, 1, 2)]
    assert all(map(core.operators_run_code, makers))
    assert not any(map(core.operators_run_code, others))
