"""Sparse trees: which cells are active, and what loops, conversions and operations make of it."""

import itertools
import random
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from helpers import raises
from quadrants._library.sparse import collect_in_parallel
from quadrants.lang._data import activity

pytestmark = pytest.mark.usefixtures("backend")


@qd.kernel
def write_range(x: qd.template(), begin: qd.i32, end: qd.i32):
    for i in range(begin, end):
        x[i] = i


@qd.kernel
def visited(x: qd.template(), out: qd.types.ndarray(ndim=2)) -> qd.i32:
    n = 0
    for at in qd.grouped(x):
        k = qd.atomic_add(out[0, 0], 1)
        for a in qd.static(range(len(x.shape))):
            out[k + 1, a] = at[a]
        n += 1
    return n


def indices_of(x, most=4096):
    """The indices that a loop over `x` visits, in order."""
    out = qd.ndarray(qd.i32, (most, max(len(x.shape), 1)))
    count = visited(x, out)
    found = [tuple(row) for row in out.to_numpy()[1 : count + 1].tolist()]
    assert len(set(found)) == count
    return sorted(found)


# --- writes and loops ------------------------------------------------------------------------------


def test_writes_activate_and_reads_do_not():
    x = qd.field(qd.i32)
    block = qd.root.pointer(qd.i, 8)
    block.dense(qd.i, 4).place(x)

    @qd.kernel
    def read() -> qd.i32:
        s = 0
        for i in range(32):
            s += x[i]
        return s

    assert read() == 0 and x[5] == 0 and indices_of(x) == [] and indices_of(block) == []
    write_range(x, 6, 9)
    assert indices_of(block) == [(1,), (2,)]
    assert indices_of(x) == [(i,) for i in range(4, 12)]
    assert read() == 6 + 7 + 8
    x[31] = 2
    assert indices_of(block) == [(1,), (2,), (7,)] and x.to_numpy().sum() == 23


@pytest.mark.parametrize("kind", ["pointer", "bitmasked"])
def test_activity_is_of_the_cells_of_the_node(kind):
    x = qd.field(qd.f32)
    getattr(qd.root, kind)(qd.ij, (3, 5)).place(x)

    @qd.kernel
    def write():
        for i in range(3):
            x[i, 2 * i] += 1.5

    write()
    assert indices_of(x) == [(0, 0), (1, 2), (2, 4)]
    assert x.to_numpy().sum() == 4.5


@pytest.mark.parametrize(
    "write",
    [
        "x[3] = 7",
        "x[3] += 7",
        "x[3] |= 7",
        "x[3] = 0",
        "qd.atomic_add(x[3], 7)",
        "qd.atomic_max(x[3], 7)",
        "qd.atomic_exchange(x[3], 7)",
        "qd.atomic_cas(x[3], 0, 7)",
        "store(x[3])",
        "v[3] = 7",
        "v[3][1] = 7",
        "v[3].xy = 7, 7",
        "v[3] += 7",
        "s[3].a = 7",
        "s[3] = S(7, 7)",
        "x.parent().parent(), activate(x.parent(2))",
    ],
)
def test_every_kind_of_write_activates(write, tmp_path):
    program = f"""
import quadrants as qd
S = qd.types.struct(a=qd.i32, b=qd.f32)

def make():
    x, v, s = qd.field(qd.i32), qd.Vector.field(2, qd.i32), S.field()
    node = qd.root.pointer(qd.i, 4)
    node.dense(qd.i, 2).place(x, v, s)
    return x, v, s, node

x, v, s, node = make()

@qd.func
def store(target: qd.template()):
    target = 7

@qd.func
def activate(n: qd.template()):
    qd.activate(n, [1])

@qd.kernel
def k():
    for _ in range(1):
        {write}
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    scope = {"__name__": "program", "__file__": str(path)}
    exec(compile(program, path, "exec"), scope)
    scope["k"]()
    assert indices_of(scope["node"]) == [(1,)]


def test_loops_inside_loops_and_funcs_visit_active_cells():
    x = qd.field(qd.i32)
    qd.root.pointer(qd.i, 8).dense(qd.i, 4).place(x)
    for i in (5, 6, 20):
        x[i] = i

    @qd.func
    def total():
        s = 0
        for i in x:
            s += 100 + x[i]
        return s

    @qd.kernel
    def at_top() -> qd.i32:
        return total()

    @qd.kernel
    def nested() -> qd.i32:
        s = 0
        for _ in range(3):
            for i in x:
                if i == 7:
                    continue
                if i > 20:
                    break
                s += 100 + x[i]
        return s

    @qd.kernel
    def in_branch(on: qd.i32) -> qd.i32:
        s = 0
        if on:
            s = total()
        return s

    assert at_top() == 831 and in_branch(1) == 831 and in_branch(0) == 0
    assert nested() == 3 * (3 * 100 + 11 + 100 + 20)


def test_a_loop_may_activate_and_deactivate_what_it_visits():
    x = qd.field(qd.i32)
    node = qd.root.pointer(qd.i, 64)
    node.dense(qd.i, 2).place(x)
    write_range(x, 0, 10)

    @qd.kernel
    def step():
        for i in node:
            if i < 2:
                qd.deactivate(node, i)
            else:
                x[2 * i + 20] = 1

    step()
    assert indices_of(node) == [(2,), (3,), (4,), (12,), (13,), (14,)]
    assert x[1] == 0 and x[3] == 0 and x[4] == 4


# --- shapes of trees ----------------------------------------------------------------------------------


def build(rng, most=2000):
    """A random tree of one or two fields and what a model needs: (nodes, fields)."""
    axes_of = [qd.i, qd.j, qd.k]
    rank = rng.randint(1, 3)
    nodes, node, cells = [], qd.root, 1
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["dense", "pointer", "bitmasked"])
        axes = sorted(rng.sample(range(rank), rng.randint(1, rank)))
        dims = [rng.choice([1, 2, 3, 4, 5]) for _ in axes]
        if cells * np.prod(dims) > most:
            break
        cells *= int(np.prod(dims))
        node = getattr(node, kind)([axes_of[a][0] for a in axes], dims)
        nodes.append((kind, node))
    x, y = qd.field(qd.i32), qd.Vector.field(2, qd.f32)
    node.place(x, y)
    return nodes, x, y


@qd.kernel
def scatter(x: qd.template(), y: qd.template(), at: qd.types.ndarray(ndim=2)):
    for n in range(at.shape[0]):
        index = qd.Vector.zero(qd.i32, qd.static(len(x.shape)))
        for a in qd.static(range(len(x.shape))):
            index[a] = at[n, a]
        x[index] += n + 1
        y[index][1] = 2.0


@qd.kernel
def switch(node: qd.template(), at: qd.types.ndarray(ndim=2), on: qd.i32):
    for n in range(at.shape[0]):
        index = qd.Vector.zero(qd.i32, qd.static(len(node.shape)))
        for a in qd.static(range(len(node.shape))):
            index[a] = at[n, a]
        if on:
            qd.activate(node, index)
        else:
            qd.deactivate(node, index)


@qd.kernel
def asked(node: qd.template(), at: qd.types.ndarray(ndim=2)) -> qd.i32:
    n = 0
    for k in range(at.shape[0]):
        index = qd.Vector.zero(qd.i32, qd.static(len(node.shape)))
        for a in qd.static(range(len(node.shape))):
            index[a] = at[k, a]
        n += qd.is_active(node, index)
    return n


class Model:
    """What a sparse tree holds, with sets and dictionaries."""

    def __init__(self, nodes, x):
        self.nodes, self.x = nodes, x
        self.active = {id(node): set() for kind, node in nodes if kind != "dense"}
        self.values, self.marks = {}, {}

    def cell(self, node, index, shape, axes):
        mine = node._axis_numbers()
        return tuple(
            index[axes.index(a)] // (shape[axes.index(a)] // n) for a, n in zip(mine, node.shape)
        )

    def activate(self, target, index):
        for kind, node in self.nodes:
            if kind != "dense":
                cell = self.cell(node, index, target.shape, target._axis_numbers())
                self.active[id(node)].add(cell)
            if node is target:
                return

    def is_inside(self, inner, index, node, cell):
        return self.cell(node, index, inner.shape, inner._axis_numbers()) == cell

    def deactivate(self, target, cell):
        if cell not in self.active[id(target)]:
            return
        self.active[id(target)].discard(cell)
        below = False
        for kind, node in self.nodes:
            if below and kind != "dense":
                self.active[id(node)] = {
                    c for c in self.active[id(node)] if not self.is_inside(node, c, target, cell)
                }
            below |= node is target
        leaf = self.nodes[-1][1]
        for numbers in (self.values, self.marks):
            for index in [i for i in numbers if self.is_inside(leaf, i, target, cell)]:
                del numbers[index]

    def elements(self, target):
        """The indices of a node's cells that lie in active ones."""
        above = []
        for kind, node in self.nodes:
            if kind != "dense":
                above.append(node)
            if node is target:
                break
        mine = target._axis_numbers()
        return [
            index
            for index in itertools.product(*map(range, target.shape))
            if all(
                self.cell(n, index, target.shape, mine) in self.active[id(n)] for n in above[-1:]
            )
        ]


