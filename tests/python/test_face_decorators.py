"""What decorating checks, and what the decorated objects show."""

import copy
import dataclasses
import functools
import inspect
import pickle
import typing
import warnings

import pytest

import quadrants as qd
from quadrants.lang import kernel_impl

E = qd.QuadrantsSyntaxError


def bad(decorator, fn, text):
    with pytest.raises(E, match=text):
        decorator(fn)


def varargs(*a): ...
def varkw(**a): ...
def keyword_only(*, a: qd.i32): ...
def positional_only(a: qd.i32, /): ...
def default(a: qd.i32 = 3): ...
def bare(a): ...
def unknown_name(a: "nowhere"): ...  # noqa: F821
def unknown_type(a: str): ...
def number(a: 3): ...
def reference(a: qd.ref(qd.f32)): ...
def ellipsis(a: qd.i32) -> (qd.i32, ...): ...
def returns_unknown() -> "nowhere": ...  # noqa: F821


KERNEL_ERRORS = [
    (varargs, "variable positional parameters"),
    (varkw, "variable keyword parameters"),
    (keyword_only, "do not support keyword parameters"),
    (positional_only, "positional or keyword"),
    (default, "do not support default values for arguments"),
    (bare, "Quadrants kernels parameters must be type annotated"),
    (unknown_name, "Invalid type annotation in `unknown_name`: name 'nowhere' is not defined"),
    (unknown_type, r"Invalid type annotation \(argument 0\) of Quadrants kernel: <class 'str'>"),
    (number, r"Invalid type annotation \(argument 0\) of Quadrants kernel: 3"),
    (reference, "Invalid type annotation"),
    (ellipsis, "Ellipsis is not supported in return type annotations"),
    (returns_unknown, "Invalid type annotation in `returns_unknown`"),
]


@pytest.mark.parametrize("fn, text", KERNEL_ERRORS, ids=lambda x: getattr(x, "__name__", ""))
def test_kernel_errors(fn, text):
    bad(qd.kernel, fn, text)


@pytest.mark.parametrize("fn, text", [KERNEL_ERRORS[i] for i in (0, 1, 2, 3, 6, 7)])
def test_func_errors(fn, text):
    bad(qd.func, fn, text)


def test_real_func_errors():
    bad(qd.real_func, bare, "must be type annotated")
    qd.real_func(reference)
    qd.real_func(default)


@pytest.mark.parametrize("annotation", [tuple, typing.Tuple])  # noqa: UP006
def test_a_bare_tuple_is_no_result(annotation):
    def k(a: qd.i32) -> annotation:
        return a

    qd.init(arch=qd.cpu, log_level="error")
    with pytest.raises(qd.QuadrantsSyntaxError):
        qd.kernel(k)(1)


