"""Python that looks into an argument while a kernel is compiled: other arguments get other answers, or it is
refused, since Python can't know what only launches bring."""

import dataclasses
import gc
import linecache
import operator
import types
import typing
import warnings

import numpy as np
import pytest

import quadrants as qd


def rebound():
    array, field = (lambda d=qd.i32: qd.ndarray(d, 3)), (lambda: qd.field(qd.i32, 3))
    tensor = lambda backend: qd.tensor(qd.i32, (3,), backend=backend)  # noqa: E731
    nd, fd = qd.Backend.NDARRAY, qd.Backend.FIELD
    return {
        "array, field, array": [array(), field(), array()],
        "types between": [array(), array(qd.f32), field(), array(), array(qd.f32)],
        "list between": [array(), [0, 1, 2], array()],
        "tuple between": [array(), (0, 1, 2), array()],
        "tensors": [tensor(nd), tensor(fd), tensor(nd)],
        "twice": [array(), field(), array(), 5, array()],
    }


@pytest.mark.parametrize(
    "name",
    ["array, field, array", "types between", "list between", "tuple between", "tensors", "twice"],
)
@pytest.mark.parametrize("nested", [False, True])
def test_members_that_are_arrays_again(backend, name, nested):
    """Each value in turn as a member of one object: arrays are read anew at each launch."""
    backend.init()

    class Inner:
        pass

    @qd.data_oriented
    class Holder:
        def __init__(self):
            self.inner = Inner()
            self.y = None

        @qd.kernel
        def add(self):
            if qd.static(nested):
                self.inner.y[0] += 2
            else:
                self.y[0] += 2

        @qd.kernel
        def read(self) -> qd.i32:
            return self.inner.y[0] if qd.static(nested) else self.y[0]

    holder = Holder()
    for value in rebound()[name]:
        holder.y = holder.inner.y = value
        if isinstance(value, (list, tuple, int)):
            if not isinstance(value, int):
                assert holder.read() == 0
            continue
        for n in (1, 2):
            holder.add()
            assert value[0] == 2 * n and holder.read() == 2 * n


class Callback:
    def __init__(self, n):
        self.n = n
        self.items = [n, n + 1]

    def apply(self, x):
        return x + self.n

    def twice(self):
        return self.n * 2

    def __call__(self, x):
        return x + self.n

    def __len__(self):
        return self.n

    def __bool__(self):
        return self.n > 1

    def __add__(self, x):
        return self.n + x

    def __iter__(self):
        return iter([self.n, 1])

    def __contains__(self, x):
        return x == self.n


@dataclasses.dataclass
class Number:
    n: qd.i32

    def tripled(self):
        return self.n * 3


@dataclasses.dataclass
class Job:
    o: qd.template()
    n: qd.i32
    inner: Number
    x: qd.types.ndarray(dtype=qd.i32, ndim=1)

    def __post_init__(self):
        self.extra = types.SimpleNamespace(n=self.n)

    def constant(self):
        return 5

    def doubled(self):
        return self.n * 2

    @qd.func
    def doubled_func(self):
        return self.n * 2

    @property
    def made(self):
        return types.SimpleNamespace(n=self.n, items=[types.SimpleNamespace(n=self.n)])

    @staticmethod
    def apart():
        return 7

    def __call__(self, k):
        return self.n + k

    def __len__(self):
        return self.n

    def __bool__(self):
        return self.n > 1

    def __neg__(self):
        return -self.n

    def __iter__(self):
        return iter([self.n])


def n_of(o):
    return o.n


def first_n(items):
    return items[0].n


def element(job):
    return job.x[0]


def add_n(x, o):
    return x + o.n


GETTER = operator.attrgetter("n")


def kernel(expression):
    name = f"<{expression}>"
    source = f"@qd.kernel\ndef k(p: Job) -> qd.i32:\n    return {expression}\n"
    linecache.cache[name] = len(source), None, source.splitlines(True), name
    exec(compile(source, name, "exec"), globals())
    return k  # noqa: F821


def job(n):
    x = qd.ndarray(qd.i32, shape=1)
    x.fill(n)
    return Job(Callback(n), n, Number(n), x)


