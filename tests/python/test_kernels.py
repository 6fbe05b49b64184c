"""Kernel arguments and results, funcs, classes, captured values."""

import enum
import math
import pickle
import typing

import numpy as np
import pytest

import quadrants as qd
from helpers import DTYPES, NUMPY, Array, dtype, module_at, raises

vec3 = qd.types.vector(3, qd.f32)
mat23 = qd.types.matrix(2, 3, qd.i32)


@pytest.mark.parametrize("name", DTYPES)
def test_scalar_arguments_and_results(backend, name):
    dt = dtype(name)

    @qd.kernel
    def same(x: dt) -> dt:
        return x

    if name[0] == "f":
        values = [0.0, 1.5, -2.25, 1e4]
    elif name == "u1":
        values = [0, 1]
    else:
        info = np.iinfo(NUMPY[name])
        values = [0, 1, info.max, info.min]
    for v in values:
        r = same(v)
        assert r == v
        assert isinstance(r, float if name[0] == "f" else int)
    numpy_values = [NUMPY[name](v) for v in values] if name != "u1" else values
    for v in numpy_values:  # kept alive together: the established package goes by identity
        assert same(v) == v


@pytest.mark.oracle_differs("the established package goes by the identity of the argument")
def test_short_lived_numpy_scalars(backend):
    @qd.kernel
    def same(x: qd.i32) -> qd.i32:
        return x

    assert [same(np.int32(v)) for v in range(50)] == list(range(50))


def test_python_type_annotations(backend):
    @qd.kernel
    def k(a: int, b: float, c: bool) -> float:
        return a + b + qd.cast(c, qd.i32)

    assert k(1, 0.5, True) == 2.5
    assert k(True, 2, False) == 3.0
    assert k(np.int64(4), np.float32(0.25), True) == 5.25


def test_truth_arguments(backend):
    """A u1 takes what an unsigned integer takes; a component of a vector is converted."""
    pair = qd.types.vector(2, qd.u1)

    @qd.kernel
    def one(x: qd.u1) -> qd.i32:
        return x

    @qd.kernel
    def two(x: pair) -> qd.i32:
        return qd.cast(x[0], qd.i32) * 10 + x[1]

    for v in (1, 2, 256, 2**63, 2**64 - 1, np.uint64(2**64 - 1)):
        assert one(v) == 1
    for v in (-1, -256, np.int8(-3), 2**64):
        with pytest.raises(TypeError):
            one(v)
    for v in (-1, 256, 2**63):
        assert two([v, 0]) == 10


def test_keyword_arguments(backend):
    @qd.kernel
    def k(a: qd.i32, b: qd.i32) -> qd.i32:
        return a * 10 + b

    assert k(1, b=2) == 12
    assert k(b=1, a=3) == 31


def test_results_are_cast(backend):
    @qd.kernel
    def k(x: qd.f32) -> qd.i32:
        return x

    assert k(3.9) == 3 and k(-3.9) == -3


def test_tuple_of_one_type(backend):
    @qd.kernel
    def bare() -> tuple[qd.i32]:
        return 7

    @qd.kernel
    def vector() -> (vec3,):
        return [1.0, 2.0, 3.0]

    @qd.kernel
    def whole() -> (qd.i32,):
        return (7,)

    assert bare() == 7 and vector().to_list() == [1.0, 2.0, 3.0] and whole() == (7,)


def test_several_results(backend):
    @qd.kernel
    def a(x: qd.i32) -> (qd.i32, qd.f32):
        return x + 1, x / 2

    @qd.kernel
    def b(x: qd.i32) -> tuple[qd.i64, vec3]:
        return x * 2, qd.Vector([1.0, 2.0, float(x)])

    @qd.kernel
    def c(x: qd.i32) -> typing.Tuple[qd.i32, qd.i32, qd.f64]:  # noqa: UP006
        return x, -x, 0.5

    assert a(3) == (4, 1.5)
    n, v = b(7)
    assert n == 14 and v.to_list() == [1, 2, 7]
    assert c(2) == (2, -2, 0.5)