@pytest.mark.parametrize("seed", range(40))
def test_random_trees(seed):
    rng = random.Random(seed)
    nodes, x, y = build(rng)
    model, leaf = Model(nodes, x), nodes[-1][1]
    sparse = [node for kind, node in nodes if kind != "dense"]
    some = lambda shape: tuple(rng.randrange(n) for n in shape)  # noqa: E731
    for _ in range(6):
        act = rng.choice(["scatter", "host", "activate", "deactivate", "fill", "from_numpy", "all"])
        at = sorted({some(x.shape) for _ in range(rng.randint(1, 6))})
        if act == "scatter":
            scatter(x, y, np.array(at, np.int32))
            for n, index in enumerate(at):
                model.activate(leaf, index)
                model.values[index] = model.values.get(index, 0) + n + 1
                model.marks[index] = 2.0
        elif act == "host":
            x[at[0]] = 9
            y[at[-1]] = [0.0, 3.0]
            for index in (at[0], at[-1]):
                model.activate(leaf, index)
            model.values[at[0]], model.marks[at[-1]] = 9, 3.0
        elif act in ("activate", "deactivate") and sparse:
            node = rng.choice(sparse)
            cells = sorted({some(node.shape) for _ in range(3)})
            switch(node, np.array(cells, np.int32), act == "activate")
            for cell in cells:
                getattr(model, act)(node, cell)
        elif act == "fill":
            x.fill(4)
            for index in model.elements(leaf):
                model.values[index] = 4
        elif act == "from_numpy":
            array = np.arange(np.prod(x.shape), dtype=np.int32).reshape(x.shape)
            x.from_numpy(array)
            for index in model.elements(leaf):
                model.values[index] = int(array[index])
        elif act == "all" and sparse:
            node = rng.choice(sparse)
            node.deactivate_all()
            for cell in list(model.active[id(node)]):
                model.deactivate(node, cell)
        expected = np.zeros(x.shape, np.int32)
        for index, value in model.values.items():
            expected[index] = value
        assert (x.to_numpy() == expected).all(), act
        assert y.to_numpy().sum() == sum(model.marks.values())
        for kind, node in nodes:
            assert indices_of(node) == model.elements(node), (act, str(node))
            if kind != "dense":
                cells = list(itertools.product(*map(range, node.shape)))
                count = asked(node, np.array(cells, np.int32))
                assert count == len(model.active[id(node)])
    assert indices_of(x) == model.elements(leaf)


# --- lists --------------------------------------------------------------------------------------------


