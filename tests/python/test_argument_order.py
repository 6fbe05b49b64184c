"""What a kernel says of an argument depends neither on earlier calls nor on the cache."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import quadrants as qd


@pytest.fixture(autouse=True)
def runtime():
    qd.init(arch=qd.cpu, print_full_traceback=True, log_level="error")
    yield
    qd.reset()


PROGRAM = """
import sys, types
from dataclasses import dataclass
import quadrants as qd

qd.init(arch=qd.cpu, log_level="error", print_full_traceback=True, offline_cache_file_path=sys.argv[1])
Pair = qd.types.struct(x=qd.f32, y=qd.f32)
Triple = qd.types.struct(x=qd.f32, y=qd.f32, z=qd.f32)
Holder = qd.types.struct(v=qd.types.vector(2, qd.f32), p=Pair)
Wide = qd.types.struct(v=qd.types.vector(3, qd.f32), p=Pair)

@dataclass
class Inner:
    s: Pair
    n: qd.i32

@dataclass
class Other:
    s: Pair
    n: qd.i32

@dataclass
class Outer:
    inner: Inner
    a: qd.Tensor

@dataclass
class Plain:
    a: qd.types.ndarray()
    more: qd.i32

@dataclass
class Nest:
    plain: Plain

@qd.data_oriented(template_primitives=False)
class Runtime:
    def __init__(self, n):
        self.n = n

@qd.kernel
def pair(s: Pair) -> qd.f32:
    return s.x + s.y

@qd.kernel
def unread(s: Pair) -> qd.f32:
    return 1.0

@qd.kernel
def holder(s: Holder) -> qd.f32:
    return s.v[1] + s.p.x

@qd.kernel
def view(v: qd.BufferView) -> qd.f32:
    return v[0] + v.size

@qd.kernel
def outer(d: Outer) -> qd.f32:
    return d.inner.s.x + d.inner.n

@qd.kernel
def plain(d: Plain) -> qd.f32:
    return d.a[0] + d.more

@qd.kernel
def nest(d: Nest) -> qd.f32:
    return d.plain.a[0] + d.plain.more

@qd.kernel
def runtime(o: qd.template()) -> qd.f32:
    return o.n

FirstPlain, FirstNest = Plain, Nest

@dataclass
class Plain:
    a: qd.types.ndarray()
    more: qd.i32

@dataclass
class Nest:
    plain: Plain

a = qd.ndarray(qd.f32, 4)
loose = types.SimpleNamespace
pair_values = [Pair(1, 2), qd.Vector([1.0, 2.0]), Triple(1, 2, 3), loose(x=1.0, y=2.0), 3, None]
VALUES = {
    pair: pair_values,
    unread: pair_values,
    holder: [Holder([1, 2], Pair(3, 4)), Wide([1, 2, 3], Pair(3, 4)), Pair(1, 2),
             qd.Struct(v=[1.0, 2.0], p=Triple(1, 2, 3)), loose(v=[1.0, 2.0], p=Pair(1, 2))],
    view: [a[1:3], qd.Vector([1, 2, 3]), loose(arr=a, offset=0, size=3), a],
    outer: [Outer(Inner(Pair(1, 2), 3), a), Outer(Other(Pair(1, 2), 3), a),
            Outer(Inner(qd.Vector([1.0, 2.0]), 3), a), Outer(loose(s=Pair(1, 2), n=3), a),
            Outer(Inner(loose(x=1.0, y=2.0), 3), a), Outer(None, a)],
    plain: [FirstPlain(a, 3), Plain(a, 3), loose(a=a, more=3)],
    nest: [FirstNest(FirstPlain(a, 3)), FirstNest(Plain(a, 3)), Nest(FirstPlain(a, 3))],
    runtime: [Runtime(3), Runtime(2.5), Runtime(True)],
}

def outcome(k, value):
    try:
        return k(value)
    except Exception as e:
        return type(e).__name__

for k, values in VALUES.items():
    order = {"first": range(len(values)), "good": range(1), "bad": range(1, len(values)),
             "twice": [*range(len(values))] * 2}[sys.argv[2]]
    for n in order:
        print(k.__name__, n, outcome(k, values[n]))