def test_vector_and_matrix_arguments_and_results(backend):
    @qd.kernel
    def v(a: vec3, k: qd.i32) -> vec3:
        return a * 2 + a[k]

    @qd.kernel
    def m(a: mat23) -> mat23:
        return a + qd.Matrix([[1, 2, 3], [4, 5, 6]])

    @qd.kernel
    def nested() -> mat23:
        return [[1, 2, 3], [4, 5, 6]]

    for a in (qd.Vector([1.0, 2.0, 3.0]), np.array([1, 2, 3], np.float32), [1.0, 2.0, 3.0]):
        r = v(a, 2)
        assert isinstance(r, qd.Matrix)
        assert r.to_list() == [5, 7, 9]
    assert m(qd.Matrix([[0, 0, 0], [1, 1, 1]])).to_list() == [[1, 2, 3], [5, 6, 7]]
    assert nested().to_list() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("make", [
    lambda: [3, 4], lambda: (3, 4, 5), lambda: np.array([3, 4]), lambda: qd.Vector([3, 4]),
    lambda: {0: 3, 1: 4}, lambda: range(3, 6), lambda: [np.int64(3), np.float32(4)],
    lambda: filled(qd.field(qd.i32, 3)), lambda: filled(qd.ndarray(qd.i32, 3)),
])  # fmt: skip
def test_vector_arguments_are_indexed(backend, make):
    @qd.kernel
    def k(v: qd.types.vector(2, qd.f32)) -> qd.f32:
        return v[0] * 10 + v[1]

    assert k(make()) == 34


def filled(container):
    container.from_numpy(np.array([3, 4, 5], np.int32))
    return container


def test_large_vector_argument_and_result(backend):
    big = qd.types.vector(200, qd.f32)

    @qd.kernel
    def k(a: big) -> big:
        return a + 1

    x = np.arange(200, dtype=np.float32)
    assert np.array_equal(k(x).to_numpy(), x + 1)


def test_struct_arguments_and_results(backend):
    Ball = qd.types.struct(center=vec3, radius=qd.f32, count=qd.i32)

    @qd.kernel
    def grow(b: Ball, by: qd.f32) -> Ball:
        return Ball(b.center + by, b.radius * by, b.count + 1)

    r = grow(Ball(center=[1, 2, 3], radius=2.0, count=5), 3.0)
    assert r.center.to_list() == [4, 5, 6] and r.radius == 6.0 and r.count == 6


def test_template_arguments(backend):
    x = qd.field(qd.i32, 4)
    y = qd.field(qd.f32, 6)

    @qd.kernel
    def fill(f: qd.template(), value: qd.template(), dt: qd.template()):
        for i in f:
            f[i] = qd.cast(value, dt)

    fill(x, 2.75, qd.i32)
    fill(y, 2.75, qd.f32)
    assert x.to_numpy().tolist() == [2] * 4 and y.to_numpy().tolist() == [2.75] * 6
    fill(y, 1, qd.f32)
    assert y.to_numpy().tolist() == [1] * 6


def test_template_functions_strings_none_enum_tuple(backend):
    class Mode(enum.IntEnum):
        double = 1
        square = 2

    @qd.func
    def double(x):
        return 2 * x

    @qd.func
    def square(x):
        return x * x

    @qd.kernel
    def apply(f: qd.template(), mode: qd.template(), extra: qd.template(), x: qd.i32) -> qd.i32:
        r = f(x)
        if qd.static(mode == "twice"):
            r = f(r)
        if qd.static(extra is not None):
            r += extra[0] * extra[1]
        return r

    assert apply(double, "once", None, 5) == 10
    assert apply(square, "twice", None, 3) == 81
    assert apply(double, "once", (2, 3), 5) == 16

    @qd.kernel
    def by_mode(mode: qd.template(), x: qd.i32) -> qd.i32:
        return double(x) if qd.static(mode == Mode.double) else square(x)

    assert by_mode(Mode.double, 5) == 10 and by_mode(Mode.square, 5) == 25


def test_equal_templates_share_a_specialisation(backend):
    @qd.kernel
    def k(n: qd.template()) -> qd.i32:
        return n + 1

    assert [k(n) for n in (1, 2, 1, 3, 2)] == [2, 3, 2, 4, 3]


