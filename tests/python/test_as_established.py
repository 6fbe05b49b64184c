"""Small behaviours that programs of the established package count on, where the chapters are silent."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from helpers import raises
from quadrants._lib import core

ENUMS = {
    "Arch": "x64 arm64 js python cuda metal opencl amdgpu vulkan",
    "Layout": "AOS SOA NULL",
    "Extension": "sparse quant mesh quant_basic data64 adstack bls assertion extfunc",
    "SNodeType": "root dense dynamic pointer bitmasked hash place bit_struct quant_array undefined",
    "SNodeGradType": "PRIMAL ADJOINT DUAL ADJOINT_CHECKBIT",
    "AutodiffMode": "FORWARD REVERSE NONE VALIDATION",
    "BoundaryMode": "UNSAFE CLAMP",
}


@pytest.mark.parametrize("name", ENUMS)
def test_enumerations_are_numbers(name):
    kind = getattr(core, name, None) or getattr(qd, name)
    for number, member in enumerate(ENUMS[name].split()):
        value = kind[member]
        assert value == number and int(value) == number and hash(value) == hash(number)
        assert kind(number) is value and value + 1 == number + 1
        shown = f"{name}.{member}"
        assert str(value) == repr(value) == f"{value}" == shown and f"{[value]}" == f"[{shown}]"
        assert f"{value:>40}" == shown.rjust(40) and f"{value:03d}" == f"{number:03d}"
        assert json.dumps({"v": value}) == f'{{"v": {number}}}'
        assert pickle.loads(pickle.dumps(value)) is value and copy.deepcopy(value) is value
    assert sorted(list(kind)[::-1]) == list(kind)


def test_enumerations_in_kernels(backend):
    f = qd.field(qd.i32, 4)
    f.from_numpy(np.arange(4, dtype=np.int32) * 10)

    @qd.kernel
    def k(n: qd.i32) -> qd.i32:
        return f[qd.Layout.SOA] + n + qd.static(int(qd.Layout.SOA))

    @qd.kernel
    def t(m: qd.template()) -> qd.i32:
        r = 0
        if m == 1:
            r = 5
        if qd.static(m == qd.Layout.SOA):
            r += 10
        return r

    assert k(qd.Layout.SOA) == k(1) == 12
    assert [t(m) for m in (qd.Layout.SOA, 1, qd.Layout.AOS, 0)] == [15, 15, 0, 0]


@pytest.mark.parametrize(
    "what",
    ["_lib.core.Arch.x64", "_lib.core.cuda", "_lib.utils", "_tensor", "algorithms._reduce",
     "algorithms._radix_sort", "tools.diagnose"],
)  # fmt: skip
def test_modules_are_attributes_of_their_packages(what):
    """In a process of its own: nothing else has imported them."""
    code = f"import quadrants as qd; print(qd.{what})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr
    for owner in (qd._lib, qd.algorithms, qd.tools):
        assert not hasattr(owner, "nothing_of_this_name")


# --- copies between elements of two shapes


def made(how, element, dtype=qd.f32):
    if how == "ndarray":
        if not element:
            return qd.ndarray(dtype, 3)
        if len(element) == 1:
            return qd.Vector.ndarray(*element, dtype, 3)
        return qd.Matrix.ndarray(*element, dtype, 3)
    if how == "sparse":
        kinds = (qd.field, qd.Vector.field, qd.Matrix.field)
        x = kinds[len(element)](*element, dtype)
        qd.root.pointer(qd.i, 3).place(x)
        return x
    if not element:
        return qd.field(dtype, 3)
    if len(element) == 1:
        return qd.Vector.field(*element, dtype, shape=3)
    return qd.Matrix.field(*element, dtype, shape=3)


ELEMENTS = [(), (2,), (3,), (2, 1), (2, 2), (2, 3)]


@pytest.mark.parametrize("how", ["field", "ndarray", "sparse"])
def test_copies_between_elements_of_two_shapes(backend, how):
    for mine in ELEMENTS:
        for theirs in ELEMENTS:
            to, source = made(how, mine), made(how, theirs, qd.i32)
            shape = source.to_numpy().shape
            source.from_numpy(np.arange(np.prod(shape), dtype=np.int32).reshape(shape) + 1)
            if mine and theirs and mine != theirs:
                with raises(qd.QuadrantsTypeError, str(mine), str(theirs)):
                    to.copy_from(source)
                continue
            to.copy_from(source)
            numbers = source.to_numpy().reshape(3, -1)
            if mine != theirs:
                numbers = np.repeat(numbers[:, :1], int(np.prod(mine)), axis=1)
            assert to.to_numpy().reshape(3, -1).tolist() == numbers.tolist(), (mine, theirs)


# --- what failed and was told


@pytest.mark.parametrize(
    "place",
    [
        lambda node, x: node.place(x, offset=(1, 2)),
        lambda node, x: node.place(x, offset="x"),
        lambda node, x: node.place(5),
    ],
)
def test_a_place_that_failed_holds_up_nothing(backend, place):
    node = qd.root.dense(qd.i, 3)
    x = qd.field(qd.f32)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        place(node, x)
    node.place(x)  # it may be tried again
    y = qd.field(qd.f32, 3)
    y.fill(1)
    assert y.to_numpy().tolist() == [1, 1, 1]
    x[2] = 4
    assert x.to_numpy().tolist() == [0, 0, 4]


def test_a_field_that_nobody_placed_after_it_failed(backend):
    with pytest.raises(RuntimeError, match="offset"):
        qd.root.dense(qd.i, 3).place(qd.field(qd.f32), offset=(1, 2))
    y = qd.field(qd.f32, 3)
    y.fill(1)
    assert y.to_numpy().tolist() == [1, 1, 1]


# --- kernels and functions as objects


@qd.data_oriented
class Machine:
    @qd.kernel
    def run(self) -> qd.i32:
        return 1

    @qd.kernel
    def other(self) -> qd.i32:
        return 2


def test_kernels_of_an_object_are_equal_like_methods(backend):
    a, b = Machine(), Machine()
    assert a.run == a.run and hash(a.run) == hash(a.run) and {a.run: 1}[a.run] == 1
    assert a.run != b.run and a.run != a.other and a.run != 5
    with pytest.raises(TypeError):
        _ = a.run < a.other
    assert a.run() == 1


def test_functions_have_no_gradient():
    @qd.func
    def f(x):
        return x

    assert f.grad is None and f.is_pure is False
