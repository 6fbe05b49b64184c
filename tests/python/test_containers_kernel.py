"""Containers as kernel arguments: dataclasses, data-oriented objects, functions and classes as values."""

import dataclasses
import enum
import gc
import typing
import weakref

import numpy as np
import pytest

import quadrants as qd


@pytest.fixture(autouse=True)
def cpu():
    qd.init(arch=qd.cpu, offline_cache=False)
    yield


def compiled() -> int:
    return qd.lang.impl.get_runtime().get_num_compiled_functions()


def full(value, shape=(3,), dtype=qd.i32):
    x = qd.ndarray(dtype, shape)
    x.fill(value)
    return x


NDI = qd.types.ndarray(qd.i32, ndim=1)


# --- dataclasses ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Inner:
    x: NDI
    k: qd.i32


@dataclasses.dataclass(frozen=True)
class Outer:
    version: typing.ClassVar[int] = 7
    a: Inner
    b: Inner
    y: qd.types.ndarray()


@qd.func
def add_pair(p: Inner, i):
    p.x[i] += p.k


@qd.func
def add_both(o: Outer, i):
    add_pair(o.a, i)
    add_pair(p=o.b, i=i)


def test_nested_frozen_dataclass():
    @qd.kernel
    def k(o: Outer):
        for i in o.y:
            add_both(o, i)
            o.y[i] = o.a.x[i] + o.b.x[i]

    o = Outer(Inner(full(1), 10), Inner(full(2), 20), full(0))
    k(o)
    assert o.y.to_numpy().tolist() == [33, 33, 33]
    p = Outer(Inner(full(3), 100), Inner(o.a.x, 200), full(0))
    before = compiled()
    k(p)
    assert compiled() == before
    assert p.y.to_numpy().tolist() == [314, 314, 314]
    k(o=o)
    assert o.a.x.to_numpy().tolist() == [221] * 3


def test_members_of_every_kind():
    @qd.dataclass
    class Particle:
        pos: qd.math.vec3
        mass: qd.f32

    @dataclasses.dataclass
    class S:
        nd: qd.types.ndarray(qd.f32, ndim=1)
        t: qd.Tensor
        f: qd.template()
        g: qd.Template
        i: qd.i32
        r: float
        b: bool
        v: qd.types.vector(3, qd.f32)
        m: qd.types.matrix(2, 2, qd.f32)
        p: Particle

    out = qd.ndarray(qd.f32, (10,))

    @qd.kernel
    def k(s: S, out: qd.types.ndarray(qd.f32, ndim=1)):
        out[0] = s.nd[0]
        out[1] = s.t[0]
        out[2] = s.f[0]
        out[3] = s.g[0]
        out[4] = s.i
        out[5] = s.r
        out[6] = s.b
        out[7] = s.v[1]
        out[8] = s.m[1, 0]
        out[9] = s.p.pos.y * s.p.mass

    f, g = qd.field(qd.f32, 1), qd.field(qd.f32, 1)
    f[0], g[0] = 3, 4
    s = S(
        full(1, (2,), qd.f32),
        qd.tensor(qd.f32, (2,)),
        f,
        g,
        5,
        6.5,
        True,
        qd.Vector([1, 2, 3]),
        qd.Matrix([[1, 2], [3, 4]]),
        Particle(qd.math.vec3(1, 2, 3), 4.0),
    )
    s.t.fill(2)
    k(s, out)
    assert out.to_numpy().tolist() == [1, 2, 3, 4, 5, 6.5, 1, 2, 3, 8]


def test_rebinding_members_of_a_mutable_dataclass():
    @dataclasses.dataclass
    class S:
        x: NDI
        n: qd.i32

    @qd.kernel
    def k(s: S):
        for i in s.x:
            s.x[i] = s.n

    s = S(full(0), 3)
    k(s)
    first = s.x
    s.x, s.n = full(0, (5,)), 4
    k(s)
    assert first.to_numpy().tolist() == [3] * 3
    assert s.x.to_numpy().tolist() == [4] * 5


def test_slots():
    @dataclasses.dataclass(frozen=True, slots=True)
    class S:
        x: NDI
        n: qd.i32

    @qd.kernel
    def k(s: S):
        for i in s.x:
            s.x[i] += s.n

    s, t = S(full(0), 3), S(full(0), 4)
    for _ in range(3):
        k(s)
        k(t)
    assert s.x.to_numpy().tolist() == [9] * 3
    assert t.x.to_numpy().tolist() == [12] * 3