def test_a_list_of_numbers():
    x = qd.field(qd.i32)
    node = qd.root.dynamic(qd.i, 100, chunk_size=8)
    node.place(x)

    @qd.kernel
    def fill(n: qd.i32):
        for i in range(n):
            slot = x.append(i)
            assert 0 <= slot

    @qd.kernel
    def size() -> qd.i32:
        return x.length()

    @qd.kernel
    def drop():
        x.deactivate()

    assert size() == 0 and indices_of(x) == []
    fill(30)
    assert size() == 30 and sorted(x.to_numpy()[:30].tolist()) == list(range(30))
    x[40] = 5
    assert size() == 41 and indices_of(x) == [(i,) for i in range(41)]
    x[3] = 6
    assert size() == 41
    fill(200)  # what finds no room is refused
    assert size() == 100
    drop()
    assert size() == 0 and not x.to_numpy().any()
    fill(3)
    assert size() == 3


@pytest.mark.parametrize("above", ["dense", "pointer", "bitmasked"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_lists_in_cells(above, wrapped):
    x = qd.field(qd.i32)
    top = getattr(qd.root, above)(qd.i, 6)
    if wrapped:
        top = top.dense(qd.i, 2)
    lists = top.dynamic(qd.j, 16, chunk_size=4)
    lists.place(x)
    count = 12 if wrapped else 6

    @qd.kernel
    def fill():
        for i in range(count):
            for k in range(i % 4):
                qd.append(lists, [i], 10 * i + k)

    @qd.kernel
    def length(i: qd.i32) -> qd.i32:
        return x[i].length() + 100 * qd.length(x.parent(), i)

    @qd.kernel
    def more(i: qd.i32) -> qd.i32:
        slot = x[i].append(7)
        return slot

    fill()
    lengths = [i % 4 for i in range(count)]
    assert [length(i) for i in range(count)] == [101 * n for n in lengths]
    assert indices_of(x) == [(i, k) for i in range(count) for k in range(lengths[i])]
    assert x.to_numpy()[3, :3].tolist() == [30, 31, 32]
    assert more(4) == 0 and x[4, 0] == 7 and more(3) == 3

    @qd.kernel
    def drop(i: qd.i32):
        qd.deactivate(lists, i)
        x[i + 1].deactivate()

    drop(2)
    assert length(2) == length(3) == 0 and length(1) == 101 and not x.to_numpy()[2:4].any()
    lists.deactivate_all()
    assert indices_of(x) == [] and not x.to_numpy().any()


def test_lists_of_structs():
    particle = qd.types.struct(at=qd.types.vector(2, qd.f32), kind=qd.i32)
    x = particle.field()
    node = qd.root.dynamic(qd.i, 64)
    node.place(x)

    @qd.kernel
    def fill() -> qd.i32:
        for i in range(20):
            x.append(particle(at=qd.Vector([1.0 * i, 2.0]), kind=i % 3))
        return x.length()

    @qd.kernel
    def sums() -> qd.types.vector(3, qd.f32):
        s = qd.Vector([0.0, 0.0, 0.0])
        for i in x:
            s += qd.Vector([x[i].at[0], x[i].at[1], 1.0 * x[i].kind])
        return s

    assert fill() == 20 and list(sums()) == [190, 40, 19]

    other = qd.types.struct(kind=qd.i32)

    @qd.kernel
    def number():
        x.append(1)

    @qd.kernel
    def too_few():
        x.append(other(kind=1))

    for k in number, too_few:
        with pytest.raises(TypeError, match="not as many members as the node has fields"):
            k()


# --- the host -----------------------------------------------------------------------------------------


def test_conversions_leave_inactive_cells_alone():
    x, y = qd.field(qd.f32), qd.Vector.field(2, qd.i32)
    qd.root.bitmasked(qd.i, 8).place(x, y)
    x[2] = 1
    y[5] = [3, 4]
    x.fill(2.5)
    y.fill([1, 2])
    assert x.to_numpy().tolist() == [0, 0, 2.5, 0, 0, 2.5, 0, 0]
    assert y.to_numpy().tolist() == [[0, 0]] * 2 + [[1, 2]] + [[0, 0]] * 2 + [[1, 2]] + [[0, 0]] * 2
    x.from_numpy(np.arange(8, dtype=np.float32))
    assert x.to_numpy().tolist() == [0, 0, 2, 0, 0, 5, 0, 0]
    dense = qd.field(qd.f32, shape=8)
    dense.copy_from(x)
    assert dense.to_numpy().tolist() == [0, 0, 2, 0, 0, 5, 0, 0]
    dense.fill(1)
    x.copy_from(dense)
    assert x.to_numpy().tolist() == [1] * 8
    with raises(ValueError, "sparse"):
        x.to_numpy(copy=False)
    x.fill(0)

    @qd.kernel
    def fill_in_kernel():
        x.fill(4)

    fill_in_kernel()
    assert x.to_numpy().tolist() == [4] * 8


def test_counts_of_slots_do_not_grow_with_cycles():
    x = qd.field(qd.i32)
    node = qd.root.pointer(qd.i, 64)
    node.dense(qd.i, 2).place(x)
    for begin in (0, 20, 40):
        write_range(x, begin, begin + 20)
        assert node._num_dynamically_allocated == 10
        node.deactivate_all()
    assert indices_of(node) == []


def test_counts_of_chunks_do_not_fall():
    x = qd.field(qd.i32)
    node = qd.root.dense(qd.i, 4).dynamic(qd.j, 100, 8)
    node.place(x)

    @qd.kernel
    def append(k: qd.i32, n: qd.i32):
        for i in range(n):
            x[k].append(i)

    @qd.kernel
    def deactivate(k: qd.i32):
        x[k].deactivate()

    @qd.kernel
    def write(k: qd.i32, at: qd.i32):
        x[k, at] = 1

    counts = []
    for step in (
        lambda: append(0, 20),
        lambda: append(1, 20),
        lambda: deactivate(0),
        lambda: append(2, 17),  # of the chunks of list 0
        lambda: append(3, 1),
        lambda: deactivate(1),
        lambda: write(0, 31),
        lambda: write(0, 7),
        lambda: x.__setitem__((0, 32), 1),
        node.deactivate_all,
        lambda: append(1, 9 * 8),
        lambda: append(1, 100),  # more than fit: 13 chunks
    ):
        step()
        counts.append(node._num_dynamically_allocated)
    assert counts == [3, 6, 6, 6, 7, 7, 8, 8, 9, 9, 9, 13]


def test_lists_of_appends_at_once_count_their_chunks():
    x = qd.field(qd.i32)
    node = qd.root.pointer(qd.i, 8).dynamic(qd.j, 1000, 16)
    node.place(x)

    @qd.kernel
    def append():
        for i in range(8 * 500):
            x[i % 8].append(i)

    for _ in range(3):
        append()
        assert node._num_dynamically_allocated == 8 * 32
        qd.deactivate_all_snodes()


def test_everything_is_deactivated():
    x, y = qd.field(qd.i32), qd.field(qd.i32)
    qd.root.pointer(qd.i, 4).place(x)
    builder = qd.FieldsBuilder()
    builder.dense(qd.j, 2).bitmasked(qd.i, 4).place(y)
    tree = builder.finalize()
    x[1] = 1
    y[2, 1] = 1
    builder.deactivate_all()
    assert y[2, 1] == 0 and x[1] == 1
    y[0, 0] = 1
    qd.deactivate_all_snodes()
    assert x[1] == 0 and y[0, 0] == 0
    x[1] = 3
    with pytest.warns(UserWarning, match="would deactivate all finalized snodes"):
        qd.root.deactivate_all()
    assert x[1] == 0
    tree.destroy()
    qd.deactivate_all_snodes()


def test_offsets():
    x = qd.field(qd.i32)
    node = qd.root.pointer(qd.i, 8)
    node.dense(qd.i, 4).place(x, offset=-16)
    for i in (-16, -1, 15):
        x[i] = i
    assert indices_of(x) == [(i,) for i in [*range(-16, -12), *range(-4, 0), *range(12, 16)]]
    assert indices_of(node) == [(0,), (3,), (7,)]


def test_large_trees_take_what_they_use():
    x = qd.field(qd.f32)
    top = qd.root.pointer(qd.ijk, 128)
    top.pointer(qd.ijk, 4).dense(qd.ijk, 8).place(x)  # 4096 cubed: 256 GiB if it were dense

    @qd.kernel
    def line():
        for i in range(4096):
            x[i, i, 4095 - i] = 1

    @qd.kernel
    def total() -> qd.f32:
        s = 0.0
        for i, j, k in x:
            s += x[i, j, k]
        return s

    line()
    assert total() == 4096 and x[4095, 4095, 0] == 1 and x[0, 0, 0] == 0


@pytest.mark.parametrize("debug", [False, True])
def test_out_of_bounds_is_told_of_the_field(debug):
    qd.init(arch=qd.cpu, debug=debug)
    x = qd.field(qd.i32)
    qd.root.pointer(qd.i, 8).dense(qd.i, 4).place(x)

    @qd.kernel
    def write(i: qd.i32):
        x[i] = 1

    write(31)
    if debug:
        with raises(qd.QuadrantsAssertionError, "of size (32) with indices (32)"):
            write(32)
    assert x.to_numpy().sum() == 1


def test_far_corners_of_trees_of_billions_of_cells():
    x = qd.field(qd.i8)
    top = qd.root.pointer(qd.ijk, 64)
    node = top.pointer(qd.ijk, 32).bitmasked(qd.ijk, 4)  # 8192 cubed
    node.place(x)
    n = 8192

    @qd.kernel
    def write(i: qd.i32, j: qd.i32, k: qd.i32):
        x[i, j, k] = 7

    for at in ((n - 1, n - 1, n - 2), (0, 0, 0), (2000, 2001, 2002), (n - 1, 0, n - 1)):
        write(*at)
        assert indices_of(x) == [at] and x[at] == 7
        top.deactivate_all()
        assert indices_of(x) == [] and x[at] == 0 and top._num_dynamically_allocated == 1


def test_everything_deactivated_gives_its_memory_back():
    x = qd.field(qd.f32)
    node = qd.root.pointer(qd.i, 1024)
    node.dense(qd.i, 16384).place(x)  # 64 KiB each

    def resident():
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * 4096

    @qd.kernel
    def touch_all():
        for i in range(1024 * 16):
            x[i * 1024] = 1

    if qd.cfg.arch != qd.x64 and qd.cfg.arch != qd.arm64:
        pytest.skip("of memory of the host")
    touch_all()
    before = resident()
    node.deactivate_all()
    assert resident() < before - (48 << 20) and not x.to_numpy().any()
    touch_all()
    assert x.to_numpy().sum() == 1024 * 16


@pytest.mark.parametrize(
    "body",
    [
        "qd.deactivate(n, i)\n        x[i] = 5",
        "drop(i)\n        x[i] += 5",
        "x[i] = 4\n        drop(i)\n        qd.atomic_add(x[i], 5)",
        "for k in range(2):\n            x[i] = 5\n            if k == 0: drop(i)",
    ],
)
def test_what_a_visit_deactivates_is_activated_by_its_writes(body, tmp_path):
    path = tmp_path / "program.py"
    program = f"""
import quadrants as qd
x = qd.field(qd.i32)
n = qd.root.pointer(qd.i, 4)
n.place(x)
@qd.func
def drop(i):
    qd.deactivate(n, i)
@qd.kernel
def k():
    for i in x:
        {body}
"""
    path.write_text(program)
    scope = {"__name__": "program", "__file__": str(path)}
    exec(compile(program, path, "exec"), scope)
    x = scope["x"]
    x[1] = x[3] = 1
    scope["k"]()
    assert indices_of(x) == [(1,), (3,)] and x.to_numpy().tolist() == [0, 5, 0, 5]


def test_nodes_are_indexed_without_offsets():
    x, y = qd.field(qd.i32), qd.field(qd.i32)
    dense, sparse = qd.root.dense(qd.i, 4), qd.root.pointer(qd.i, 4)
    dense.place(x, offset=-2)
    sparse.place(y, offset=-2)
    y[-2] = y[1] = 1
    assert indices_of(dense) == [(i,) for i in range(4)] and indices_of(x)[0] == (-2,)
    assert indices_of(sparse) == [(0,), (3,)] and indices_of(y) == [(-2,), (1,)]


def test_what_lies_beside_a_node_that_gives_its_pages_back_stays():
    before, x, after = (qd.field(qd.i8) for _ in range(3))
    for field, count in ((before, 4099), (x, 9001), (after, 4097)):
        qd.root.pointer(qd.i, count).place(field)

    @qd.kernel
    def fill_all(f: qd.template(), value: qd.i32):
        for i in range(f.shape[0]):
            f[i] = qd.cast(value, qd.i8)

    for field in (before, x, after):
        fill_all(field, 7)
    x.parent().deactivate_all()
    assert not x.to_numpy().any()
    assert (before.to_numpy() == 7).all() and (after.to_numpy() == 7).all()
    fill_all(x, 5)
    assert (x.to_numpy() == 5).all() and len(indices_of(x, 9010)) == 9001


def test_copies_between_offsets():
    x, y = qd.field(qd.i32), qd.field(qd.f32)
    qd.root.pointer(qd.i, 4).place(x, offset=-2)
    qd.root.pointer(qd.i, 4).place(y, offset=3)
    x[-2], x[1], y[4] = 3, 5, 9
    y.copy_from(x)
    assert [y[i] for i in range(3, 7)] == [3, 0, 0, 5]
    assert {(3,), (6,)} <= set(indices_of(y))


def test_copies_of_sparse_fields_are_copies():
    x, y = qd.field(qd.i32), qd.field(qd.f32)
    qd.root.pointer(qd.i, 4).place(x)
    qd.root.pointer(qd.i, 4).place(y)
    x[0], y[1], y[2] = 3, 1, 2
    y.copy_from(x)
    assert y.to_numpy().tolist() == [3, 0, 0, 0] and (0,) in indices_of(y)


# --- gradients ------------------------------------------------------------------------------------------


def test_gradients():
    x, y = qd.field(qd.f32), qd.field(qd.f32)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    qd.root.pointer(qd.i, 8).dense(qd.i, 4).place(x, x.grad, y, y.grad)

    @qd.kernel
    def energy():
        for i in x:
            loss[None] += x[i] ** 2 * y[i]

    for i in range(5, 9):
        x[i], y[i] = i, 2
    with qd.ad.Tape(loss):
        energy()
    assert loss[None] == 2 * sum(i * i for i in range(5, 9))
    assert x.grad.to_numpy()[4:9].tolist() == [0, 20, 24, 28, 32]
    assert y.grad.to_numpy()[4:9].tolist() == [0, 25, 36, 49, 64]


@pytest.mark.parametrize("apart", [False, True])
def test_gradients_activate_what_they_are_written_to(apart):
    x = qd.field(qd.f32)
    node = qd.root.bitmasked(qd.i, 4)
    node.place(x)
    of_gradient = qd.root.pointer(qd.i, 4) if apart else node
    of_gradient.place(x.grad)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)

    @qd.kernel
    def weighted():
        for i in range(4):
            loss[None] += x[i] * (i + 1)

    x[1] = 1
    for _ in range(2):
        loss.grad[None] = 1
        weighted.grad()
        assert x.grad.to_numpy().tolist() == [1, 2, 3, 4]
        assert indices_of(of_gradient) == [(i,) for i in range(4)]
        x.grad.fill(0)
        assert not x.grad.to_numpy().any()


def test_gradients_through_sparse_stores():
    x, y = qd.field(qd.f32), qd.field(qd.f32)
    loss = qd.field(qd.f32, shape=(), needs_grad=True)
    qd.root.pointer(qd.i, 8).dense(qd.i, 4).place(x, x.grad)
    qd.root.bitmasked(qd.i, 32).place(y, y.grad)

    @qd.kernel
    def squares():
        for i in x:
            y[31 - i] = x[i] ** 2

    @qd.kernel
    def weighted():
        for i in y:
            loss[None] += y[i] * (i + 1)

    for i in range(5, 9):
        x[i] = i
    with qd.ad.Tape(loss):
        squares()
        weighted()
    assert loss[None] == sum(i * i * (32 - i) for i in range(5, 9))
    assert x.grad.to_numpy()[4:10].tolist() == [0, *(2 * i * (32 - i) for i in range(5, 9)), 0]


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, error, text",
    [
        (
            "qd.is_active(dense, 0)",
            qd.QuadrantsTypeError,
            "only works on pointer, hash or bitmasked",
        ),
        (
            "qd.is_active(lists, 0)",
            qd.QuadrantsTypeError,
            "only works on pointer, hash or bitmasked",
        ),
        ("qd.is_active(qd.root, 0)", qd.QuadrantsTypeError, "only works on pointer, hash or"),
        ("qd.append(dense, 0, 1)", qd.QuadrantsTypeError, "qd.append only works on dynamic nodes."),
        ("qd.length(pointer, 0)", qd.QuadrantsTypeError, "qd.length only works on dynamic nodes."),
        (
            "qd.activate(pointer, [1, 2])",
            qd.QuadrantsRuntimeError,
            "has 1 indices. Indexed with 2.",
        ),
        ("qd.is_active(pointer, [])", qd.QuadrantsRuntimeError, "has 1 indices. Indexed with 0."),
        ("qd.append(lists, [1], 7)", qd.QuadrantsRuntimeError, "has 0 indices. Indexed with 1."),
        ("z[1].append(7)", qd.QuadrantsRuntimeError, "has 0 indices. Indexed with 1."),
        ("qd.activate(dense, [])", qd.QuadrantsRuntimeError, "has 1 indices. Indexed with 0."),
        ("qd.activate(qd.root, [])", qd.QuadrantsTypeError, "qd.activate only works on"),
        ("qd.deactivate(qd.root, [])", qd.QuadrantsTypeError, "qd.deactivate only works on"),
        ("qd.activate(3, [0])", qd.QuadrantsTypeError, "qd.activate takes an SNode, got int"),
        ("qd.length(None, [])", qd.QuadrantsTypeError, "qd.length takes an SNode, got NoneType"),
        # fields
        ("qd.activate(y, [0])", qd.QuadrantsRuntimeError, "activate operation is not supported on"),
        ("qd.deactivate(v, [0])", qd.QuadrantsRuntimeError, "not supported on place SNode"),
        ("qd.length(z, [])", qd.QuadrantsRuntimeError, "not supported on place SNode"),
        ("qd.append(z, [], 1)", qd.QuadrantsTypeError, "qd.append only works on dynamic nodes."),
        (
            "qd.is_active(y, [0])",
            qd.QuadrantsTypeError,
            "qd.is_active only works on pointer, hash or bitmasked nodes.",
        ),
    ],
)
def test_nodes_of_other_kinds_are_refused(call, error, text, tmp_path):
    program = f"""
import quadrants as qd
x, y, z = qd.field(qd.i32), qd.field(qd.i32), qd.field(qd.i32)
v = qd.Vector.field(2, qd.f32, 3)
dense = qd.root.dense(qd.i, 4)
dense.place(x)
pointer = qd.root.pointer(qd.i, 4)
pointer.place(y)
lists = qd.root.dynamic(qd.i, 4)
lists.place(z)

@qd.kernel
def k():
    {call}
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    scope = {"__name__": "program", "__file__": str(path)}
    exec(compile(program, path, "exec"), scope)
    with raises(error, text):
        scope["k"]()
    scope["y"][1] = 2
    assert scope["y"][1] == 2


def test_cells_of_dense_nodes_are_always_there():
    x = qd.field(qd.i32)
    pointer = qd.root.pointer(qd.i, 4)
    dense = pointer.dense(qd.i, 2)
    dense.place(x)

    @qd.kernel
    def activate():
        qd.activate(dense, [2])

    @qd.kernel
    def deactivate():
        qd.deactivate(dense, 2)

    activate()
    assert indices_of(pointer) == []
    x[2] = 5
    deactivate()
    assert indices_of(pointer) == [(1,)] and x[2] == 5


@pytest.mark.parametrize("index", [4, -1, 40])
def test_cells_outside_are_told_in_debug_mode(index):
    qd.init(arch=qd.cpu, debug=True)
    x, y = qd.field(qd.i32), qd.field(qd.i32)
    pointer, lists = qd.root.pointer(qd.i, 4), qd.root.dense(qd.i, 4).dynamic(qd.j, 8)
    pointer.place(x)
    lists.place(y)

    @qd.kernel
    def activate(i: qd.i32):
        qd.activate(pointer, i)

    @qd.kernel
    def deactivate(i: qd.i32):
        qd.deactivate(pointer, i)

    @qd.kernel
    def ask(i: qd.i32) -> qd.i32:
        return qd.is_active(pointer, i)

    @qd.kernel
    def append(i: qd.i32):
        qd.append(lists, i, 1)

    for k in (activate, deactivate, ask, append):
        with raises(qd.QuadrantsAssertionError, "of size (4"):
            k(index)
        k(3)
    assert indices_of(pointer) == []


def test_wrong_declarations_are_refused():
    with raises(AssertionError, "exactly one axis"):
        qd.root.dynamic(qd.ij, 4)
    with raises(qd.QuadrantsRuntimeError, "too large"):
        qd.root.dynamic(qd.i, 2**31)
    with raises(qd.QuadrantsRuntimeError, "too large"):
        qd.root.dynamic(qd.i, 4, chunk_size=2**31)
    node = qd.root.pointer(qd.i, 4)
    with raises(RuntimeError, "must have at least one child"):
        qd.sync()
    node.place(qd.field(qd.i32))
    qd.sync()


def test_what_nodes_say():
    x = qd.field(qd.i32)
    node = qd.root.pointer(qd.ij, (2, 4)).bitmasked(qd.j, 8)
    node.place(x)
    assert repr(node) == "<qd.SNode of type bitmasked>"
    assert str(node) == "qd.root => pointer [2, 4] => bitmasked [2, 32]"
    assert x.shape == (2, 32) and x.parent() == node and node.ptr.type.name == "bitmasked"
    assert qd.is_extension_enabled(qd.extension.sparse)


# --- caches -----------------------------------------------------------------------------------------------


PROGRAM = """
import sys
import quadrants as qd
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path=sys.argv[1])
x = qd.field(qd.i32)
{tree}.place(x)

