"""What a later process finds may do more, or otherwise, than what was there when the kernel was stored.

Each program prints the same in a process that finds the kernel in the cache as in one that doesn't:
numbers, and how often code of the user ran.
"""

import os
import subprocess
import sys

import pytest

HEAD = """
import os, sys
import quadrants as qd
qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1])
V = int(sys.argv[2])
"""
PROGRAMS = {
    "hooks_that_look_in_funcs": """
@qd.data_oriented
class Sim:
    def __init__(self): self.level = 0; self.dts = [1, 2, 3, 4]
    @property
    def dt(self): return self.dts[self.level]
    def __getitem__(self, i): return self.dts[self.level]
    def enter(self, level):
        self.level = level
        return 0
    @qd.func
    def step(self): return self.dt
    @qd.func
    def step2(self): return self[0]
    @qd.func
    def step3(self): return self.step()
    @qd.kernel
    def run(self) -> qd.i32:
        s = 0
        for l in qd.static(range(4)):
            self.enter(l)
            s = s * 10 + self.step()
        return s
    @qd.kernel
    def run2(self) -> qd.i32:
        s = 0
        for l in qd.static(range(4)):
            self.enter(l)
            s = s * 10 + self.step2()
        return s
    @qd.kernel
    def run3(self) -> qd.i32:
        s = 0
        for l in qd.static(range(4)):
            self.enter(l)
            s = s * 10 + self.step3()
        return s
print(Sim().run(), Sim().run2(), Sim().run3())
""",
    "members_of_enumerations_in_containers": """
import enum
class E(enum.IntEnum):
    A = 5 + V
    def __repr__(self): return f"E.{self.name}"
L = [E.A, 2]
@qd.kernel
def k() -> qd.i32:
    l = L
    return l[0]
@qd.kernel
def v() -> qd.i32:
    return qd.Vector(L)[0]
print(k(), v())
""",
    "enumerations_whose_value_is_not_their_number": """
import enum
class E(enum.IntEnum):
    A = (5 + V, "a")
    def __new__(cls, number, label):
        o = int.__new__(cls, number); o._value_ = label
        return o
f = qd.field(qd.i32, shape=8)
@qd.kernel
def k() -> qd.i32:
    f[E.A] = 1
    for i in range(E.A): f[0] += 1
    return E.A
print(k(), f.to_numpy().tolist())
""",
    "a_helper_of_a_helper": """
N = [0]
def quiet(): return 5
def counts():
    N[0] += 1
    return 4 + N[0]
g = (quiet, counts)[V]
def h(): return g()
@qd.kernel
def k() -> qd.i32:
    return h() + h()
print(k(), N)
""",
    "a_member_that_becomes_a_property": """
N = [0]
class B:
    x = 5
class C(B):
    if V:
        @property
        def x(self):
            N[0] += 1
            return 4 + N[0]
    def __len__(self): return self.x
o = C()
def h(): return o.x
@qd.kernel
def k() -> qd.i32:
    return h() + h()
@qd.kernel
def k2() -> qd.i32:
    return o.x + o.x
@qd.kernel
def k3() -> qd.i32:
    return len(o) + len(o)
print(k(), k2(), k3(), N)
""",
    "hooks_that_count_since": """
N = [0]
class C:
    @property
    def x(self):
        if V: N[0] += 1
        return 4 + N[0]
    def __getattr__(self, n):
        if V: N[0] += 1
        return 4 + N[0]
    def __add__(self, o):
        if V: N[0] += 1
        return 4 + N[0]
    def __getitem__(self, o):
        if V: N[0] += 1
        return 4 + N[0]
    def __call__(self, o):
        if V: N[0] += 1
        return 4 + N[0]
o = C()
@qd.func
def f(): return o.x + o.y + (o + 1) + o[0] + o(1)
@qd.kernel
def k() -> qd.i32:
    return f() + f() * 100
print(k(), N)
""",
    "within_one_process": """
N = [0]
def quiet(): return 5
def counts():
    N[0] += 1
    return 4 + N[0]
g = quiet
def h(): return g()
@qd.kernel
def k() -> qd.i32:
    return h() + h()
a = k()
g = counts
qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache_file_path=sys.argv[1])
print([a, k()])
""",
    "operators_of_what_a_helper_makes": """
from dataclasses import dataclass
N = [0]
@dataclass
class P:
    x: int
    def __add__(self, o):
        N[0] += 1
        return self.x + o.x
def h(): return P(1) + P(2)
@qd.kernel
def first() -> qd.i32: return h() + h()
@qd.kernel
def second() -> qd.i32: return N[0]
print(first(), second())
""",
    "a_descriptor_of_a_class": """
class Counted:
    def __get__(self, o, kind):
        kind.uses += 1
        return 5
class Conf:
    uses = 0
    dt = Counted()
@qd.kernel
def first() -> qd.i32: return Conf.dt + Conf.dt
@qd.kernel
def second() -> qd.i32: return Conf.uses
print(first(), second())
""",
    "hooks_behind_other_objects": """
import types, weakref, abc, operator, sys
N = [0]
def n(): N[0] += 1; return 5
class p(property): pass
class O:
    @p
    def x(self): return n()
    @abc.abstractproperty
    def y(self): return n()
class M(types.ModuleType):
    @property
    def x(self): return n()
    def __getattr__(self, name): return n()
m = M("m")
o = O()
class Item:
    @property
    def x(self): return n()
    def __getitem__(self, i): return n()
it = Item()
pr = weakref.proxy(it)
class B:
    @property
    def x(self): return n()
class D(B): pass
d = D()
s = super(D, d)
class DD(dict):
    def __getitem__(self, k): return n()
mp = types.MappingProxyType(DD(a=1))
class Meta(type):
    def __getitem__(cls, i): return n()
    @property
    def z(cls): return n()
class MC(metaclass=Meta): pass
def hp(): return o.x
def gi(): return operator.getitem(MC, 1)
@qd.kernel
def k1() -> qd.i32: return o.x + o.x
@qd.kernel
def k2() -> qd.i32: return o.y + o.y
@qd.kernel
def k3() -> qd.i32: return m.x + m.x
@qd.kernel
def k4() -> qd.i32: return m.q + m.q
@qd.kernel
def k5() -> qd.i32: return pr.x + pr.x
@qd.kernel
def k6() -> qd.i32: return pr[0] + pr[0]
@qd.kernel
def k7() -> qd.i32: return s.x + s.x
@qd.kernel
def k8() -> qd.i32: return mp["a"] + mp["a"]
@qd.kernel
def k9() -> qd.i32: return MC[1] + MC[1]
@qd.kernel
def k10() -> qd.i32: return MC.z + MC.z
@qd.kernel
def k11() -> qd.i32: return hp() + hp()
@qd.kernel
def k12() -> qd.i32: return gi() + gi()
out = []
for k in (k1,k2,k3,k4,k5,k6,k7,k8,k9,k10,k11,k12):
    out.append((k(), N[0]))
print(out)
""",
    "descriptors_of_classes": """
import enum
N = [0]
class Counted:
    def __get__(self, o, kind):
        N[0] += 1
        return 5
class E(enum.Enum):
    A = 1
    dt = Counted()
class CP:
    @classmethod
    @property
    def x(cls):
        N[0] += 1
        return 5
class H:
    dt = Counted()
    @qd.kernel
    def k(self: qd.template()) -> qd.i32: return H.dt + H.dt
@qd.kernel
def k1() -> qd.i32: return E.dt + E.dt
@qd.kernel
def k2() -> qd.i32: return CP.x + CP.x
@qd.kernel
def k3() -> qd.i32: return CP().x + CP().x
@qd.kernel
def k4() -> qd.i32: return getattr(H, "dt") + getattr(H, "dt", 3)
@qd.kernel
def k5() -> qd.i32: return hasattr(H, "dt") + hasattr(H, "dt")
out = []
for k in (k1,k2,k3,k4,k5):
    try: out.append((k(), N[0]))
    except Exception as e: out.append(type(e).__name__)
print(out)
""",
    "numbers_with_operators": """
class I(int):
    def __abs__(self): return 2 + V
    def __lt__(self, o): return V == 0
    def __gt__(self, o): return V == 1
    def __pow__(self, o): return V + 7
    def __bool__(self): return V == 1
class F(float):
    def __float__(self): return 4.0 + V
    def __abs__(self): return 3.0 + V
    def __index__(self): return V
i, f = I(-1), F(2.0)
@qd.kernel
def k() -> qd.i32: return qd.abs(i)
@qd.kernel
def k2() -> qd.i32: return qd.max(i, 3)
@qd.kernel
def k3() -> qd.i32: return qd.pow(i, 3)
@qd.kernel
def k4() -> qd.i32: return qd.select(i, 3, 4)
@qd.kernel
def k5() -> qd.f32: return qd.sqrt(f)
@qd.kernel
def k6() -> qd.f32: return qd.abs(f)
@qd.kernel
def k7() -> qd.i32: return (1, 2, 3, 4)[f]
out = []
for k in (k,k2,k3,k4,k5,k6,k7):
    try: out.append(k())
    except Exception as e: out.append(type(e).__name__)
print(out)
""",
    "what_only_looks": """
import types
class C:
    n = 3
    @property
    def x(self): return self.n + 1
    def f(self): return self.x * 2
o = C()
mp = types.MappingProxyType({"a": 1 + V})
def h(): return o.f() + len(mp)
@qd.kernel
def k() -> qd.i32: return h() + o.x + mp["a"]
print(k())
""",
    "native_in_funcs": """
import collections, array
Q, B, A = collections.deque([1]), bytearray(b"a"), array.array("i", [1])
class L(list): pass
S = L([1])
def bump():
    Q.append(1); B.append(1); A.append(1); S.append(1)
    return 0
@qd.func
def f(q): return q * 0 + qd.static(len(Q))
@qd.func
def g(q): return q * 0 + sum(S) + len(B) + len(A)
@qd.kernel
def k(q: qd.i32) -> qd.i32:
    x = 0
    for j in qd.static(range(6)):
        x = x * 10 + f(q)
        qd.static(bump())
    return x
@qd.kernel
def k2(q: qd.i32) -> qd.i32:
    x = 0
    for j in qd.static(range(4)):
        x = x * 100 + g(q)
        bump()
    return x
@qd.kernel
def k3(q: qd.i32) -> qd.i32:
    x = 0
    for j in qd.static(range(4)):
        x = x * 100 + f(q)
        Q.append(1)
    return x
print(k(2), k2(2), k3(2))
assert k(2) == 123456
""",
    "guards_of_native_calls": """
import collections
Q = collections.deque([1])
if V:
    def h(): Q.append(1); return 0
else:
    def h(): return 0
@qd.func
def f(q): return q * 0 + len(Q)
def size(): return len(Q)
@qd.kernel
def k(q: qd.i32) -> qd.i32:
    x = f(q)
    x += h()
    return x * 10 + f(q)
@qd.kernel
def k2(q: qd.i32) -> qd.i32:
    x = h()
    return x * 10 + size() + q * 0
@qd.kernel
def k3(q: qd.i32) -> qd.i32:
    x = size()
    x += h()
    return x * 10 + size() + q * 0
print(k(2), k2(2), k3(2), len(Q))
""",
    "effects_of_funcs_that_are_walked_again": """
import itertools
class C:
    n = 0
    @property
    def p(s):
        s.n += 1
        return s.n
c, LOG, X, D, COUNT = C(), [], [1], {}, itertools.count()
def nx(): LOG.append(1); return len(LOG)
@qd.real_func
def f(q: qd.i32) -> qd.i32: return q * 0 + c.p
@qd.real_func
def f2(q: qd.i32) -> qd.i32: return q * 0 + qd.static(nx())
@qd.real_func
def f3(q: qd.i32) -> qd.i32: return q * 0 + next(COUNT)
@qd.func
def f4(q): return q + nx()
@qd.func
def step(q):
    y = f(q)
    for i in range(2): y += 0
    return y
@qd.func
def step2(q):
    y = f2(q)
    for i in range(2): y += 0
    return y
@qd.func
def step3(q):
    y = f3(q)
    for i in range(2): y += 0
    return y
@qd.func
def step4(q):
    y = q * 0 + len(X)
    X.append(1)
    for i in range(2): y += 0
    return y
@qd.func
def step5(q):
    setattr(c, "m", getattr(c, "m", 0) + 1)
    y = q * 0 + c.m
    for i in range(2): y += 0
    return y
@qd.func
def step6(q):
    y = q * 0
    if q > 1:
        y += f4(q)
    for i in range(2): y += 0
    return y
@qd.kernel
def k(q: qd.i32) -> qd.i32: return step(q)
@qd.kernel
def k2(q: qd.i32) -> qd.i32: return step2(q)
@qd.kernel
def k3(q: qd.i32) -> qd.i32: return step3(q)
@qd.kernel
def k4(q: qd.i32) -> qd.i32: return step4(q)
@qd.kernel
def k5(q: qd.i32) -> qd.i32: return step5(q)
@qd.kernel
def k6(q: qd.i32) -> qd.i32: return step6(q)
print(k(2), c.n, k2(2), LOG, k3(2), next(COUNT), k4(2), X, k5(2), c.m, k6(2), LOG)
assert (c.n, len(X), c.m, len(LOG)) == (1, 2, 1, 2), (c.n, len(X), c.m, len(LOG))
""",
    "has_attribute": """
N = [0]
class C:
    if V:
        @property
        def x(self): N[0] += 1; return 1
    else:
        x = 1
o = C()
@qd.kernel
def k() -> qd.i32: return qd.static(hasattr(o, "x")) + getattr(o, "x", 3) + hasattr(o, "x")
print(k(), N)
""",
    "fields_that_are_properties": """
from dataclasses import dataclass
N = []
@dataclass
class P:
    x: int
    @property
    def x(self): N.append(1); return len(N)
    @x.setter
    def x(self, v): pass
a, b = P(1), P(2)
def same(): return 1 if a == b else 0
@qd.func
def h(q): return q * 0 + same()
@qd.kernel
def k(q: qd.i32) -> qd.i32: return h(q) + h(q)
print(k(2), len(N))
assert len(N) == 4
""",
    "metaclasses_that_note_what_is_asked": """
import enum
N = []
class Meta(type):
    def __getattribute__(cls, name):
        N.append(name)
        return type.__getattribute__(cls, name)
class EnumMeta(enum.EnumMeta):
    def __getattribute__(cls, name):
        N.append(name)
        return enum.EnumMeta.__getattribute__(cls, name)
class C(metaclass=Meta):
    def __init__(self): self.x = 3
    def f(self): return self.x + 1
    def __len__(self): return 4
class E(enum.Enum, metaclass=EnumMeta):
    A = 1
class T(tuple, metaclass=Meta): pass
class I(int, metaclass=Meta): pass
c, t, i, cs = C(), T((1, 2)), I(5), [C(), C()]
def helper(): return c.x + len(cs) + C().x
@qd.kernel
def k() -> qd.i32:
    s = c.x + c.f() + len(c) + t[0] + i + helper() + E.A.value + int(isinstance(c, C))
    for o in qd.static(cs): s += o.x
    return s
N.clear()
print(k(), N)
""",
    "members_with_a_default_are_asked_once": """
N = []
F = qd.field(qd.i32, shape=3)
F[1] = 7
@qd.func
def add(a): return a + 1
class O:
    @property
    def number(self):
        N.append(1)
        return len(N)
    @property
    def field(self):
        N.append(2)
        return F
    @property
    def func(self):
        N.append(3)
        return add
    @property
    def nothing(self):
        N.append(4)
        raise AttributeError("nothing")
o = O()
@qd.kernel
def k() -> qd.i32:
    return (getattr(o, "number", 5) + getattr(o, "field", 1)[1] * 10 + getattr(o, "func", 1)(100)
            + getattr(o, "nothing", 2000))
print(k(), N)
assert N == [1, 2, 3, 4]
""",
    "classes_of_one_name_and_other_bases": """
class C((list, dict, set, tuple)[V % 4]): pass
c, d = C(), C()
@qd.kernel
def k() -> qd.i32:
    n = 0
    if qd.static(c): n += 10
    return n
@qd.kernel
def t(o: qd.template()) -> qd.i32: return 3
def tried(f, *a):
    try: return f(*a)
    except Exception as e: return type(e).__name__
print(tried(k), tried(t, d))
""",
    "template_arguments_that_cannot_be_hashed": """
import collections
Cfg = collections.namedtuple("Cfg", "n sizes")
class Plain:
    n = 5
    if V: __eq__ = lambda self, o: True
@qd.kernel
def k(o: qd.template()) -> qd.i32: return o.n
def tried(o):
    try: return k(o)
    except TypeError as e: return "unhashable" in str(e)
print([tried(x) for x in (Cfg(3, [1, 2]), Cfg(3, (1, 2)), Cfg(3, [1, 2]), Cfg(4, [1]), Cfg(3, [5]), Plain())])
""",
    "options_of_a_kernel_by_value": """
n = 4
def make(**options):
    @qd.kernel(**options)
    def k() -> qd.i32: return n + 1
    return k
@qd.kernel(graph=V == 0)
def loops(c: qd.types.ndarray(qd.i32, ndim=0), x: qd.types.ndarray(qd.i32, ndim=1)):
    while qd.graph_do_while(c):
        for i in x:
            x[i] += 1
        for i in range(1):
            c[None] -= 1
@qd.kernel(graph=True, checkpoints=V == 0)
def stops(c: qd.types.ndarray(qd.i32, ndim=0), x: qd.types.ndarray(qd.i32, ndim=1)):
    with qd.checkpoint(1, c):
        for i in x:
            x[i] += 1
def tried(f, *a):
    try: return f(*a)
    except qd.QuadrantsCompilationError as e: return type(e).__name__
    except qd.QuadrantsSyntaxError as e: return type(e).__name__
c, x = qd.ndarray(qd.i32, ()), qd.ndarray(qd.i32, 4)
c.fill(2)
print(tried(make()), tried(make(fastcache=V == 1)), tried(make(pure=True)), tried(loops, c, x), x.to_numpy(), end=" ")
c.fill(0)
print(tried(stops, c, x), x.to_numpy())
""",
    "containers_that_operators_make_anew": """
import collections, datetime
N = []
class Queue(collections.deque):
    def __init__(self, *args):
        N.append(1)
        super().__init__(*args)
class Day(datetime.date):
    def __new__(cls, *args):
        N.append(1)
        return super().__new__(cls, *args)
queue, day, later = Queue([1, 2]), Day(2020, 1, 2), datetime.timedelta(1)
N.clear()
@qd.kernel
def k() -> qd.i32: return len(queue + queue) + len(queue + queue)
@qd.kernel
def k2() -> qd.i32: return (day + later).day + (day + later).day
print(k(), len(N), k2(), len(N))
assert len(N) >= 4
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_as_without_a_cache(name, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(HEAD + PROGRAMS[name])

    def run(folder, value):
        command = [sys.executable, path, tmp_path / folder, str(value)]
        env = dict(os.environ, PYTHONWARNINGS="ignore")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    first = run("cache", 0)
    assert run("cache", 1) == run("none", 1)
    assert run("cache", 0) == first