def test_aliased_arrays_under_two_parents():
    @qd.kernel
    def k(o: Outer):
        for _ in range(1):
            for i in range(3):
                o.a.x[i] += 1
                o.b.x[i] += 10

    x = full(0)
    k(Outer(Inner(x, 1), Inner(x, 2), full(0)))
    assert x.to_numpy().tolist() == [11] * 3
    y = full(0)
    k(Outer(Inner(y, 1), Inner(full(0), 2), full(0)))
    assert y.to_numpy().tolist() == [1] * 3
    k(Outer(Inner(x, 1), Inner(x, 2), full(0)))
    assert x.to_numpy().tolist() == [22] * 3


def test_unread_members_do_not_count():
    leaves = [(f"m{n}", qd.types.ndarray(qd.i32, ndim=1)) for n in range(600)]
    Many = dataclasses.make_dataclass("Many", leaves, frozen=True)

    @qd.kernel
    def k(s: Many):
        for i in s.m3:
            s.m3[i] += s.m599[i]

    x = full(1)
    s = Many(**{f"m{n}": x for n in range(599)}, m599=full(5))
    k(s)
    assert s.m3.to_numpy().tolist() == [6] * 3


@pytest.mark.oracle_differs("the sum is too deep for its parser")
def test_over_512_used_leaves(tmp_path):
    from quadrants._test_tools.load_kernel_string import load_kernel_from_string

    total = " + ".join(f"s.m{n}" for n in range(520))
    source = f"""
import dataclasses
import quadrants as qd
Many = dataclasses.make_dataclass("Many", [(f"m{{n}}", qd.i32) for n in range(520)], frozen=True)
@qd.kernel
def k(s: Many) -> qd.i32:
    return {total}
k.many = Many
"""
    with load_kernel_from_string(source, "k") as k:
        with pytest.raises(qd.QuadrantsRuntimeError, match="Do not exceed 512"):
            k(k.many(**{f"m{n}": 1 for n in range(520)}))


@pytest.mark.oracle_differs("raises AttributeError")
def test_type_mismatches():
    @dataclasses.dataclass(frozen=True)
    class Other:
        x: NDI
        k: qd.i32

    @qd.kernel
    def k(s: Inner):
        for i in s.x:
            s.x[i] = s.k

    @qd.kernel
    def scalar(a: qd.i32) -> qd.i32:
        return a

    @qd.kernel
    def array(a: NDI):
        for i in a:
            a[i] = 1

    inner = Inner(full(0), 1)
    k(inner)
    other = Other(full(0), 1)
    for _ in range(2):
        with pytest.raises((TypeError, ValueError, qd.QuadrantsRuntimeTypeError)):
            k(other)
        with pytest.raises((TypeError, ValueError, qd.QuadrantsRuntimeTypeError)):
            scalar(inner)
        with pytest.raises((TypeError, ValueError, qd.QuadrantsRuntimeTypeError)):
            array(inner)
    with pytest.raises((TypeError, ValueError, qd.QuadrantsRuntimeTypeError)):
        k(3)
    with pytest.raises((TypeError, ValueError, qd.QuadrantsRuntimeTypeError)):
        k(full(1))
    with pytest.raises(TypeError):
        k(Inner(full(0, dtype=qd.f32), 1))


def test_members_cannot_be_rebound_in_kernels():
    @qd.kernel
    def k(s: Inner):
        s.k = 3

    @qd.kernel
    def m(s: Inner):
        s.x = s.x

    for kernel in (k, m):
        with pytest.raises(qd.QuadrantsCompilationError):
            kernel(Inner(full(0), 1))


@pytest.mark.parametrize("frozen", [False, True])
def test_template_members_take_what_template_parameters_take(frozen):
    Held = dataclasses.make_dataclass("Held", [("t", qd.template())], frozen=frozen)
    Around = dataclasses.make_dataclass("Around", [("held", Held)], frozen=frozen)

    @qd.kernel
    def of_held(d: Held):
        d.t[0] = 3

    @qd.kernel
    def of_around(d: Around):
        d.held.t[0] = 3

    def tensor(backend):
        return qd.tensor(qd.i32, (2,), backend=backend)

    field = qd.field(qd.i32, 2)
    for run in (of_held, lambda held: of_around(Around(held))):
        field[0] = 0
        run(Held(field))
        assert field[0] == 3
        run(Held(tensor(qd.Backend.FIELD)))
        for array in (qd.ndarray(qd.i32, 2), tensor(qd.Backend.NDARRAY), (qd.ndarray(qd.i32, 2),)):
            with pytest.raises(
                qd.QuadrantsRuntimeTypeError, match="Ndarray shouldn't be passed in via `qd.temp"
            ):
                run(Held(array))
        for mutable in (np.zeros(2, np.int32), [1, 2], {0: 1}):
            with pytest.raises(TypeError, match="unhashable type"):
                run(Held(mutable))