OF_TEMPLATE_MEMBERS = {
    "p.o.n": [1, 2, 3],
    "p.o.twice()": [2, 4, 6],
    "p.o.apply(p.n)": [2, 4, 6],
    "p.o.apply(3)": [4, 5, 6],
    "p.o(3)": [4, 5, 6],
    "p.o + 1": [2, 3, 4],
    "len(p.o)": [1, 2, 3],
    "1 if qd.static(bool(p.o)) else 0": [0, 1, 1],
    "1 if qd.static(2 in p.o) else 0": [0, 1, 0],
    "[x for x in p.o][0]": [1, 2, 3],
    "n_of(p.o)": [1, 2, 3],
    "add_n(p.n, p.o)": [2, 4, 6],
    "first_n([p.o])": [1, 2, 3],
    "GETTER(p.o)": [1, 2, 3],
    "vars(p.o)['n']": [1, 2, 3],
    "Callback.twice(p.o)": [2, 4, 6],
    "p.o.items[1]": [2, 3, 4],
    "n_of(p.extra)": [1, 2, 3],
    "p.made.n + p.made.items[0].n": [2, 4, 6],
}


@pytest.mark.oracle_differs("no calls of Python's functions with dataclasses there")
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("expression", OF_TEMPLATE_MEMBERS)
def test_template_members_are_looked_into_by_python(backend, expression):
    k = kernel(expression)
    assert [k(job(n)) for n in (1, 2, 3)] == OF_TEMPLATE_MEMBERS[expression]


REFUSED = """p.doubled()|p.constant()|p(1)|len(p)|int(bool(p))|-p|n_of(p)|n_of(o=p)|first_n([p])|first_n((p, 1))|Job.doubled(p)
p.inner.tripled()|n_of(p.inner)|getattr(p, 'doubled')()|GETTER(p)|dataclasses.astuple(p.inner)[0]|vars(p)['n']
p.__dict__['n']|[x for x in p][0]|list(map(n_of, [p]))[0]|1 if qd.static(p) else 0|element(p)|add_n(p.n, p)
n_of(p.made)|n_of(p.made.items[0])|1 if qd.static(p == 2) else 0|len(f'{p}')""".replace(
    "\n", "|"
).split("|")


@pytest.mark.oracle_differs("other classes of errors")
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("expression", REFUSED)
def test_python_does_not_look_into_what_launches_bring(backend, expression):
    k = kernel(expression.replace("|", "\n"))
    with pytest.raises(qd.QuadrantsTypeError, match="cannot look into a dataclass argument"):
        k(job(1))


@pytest.mark.oracle_differs("dataclasses have no funcs there")
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_what_needs_the_class_alone(backend):
    k = kernel(
        "p.apart() + qd.static(isinstance(p, Job)) + qd.static(hasattr(p, 'n')) + p.doubled_func() + getattr(p, 'n')"
    )
    assert [k(job(n)) for n in (1, 2, 3)] == [12, 15, 18]


@pytest.mark.parametrize("annotation", [qd.template(), qd.Template])
def test_methods_of_other_objects_are_other_versions(backend, annotation):
    @qd.kernel
    def k(f: annotation, x: qd.i32) -> qd.i32:
        return f(x)

    a, b = Callback(1), Callback(4)
    with pytest.warns(SyntaxWarning, match="non-quadrants"):
        assert [k(f, 10) for f in (a.apply, b.apply, a.apply, a, b)] == [11, 14, 11, 11, 14]
        assert [k(Callback(n).apply, 10) for n in range(20)] == [10 + n for n in range(20)]
    gc.collect()
    assert k(a.apply, 10) == 11


@pytest.mark.oracle_differs("members are not asked for anew there")
def test_a_method_that_replaces_one_of_another_object(backend):
    @dataclasses.dataclass
    class With:
        f: qd.template()

    @qd.kernel
    def k(p: With, x: qd.i32) -> qd.i32:
        return p.f(x)

    p = With(Callback(1).apply)
    with pytest.warns(SyntaxWarning, match="non-quadrants"):
        assert k(p, 10) == 11
        p.f = Callback(4).apply
        assert k(p, 10) == 14


@pytest.mark.oracle_differs("arrays in containers are refused there")
def test_arrays_in_dicts_are_found_by_name(backend):
    @qd.data_oriented
    class Holder:
        def __init__(self, x):
            self.arrays = {"x": x}

        @qd.kernel
        def k(self) -> qd.i32:
            return self.arrays["x"][0]

    h = Holder(job(1).x)
    assert h.k() == 1
    h.arrays["x"] = job(2).x
    assert h.k() == 2