@qd.kernel
def write():
    for i in range(5):
        x[3 * i] += i + 1

@qd.kernel
def count() -> qd.i32:
    n = 0
    for i in x:
        n += 1
    return n

write()
from quadrants._lib import core
print("RESULT", count(), sum(x[i] for i in range(x.shape[0])), core.counters()["lowered"])
"""


def test_a_change_of_the_tree_is_another_kernel(tmp_path):
    trees = {
        "qd.root.dense(qd.i, 4).dense(qd.i, 4)": 16,
        "qd.root.pointer(qd.i, 4).dense(qd.i, 4)": 16,
        "qd.root.pointer(qd.i, 8).dense(qd.i, 2)": 10,
        "qd.root.dense(qd.i, 4).bitmasked(qd.i, 4)": 5,
        "qd.root.bitmasked(qd.i, 16)": 5,
        "qd.root.dynamic(qd.i, 16)": 13,
    }
    for lowered in (True, False):
        for tree, count in trees.items():
            path = tmp_path / "program.py"
            path.write_text(PROGRAM.format(tree=tree))
            done = subprocess.run(
                [sys.executable, path, str(tmp_path / "cache")],
                capture_output=True,
                text=True,
                timeout=100,
            )
            assert done.returncode == 0, done.stderr[-2000:]
            result = done.stdout.split("RESULT ")[1].split()
            assert result[:2] == [str(count), "15"], tree
            assert (result[2] != "0") == lowered, tree


# --- lists that a GPU makes in parallel, on any target ----------------------------------------------------


@qd.kernel
def collected(node: qd.template(), out: qd.types.ndarray(ndim=2)) -> qd.i32:
    n = collect_in_parallel(node._activity_here)
    for e in range(n):
        for k in qd.static(range(node._activity_here.rank)):
            out[e, k] = node._activity_here.lists[k][e]
    return n


@pytest.mark.parametrize("most_tasks", [2**20, 8, 1])
@pytest.mark.parametrize("kind", ["pointer", "bitmasked"])
def test_active_cells_are_listed_in_parallel(kind, most_tasks, monkeypatch):
    monkeypatch.setattr(activity, "_MOST_TASKS", most_tasks)  # 37 words, in levels of 37, 2 and 1
    x = qd.field(qd.i32)
    node = getattr(qd.root.pointer(qd.ij, (3, 5)), kind)(qd.ij, (7, 11))
    node.place(x)
    out = qd.ndarray(qd.i32, (2000, 2))
    cells = set()
    for step in range(4):
        at = [(i * 7 % 21, (i * 13 + step) % 55) for i in range(step * 40)]
        for i, j in at:
            x[i, j] = 1
        cells |= set(at)
        count = collected(node, out)
        assert {tuple(row) for row in out.to_numpy()[:count].tolist()} == cells
        assert count == len(cells) == collected(node, out)
        assert node._activity_here.level_of_tasks == {2**20: 0, 8: 1, 1: 2}[most_tasks]
    node.deactivate_all()
    assert collected(node, out) == 0
    x[20, 54] = 1  # below bits that are not set any more
    assert collected(node, out) == 1 and tuple(out.to_numpy()[0]) == (20, 54)


@pytest.mark.parametrize("above", [None, "dense", "pointer"])
def test_lists_are_listed_in_parallel(above):
    x = qd.field(qd.i32)
    top = getattr(qd.root, above)(qd.i, 6) if above else qd.root
    node = top.dynamic(qd.j, 40, 8)
    node.place(x)
    out = qd.ndarray(qd.i32, (400, 2))
    expected = []
    for i in range(6 if above else 1):
        for j in range(5 * i % 17 or 3):
            at = (i, j) if above else (j,)
            x[at] = 1
            expected.append(at)
    count = collected(node, out)
    rank = 2 if above else 1
    assert sorted(map(tuple, out.to_numpy()[:count, :rank].tolist())) == expected


# --- components with containers of their own ---------------------------------------------------------


@pytest.mark.parametrize("kind", ["bitmasked", "pointer", "dynamic"])
@pytest.mark.parametrize("sparse_one", [0, 1])
@pytest.mark.parametrize("bits", [None, 8])
def test_components_below_different_nodes(kind, sparse_one, bits):
    top = qd.root.dense(qd.i, 3) if kind != "dynamic" else qd.root
    extent = 3 if kind != "dynamic" else 9
    v = qd.Vector.field(2, qd.i32 if bits is None else qd.types.quant.int(bits))
    parts = [v.get_scalar_field(k) for k in range(2)]
    for k, part in enumerate(parts):
        node = getattr(top, kind if k == sparse_one else "dense")(qd.i, extent)
        if bits is None:
            node.place(part)
        else:
            word = qd.BitpackedFields(32)
            word.place(part)
            node.place(word)

    @qd.kernel
    def count(x: qd.template()) -> qd.i32:
        n = 0
        for i in x:
            n += 1
        return n

    def visits():
        return [count(part) for part in parts]

    there = {"bitmasked": 1, "pointer": 1, "dynamic": 5}[kind]
    v[4] = [5, 6]
    expected = [9, 9]
    expected[sparse_one] = there
    assert visits() == expected and count(v) == expected[0]
    v.fill(3)
    want = np.full((9, 2), 3)
    want[:, sparse_one] = [0 if kind != "dynamic" or i > 4 else 3 for i in range(9)]
    want[4] = 3
    assert (v.to_numpy() == want).all()
    given = np.arange(18).reshape(9, 2)
    v.from_numpy(given)
    expected[sparse_one] = there if bits is None else visits()[sparse_one]
    assert visits() == expected
    read = v.to_numpy()
    assert (read[:, 1 - sparse_one] == given[:, 1 - sparse_one]).all()
    assert read[4].tolist() == [8, 9]


# --- gradients of kernels of several loops -----------------------------------------------------------

NODES = {
    "pointer": lambda: qd.root.pointer(qd.i, 4).dense(qd.i, 2),
    "bitmasked": lambda: qd.root.bitmasked(qd.i, 8),
    "deep": lambda: qd.root.pointer(qd.i, 2).bitmasked(qd.i, 4),
    "dynamic": lambda: qd.root.dynamic(qd.i, 8),
    "dense": lambda: qd.root.dense(qd.i, 8),
}


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("together", [True, False])
def test_gradients_of_loops_that_activate(node, together):
    x = qd.field(qd.f64)
    y, z = qd.field(qd.f64), qd.field(qd.f64)
    loss = qd.field(qd.f64, (), needs_grad=True)
    if together:
        NODES[node]().place(x, y, z)
    else:
        qd.root.dense(qd.i, 8).place(x)
        NODES[node]().place(y)
        NODES[node]().place(z)
    qd.root.lazy_grad()
    start = 0.1 * np.arange(8) + 0.5

    @qd.kernel
    def chain():
        for i in range(8):
            y[i] += x[i] * x[i]
        for i in range(6):
            z[i] += qd.sin(x[i]) * y[i + 2]
        for i in y:
            loss[None] += y[i] * z[i]

    def value(v):
        z_of = np.zeros(8)
        z_of[:6] = np.sin(v[:6]) * v[2:] ** 2
        return (v * v * z_of).sum()

    for i in range(8):
        x[i] = start[i]
    with qd.ad.Tape(loss):
        chain()
    assert np.isclose(loss[None], value(start))
    for k in range(8):
        step = 1e-6 * (np.arange(8) == k)
        slope = (value(start + step) - value(start - step)) / 2e-6
        assert np.isclose(x.grad[k], slope, rtol=1e-7)


@pytest.mark.parametrize("node", NODES)
def test_gradients_of_particles_and_a_grid(node):
    """Scatter, update of active cells, gather: in one kernel."""
    n = 16
    position = qd.field(qd.f64, n, needs_grad=True)
    mass, speed = qd.field(qd.f64), qd.field(qd.f64)
    NODES[node]().place(mass, speed, mass.grad, speed.grad)
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def step():
        for p in position:
            cell = qd.cast(position[p], qd.i32)
            part = position[p] - cell
            mass[cell] += 1 - part
            mass[cell + 1] += part
        for i in mass:
            if mass[i] > 0:
                speed[i] = mass[i] * mass[i]
        for p in position:
            cell = qd.cast(position[p], qd.i32)
            part = position[p] - cell
            loss[None] += speed[cell] * (1 - part) + speed[cell + 1] * part

    start = 0.37 * np.arange(n) + 0.2

    def value(x):
        cell = x.astype(int)
        part = x - cell
        m = np.zeros(8)
        np.add.at(m, cell, 1 - part)
        np.add.at(m, cell + 1, part)
        return (m[cell] ** 2 * (1 - part) + m[cell + 1] ** 2 * part).sum()

    position.from_numpy(start)
    with qd.ad.Tape(loss):
        step()
    assert np.isclose(loss[None], value(start))
    for k in range(n):
        h = 1e-6 * (np.arange(n) == k)
        slope = (value(start + h) - value(start - h)) / 2e-6
        assert np.isclose(position.grad[k], slope, rtol=1e-6)


def test_gradients_that_ask_for_activity_are_refused_still():
    x, y = qd.field(qd.f64), qd.field(qd.f64)
    qd.root.dense(qd.i, 8).place(x)
    node = qd.root.bitmasked(qd.i, 8)
    node.place(y)
    qd.root.lazy_grad()

    @qd.kernel
    def asks():
        for i in range(4):
            if not qd.is_active(node, [i]):
                y[i] += x[i]
        for i in range(4):
            y[i] += x[i] * x[i]

    asks()
    with raises(RuntimeError, "qd.is_active in a kernel that is differentiated"):
        asks.grad()


@pytest.mark.parametrize("node", NODES)
def test_going_back_activates_nothing_that_a_loop_visits(node):
    """Gradients of cells that are read before they are active lie in cells of the same node."""
    x, w = (qd.field(qd.f64, 8, needs_grad=True) for _ in range(2))
    y, z = qd.field(qd.f64), qd.field(qd.f64)
    for field in (y, z):
        NODES[node]().place(field)
    qd.root.lazy_grad()
    loss = qd.field(qd.f64, (), needs_grad=True)

    @qd.kernel
    def some():
        for i in range(2):
            y[i] += w[i]
        for i in range(5):
            z[i] += y[i] * x[i]
        for i in range(8):
            loss[None] += z[i] * x[i]
        for i in y:
            loss[None] += x[i] * x[i] + w[i]

    def value(at, by):
        visited = 2 if node in ("pointer", "bitmasked", "deep", "dynamic") else 8
        z_of = np.zeros(8)
        z_of[:2] = by[:2] * at[:2]
        return (z_of * at).sum() + (at[:visited] ** 2 + by[:visited]).sum()

    given = np.linspace(0.5, 1.5, 8), np.linspace(2, 1, 8)
    x.from_numpy(given[0])
    w.from_numpy(given[1])
    with qd.ad.Tape(loss):
        some()
    assert np.isclose(loss[None], value(*given))
    for k, field in enumerate((x, w)):
        for i in range(8):
            moved = [[a.copy() for a in given] for _ in range(2)]
            moved[0][k][i] += 1e-6
            moved[1][k][i] -= 1e-6
            slope = (value(*moved[0]) - value(*moved[1])) / 2e-6
            assert np.isclose(field.grad[i], slope, rtol=1e-6, atol=1e-8), (k, i)


def test_full_lists_that_others_empty():
    """Appends past the end and clearing at once touch no other list, and leave a length from 0 on."""
    qd.init(arch=qd.cpu, cpu_max_num_threads=4)
    x = qd.field(qd.i32)
    node = qd.root.dense(qd.i, 3).dynamic(qd.j, 8, 4)
    node.place(x)

    @qd.kernel
    def fill():
        for i in range(3):
            for j in range(8):
                qd.append(node, [i], 100 * i + j)

    @qd.kernel
    def race(n: qd.i32):
        for k in range(n):
            if k % 5:
                qd.append(node, [1], k)
            else:
                qd.deactivate(node, [1])

    @qd.kernel
    def lengths() -> qd.types.vector(3, qd.i32):
        return qd.Vector([qd.length(node, [0]), qd.length(node, [1]), qd.length(node, [2])])

    fill()
    for _ in range(30):
        race(20000)
        left, middle, right = lengths()
        assert left == right == 8 and 0 <= middle <= 8
        assert [x[0, j] for j in range(8)] == [*range(8)]
        assert [x[2, j] for j in range(8)] == [200 + j for j in range(8)]