def test_array_members_take_no_none():
    @dataclasses.dataclass
    class Held:
        a: NDI

    @dataclasses.dataclass
    class Around:
        held: Held

    @dataclasses.dataclass
    class Tensor:
        a: qd.Tensor

    @qd.kernel
    def of_held(d: Held):
        d.a[0] = 3

    @qd.kernel
    def of_around(d: Around):
        d.held.a[0] = 3

    @qd.kernel
    def of_tensor(d: Tensor):
        d.a[0] = 3

    of_held(Held(full(1)))
    for run in (of_held, lambda held: of_around(Around(held))):
        with pytest.raises(qd.QuadrantsRuntimeTypeError, match="argument a, got None"):
            run(Held(None))
    with pytest.raises(qd.QuadrantsRuntimeTypeError, match="argument a, got 1.5"):
        of_tensor(Tensor(1.5))


def test_data_oriented_member_of_a_dataclass():
    @qd.data_oriented
    class D:
        def __init__(self):
            self.n = 3

    @dataclasses.dataclass
    class S:
        d: D
        x: NDI

    @qd.kernel
    def k(s: S):
        for i in s.x:
            s.x[i] = s.d.n

    with pytest.raises(qd.QuadrantsSyntaxError, match=r"data_oriented.*qd\.template\(\)"):
        k(S(D(), full(0)))


def test_pruning_follows_static_branches_and_funcs():
    @dataclasses.dataclass(frozen=True)
    class S:
        a: qd.types.ndarray()
        b: qd.types.ndarray()

    @qd.func
    def first(s: S, i):
        s.a[i] += 1

    @qd.func
    def second(s: S, i):
        s.b[i] += 10

    @qd.func
    def choose(s: S, i, flag: qd.template()):
        if qd.static(flag):
            first(s, i)
        else:
            second(s=s, i=i)

    @qd.kernel
    def k(s: S, flag: qd.template()):
        for i in range(3):
            choose(s, i, flag)

    @qd.kernel
    def both(s: S):
        for i in range(3):
            choose(s, i, True)
            choose(s, i, False)

    @qd.kernel
    def loop(s: S):
        for i in range(3):
            for f in qd.static((first, second)):
                f(s, i)

    s = S(full(0), full(0))
    k(s, True)
    assert (s.a.to_numpy().tolist(), s.b.to_numpy().tolist()) == ([1] * 3, [0] * 3)
    k(s, False)
    both(s)
    loop(s)
    assert (s.a.to_numpy().tolist(), s.b.to_numpy().tolist()) == ([3] * 3, [30] * 3)


def test_swapped_members_in_func():
    @qd.func
    def f(p: Inner, q: Inner, i):
        p.x[i] -= q.x[i]

    @qd.kernel
    def k(o: Outer):
        for i in range(3):
            f(o.a, o.b, i)
            f(q=o.a, p=o.b, i=i)

    o = Outer(Inner(full(1), 10), Inner(full(2), 20), full(0))
    k(o)
    assert o.a.x.to_numpy().tolist() == [-1] * 3
    assert o.b.x.to_numpy().tolist() == [3] * 3


def test_switching_backing_across_reset():
    @dataclasses.dataclass
    class S:
        t: qd.Tensor

    @qd.kernel
    def k(s: S):
        for i in range(3):
            s.t[i] += 2

    for backend in (qd.Backend.FIELD, qd.Backend.NDARRAY, qd.Backend.FIELD):
        qd.init(arch=qd.cpu, offline_cache=False)
        s = S(qd.tensor(qd.i32, (3,), backend=backend))
        k(s)
        k(s)
        assert s.t.to_numpy().tolist() == [4] * 3


def test_dataclass_through_template_warns():
    @dataclasses.dataclass(frozen=True)
    class S:
        x: NDI
        n: int

    @qd.kernel
    def k(s: qd.Template):
        for i in s.x:
            s.x[i] = s.n

    s = S(full(0), 4)
    with pytest.warns(DeprecationWarning, match="qd.Template-annotated kernel parameter"):
        k(s)
    assert s.x.to_numpy().tolist() == [4] * 3


def test_data_oriented_dataclass_through_template_is_silent(recwarn):
    @qd.data_oriented
    @dataclasses.dataclass(frozen=True)
    class S:
        x: NDI
        n: int

    @qd.kernel
    def k(s: qd.template()):
        for i in s.x:
            s.x[i] = s.n

    s = S(full(0), 4)
    k(s)
    assert s.x.to_numpy().tolist() == [4] * 3
    assert not [w for w in recwarn if issubclass(w.category, DeprecationWarning)]


def test_unhashable_dataclass_through_template():
    @dataclasses.dataclass
    class S:
        x: NDI

    @qd.kernel
    def k(s: qd.Template):
        for i in s.x:
            s.x[i] = 1

    with pytest.raises(TypeError):
        k(S(full(0)))


