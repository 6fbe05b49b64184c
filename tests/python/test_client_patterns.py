"""Patterns that large clients rely on and that no other test combines."""

import dataclasses

import numpy as np
import pytest

import quadrants as qd


@pytest.fixture(autouse=True)
def started():
    qd.init(arch=qd.cpu)


@dataclasses.dataclass(frozen=True)
class Leaves:
    low: qd.Tensor


@dataclasses.dataclass(frozen=True)
class Tree:
    leaves: Leaves
    out: qd.Tensor


def make_tree(n=4):
    def tensor(*shape):
        return qd.tensor(qd.f32, shape, backend=qd.Backend.NDARRAY)

    return Tree(Leaves(tensor(3, n)), tensor(n))


@qd.func
def sum_columns(tree: Tree):
    rows, columns = tree.leaves.low.shape
    for j in range(columns):
        for i in range(rows):
            tree.out[j] += tree.leaves.low[i, j]


@qd.func
def sum_leaves(leaves: Leaves, out: qd.template()):
    for j in range(leaves.low.shape[1]):
        out[j] += leaves.low[0, j]


def test_a_func_with_top_level_loops_reads_nested_dataclasses():
    @qd.kernel
    def k(tree: Tree):
        for i, j in qd.ndrange(tree.leaves.low.shape[0], tree.leaves.low.shape[1]):
            tree.leaves.low[i, j] = i + 10 * j
        sum_columns(tree)
        sum_leaves(tree.leaves, tree.out)

    tree = make_tree()
    k(tree)
    assert tree.out.to_numpy().tolist() == [3.0, 43.0, 83.0, 123.0]


@qd.data_oriented
class Solver:
    def __init__(self):
        self.offset = qd.Vector([1.0, 2.0])
        self.scale = 3.0
        self.x = qd.field(qd.f32, 2)


@qd.data_oriented
class Coupler:
    def __init__(self):
        self.solver = Solver()

    @qd.kernel
    def fill(self):
        s = self.solver
        for i in range(2):
            s.x[i] = s.scale * (i + 1)
        s.x[1] += 1.0

    @qd.kernel
    def sums(self) -> qd.f32:
        total = 0.0
        for i, j in qd.ndrange(2, 2):
            cell = (i, j)
            a = (cell + self.solver.offset) * 2
            b = self.solver.offset - [i, j]
            c = [i, j] * self.solver.offset
            total += a[1] + b[0] + c[1]
        return total


def test_a_local_name_for_a_data_oriented_object():
    c = Coupler()
    c.fill()
    assert c.solver.x.to_numpy().tolist() == [3.0, 7.0]


def test_tuples_and_host_vectors_in_one_expression():
    assert Coupler().sums() == 26.0


class Tracked(np.ndarray):
    pass


@pytest.mark.parametrize("annotation", [qd.types.ndarray(), qd.types.ndarray(element_dim=1)])
def test_subclasses_of_numpy_arrays(annotation):
    @qd.kernel
    def rows(a: annotation) -> qd.i32:
        return a.shape[0]

    assert rows(np.zeros((3, 2), np.int32).view(Tracked)) == 3
    assert rows(np.zeros((0, 2), np.float32)) == 0


def test_element_dim_leaves_the_element_shape_open():
    @qd.kernel
    def first(a: qd.types.ndarray(element_dim=2), v: qd.types.ndarray(element_dim=1)) -> qd.f32:
        return (a[0] @ v[0]).sum()

    assert first(np.ones((1, 4, 3), np.float32), np.ones((1, 3), np.float32)) == 12.0
    assert first(np.ones((5, 2, 2), np.float32), np.ones((1, 2), np.float32)) == 4.0


def test_shapes_may_be_arrays_of_integers():
    shape = np.array([2, 3])
    assert qd.field(qd.f32, shape=shape).shape == (2, 3)
    assert qd.Vector.field(2, qd.f32, shape=shape).shape == (2, 3)
    assert qd.ndarray(qd.f32, shape=shape).shape == (2, 3)
    assert qd.root.dense(qd.ij, shape).shape == (2, 3)


def test_numpy_functions_are_called_while_tracing():
    @qd.kernel
    def below_pi() -> qd.f32:
        return float(np.nextafter(np.float32(np.pi), np.float32(0.0)))

    assert below_pi() < np.float32(np.pi)