# --- values that templates are compared by ---------------------------------------------------------
class Equal:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return type(other) is Equal and self.n == other.n

    def __hash__(self):
        return hash(self.n)


class Pair(typing.NamedTuple):
    o: object


@dataclasses.dataclass(frozen=True)
class Frozen:
    o: object


@pytest.mark.filterwarnings("ignore:Kernel:DeprecationWarning")
@pytest.mark.parametrize("hold", [Pair, Frozen])
@pytest.mark.parametrize("make", [qd.Vector, lambda v: qd.Matrix([v, v])], ids=["vector", "matrix"])
def test_vectors_in_other_values_are_themselves(backend, make, hold):
    """`==` of vectors is a vector, which is true of any two."""

    @qd.kernel
    def k(p: qd.template()) -> qd.i32:
        a = p.o
        return a.max()

    assert [k(hold(make([n, 0]))) for n in (1, 2, 3, 1)] == [1, 2, 3, 1]


def test_a_changed_object_is_not_equal_to_what_it_was(backend):
    @qd.kernel
    def k(p: qd.template()) -> qd.i32:
        return p.n

    changed = Equal(4)
    assert k(changed) == 4
    changed.n = 5
    assert [k(Equal(n)) for n in (5, 4, 5)] == [5, 4, 5]


def test_a_tuple_of_a_changed_object_is_another_value(backend):
    @qd.kernel
    def k(p: qd.template()) -> qd.i32:
        return p[0].n

    changed = Equal(4)
    pair = changed, 1
    seen = []
    for n in (4, 6, 7, 6):
        changed.n = n
        seen.append(k(pair))
    assert seen == [4, 6, 7, 6]
    assert [k((Equal(n), 1)) for n in (7, 4)] == [7, 4]


@dataclasses.dataclass(frozen=True)
class Inner:
    n: int
    kind: qd.i32 = 2

    def times(self):
        return self.n * self.kind


@dataclasses.dataclass(eq=False)
class Settings:
    n: int
    inner: Inner
    scale: float = 1.5
    x: qd.types.ndarray() = None


@pytest.mark.oracle_differs("nested dataclasses are not found there")
@pytest.mark.filterwarnings("ignore:Kernel:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_numbers_of_a_dataclass_through_a_template_are_constants(backend):
    @qd.kernel
    def k(p: qd.template()) -> qd.i32:
        s = 0
        for i in qd.static(range(p.n)):
            s += i + 1
        if qd.static(p.inner.n > 2 and p.scale < 2):
            s += 100
        return s + {1: 10, 2: 20}.get(p.n, 0) + len(str(p.inner.kind)) + p.inner.times()

    def expected(n, m):
        return n * (n + 1) // 2 + 100 * (m > 2) + {1: 10, 2: 20}.get(n, 0) + 1 + m * 2

    cases = [(1, 2), (2, 3), (1, 3), (4, 1)]
    assert [k(Settings(n, Inner(m))) for n, m in cases] == [expected(n, m) for n, m in cases]


@pytest.mark.filterwarnings("ignore:Kernel:DeprecationWarning")
@pytest.mark.oracle_differs("a replaced array is not seen there")
def test_arrays_of_a_dataclass_through_a_template_are_not(backend):
    @qd.kernel
    def k(p: qd.template()) -> qd.f64:
        return p.x[0] * p.n

    s = Settings(2, Inner(1))
    seen = []
    for n in (3, 4):
        s.x, s.n = qd.ndarray(qd.f32, shape=n), n
        s.x.fill(n)
        seen.append(k(s))
    assert seen == [9.0, 12.0]  # n as it was at the first launch


def test_numpy_numbers_of_a_dataclass_template_are_constants(backend):
    @dataclasses.dataclass(frozen=True)
    class Config:
        count: int

    @qd.kernel
    def k(c: qd.template()) -> qd.i32:
        total = 0
        for i in qd.static(range(c.count)):
            total += i
        if qd.static(c.count == 4):
            total += 100
        return total

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert [k(Config(n)) for n in (np.int64(3), np.int64(4), 5, np.uint8(4))] == [
            3,
            106,
            10,
            106,
        ]