"""

REFUSED = "QuadrantsRuntimeTypeError"
EXPECTED = {
    "pair": ["3.0"] + [REFUSED] * 5,
    "unread": ["1.0"] + [REFUSED] * 5,
    "holder": ["5.0"] + [REFUSED] * 4,
    "view": ["2.0"] + [REFUSED] * 3,
    "outer": ["4.0"] + [REFUSED] * 5,
    "plain": ["3.0"] + [REFUSED] * 2,
    "nest": ["3.0"] + [REFUSED] * 2,
    "runtime": ["3.0", "2.5", "1.0"],
}


def outcomes(program, cache, order):
    ran = subprocess.run(
        [sys.executable, program, cache, order], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return [line for line in ran.stdout.splitlines() if line.split()[0] in EXPECTED]


def expected(keep):
    return [
        f"{k} {n} {what}"
        for k, whats in EXPECTED.items()
        for n, what in enumerate(whats)
        if keep(n)
    ]


def test_a_wrong_argument_is_refused_in_any_order_and_from_the_cache(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert outcomes(program, tmp_path / "a", "bad") == expected(lambda n: n > 0)  # nothing known
    assert sorted(outcomes(program, tmp_path / "b", "twice")) == sorted(
        expected(lambda n: True) * 2
    )
    assert outcomes(program, tmp_path / "c", "good") == expected(lambda n: n == 0)
    assert outcomes(program, tmp_path / "c", "bad") == expected(lambda n: n > 0)  # from the cache


def test_struct_arguments_keep_their_values():
    vec = qd.types.vector(2, qd.f32)
    inner = qd.types.struct(k=qd.i32, v=vec)
    outer = qd.types.struct(b=qd.u1, i=inner, m=qd.types.matrix(2, 2, qd.f64))

    @qd.kernel
    def total(s: outer) -> qd.f64:
        return s.b + s.i.k + s.i.v[0] + s.i.v[1] + s.m[0, 1] + s.m[1, 0]

    value = outer(True, inner(5, [1.5, 2.5]), [[1, 2], [3, 4]])
    assert total(value) == 15
    value.i.k = 7
    value.i.v = [2, 3]
    assert total(value) == 1 + 7 + 5 + 5
    field = outer.field(shape=2)
    field[1] = value
    assert total(field[1]) == 18
    field[1].i.k = 8
    assert total(field[1]) == 19


@dataclass
class Arrays:
    t: qd.Tensor
    a: qd.types.ndarray()


def test_tensors_of_a_dead_runtime_are_refused():
    @qd.kernel
    def first(t: qd.Tensor) -> qd.i32:
        return t[0]

    @qd.kernel
    def member(d: Arrays) -> qd.i32:
        return d.t[0]

    tensor, array = qd.tensor(qd.i32, 3), qd.ndarray(qd.i32, 3)
    assert first(tensor) == 0
    qd.init(arch=qd.cpu, print_full_traceback=True)
    assert tensor.shape is None
    assert "shape=None" in repr(tensor)
    for call, value in ((first, tensor), (first, array), (member, Arrays(tensor, array))):
        with pytest.raises(RuntimeError, match="runtime that has been reset"):
            call(value)


NO_RANK = "Invalid value for argument a - required"


@pytest.mark.parametrize(
    "options, message",
    [(dict(ndim=n), NO_RANK) for n in ("x", 1.5, [1], 2**80, -1)]
    + [(dict(dtype=t), "Invalid data type") for t in ("f32", 3, np.float32, [1], list)],
)
@pytest.mark.parametrize("array", [lambda: qd.ndarray(qd.f32, 3), lambda: np.zeros(3, np.float32)])
def test_an_annotation_that_no_array_fits(options, message, array):
    @qd.kernel
    def k(a: qd.types.ndarray(**options)):
        pass

    with pytest.raises(ValueError, match=message):
        k(array())


def test_array_annotations_are_no_endless_sequences():
    annotation = qd.types.ndarray(qd.f32, 1)
    with pytest.raises(TypeError, match="not iterable"):
        iter(annotation)
    with pytest.raises(TypeError):
        qd.field(qd.i32, shape=(2, 3))[annotation]
    with pytest.raises(Exception):
        qd.ndarray(qd.i32, (2, 3))[annotation]


def test_numbers_of_bits():
    quant = qd.types.quant
    for make in (quant.int, quant.fixed, lambda bits: quant.float(5, bits)):
        for bits in (0, -1, 65, 2**31, 2.5, None):
            with pytest.raises(ValueError, match="1 to 64 bits"):
                make(bits)
    assert quant.int(4).bits == 4
    assert quant.fixed(8).scale == 1 / 128


def test_a_reset_hook_is_a_function():
    with pytest.raises(TypeError, match="on_reset takes a function"):
        qd.lang.impl.on_reset(3)
    qd.init(arch=qd.cpu)


def test_options_of_the_native_module_have_names():
    from quadrants._lib import core

    with pytest.raises(TypeError, match="takes a name and a value"):
        core.set_config_option(3, 4)


def test_native_helpers_take_kernels():
    from quadrants._lib import core

    qd.init(arch=qd.cpu)

    @qd.kernel
    def k(n: qd.i32):
        pass

    for call in (
        lambda: core.prepare_kernel(3, ()),
        lambda: core.forget_kernel(3),
        lambda: core._lower_to_text(k),
    ):
        with pytest.raises(TypeError, match="Kernel|takes a kernel|takes 1 arguments, not 0"):
            call()