@pytest.mark.parametrize("offline_cache", [False, True])
def test_templates_that_alias(backend, offline_cache):
    """The same field twice is another specialisation than two fields, cached or not."""
    backend.init(offline_cache=offline_cache)
    x, y = qd.field(qd.f64, 4), qd.field(qd.f64, 4)
    x.fill(2)
    y.fill(5)

    @qd.kernel
    def dot(a: qd.template(), b: qd.template()) -> qd.f64:
        s = qd.f64(0.0)
        for i in a:
            s += a[i] * b[i]
        return s

    assert [dot(x, x), dot(x, y), dot(y, x), dot(y, y)] == [16, 40, 40, 100]


def test_captured_values(backend):
    scale, shift = 3, 0.5
    weights = [1, 2, 3]
    direction = qd.Vector([1.0, 2.0])
    table = np.array([5, 6], np.int32)

    class Options:
        gain = 10
        inner = {"depth": 4}

    @qd.kernel
    def k(x: qd.f32) -> qd.f32:
        s = x * scale + shift
        for w in qd.static(weights):
            s += w
        s += direction[1] + direction.norm_sqr()
        s += Options.gain + Options.inner["depth"] + table[1] + math.pi * 0
        return s

    assert k(2.0) == 6 + 0.5 + 6 + 2 + 5 + 10 + 4 + 6


def test_captured_number_is_a_constant(backend):
    box = {"n": 1}

    @qd.kernel
    def k() -> qd.i32:
        return box["n"]

    assert k() == 1
    box["n"] = 2
    assert k() == 1
    backend.init()
    assert k() == 2


def test_funcs_pass_by_value_and_by_reference(backend):
    out = np.zeros(6, np.int32)

    @qd.func
    def by_value(x):
        x += 1
        return x

    @qd.func
    def by_reference(x: qd.template()):
        x += 1

    @qd.func
    def change(v):
        v[0] = 100
        return v

    @qd.func
    def change_in_place(v: qd.template()):
        v[0] = 100

    @qd.kernel
    def run(out: Array):
        a = 1
        out[0] = by_value(a)
        out[1] = a
        by_reference(a)
        out[2] = a
        v = qd.Vector([1, 2])
        w = change(v)
        out[3] = w[0] * 1000 + v[0]
        change_in_place(v)
        out[4] = v[0]
        by_reference(out[5])

    run(out)
    assert out.tolist() == [2, 1, 2, 100001, 100, 1]


def test_func_defaults_keywords_and_annotations(backend):
    out = np.zeros(6, np.float64)

    @qd.func
    def f(a, b=2, c: qd.i32 = 3):
        return a * 100 + b * 10 + c

    @qd.func
    def g(v: vec3, dt: qd.template() = qd.f32) -> qd.f32:
        return qd.cast(v[0], dt) + v[1]

    @qd.kernel
    def run(out: Array):
        out[0] = f(1)
        out[1] = f(1, 5)
        out[2] = f(1, c=7.9)
        out[3] = f(b=1, a=4)
        out[4] = g(qd.Vector([1.5, 2.0, 3.0]))
        out[5] = g(qd.Vector([1.5, 2.0, 3.0]), qd.i32)

    run(out)
    assert out.tolist() == [123, 153, 127, 413, 3.5, 3]


def test_funcs_return_tuples_lists_dicts_and_structs(backend):
    out = np.zeros(6, np.float32)
    Pair = qd.types.struct(a=qd.f32, b=qd.i32)

    @qd.func
    def divide(a, b):
        return a // b, a % b

    @qd.func
    def parts(a):
        return {"half": a / 2, "list": [a, a + 1]}

    @qd.func
    def pair(a):
        return Pair(a, 3)

    @qd.kernel
    def run(out: Array):
        q, r = divide(17, 5)
        out[0], out[1] = q, r
        d = parts(5)
        out[2] = d["half"]
        out[3] = d["list"][1]
        p = pair(1.5)
        out[4], out[5] = p.a, p.b

    run(out)
    assert out.tolist() == [3, 2, 2.5, 6, 1.5, 3]