def test_order_of_decorators():
    @functools.wraps(bare)
    def wrapped(a: qd.i32): ...

    for fn in (wrapped, staticmethod(default)):
        bad(
            qd.kernel, fn, r"Cant put kernel in front of other annotations.*KERNEL_ANNOTATION_ORDER"
        )
    bad(qd.kernel, lambda: 0, "lambda")
    with pytest.raises(TypeError):
        qd.func(3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
        qd.kernel(foo=3)
    bad(qd.kernel(checkpoints=True), returns_nothing, "requires graph=True")


def returns_nothing(): ...


def test_accepted_annotations():
    @dataclasses.dataclass(frozen=True)
    class Pair:
        a: qd.types.ndarray()

    struct = qd.types.struct(a=qd.f32)

    def k(
        a: qd.i32,
        b: float,
        c: bool,
        d: qd.template(),
        e: qd.template,
        f: qd.types.ndarray(),
        g: qd.types.NDArray,
        h: qd.types.NDArray[qd.f32, 2],
        i: qd.types.vector(3, qd.f32),
        j: qd.types.matrix(2, 2, int),
        l: struct,
        m: Pair,
        n: qd.types.ndarray() | None,
        o: qd.template() | None,
        p: qd.types.sparse_matrix_builder(),
    ) -> tuple[qd.i32, float]: ...

    definition = qd.kernel(k)._qd_kernel
    assert [p[0] for p in definition.params] == list("abcdefghijlmnop")
    assert definition.returns == (qd.i32, float)
    assert (
        definition.params[0][1] is qd.i32
        and definition.params[0][2] is qd.lang.kernel_arguments.empty
    )


def test_strings():
    local = qd.types.vector(2, qd.f32)

    def k(a: "qd.i32", b: "local") -> "qd.f32":  # noqa: F821
        return local  # names of the enclosing function are visible when the body uses them

    definition = qd.kernel(k)._qd_kernel
    assert definition.params[0][1] is qd.i32 and definition.params[1][1] is local
    assert definition.returns is qd.f32


def test_kernel_object():
    def run(a: qd.i32):
        "Docs."

    k = qd.kernel(run)
    assert k.__name__ == "run" and k.__doc__ == "Docs." and k.__wrapped__ is run and k.fn is run
    assert k.is_pure is False and callable(k.grad) and callable(k.resume)
    assert list(inspect.signature(k).parameters) == ["a"]
    k.anything = 3
    assert k.anything == 3
    assert qd.kernel(fastcache=True)(run).is_pure is True


@qd.kernel
def increment(n: qd.i32) -> qd.i32:
    return n + 1


@qd.data_oriented
class Counter:
    def __init__(self, n):
        self.n = n

    @qd.kernel
    def get(self) -> qd.i32:
        return self.n


def test_a_kernel_can_be_dressed_as_another_function(backend):
    def original():
        """Docs of the original."""

    original.mark = 5

    @qd.kernel
    def add_two(x: qd.i32) -> qd.i32:
        return x + 2

    dressed = functools.wraps(original)(add_two)
    assert dressed is add_two and dressed(1) == 3
    assert dressed.__name__ == "original" and dressed.__doc__ == "Docs of the original."
    assert dressed.mark == 5 and dressed.__wrapped__ is original
    dressed.__doc__, dressed.__module__ = "Other docs.", "elsewhere"
    assert (dressed.__doc__, dressed.__module__) == ("Other docs.", "elsewhere")
    assert functools.update_wrapper(functools.partial(dressed, 3), dressed)() == 5


def test_shallow_copies(backend):
    assert copy.copy(increment)(3) == 4 and copy.copy(increment).__name__ == "increment"
    counter = Counter(5)
    other = copy.copy(counter)
    other.n = 6
    assert (counter.get(), other.get()) == (5, 6)


@pytest.mark.oracle_differs("kernels are neither pickled nor copied deeply there")
def test_copies_and_pickles(backend):
    for kernel in (copy.deepcopy(increment), pickle.loads(pickle.dumps(increment))):
        assert kernel is increment
    for method in (copy.copy(Counter(5).get), pickle.loads(pickle.dumps(Counter(5).get))):
        assert method() == 5
    assert copy.deepcopy([Counter(5)])[0].get() == 5


def test_pure_warns_once():
    kernel_impl._warned.clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert qd.kernel(pure=True)(returns_nothing).is_pure
        qd.kernel(pure=True)(returns_nothing)
        assert qd.pure(qd.kernel(returns_nothing)).is_pure
        qd.pure(qd.kernel(returns_nothing))
    assert len(seen) == 2 and all("fastcache" in str(w.message) for w in seen)


def test_funcs_on_the_host():
    @qd.func
    def f(a, b=3):
        return a + b

    @qd.pyfunc
    def g(a):
        return a + 1

    with pytest.raises(E, match="Quadrants functions cannot be called from Python-scope."):
        f(1)
    assert g(2) == 3
    assert f._qd_func.params[1][2] == 3 and f._qd_func.returns is None


def test_what_is_set_on_a_bound_kernel_is_the_kernel_s(backend):
    @qd.data_oriented
    class Counter:
        @qd.kernel
        def count(self) -> qd.i32:
            return 3

    counter = Counter()
    counter.count.note = 4
    assert counter.count.note == Counter.count.note == Counter().count.note == 4
    assert counter.count() == 3


def test_signatures_of_funcs_of_the_package():
    for name in ("svd", "eig", "sym_eig", "solve", "make_spd", "polar_decompose", "randn"):
        assert list(inspect.signature(getattr(qd, name)).parameters)[-1] == "dt"
    for name in ("activate", "append", "deactivate", "is_active", "length"):
        assert list(inspect.signature(getattr(qd, name)).parameters)[:2] == ["node", "indices"]


def test_classes():
    @qd.data_oriented
    class A:
        @qd.kernel
        def k(self, a: qd.i32): ...

        @qd.func
        def f(self, a): ...

        @staticmethod
        @qd.kernel
        def s(a: qd.i32): ...

    assert A._data_oriented and A._qd_template_primitives
    assert A.k._qd_kernel.is_method
    assert isinstance(A.k._qd_kernel.params[0][1], qd.Template)
    assert A().k.__name__ == "k" and A().k.instance.__class__ is A
    assert A().f.__func__._qd_func is A.f._qd_func
    assert (
        qd.data_oriented(template_primitives=False)(type("B", (), {}))._qd_template_primitives
        is False
    )

    with pytest.raises(E, match="must be type annotated"):

        class C:
            @qd.kernel
            def k(self, a): ...

    class D:
        @qd.kernel
        def k(self): ...

    with pytest.raises(E, match="Please decorate class D with @qd.data_oriented"):
        D().k()


def test_marks():
    for name in (
        "sin atomic_add cast bit_cast random select max static grouped ndrange loop_config".split()
    ):
        assert getattr(qd, name)._qd_op == name
    assert qd.Matrix.zero._qd_op == "Matrix.zero" and qd.Vector.cols._qd_op == "Matrix.cols"


def test_a_class_that_loses_its_mark(backend):
    @qd.data_oriented
    class Owner:
        @qd.kernel
        def k(self) -> qd.i32:
            return 3

    owner = Owner()
    assert owner.k() == owner.k() == 3
    del Owner._data_oriented
    with pytest.raises(qd.QuadrantsSyntaxError, match="decorate class Owner"):
        owner.k()


def test_annotations_and_documents_are_those_of_the_function(backend):
    @qd.kernel
    def k(a: qd.i32) -> qd.f32:
        """Of the kernel."""
        return a

    @qd.func
    def f(a: qd.i32) -> qd.f32:
        return a

    @qd.data_oriented
    class Owner:
        @qd.kernel
        def method(self, a: qd.i32) -> qd.f32:
            """Of the method."""
            return a

    whole = {"a": qd.i32, "return": qd.f32}
    for o in (k, f, Owner.method, Owner().method):
        assert o.__annotations__ == whole
        assert typing.get_type_hints(o) == whole
    assert k.__doc__ == "Of the kernel." and Owner().method.__doc__ == "Of the method."