@pytest.mark.oracle_differs("has no optional members")
def test_optional_tensor_member():
    @dataclasses.dataclass(frozen=True)
    class S:
        x: qd.Tensor
        y: qd.Tensor | None

    @qd.kernel
    def k(s: S):
        for i in range(3):
            s.x[i] = 1

    s = S(full(0), None)
    k(s)
    assert s.x.to_numpy().tolist() == [1] * 3


# --- data-oriented objects ------------------------------------------------------------------------


class Color(enum.IntEnum):
    RED = 1
    GREEN = 2


@pytest.mark.oracle_differs("does not reach arrays through lists")
def test_data_oriented_members():
    @qd.data_oriented
    class Child:
        def __init__(self, n):
            self.n = n
            self.x = full(n)

        @qd.func
        def get(self, i):
            return self.x[i] * self.n

    @qd.data_oriented
    class Main:
        def __init__(self):
            self.f = qd.field(qd.i32, 3)
            self.nd = full(2)
            self.t = qd.tensor(qd.i32, (3,), backend=qd.Backend.FIELD)
            self.n = 5
            self.r = 0.5
            self.color = Color.GREEN
            self.values = [1, 2, 3]
            self.vec = qd.Vector([4, 5, 6])
            self.child = Child(7)
            self.child.parent = self
            self.children = [Child(1), Child(2)]
            self.pair = Inner(full(9), 11)
            self.out = full(0, (12,))

        @qd.kernel
        def k(self):
            for _ in range(1):
                self.f[0] = 1
                self.out[0] = self.f[0]
                self.out[1] = self.nd[1]
                self.t[1] = 3
                self.out[2] = self.t[1]
                self.out[3] = self.n
                self.out[4] = qd.cast(self.r * 10, qd.i32)
                self.out[5] = self.color
                for j in qd.static(range(3)):
                    self.out[6] += self.values[j]
                self.out[7] = self.vec[1]
                self.out[8] = self.child.get(0) + self.child.parent.n
                for c in qd.static(self.children):
                    self.out[9] += c.get(0)
                self.out[10] = self.pair.x[0]
                self.out[11] = self.pair.k

    m = Main()
    m.k()
    assert m.out.to_numpy().tolist() == [1, 2, 3, 5, 5, 2, 6, 5, 54, 5, 9, 11]
    m.nd = full(8)
    m.child.x = full(10)
    m.children[1].x = full(20)
    m.out = full(0, (12,))
    m.k()
    assert m.out.to_numpy().tolist() == [1, 8, 3, 5, 5, 2, 6, 5, 75, 41, 9, 11]
    m.nd = full(8, (3, 3))
    with pytest.raises(qd.QuadrantsCompilationError):
        m.k()
    m.nd = full(8)
    del m.child.x
    with pytest.raises(AttributeError):
        m.k()


def test_primitives_are_baked():
    @qd.data_oriented
    class C:
        def __init__(self, n):
            self.n = n

        @qd.kernel
        def k(self) -> qd.i32:
            return self.n

    a, b = C(1), C(2)
    assert (a.k(), b.k()) == (1, 2)
    a.n = 10
    assert (a.k(), b.k()) == (1, 2)


def test_instances_are_not_kept_alive():
    @qd.data_oriented
    class C:
        def __init__(self):
            self.x = full(1)

        @qd.kernel
        def k(self) -> qd.i32:
            return self.x[0]

    c = C()
    c.k()
    r = weakref.ref(c)
    del c
    gc.collect()
    assert r() is None


def test_rebinding_in_a_frozen_outer():
    @qd.data_oriented
    class C:
        def __init__(self):
            self.x = full(1)

    @dataclasses.dataclass(frozen=True)
    class S:
        c: C

    @qd.kernel
    def k(s: qd.template()) -> qd.i32:
        return s.c.x[0]

    s = S(C())
    with pytest.warns(DeprecationWarning):
        assert k(s) == 1
    s.c.x = full(5, (7,))
    assert k(s) == 5
    s.c.x = full(6, (7,), qd.i64)
    assert k(s) == 6


@pytest.mark.oracle_differs("refuses arrays in named tuples")
def test_named_tuple():
    @qd.data_oriented
    class N(typing.NamedTuple):
        x: qd.types.ndarray()
        n: int

    @qd.kernel
    def k(s: qd.template()):
        for i in s.x:
            s.x[i] = s.n

    a = N(full(0), 4)
    k(a)
    assert a.x.to_numpy().tolist() == [4] * 3
    b = N(full(0), 5)
    k(b)
    assert b.x.to_numpy().tolist() == [5] * 3