def test_funcs_call_funcs_and_static_recursion(backend):
    @qd.func
    def power(x, n: qd.template()):
        if qd.static(n == 0):
            return x * 0 + 1
        return power(x, n - 1) * x

    @qd.func
    def poly(x):
        return power(x, 3) + power(x, 2)

    @qd.kernel
    def k(x: qd.i32) -> qd.i32:
        return poly(x) + poly(x + 1)

    assert k(2) == 12 + 36


def test_func_arguments_are_evaluated_once(backend):
    n = qd.field(qd.i32, ())

    @qd.func
    def tick():
        n[None] += 1
        return n[None]

    @qd.func
    def thrice(x):
        return x + x + x

    @qd.kernel
    def k() -> qd.i32:
        return thrice(tick())

    assert k() == 3 and n[None] == 1


def test_func_writes_fields_and_arrays(backend):
    f = qd.field(qd.i32, 3)

    @qd.func
    def put(a: Array, f: qd.template(), i):
        a[i] = i + 1
        f[i] = a[i] * 2

    @qd.kernel
    def k(a: Array):
        for i in range(3):
            put(a, f, i)

    a = np.zeros(3, np.int32)
    k(a)
    assert a.tolist() == [1, 2, 3] and f.to_numpy().tolist() == [2, 4, 6]


def test_real_funcs(backend):
    @qd.real_func
    def fib(n: qd.i32) -> qd.i32:
        if n < 2:
            return n
        return fib(n - 1) + fib(n - 2)

    @qd.real_func
    def accumulate(n: qd.i32, total: qd.ref(qd.i32)):
        for i in range(n):
            if i == 5:
                break
            total += i

    @qd.kernel
    def k(n: qd.i32) -> qd.i32:
        t = 100
        accumulate(n, t)
        return fib(n) + t

    assert k(10) == 55 + 110


def test_data_oriented_classes(backend):
    @qd.data_oriented
    class Counter:
        def __init__(self, n, step):
            self.n = n
            self.step = step
            self.x = qd.field(qd.i32, n)
            self.total = qd.field(qd.i32, ())

        @property
        def twice(self):
            return 2 * self.step

        @qd.func
        def value(self, i):
            return self.x[i] + self.step

        @staticmethod
        @qd.func
        def square(v):
            return v * v

        @qd.kernel
        def advance(self, by: qd.i32):
            for i in range(self.n):
                self.x[i] += by * self.twice

        @qd.kernel
        def sum(self) -> qd.i32:
            s = 0
            for i in self.x:
                s += self.square(self.value(i))
            return s

    class Special(Counter):
        @qd.func
        def value(self, i):
            return self.x[i] * 10

    a, b, c = Counter(3, 1), Counter(5, 2), Special(2, 1)
    a.advance(1), b.advance(2), Counter.advance(c, 1)
    assert a.x.to_numpy().tolist() == [2] * 3
    assert b.x.to_numpy().tolist() == [8] * 5
    assert a.sum() == 3 * 9 and b.sum() == 5 * 100 and c.sum() == 2 * 400


def test_data_oriented_members_and_nesting(backend):
    @qd.data_oriented
    class Inner:
        def __init__(self):
            self.gain = 3
            self.f = qd.field(qd.f32, 2)

    @qd.data_oriented
    class Outer:
        def __init__(self):
            self.inner = Inner()
            self.parts = [1, 2, 3]
            self.axis = qd.Vector([0.0, 1.0])
            self.flag = None

        @qd.kernel
        def run(self, k: qd.f32) -> qd.f32:
            for i in self.inner.f:
                self.inner.f[i] = k * self.inner.gain + self.axis[1]
            return self.inner.f[0] + self.inner.f[1] + self.parts[2]

    @qd.kernel
    def outside(o: qd.template()) -> qd.f32:
        return o.inner.f[1]

    o = Outer()
    assert o.run(2.0) == 7 + 7 + 3
    assert outside(o) == 7


def test_class_without_decorator(backend):
    class Plain:
        @qd.kernel
        def k(self):
            pass

    with raises(qd.QuadrantsSyntaxError, "Please decorate class Plain with @qd.data_oriented"):
        Plain().k()


def test_assigning_a_member_in_a_kernel(backend):
    @qd.data_oriented
    class A:
        def __init__(self):
            self.n = 3

        @qd.kernel
        def k(self):
            self.n = 4

    with raises(
        qd.QuadrantsSyntaxError,
        "Variable 'self.n' cannot be assigned. Maybe it is not a Quadrants object?",
    ):
        A().k()


