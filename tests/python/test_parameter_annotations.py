"""Annotations however they are written: fields, kinds of array and None are versions of their own."""

import dataclasses
from typing import ClassVar, Union

import pytest

import quadrants as qd

TENSORS = {
    "plain": qd.Tensor,
    "union": qd.Tensor | None,
    "union, None first": None | qd.Tensor,
    "Union": Union[qd.Tensor, None],  # noqa: UP007
}
FIELDS = {
    "instance": qd.template() | None,
    "class": qd.Template | None,
    "function": qd.template | None,
    "Union": Union[qd.Template, None],  # noqa: UP007
    "of a type": qd.Template[qd.f32],
    "of a type, or None": qd.Template[qd.f32] | None,
}
ARRAYS = {
    "instance": qd.types.ndarray() | None,
    "class": qd.types.NDArray | None,
    "subscript": qd.types.NDArray[qd.i32, 1] | None,
    "Union": Union[qd.types.NDArray, None],  # noqa: UP007
}


def kernel(annotation):
    @qd.kernel
    def first(y: annotation) -> qd.i32:
        result = 0
        if qd.static(y is None):
            result = -1
        else:
            result = y[0]
        return result

    return first


def filled(made):
    for k, x in enumerate(made):
        x[0] = k + 1
    return made


def check(annotation, made):
    for order in (made + [None], [None] + made[::-1]):
        first = kernel(annotation)
        arguments = order + order[::-1] + order[::2]
        assert [first(a) for a in arguments] == [-1 if a is None else a[0] for a in arguments]


def fields():
    return [
        qd.field(qd.i32, 2),
        qd.field(qd.i32, 2),
        qd.tensor(qd.i32, (2,), backend=qd.Backend.FIELD),
        qd.tensor(qd.i32, (2,), backend=qd.Backend.FIELD),
    ]


def arrays():
    return [
        qd.ndarray(qd.i32, 2),
        qd.ndarray(qd.i32, 2),
        qd.tensor(qd.i32, (2,)),
        qd.ndarray(qd.i32, 3),
    ]


@pytest.mark.parametrize("form", TENSORS)
def test_tensors(backend, form):
    check(TENSORS[form], filled(fields() + arrays()))


@pytest.mark.parametrize("form", FIELDS)
def test_templates(backend, form):
    check(FIELDS[form], filled(fields()))


@pytest.mark.parametrize("form", ARRAYS)
def test_arrays(backend, form):
    check(ARRAYS[form], filled(arrays()))


@dataclasses.dataclass
class Fields:
    x: qd.Tensor


@pytest.mark.oracle_differs("there dtypes and vector types have no `|`")
@pytest.mark.parametrize(
    "annotation",
    [
        qd.i32 | None,
        int | None,
        float | None,
        qd.math.vec3 | None,
        qd.BufferView | None,
        Fields | None,
    ],  # noqa: UP007
    ids=["i32", "int", "float", "vec3", "BufferView", "dataclass"],
)
def test_what_none_does_not_fit(annotation):
    with pytest.raises(qd.QuadrantsSyntaxError, match="are only supported for qd.Tensor"):

        @qd.kernel
        def k(a: annotation):
            pass


@pytest.mark.parametrize(
    "annotation", [type(qd.math.vec3), type(qd.types.struct(a=qd.f32))], ids=str
)
@pytest.mark.parametrize("decorate", [qd.kernel, qd.func])
def test_classes_whose_objects_are_annotations(annotation, decorate):
    with pytest.raises(qd.QuadrantsSyntaxError, match="Invalid type annotation"):

        @decorate
        def f(a: annotation):
            pass


def test_an_object_that_annotates_nothing(backend):
    with pytest.raises(qd.QuadrantsSyntaxError, match="Invalid type annotation"):

        @qd.kernel
        def k(a: qd.tensor(qd.i32, (2,))):
            pass


@dataclasses.dataclass
class Step:
    total: "ClassVar[int]"  # none of the instances'
    dt: "qd.f32"
    x: qd.types.ndarray(qd.f32, 1)
    seed: "dataclasses.InitVar[int]" = 0


@dataclasses.dataclass
class Outer:
    step: Step


def test_members_annotated_by_texts(backend):
    """Of such a member nothing would be known, and 3 for an f32 would divide as an integer."""

    @qd.kernel
    def k(s: Step) -> qd.f32:
        return s.dt // 2

    @qd.kernel
    def nested(o: Outer):
        o.step.x[0] = 1.0

    s = Step(3, qd.ndarray(qd.f32, 2))
    for call in (lambda: k(s), lambda: nested(Outer(s))):
        with pytest.raises(qd.QuadrantsSyntaxError, match="Invalid data type qd.f32: member dt of"):
            call()


@dataclasses.dataclass
class Counted:
    total: "ClassVar[int]"
    x: qd.types.ndarray(qd.f32, 1)
    seed: "dataclasses.InitVar[int]" = 0


def test_class_variables_annotated_by_texts(backend):
    @qd.kernel
    def k(c: Counted):
        c.x[1] = 4.0

    c = Counted(qd.ndarray(qd.f32, 2))
    k(c)
    assert c.x[1] == 4


@pytest.mark.parametrize(
    "annotation",
    [
        qd.types.vector(),
        qd.types.vector(dtype=qd.f32),
        qd.types.matrix(2),
        qd.types.matrix(m=3),
        qd.types.matrix(),
    ],
)
def test_open_sizes_are_for_arrays_alone(backend, annotation):
    @dataclasses.dataclass
    class Holder:
        a: annotation

    @qd.kernel
    def taken(a: annotation) -> qd.f32:
        return a.sum()

    @qd.kernel
    def member(h: Holder) -> qd.f32:
        return h.a.sum()

    @qd.kernel
    def given() -> annotation:
        return qd.Matrix([[1.0, 2.0], [3.0, 4.0]])

    @qd.real_func
    def real(x: qd.f32) -> annotation:
        return qd.Matrix([[x, 2.0], [3.0, 4.0]])

    @qd.kernel
    def by_real() -> qd.f32:
        return real(1.0)[0, 0]

    value = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
    for call in (
        lambda: taken(value), lambda: taken([1, 2]), lambda: taken(3), lambda: member(Holder(value)), given, by_real,
    ):  # fmt: skip
        with pytest.raises(qd.QuadrantsCompilationError, match="open sizes"):
            call()

    @qd.func
    def total(a: annotation):
        return a.sum()

    @qd.kernel
    def by_func() -> qd.f32:
        return total(qd.Vector([1.0, 2.0]))

    if annotation.ndim == 1:  # a func sees what it is given
        assert by_func() == 3