def test_runtime_primitives():
    @qd.data_oriented(template_primitives=False)
    class Child:
        def __init__(self):
            self.n = 100

    @qd.data_oriented(template_primitives=False)
    class C:
        def __init__(self):
            self.n = 1
            self.r = 0.5
            self.b = True
            self.unread = "text"
            self.child = Child()

        @qd.kernel
        def ints(self) -> qd.i32:
            return self.n + self.b + self.child.n

        @qd.kernel
        def real(self) -> qd.f32:
            return self.r

        @qd.kernel
        def static(self) -> qd.i32:
            r = 0
            if qd.static(self.n):
                r = 1
            return r

    c = C()
    assert c.ints() == 102
    c.n, c.b, c.child.n = 5, 2, 200
    assert c.ints() == 207
    assert compiled() == 1
    assert c.real() == 0.5
    c.r = 3
    assert c.real() == 3.0
    c.n = 1.5
    with pytest.raises(TypeError, match="truncate"):
        c.ints()
    c.n = 2
    assert c.ints() == 204
    with pytest.raises(qd.QuadrantsSyntaxError, match="runtime kernel argument"):
        c.static()


def test_undecorated_class():
    class C:
        @qd.kernel
        def k(self):
            pass

    with pytest.raises(
        qd.QuadrantsSyntaxError, match="Please decorate class C with @qd.data_oriented"
    ):
        C().k()


def test_subclass_inherits_and_overrides_per_instance():
    @qd.data_oriented
    class Base:
        def __init__(self):
            self.pick = self.one

        @qd.func
        def one(self):
            return 1

        @qd.func
        def two(self):
            return 2

        @qd.func
        def virtual(self):
            return 10

        @qd.kernel
        def k(self) -> qd.i32:
            return self.pick() + self.virtual()

    class Derived(Base):
        def __init__(self):
            super().__init__()
            self.pick = self.two

        @qd.func
        def virtual(self):
            return 20

    assert (Base().k(), Derived().k()) == (11, 22)


class Config:
    def __init__(self, n, flag):
        self.n, self.flag = n, flag

    def __eq__(self, other):
        return isinstance(other, Config) and (self.n, self.flag) == (other.n, other.flag)

    def __hash__(self):
        return hash((self.n, self.flag))


Config = qd.data_oriented(Config)


def test_equal_configs_share_a_specialisation():
    @qd.kernel
    def k(x: qd.types.ndarray(), c: qd.template()):
        for i in x:
            x[i] = c.n
            if qd.static(c.flag):
                x[i] += 100

    x = full(0)
    k(x, Config(3, True))
    assert x.to_numpy().tolist() == [103] * 3
    before = compiled()
    k(x, Config(3, True))
    assert compiled() == before
    k(x, Config(3, False))
    assert compiled() == before + 1
    assert x.to_numpy().tolist() == [3] * 3
    k(x, Config(3, True))
    assert compiled() == before + 1
    assert x.to_numpy().tolist() == [103] * 3


def test_enum_members_as_template():
    @qd.kernel
    def k(c: qd.template()) -> qd.i32:
        r = 0
        if qd.static(c == Color.RED):
            r = 1
        else:
            r = c + 10
        return r

    assert (k(Color.RED), k(Color.GREEN), k(Color.RED)) == (1, 12, 1)


def test_funcs_and_classes_as_template_values():
    @qd.func
    def double(a):
        return 2 * a

    @qd.func
    def square(a):
        return a * a

    class Sizes:
        SIZE = 4

    class Other:
        SIZE = 5

    @qd.func
    def apply(f: qd.template(), a):
        return f(a)

    @qd.kernel
    def k(f: qd.template(), cls: qd.template()) -> qd.i32:
        return apply(f, 3) * 10 + cls.SIZE

    assert k(double, Sizes) == 64
    assert k(square, Sizes) == 94
    assert k(square, Other) == 95
    assert k(double, Sizes) == 64


def test_raise_on_templated_floats():
    qd.init(arch=qd.cpu, offline_cache=False, raise_on_templated_floats=True)

    @qd.kernel
    def k(a: qd.template()) -> qd.f32:
        return a

    with pytest.raises(ValueError):
        k(1.5)
    assert k(2) == 2


FACTOR, NUMPY_FACTOR = 1.5, np.float64(2.5)