def test_dataclass_arguments(backend):
    import dataclasses

    @dataclasses.dataclass(frozen=True)
    class Inner:
        b: qd.types.ndarray(dtype=qd.f32, ndim=1)
        shift: qd.f32

    @dataclasses.dataclass(frozen=True)
    class State:
        a: qd.types.ndarray(dtype=qd.f32, ndim=1)
        inner: Inner
        n: qd.i32
        unused: qd.types.ndarray(dtype=qd.i32, ndim=2)

    @qd.func
    def shifted(s: State, i):
        return s.inner.b[i] + s.inner.shift

    @qd.kernel
    def k(s: State):
        for i in range(s.n):
            s.a[i] = shifted(s, i) * 2

    a, b = qd.ndarray(qd.f32, 4), qd.ndarray(qd.f32, 4)
    b.from_numpy(np.arange(4, dtype=np.float32))
    k(State(a, Inner(b, 0.5), 3, qd.ndarray(qd.i32, (1, 1))))
    assert a.to_numpy().tolist() == [1, 3, 5, 0]


def test_kernel_metadata(backend):
    @qd.kernel
    def documented(n: qd.i32) -> qd.i32:
        """What it does."""
        return n

    assert documented.__name__ == "documented"
    assert documented.__doc__ == "What it does."
    assert documented.__wrapped__(3) == 3


def test_host_helpers_run_while_tracing(backend):
    def build(n):
        return [k * k for k in range(n)]

    def combine(a, b):
        return a * 2 + b

    @qd.kernel
    def k(x: qd.i32) -> qd.i32:
        s = 0
        for v in qd.static(build(4)):
            s += v
        return combine(x, s)

    with pytest.warns(SyntaxWarning, match='Calling non-quadrants function "combine"'):
        assert k(5) == 24


def test_warnings_of_a_func_are_given_once(backend):
    """Though a func that the kernel's top level calls may be traced again, in place."""

    def helper(a):
        return a

    @qd.func
    def of_a_helper(x):
        return helper(x) + helper(x)

    @qd.func
    def outer(x):
        return of_a_helper(x)

    @qd.kernel
    def k(x: qd.i32) -> qd.i32:
        return outer(x)

    with pytest.warns(SyntaxWarning) as given:
        assert k(5) == 10
    assert len([w for w in given if "Calling non-quadrants" in str(w.message)]) == 2


@pytest.mark.parametrize("how", ["exec", "module"])
def test_kernels_from_other_sources(backend, how, tmp_path):
    """Source comes from linecache or a file imported by path."""
    source = "import quadrants as qd\n@qd.kernel\ndef k(x: qd.i32) -> qd.i32:\n    return x * 7\n"
    space = {}
    if how == "module":
        path = tmp_path / "made_up_module.py"
        path.write_text(source)
        module = module_at(path, "made_up_module")
        space = vars(module)
    else:
        import linecache

        name = "<made up 1>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), space)
    assert space["k"](6) == 42


def test_source_out_of_reach(backend):
    space = {}
    exec("import quadrants as qd\n@qd.kernel\ndef k() -> qd.i32:\n    return 1\n", space)
    with raises(OSError, "Cannot find source code for Object"):
        space["k"]()


# --- misuse -----------------------------------------------------------------------------------

Syntax, Type = qd.QuadrantsSyntaxError, qd.QuadrantsTypeError
RuntimeType = qd.QuadrantsRuntimeTypeError


def no_annotation(a):
    pass


def variable_positional(*a: qd.i32):
    pass


def variable_keyword(**a: qd.i32):
    pass


def keyword_only(*, a: qd.i32):
    pass


def default_value(a: qd.i32 = 3):
    pass


def bad_annotation(a: "3"):
    pass


def ellipsis_result() -> tuple[qd.i32, ...]:
    return 1, 2


DECORATION = [
    (no_annotation, "Quadrants kernels parameters must be type annotated"),
    (variable_positional, "variable positional parameters"),
    (variable_keyword, "variable keyword parameters"),
    (keyword_only, "do not support keyword parameters"),
    (default_value, "do not support default values for arguments"),
    (bad_annotation, "Invalid type annotation (argument 0) of Quadrants kernel"),
    (ellipsis_result, "Ellipsis is not supported in return type annotations"),
]


