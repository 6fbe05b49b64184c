"""`qd.reset()` at any step of what a program does with its data, as another thread may do it.

What has begun ends well or says in one of the spec's errors that its runtime is gone.
"""

import copy
import sys

import numpy as np
import pytest

import quadrants as qd

pytestmark = pytest.mark.oracle_differs("a reset amid an operation")
np.array(qd.f32)  # NumPy is whole before steps are counted
S = qd.types.struct(a=qd.f32, v=qd.types.vector(2, qd.i32))
GONE = (
    "has been reset",
    "no longer exists",
    "call `qd.init()` first",
    "call init() first",
    "was reset",
    "cannot be reset while a kernel is",  # of the reset itself, inside a compilation
)


@qd.kernel
def add(x: qd.types.ndarray(), y: qd.template()):
    for i in range(3):
        x[i] += y[i]


class Data:
    def __init__(self):
        self.f, self.f2 = qd.field(qd.i32, 3), qd.field(qd.i32, 3)
        self.g = qd.field(qd.f32, 3, needs_grad=True)
        self.v = qd.Vector.field(2, qd.f32, 3)
        self.m = qd.Matrix.field(2, 2, qd.f32, (2, 2))
        self.s = S.field(shape=3)
        self.a, self.b = qd.ndarray(qd.i32, 3), qd.ndarray(qd.i32, 3)
        self.va = qd.Vector.ndarray(2, qd.f32, 3)
        self.t = qd.tensor(qd.i32, shape=(3,))
        self.f.fill(0)


def declare_in_a_builder(d):
    builder, x = qd.FieldsBuilder(), qd.field(qd.i32)
    builder.dense(qd.i, 3).place(x)
    builder.finalize()
    x.fill(2)


OPERATIONS = {
    "fill": lambda d: [x.fill(1) for x in (d.f, d.a, d.v, d.va, d.s, d.t, d.g.grad)],
    "to_numpy": lambda d: [x.to_numpy() for x in (d.f, d.a, d.m, d.va, d.s, d.t)],
    "share": lambda d: [x.to_numpy(copy=False) for x in (d.f, d.a)],
    "from_numpy": lambda d: [x.from_numpy(np.arange(3)) for x in (d.f, d.a, d.t)],
    "copy": lambda d: (d.f.copy_from(d.f2), d.a.copy_from(d.b), copy.deepcopy(d.a)),
    "elements": lambda d: (d.f[1], d.a[1], d.v[1][0], d.m[1, 1][0, 1], d.s[1].a, d.va[1][1]),
    "writes": lambda d: [x.__setitem__(1, 2) for x in (d.f, d.a, d.t)],
    "vectors": lambda d: [x.__setitem__(1, [1, 2]) for x in (d.v, d.va)],
    "texts": lambda d: [str(x) for x in (d.f, d.a, d.v, d.va, d.s)],
    "views": lambda d: (qd.BufferView(d.a, 0, 2).shape, d.a[1:].size),
    "launch": lambda d: add(d.a, d.f),
    "declare": lambda d: qd.field(qd.i32, 5).fill(1),
    "declare_more": lambda d: qd.Vector.field(2, qd.f32, 4, needs_grad=True).fill(1),
    "arrays": lambda d: qd.ndarray(qd.f32, 4).fill(1),
    "builder": declare_in_a_builder,
    "sync": lambda d: (qd.sync(), qd.ad.clear_all_gradients()),
}


def init():
    qd.init(arch=qd.cpu, offline_cache=False, log_level=qd.ERROR)


def outcome_with_reset_at(last, act, and_init):
    """The steps that the operation took, and what it raised."""
    steps, raised = 0, None

    def step(frame, event, _):
        nonlocal steps
        if "quadrants/lang" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        steps += 1
        if steps == last:
            sys.settrace(None)
            qd.reset()
            if and_init:
                init()
        return step

    init()
    data, before = Data(), sys.gettrace()
    sys.settrace(step)
    try:
        act(data)
    except Exception as e:
        raised = e
    finally:
        sys.settrace(before)
    return steps, raised


@pytest.mark.parametrize("and_init", [False, True], ids=["reset", "reset_and_init"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_reset_at_any_step(name, and_init):
    act, last, told = OPERATIONS[name], 1, 0
    outcome_with_reset_at(0, act, and_init)
    while True:
        steps, raised = outcome_with_reset_at(last, act, and_init)
        if raised is not None:
            assert isinstance(raised, qd.QuadrantsRuntimeError), (last, raised)
            assert any(words in str(raised) for words in GONE), (last, str(raised))
            told += 1
        if steps < last:
            break
        last += 23
    assert told or name in ("texts", "writes", "launch", "sync")
    init()
    assert outcome_with_reset_at(0, act, and_init)[1] is None