@pytest.mark.parametrize("name", ["FACTOR", "NUMPY_FACTOR"])
@pytest.mark.parametrize("where", ["kernel", "func", "real_func", "method"])
def test_raise_on_captured_floats(where, name):
    qd.init(arch=qd.cpu, offline_cache=False, raise_on_templated_floats=True)

    @qd.func
    def func(x):
        return x * (FACTOR if qd.static(name == "FACTOR") else NUMPY_FACTOR)

    @qd.real_func
    def real_func(x: qd.f32) -> qd.f32:
        return x * (FACTOR if qd.static(name == "FACTOR") else NUMPY_FACTOR)

    @qd.data_oriented
    class C:
        @qd.func
        def method(self, x):
            return x * (FACTOR if qd.static(name == "FACTOR") else NUMPY_FACTOR)

        @qd.kernel
        def k(self, x: qd.f32) -> qd.f32:
            return self.method(x)

    @qd.kernel
    def k(x: qd.f32) -> qd.f32:
        r = x
        if qd.static(where == "kernel"):
            r = x * (FACTOR if qd.static(name == "FACTOR") else NUMPY_FACTOR)
        elif qd.static(where == "func"):
            r = func(x)
        else:
            r = real_func(x)
        return r

    with pytest.raises(qd.QuadrantsCompilationError, match=f"floats as global values: {name}"):
        C().k(1.0) if where == "method" else k(1.0)

    @qd.kernel
    def fine(x: qd.f32) -> qd.f32:  # what the library has is its own
        a, s = qd.Matrix([[2.0, x], [x, 1.0]]), 0.0
        q, r = qd.polar_decompose(a)
        return qd.tan(x) + q[0, 0] + r[1, 1] + qd.math.pi + s

    assert fine(0.5) > 3


def test_raise_on_floats_that_members_compile_in():
    qd.init(arch=qd.cpu, offline_cache=False, raise_on_templated_floats=True)

    @dataclasses.dataclass(frozen=True)
    class Held:
        a: qd.types.ndarray(qd.f32, 1)
        n: typing.Final[float]

    @dataclasses.dataclass(frozen=True)
    class Templated:
        a: qd.types.ndarray(qd.f32, 1)
        n: qd.template()

    @dataclasses.dataclass(frozen=True)
    class Passed:
        a: qd.types.ndarray(qd.f32, 1)
        n: qd.f32

    def kernel(cls):
        @qd.kernel
        def k(d: cls) -> qd.f32:
            return d.n + d.a[0]

        return k

    a = qd.ndarray(qd.f32, 2)
    for cls in (Held, Templated):
        with pytest.raises(ValueError, match="member 'n' of a dataclass"):
            kernel(cls)(cls(a, 1.5))
    assert kernel(Templated)(Templated(a, 3)) == 3
    assert kernel(Passed)(Passed(a, 1.5)) == 1.5


@pytest.mark.parametrize("first", range(8))
def test_versions_that_read_other_arrays_of_an_object(backend, first):
    @qd.data_oriented
    class Three:
        def __init__(self):
            for n, name in enumerate("abc"):
                array = qd.ndarray(qd.i32, 3)
                array.fill(10**n)
                setattr(self, name, array)

    def want(which):
        return sum(10**n for n in range(3) if which >> n & 1)

    for second in range(8):

        @qd.kernel
        def k(o: qd.template(), which: qd.template()) -> qd.i32:
            r = 0
            if qd.static(which & 1):
                r += o.a[0]
            if qd.static(which & 2):
                r += o.b[0]
            if qd.static(which & 4):
                r += o.c[0]
            return r

        o = Three()
        assert [k(o, n) for n in (first, second, first, second)] == [
            want(n) for n in (first, second, first, second)
        ]


@pytest.mark.oracle_differs("keeps the first NumPy array")
def test_members_that_are_arrays_of_ours_and_of_numpy(backend):
    @qd.data_oriented
    class A:
        def __init__(self, a):
            self.a = a

        @qd.kernel
        def k(self) -> qd.f64:
            return self.a[1] / 2

    def made(v):
        a = qd.ndarray(qd.i32, 3)
        a.fill(v)
        return a

    o = A(made(1))
    assert o.k() == 0.5
    for value in (np.full(3, 5, np.int32), made(7), np.full(3, 9, np.int32), made(2), made(3)):
        o.a = value
        half = (value[1] if isinstance(value, np.ndarray) else value.to_numpy()[1]) / 2
        assert [o.k(), o.k()] == [half, half]


def test_many_unread_primitives():
    @qd.data_oriented(template_primitives=False)
    class C:
        def __init__(self):
            for n in range(700):
                setattr(self, f"m{n}", n)

        @qd.kernel
        def k(self) -> qd.i32:
            return self.m699

    assert C().k() == 699


@pytest.mark.oracle_differs("does not reach arrays through tuples")
def test_tuple_of_objects_as_template():
    @qd.data_oriented
    class Item:
        def __init__(self, n):
            self.n = n
            self.x = full(n)

    @qd.kernel
    def k(items: qd.template()) -> qd.i32:
        r = 0
        for item in qd.static(items):
            r += item.x[0] * item.n
        return r

    items = (Item(1), Item(2), Item(3))
    assert k(items) == 14
    items[0].x = full(100)
    assert k(items) == 113
    assert k((Item(4),)) == 16