@pytest.mark.parametrize("fn,text", DECORATION, ids=[d[0].__name__ for d in DECORATION])
def test_misuse_at_decoration(fn, text):
    with raises(Syntax, text):
        qd.kernel(fn)


@pytest.mark.oracle_differs("a TypeError at decoration: the array cannot be hashed")
@pytest.mark.parametrize("wrong", [(qd.i32, np.array([1, 2])), (np.array([]), qd.i32)])
def test_an_array_in_a_return_annotation(backend, wrong):
    @qd.kernel
    def k() -> wrong:
        return 1, 2

    with raises(Syntax, "Invalid return type annotation: ["):
        k()


def test_return_annotations_that_are_no_types(backend):
    @qd.kernel
    def of_list() -> list[qd.i32, qd.i32]:
        return 1, 2

    @qd.real_func
    def real() -> 3:
        return 1

    @qd.kernel
    def of_number() -> qd.i32:
        return real()

    for k, shown in ((of_list, "list["), (of_number, "3")):
        with raises(Syntax, f"Invalid return type annotation: {shown}"):
            k()


def test_functions_of_other_kinds(backend):
    @qd.kernel
    async def k():
        pass

    with raises(Syntax, 'Unsupported node "AsyncFunctionDef"'):
        k()


@qd.kernel
def two(a: qd.i32, b: qd.i32):
    pass


@pytest.mark.parametrize(
    "args,kwargs,text",
    [
        ((1,), {}, "Missing argument 'b'."),
        ((1, 2), {"c": 3}, "Unexpected argument 'c'."),
        ((1, 2), {"a": 3}, "Multiple values for argument 'a'."),
        ((1, 2, 3), {}, "Too many arguments. Expected "),
    ],
)
def test_misuse_of_argument_binding(backend, args, kwargs, text):
    with raises(Syntax, text) as one:
        two(*args, **kwargs)
    assert str(one.value).startswith(text)
    with raises(Syntax, "Primary exception: ", text, "Unexpected argument 'd'."):
        two(*args, **kwargs, d=4)
    two(1, 2)


@pytest.mark.parametrize("value", [1.5, None, "x"])
def test_argument_of_the_wrong_type(backend, value):
    with raises(RuntimeType, "Argument (0,) (type=", "cannot be converted into required type i32"):
        two(value, 2)


def test_array_argument_of_the_wrong_type(backend):
    @qd.kernel
    def k(a: Array):
        pass

    with raises(RuntimeType, "Invalid type for argument a, got 1.2"):
        k(1.2)


@qd.kernel
def no_result_type(n: qd.i32):
    return n


@qd.kernel
def never_returns(n: qd.i32) -> qd.i32:
    n + 1


@qd.kernel
def returns_none(n: qd.i32) -> qd.i32:
    return None


@qd.kernel
def returns_in_branch(n: qd.i32) -> qd.i32:
    if n:
        return 1
    return 2


@qd.kernel
def wrong_shape(n: qd.i32) -> vec3:
    return qd.Vector([1.0, 2.0])


@qd.kernel
def calls_kernel(n: qd.i32):
    two(1, 2)


@qd.func
def func_missing(a, b):
    return a + b


@qd.kernel
def func_count(n: qd.i32) -> qd.i32:
    return func_missing(n)


@qd.func
def returns_inside(n):
    if n > 0:
        return 1
    return 2


@qd.kernel
def func_returns_in_branch(n: qd.i32) -> qd.i32:
    return returns_inside(n)


@qd.func
def needs_vec3(v: vec3):
    return v[0]


@qd.kernel
def func_wrong_shape(n: qd.i32) -> qd.i32:
    return needs_vec3(qd.Vector([n, n]))


@qd.func
def writes(x: qd.template()):
    x += 1


@qd.kernel
def writes_argument(n: qd.i32):
    writes(n)


@qd.func
def promised() -> qd.i32:
    pass


@qd.kernel
def func_never_returns(n: qd.i32) -> qd.i32:
    return promised()


