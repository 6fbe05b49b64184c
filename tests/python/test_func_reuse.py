"""A func that was lowered once is used again only where it would read the same objects."""

import dataclasses
import types

import numpy as np
import pytest

import quadrants as qd


@pytest.fixture
def fields(backend):
    made = [qd.field(qd.i32, 1) for _ in range(5)]
    for k, f in enumerate(made):
        f[0] = k + 1
    return made


@dataclasses.dataclass
class Pair:
    a: qd.Tensor
    b: qd.Tensor


@dataclasses.dataclass
class Loose:
    n: qd.i32
    o: qd.Template


@qd.func
def by_annotation(s: Pair):
    return s.a[0] * 10 + s.b[0]


@qd.func
def by_template(s: qd.template()):
    return s.a[0] * 10 + s.b[0]


@qd.func
def nested(s: Pair):
    return by_annotation(s)


@pytest.mark.parametrize("f", [by_annotation, by_template, nested], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", ["fields", "ndarrays"])
def test_rebound_members_of_a_dataclass(fields, f, kind):
    if kind == "ndarrays":
        arrays = [qd.ndarray(qd.i32, 1) for _ in fields]
        for k, a in enumerate(arrays):
            a[0] = k + 1
        fields = arrays

    @qd.kernel
    def k(s: Pair) -> qd.i32:
        return f(s)

    s = Pair(fields[0], fields[1])
    found = [k(s)]
    s.a, s.b = s.b, s.a
    found.append(k(s))
    s.a = s.b = fields[2]
    found.append(k(s))
    s.b = fields[3]
    found.append(k(s))
    found.append(k(Pair(fields[2], fields[4])))
    assert found == [12, 21, 33, 34, 35]


def test_rebound_captures_are_seen_by_new_kernels(fields):
    space = types.SimpleNamespace(x=fields[0])
    items = [fields[0]]
    x = fields[0]

    @qd.func
    def closure():
        return x[0]

    @qd.func
    def attribute():
        return space.x[0]

    @qd.func
    def item():
        return items[0][0]

    @qd.func
    def shape():
        return qd.static(space.x.shape[0])

    def made():
        @qd.kernel
        def k() -> qd.i32:
            return closure() * 1000 + attribute() * 100 + item() * 10 + shape()

        return k

    first = made()
    assert first() == 1111
    x, space.x, items[0] = fields[1], fields[2], fields[3]
    assert made()() == 2341
    assert first() == 1111, "what a kernel was compiled with stays"


def test_struct_fields_and_matrix_fields(backend):
    S = qd.types.struct(a=qd.i32, v=qd.types.vector(2, qd.i32))
    made = [S.field(shape=2), S.field(shape=2)]
    for k, s in enumerate(made):
        s.a.fill(k + 1)
        s.v.fill(k + 3)
    space = types.SimpleNamespace(s=made[0])

    @qd.func
    def read():
        return space.s[0].a * 100 + space.s[1].v[1] * 10 + space.s.a[0]

    def kernel():
        @qd.kernel
        def k() -> qd.i32:
            return read()

        return k()

    assert kernel() == 131
    space.s = made[1]
    assert kernel() == 242


def test_objects_in_template_members(backend):
    @qd.func
    def f(s: Loose):
        return s.o.n * 10 + s.n

    @qd.kernel
    def k(s: Loose) -> qd.i32:
        return f(s)

    found = []
    s = Loose(1, Sized(1))
    for n in (1, 2, 3, 1):
        s.o = Sized(n)
        found.append(k(s))
    assert found == [11, 21, 31, 11]


def number_in(o):
    return o.n


def any_number(*values):
    return values[-1].n


class Sized:
    def __init__(self, n):
        self.n = n

    def method(self):
        return self.n


@pytest.mark.parametrize(
    "read",
    [
        "number_in(s.o)",
        "s.o.method()",
        "getattr(s.o, 'n')",
        "partial(number_in)(s.o)",
        "any_number(1, s.o)",
    ],
)
def test_python_looks_into_template_members(backend, tmp_path, read):
    path = tmp_path / "reads.py"
    path.write_text(
        "import quadrants as qd\n"
        f"from functools import partial\nfrom {__name__} import Loose, any_number, number_in\n"
        f"@qd.func\ndef f(s: Loose):\n    return {read}\n"
        "@qd.kernel\ndef k(s: Loose) -> qd.i32:\n    return f(s) * 10 + s.n\n"
        "@qd.kernel\ndef other(s: Loose) -> qd.i32:\n    return f(s)\n"
    )
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    s = Loose(1, Sized(1))
    found = []
    for n in (1, 2, 3, 1):
        s.o = Sized(n)
        found += [names["k"](s), names["other"](s)]
    assert found == [11, 1, 21, 2, 31, 3, 11, 1]


def test_a_field_in_the_place_of_a_dead_one(backend):
    space = types.SimpleNamespace()

    @qd.func
    def f():
        return space.x[0]

    found = []
    for n in range(20):
        space.x = qd.field(qd.i32, 1)
        space.x[0] = n

        @qd.kernel
        def k() -> qd.i32:
            return f()

        found.append(k())
    assert np.array_equal(found, np.arange(20))


def test_a_func_that_was_given_other_code(backend):
    """As reloaders and debuggers do to functions that live."""

    def inner(x):
        return x + 2

    def other(x):
        return x + 3

    inner_func = qd.func(inner)

    @qd.func
    def outer(x):
        return inner_func(x) * 10

    def other_outer(x):
        return inner_func(x) * 100

    @qd.kernel
    def k(n: qd.template()) -> qd.i32:
        return outer(1) + n

    assert k(1) == 31
    inner.__code__ = other.__code__
    assert k(2) == 42
    assert k(1) == 31, "what a kernel was compiled with stays"
    outer.fn.__code__ = other_outer.__code__
    assert k(3) == 403


SEVERAL = {
    "list": ([1, 2], lambda l: l.append(10)),
    "list of lists": ([[1], [2]], lambda l: l.append([10])),
    "list of other things": ([1, "a"], lambda l: l.append(None)),
    "dict": ({1: 2}, lambda d: d.update({3: 4})),
    "set": ({1, 2}, lambda s: s.add(10)),
    "array": (np.array([1, 2]), lambda a: a.resize(3, refcheck=False)),
    "empty list": ([], lambda l: l.append(1)),
}


# qd.static takes neither dicts nor sets, and NumPy has no truth of several numbers.
USES = [
    (kind, use)
    for kind in SEVERAL
    for use in ("loop", "truth", "len")
    if use == "len" or "list" in kind or (kind, use) == ("array", "loop")
]


@pytest.mark.parametrize(("kind", "use"), USES)
def test_a_container_that_grew_between_two_kernels(backend, kind, use):
    """The func's body is the first kernel's; items that both have stay as they were."""
    import copy

    start, grow = SEVERAL[kind]
    held = copy.deepcopy(start)
    if use == "loop":

        @qd.func
        def count(x, c: qd.template()):
            for _ in qd.static(c):
                x += 1
            return x

    elif use == "truth":

        @qd.func
        def count(x, c: qd.template()):
            if qd.static(c):
                x += 1
            return x

    else:

        @qd.func
        def count(x, c: qd.template()):
            return x + qd.static(len(c))

    def expected():
        return int(bool(held)) if use == "truth" else len(held)

    def kernel():
        @qd.kernel
        def k(x: qd.i32) -> qd.i32:
            return count(x, held)

        return k

    first = kernel()
    assert first(0) == expected()
    grow(held)
    assert kernel()(0) == expected()


def test_a_vector_that_changed_between_two_kernels(backend):
    """Used as a whole: no component is read by the func itself."""
    v, m = qd.Vector([1, 2]), qd.Matrix([[1, 2], [3, 4]])

    @qd.func
    def total(x, v: qd.template()):
        return x + v.sum() + (v + 1)[1]

    @qd.func
    def trace(x, m: qd.template()):
        return x + m.trace()

    def kernel():
        @qd.kernel
        def k(x: qd.i32) -> qd.i32:
            return total(x, v) * 100 + trace(x, m)

        return k

    assert kernel()(0) == 605
    v[1], m[1, 1] = 8, 40
    assert kernel()(0) == 1841


@pytest.mark.parametrize("target", ["member", "element"])
def test_a_struct_that_changed_between_two_kernels(backend, target):
    """Assigned as a whole: no member is read by the func itself."""
    Pair = qd.types.struct(a=qd.f32, b=qd.f32)
    Outer = qd.types.struct(pair=Pair, c=qd.f32)
    held, field = Pair(a=1, b=2), Pair.field(shape=2)

    if target == "member":

        @qd.func
        def put(x):
            p = Outer(c=x)
            p.pair = held
            return p.pair.a + p.pair.b + p.c

    else:

        @qd.func
        def put(x):
            field[1] = held
            return field[1].a + field[1].b + x

    def kernel():
        @qd.kernel
        def k(x: qd.f32) -> qd.f32:
            return put(x)

        return k

    assert kernel()(10) == 13
    held.a = 5
    assert kernel()(10) == 17