def test_a_struct_of_another_type_is_refused_after_a_good_launch(backend):
    ball = qd.types.struct(radius=qd.f32, mass=qd.f32)

    @qd.kernel
    def weigh(b: ball) -> qd.f32:
        return b.mass

    assert weigh(ball(radius=1.0, mass=2.0)) == 2.0
    with pytest.raises(
        qd.QuadrantsRuntimeTypeError, match="cannot be converted into required type"
    ):
        weigh(3.0)
    assert weigh(ball(radius=1.0, mass=4.0)) == 4.0


def test_writing_an_element_of_an_immutable_vector_has_no_effect(backend):
    vec2 = qd.types.vector(2, qd.f32)

    @dataclasses.dataclass
    class Pair:
        v: vec2

    @qd.kernel
    def member(s: Pair) -> qd.f32:
        s.v[0] = 7.0
        s.v[1] += 7.0
        return s.v[0] * 10 + s.v[1]

    @qd.kernel
    def indices(x: qd.types.ndarray(dtype=qd.i32, ndim=2)):
        for I in qd.grouped(x):
            I[0] = 5
            I[1] += 5
            x[I] = I[0] * 10 + I[1]

    assert member(Pair(qd.Vector([1.0, 2.0]))) == 12.0
    x = np.zeros((2, 3), np.int32)
    indices(x)
    assert x.tolist() == [[0, 1, 2], [10, 11, 12]]


def test_containers_that_hold_themselves(backend):
    tree = {"v": 1}
    tree["next"] = {"v": 2, "next": tree}
    row = [1]
    row.append(row)
    pair = ([],)
    pair[0].append(pair)

    @qd.func
    def values(n: qd.template()):
        return n["v"] + n["next"]["v"] * 10

    @qd.func
    def items(n: qd.template()):
        return n[0] + n[1][0]

    @qd.kernel
    def k() -> qd.types.vector(6, qd.i32):
        count = 0
        for x in qd.static(row):
            count += 1
        return qd.Vector(
            [
                values(tree),
                items(row),
                count,
                len(pair[0][0][0]),
                qd.static(len(tree)),
                row[1][1][0],
            ]
        )

    assert k().to_list() == [21, 2, 2, 1, 2, 1]


@qd.func
def of_no_class(a):
    return super().g(a)


def test_super_outside_of_classes(backend):
    @qd.kernel
    def k() -> qd.i32:
        return of_no_class(1)

    with pytest.raises(qd.QuadrantsCompilationError, match="stands in methods of classes"):
        k()