COMPILE = [
    (no_result_type, Syntax, "A kernel with a return value must be annotated with a return type"),
    (never_returns, Syntax, "Kernel has a return type but does not have a return statement"),
    (returns_none, Syntax, "Kernel has a return type but does not have a return statement"),
    (returns_in_branch, Syntax, "Return inside non-static if/for is not supported"),
    (wrong_shape, qd.QuadrantsCompilationError, "Return matrix shape mismatch"),
    (calls_kernel, Syntax, "Kernels cannot call other kernels"),
    (func_count, Syntax, "Missing argument 'b'."),
    (func_returns_in_branch, Syntax, "Return inside non-static if/for is not supported"),
    (func_wrong_shape, Syntax, "is expected to be a Matrix with n 3, but got 2"),
    (writes_argument, Syntax, "cannot use a non-writable target"),
    (func_never_returns, Syntax,
     "Function has a return type but does not have a return statement"),
]  # fmt: skip


@pytest.mark.parametrize("kernel,cls,text", COMPILE, ids=[c[0].__name__ for c in COMPILE])
def test_misuse_while_compiling(backend, kernel, cls, text):
    with raises(cls, text):
        kernel(1)
    two(1, 2)


@pytest.mark.oracle_differs("the established package raises AssertionError alone")
def test_func_called_from_the_host(backend):
    for cls in (Syntax, AssertionError):
        with raises(cls, "Quadrants functions cannot be called from Python-scope."):
            needs_vec3(1)
    with pytest.raises(Syntax) as caught:
        needs_vec3(1)
    copied = pickle.loads(pickle.dumps(caught.value))
    for error in (caught.value, copied):
        assert type(error).__name__ == "QuadrantsSyntaxError" and error.args == caught.value.args
        assert isinstance(error, AssertionError)


@pytest.mark.oracle_differs("the established package dies in its own recursion", run=False)
def test_runtime_recursion(backend):
    @qd.func
    def loop(n):
        return loop(n - 1) + 1

    @qd.kernel
    def k(n: qd.i32) -> qd.i32:
        return loop(n)

    with pytest.raises(qd.QuadrantsCompilationError):
        k(3)


def test_template_rejects_lists_and_ndarrays(backend):
    @qd.kernel
    def k(x: qd.template()):
        pass

    with pytest.raises(TypeError):
        k([1, 2])
    with raises(RuntimeType, "Ndarray shouldn't be passed in via `qd.template()`"):
        k(qd.ndarray(qd.i32, 3))


def test_captured_ndarray(backend):
    a = qd.ndarray(qd.i32, 3)

    @qd.kernel
    def k():
        a[0] = 1

    with raises(
        qd.QuadrantsCompilationError,
        "used in kernel scope but not registered as a kernel parameter",
    ):
        k()


def test_integer_arguments_out_of_range(backend):
    @qd.kernel
    def k(x: qd.i64, y: qd.u32) -> qd.i64:
        return x

    with pytest.raises(TypeError):
        k(2**70, 0)
    with pytest.raises(TypeError):
        k(0, -1)
    assert k(-5, 1) == -5


def test_finalisers_and_handlers_amid_tracing_launch_what_is_compiled(backend):
    """They raised "Kernels cannot call other kernels", which is for a kernel's own calls."""
    import gc
    import signal

    done = []

    @qd.kernel
    def add(a: Array):
        for i in a:
            a[i] += 1

    @qd.kernel
    def new(a: Array):
        for i in a:
            a[i] += 10

    counted = np.zeros(4, np.int32)
    add(counted)

    class Finalised:
        def __del__(self):
            add(counted)
            done.append("del")

    def collect():
        circle = Finalised()
        circle.me = circle
        del circle
        gc.collect()
        signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(qd.QuadrantsSyntaxError, match="cannot call other kernels"):
            new(counted)
        return 1

    def handle(*_):
        add(counted)
        done.append("signal")

    @qd.kernel
    def run(a: Array):
        for i in a:
            a[i] += qd.static(collect())

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        out = np.zeros(4, np.int32)
        run(out)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert sorted(set(done)) == ["del", "signal"]
    assert counted[0] == 1 + len(done) and out[0] == 1
    new(counted)
