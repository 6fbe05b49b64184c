"""Which helpers are proved to look only, and how long the question takes."""

import sys

import pytest

from helpers import module_at
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
""", ["o.get().y", "o.x"]),
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


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    folder = tmp_path_factory.mktemp("looking")
    made = {}
    for name, (definitions, texts) in [*CHANGES.items(), *LOOKS.items()]:
        path = folder / f"looking_{name}.py"
        helpers = [
            HELPER.format(k=k, text=x if "\n" in x else f"return {x}") for k, x in enumerate(texts)
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