class TestSuper:
    """As in Python, in methods that are funcs or kernels."""

    @pytest.fixture
    def classes(self, backend):
        @qd.data_oriented
        class A:
            factor = 10

            def __init__(self, n):
                self.n = n
                self.x = qd.field(qd.i32, 4)

            @qd.func
            def f(self, a):
                self.x[0] += 1
                return a + self.n

            @property
            def twice(self):
                return 2 * self.n

        @qd.data_oriented
        class B(A):
            factor = 20

            @qd.func
            def f(self, a):
                return super().f(a) * 2

            @qd.kernel
            def k(self, a: qd.i32) -> qd.i32:
                return self.f(a)

            @qd.kernel
            def members(this) -> qd.i32:  # whatever the first parameter is called
                return super().f(1) + 1000 * super().factor + 100000 * super().twice

        class C(B):
            @qd.func
            def f(self, a):
                return super().f(a) + super(B, self).f(a) * 1000

        return A, B, C

    def test_methods_of_bases(self, classes):
        A, B, C = classes
        for n in (3, 4):
            assert B(n).k(5) == (5 + n) * 2
            c = C(n)
            assert c.k(5) == (5 + n) * 2 + (5 + n) * 1000
            assert c.x[0] == 2
            assert B(n).members() == 1 + n + 1000 * 10 + 100000 * 2 * n

    def test_of_a_dataclass_argument_that_is_no_such_object(self, backend):
        class Other:
            pass

        @dataclasses.dataclass
        class Base:
            n: qd.i32

            @qd.func
            def get(self):
                return self.n

        @dataclasses.dataclass
        class Derived(Base):
            m: qd.i32

            @qd.func
            def get(self):
                return super().get() + 10 * self.m

            @qd.func
            def wrong(self):
                return super(Other, self).get()

        @qd.kernel
        def right(d: Derived) -> qd.i32:
            return d.get()

        @qd.kernel
        def wrong(d: Derived) -> qd.i32:
            return d.wrong()

        assert right(Derived(1, 2)) == 21
        with pytest.raises(Exception, match="super"):
            wrong(Derived(1, 2))

    def test_arrays_at_any_depth(self, backend):
        def made(v):
            a = qd.ndarray(qd.i32, 3)
            a.fill(v)
            return a

        @qd.data_oriented
        class A:
            def __init__(self, a):
                self.a = a

            @qd.func
            def f(self):
                return self.a[0]

        class B(A):
            @qd.func
            def f(self):
                return super().f() + 10

        class C(B):
            @qd.func
            def f(self):
                return super().f() + 100

            @qd.kernel
            def k(self) -> qd.i32:
                return self.f()

        class Outer(C):
            def __init__(self, a, inner):
                super().__init__(a)
                self.inner = inner

            @qd.func
            def f(self):
                return super().f() * 1000 + self.inner.f()

        c = C(made(1))
        assert c.k() == 111
        c.a = made(2)
        assert c.k() == 112
        assert Outer(made(3), c).k() == 113 * 1000 + 112

    def test_methods_of_dataclass_arguments(self, backend):
        @dataclasses.dataclass(frozen=True)
        class P:
            a: qd.types.ndarray(qd.i32, 1)
            n: qd.i32

            @qd.func
            def f(self, x):
                return self.a[0] + self.n * x

        @dataclasses.dataclass(frozen=True)
        class Q(P):
            @qd.func
            def f(self, x):
                return super(Q, self).f(x) * 2

        @qd.kernel
        def k(p: Q, x: qd.i32) -> qd.i32:
            return p.f(x)

        a = qd.ndarray(qd.i32, 3)
        for value, n in ((1, 2), (5, 3)):
            a.fill(value)
            assert k(Q(a, n), 3) == (value + 3 * n) * 2

    def test_in_later_processes(self, tmp_path):
        import os
        import subprocess
        import sys

        program = tmp_path / "program.py"
        text = """
import quadrants as qd, sys
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path=sys.argv[1])
class A:
    @qd.func
    def f(self, a): return a + ADD
class Z(A):
    @qd.func
    def f(self, a): return a * 7
@qd.data_oriented
class B(BASE):
    @qd.func
    def f(self, a): return super().f(a) * 2
    @qd.kernel
    def k(self) -> qd.i32: return self.f(3)
from quadrants._lib import core
print(B().k(), core.counters()["lowered"])
"""
        for add, base, want in [
            ("1", "A", "8 1"),
            ("1", "A", "8 0"),
            ("2", "A", "10 1"),
            ("2", "Z", "42 1"),
            ("2", "A", "10 0"),
        ]:
            program.write_text(text.replace("ADD", add).replace("BASE", base))
            done = subprocess.run(
                [sys.executable, program, tmp_path / "cache"], capture_output=True, text=True,
                env={**os.environ, "ENABLE_QUADRANTS_HEADER_PRINT": "0", "QD_KERNEL_COVERAGE": "0"},
            )  # fmt: skip
            assert done.stdout.split("\n")[-2:-1] == [want], done.stderr


HELD = [[1, 2], [3, 4]]
NAMED = {(0, 1): 10, (1, 0): 20, (0, 0): 30, (1, 1): 40}


def test_components_of_static_vectors_are_indices(backend):
    x = qd.field(qd.f32, ())
    fields = [qd.field(qd.i32, 2) for _ in range(2)]

    @qd.func
    def weight(offset: qd.template(), w):
        return w[offset[0]][0] * w[offset.y][1]

    @qd.kernel
    def k() -> qd.i32:
        total = 0
        w = [qd.Vector([1.0, 2.0]), qd.Vector([3.0, 4.0])]
        counts = [0, 0]
        for off in qd.static(qd.grouped(qd.ndrange(2, 2))):
            x[None] += w[off[0]][0] * w[off[1]][1] + weight(off, w)
            total += HELD[off[0]][off[1]] + HELD[-off[0]][off[0] * off[1]] * 100
            total += (
                NAMED[off[0], off[1]] * 10000 + (5, 6, 7)[(off + 1)[0] - qd.cast(off[1], qd.i32)]
            )
            total += range(5, 8)[off[1]] * 10000000
            counts[off[0]] += 1
            fields[off[0]][off[1]] += counts[off[0]]
            for d in qd.static(range(2)):
                total += HELD[off[d]][d] * 1000000
        return total

    offsets = [(i, j) for i in range(2) for j in range(2)]
    expected = sum(
        HELD[i][j] + HELD[-i][i * j] * 100 + NAMED[i, j] * 10000 + (5, 6, 7)[i + 1 - j]
        + sum(HELD[(i, j)[d]][d] for d in range(2)) * 1000000 + range(5, 8)[j] * 10000000
        for i, j in offsets
    )  # fmt: skip
    assert k() == expected
    assert x[None] == 48
    assert [f.to_numpy().tolist() for f in fields] == [[1, 2], [1, 2]]


def test_indices_that_only_launches_know(backend):
    @qd.kernel
    def k(n: qd.i32) -> qd.i32:
        return HELD[0][n]

    @qd.kernel
    def variable() -> qd.i32:
        n = 1
        return HELD[0][n]

    for call in (lambda: k(1), variable):
        with pytest.raises(qd.QuadrantsTypeError, match="must be known while"):
            call()
