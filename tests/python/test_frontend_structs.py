"""Structs in kernels: copies, members as places, nesting, methods, fields, arguments, results."""

import numpy as np
import pytest

import quadrants as qd
from helpers import raises

vec2, vec3 = qd.types.vector(2, qd.f32), qd.types.vector(3, qd.f32)
Leaf = qd.types.struct(x=qd.f32, v=vec2)
Tree = qd.types.struct(a=Leaf, n=qd.i32)


@qd.dataclass
class Ball:
    centre: vec3
    radius: qd.f32

    @qd.func
    def size(self):
        return self.radius * self.radius + self.centre.sum()

    @qd.func
    def grow(self, by):
        self.radius += by


def run(kernel, n, *args):
    """What `kernel` writes into the n values of its field argument."""
    out = qd.field(qd.f32, n)
    kernel(out, *args)
    return out.to_numpy().tolist()


def test_assignment_copies(backend):
    @qd.kernel
    def k(out: qd.template()):
        s = Leaf(x=3.0, v=vec2(1, 2))
        t = s
        t.x = 9
        t.v[1] = 5
        s.v.x += 7
        out[0], out[1], out[2], out[3] = s.x, s.v.x, s.v.y, t.v.sum()

    assert run(k, 4) == [3, 8, 2, 6]


def test_nested_members(backend):
    @qd.kernel
    def k(out: qd.template()):
        s = Leaf(1.5, [2, 3])
        t = Tree(s, 4)
        t.a.x = 7
        out[0], out[1], out[2] = t.a.x, s.x, t.n
        part = Tree(n=3)
        out[3], out[4] = part.n, part.a.v.sum()
        swapped = Leaf(v=4, x=2)
        out[5] = swapped.v.sum()
        t.a = swapped
        out[6] = t.a.x
        scalar_first = Tree(7, 8)
        out[7] = scalar_first.a.x

    assert run(k, 8) == [7, 1.5, 4, 3, 0, 8, 2, 7]


Line = qd.types.struct(at=vec3, to=vec3)
Ray = qd.types.struct(line=Line, n=qd.i32)
Pair = qd.types.struct(a=qd.i32, v=vec2)
Square = qd.types.struct(m=qd.types.matrix(2, 2, qd.f32), k=qd.i32)


@qd.dataclass
class Beam:
    ray: Ray
    n: qd.i32


@qd.dataclass
class Kept:
    pair: Pair
    square: Square


def test_a_list_for_a_struct_is_one_value(backend):
    @qd.func
    def through(v):
        return Ray(v, 7)

    @qd.real_func
    def called(x: qd.f32) -> Ray:
        return Ray(line=(x, x * 2, x * 3), n=7)

    @qd.kernel
    def k(x: qd.f32, way: qd.template()) -> Ray:
        r = Ray([x, x * 2, x * 3], 7)
        if qd.static(way == 1):
            r = Ray(line=(x, x * 2, x * 3), n=7)
        if qd.static(way == 2):
            r = through([x, x * 2, x * 3])
        if qd.static(way == 3):
            r = called(x)
        if qd.static(way == 4):
            r = Ray(qd.Vector([x, x * 2, x * 3]), 7)
        if qd.static(way == 5):
            r = Beam([x, x * 2, x * 3], 7).ray
            r.n = 7
        if qd.static(way == 6):
            r = Ray([1, 2, 3], 7)
        if qd.static(way == 7):
            r = Ray([qd.Vector([x, x * 2]), x * 3], 7)
        return r

    for way in range(8):
        expect = {"line": {"at": [1, 2, 3], "to": [0, 0, 0]}, "n": 7}
        assert k(1.0, way).to_dict() == expect, way


def test_a_list_for_a_struct_in_fields_and_arguments(backend):
    f = Beam.field(shape=3)

    @qd.kernel
    def k(given: Beam, x: qd.f32):
        f[0] = given
        f[1] = Beam([x, 2, 3], 4)
        f[2].ray = Ray(line=[x, 5, 6], n=2)

    k(Beam([7, 8, 9], 4), 1.0)
    assert f.ray.line.at.to_numpy().tolist() == [[7, 8, 9], [1, 2, 3], [1, 5, 6]]
    assert not f.ray.line.to.to_numpy().any() and f.n.to_numpy().tolist() == [4, 4, 0]


@pytest.mark.oracle_differs("a list is only for a vector or matrix")
def test_a_list_that_is_no_vector_has_the_members(backend):
    @qd.kernel
    def k(x: qd.f32) -> Kept:
        return Kept([x, vec2(2, 3)], [[[x, 2], [3, 4]], 7])

    @qd.kernel
    def structs(x: qd.f32) -> Beam:
        return Beam([Line([x, 2, 3]), 5], 6)

    expect = {"pair": {"a": 1, "v": [2, 3]}, "square": {"m": [[1, 2], [3, 4]], "k": 7}}
    assert k(1.0).to_dict() == expect
    assert structs(1.0).to_dict() == {
        "ray": {"line": {"at": [1, 2, 3], "to": [0, 0, 0]}, "n": 5},
        "n": 6,
    }


def test_a_matrix_for_a_struct(backend):
    @qd.kernel
    def k(x: qd.f32) -> Kept:
        return Kept(square=[[x, 2], [3, 4]])

    assert k(1.0).square.to_dict() == {"m": [[1, 2], [3, 4]], "k": 0}


Inner = qd.types.struct(a=qd.i32, v=vec2)
Outer = qd.types.struct(s=Inner, c=qd.i32)
Renamed = qd.types.struct(z=vec2, a=qd.i32)
Turned = qd.types.struct(v=vec2, a=qd.i32)
Few = qd.types.struct(a=qd.i32)
Many = qd.types.struct(a=qd.i32, v=vec2, q=qd.i32)
host_outer = Outer(Inner(1, [2, 3]), 4)


@pytest.mark.parametrize("way", range(10))
def test_other_members_than_a_struct_has(backend, way):
    @qd.kernel
    def k(x: qd.f32) -> Outer:
        r = Outer()
        if qd.static(way == 0):
            r = Outer(Renamed(x, 5), 4)
        if qd.static(way == 1):
            r = Outer(s=Few(x), c=4)
        if qd.static(way == 2):
            r = Outer(Many(x, 2, 3), 4)
        if qd.static(way == 3):
            r = Outer(Outer(x, 2), 4)
        if qd.static(way == 4):
            r = Outer(qd.Struct(a=x, q=vec2(2)), 4)
        if qd.static(way == 5):
            r = Outer({"zz": x}, 4)
        if qd.static(way == 6):
            r = Outer({"a": x}, 4)
        if qd.static(way == 7):
            r = Outer(s={"a": x, "v": 2, "q": 3}, c=4)
        if qd.static(way == 8):
            r = Outer({}, 4)
        if qd.static(way == 9):
            r = Outer(host_outer, 4)
        return r

    with raises(qd.QuadrantsSyntaxError, "Incompatible arguments for custom struct members!"):
        k(1.0)


def test_members_in_another_order(backend):
    @qd.kernel
    def k(x: qd.f32, way: qd.template()) -> Outer:
        r = Outer(Turned([2, 3], x), 4)
        if qd.static(way == 1):
            r = Outer({"v": (2, 3), "a": x}, 4)
        if qd.static(way == 2):
            r = Outer(s=qd.Struct(v=vec2(2, 3), a=x), c=4)
        if qd.static(way == 3):
            r = Outer(host_outer.s, 4)
        return r

    for way in range(4):
        assert k(1.0, way).to_dict() == {"s": {"a": 1, "v": [2, 3]}, "c": 4}, way


def test_structs_made_on_the_spot(backend):
    @qd.kernel
    def k(out: qd.template()):
        r = qd.Struct(x=1, y=qd.Vector([1.5, 2]))
        out[0] = r.y.sum()
        r.x = 4
        out[1] = r.x

    assert run(k, 2) == [3.5, 4]


def test_struct_captured_from_the_host(backend):
    host = Leaf(4, [5, 6])

    @qd.kernel
    def k(out: qd.template()):
        copy = host
        copy.x = 1
        out[0], out[1], out[2] = host.x, copy.v.y, copy.x

    assert run(k, 3) == [4, 6, 1]


@pytest.mark.parametrize("layout", ["AOS", "SOA"])
def test_fields_of_nested_structs(backend, layout):
    f = Tree.field(shape=3, layout=getattr(qd.Layout, layout))

    @qd.kernel
    def k(out: qd.template()):
        for i in f:
            f[i].a.x = i
            f[i].a.v = [i, 2 * i]
            f[i].n = 7
        b = f[2]
        b.a.v.y += 1
        out[0], out[1] = b.a.v.y, f[2].a.v.y
        f[0] = b
        f[1].a = Leaf(5, 1.0)
        out[2], out[3], out[4] = f[0].a.v.y, f[1].a.x + f[1].a.v.x, f[1].n
        qd.atomic_add(f[0].a.v.x, 3)
        f[2].a.v += 1
        out[5], out[6] = f[0].a.v.x, f[2].a.v.y

    assert run(k, 7) == [5, 4, 5, 6, 7, 5, 5]


def test_methods_on_locals_and_elements(backend):
    f = Ball.field(shape=4)

    @qd.kernel
    def k(out: qd.template()):
        b = Ball(centre=[1.0, 2.0, 3.0], radius=2.0)
        b.grow(1)
        out[0] = b.size()
        for i in f:
            f[i].radius = i
            f[i].centre = [1.0, i, 2.0]
            f[i].grow(1)
        s = 0.0
        for i in range(4):
            s += f[i].size()
        out[1] = s

    assert run(k, 2) == [15, sum((i + 1) ** 2 + 3 + i for i in range(4))]


def test_arguments_and_results(backend):
    @qd.func
    def total(s):
        return s.x + s.v.sum()

    @qd.func
    def made(a) -> Leaf:
        return Leaf(a, vec2(a, a))

    @qd.kernel
    def k(out: qd.template(), s: Leaf):
        t = s
        t.x = 9
        out[0], out[1], out[2], out[3] = total(s), total(made(2.0)), t.x, s.x

    @qd.kernel
    def result() -> Leaf:
        return Leaf(3, [4, 5])

    assert run(k, 4, Leaf(1, [2, 3])) == [6, 6, 9, 1]
    r = result()
    assert (r.x, r.v[0], r.v[1]) == (3, 4, 5)


def test_unpacked_vector_members(backend):
    Wide = qd.types.struct(a=qd.f32, r=qd.types.vector(3, qd.f32, unpacked=True))
    f = Wide.field(shape=2)

    @qd.kernel
    def k(out: qd.template()):
        for i in qd.static(range(3)):
            f[1].r[i] = i + 1.0
        f[1].r[2] += 5
        u = Wide()
        u.r[1] = 4
        out[0], out[1] = f[1].r[2], u.r[1] + u.a
        u = f[1]
        out[2] = u.r[0]

    @qd.kernel
    def by_runtime_index(i: qd.i32):
        f[1].r[i] = 1

    assert run(k, 3) == [8, 4, 1]
    with raises(qd.QuadrantsSyntaxError, "python-int"):
        by_runtime_index(1)


@pytest.mark.parametrize("index", [True, np.int64(1), np.uint8(1)])
def test_an_unpacked_vector_by_a_bool_or_an_integer_of_numpy(backend, index):
    Wide = qd.types.struct(r=qd.types.vector(3, qd.f32, unpacked=True))

    @qd.kernel
    def k(out: qd.template()):
        u = Wide()
        u.r[index] = 4
        for i in qd.static((False, True)):
            u.r[i] += 2
        out[0], out[1], out[2] = u.r[0], u.r[1], u.r[index]

    assert run(k, 3) == [2, 6, 6]


def test_struct_arrays_match_numpy(backend):
    f = Ball.field(shape=5)
    f.radius.from_numpy(np.arange(5, dtype=np.float32))

    @qd.kernel
    def k():
        for i in f:
            f[i].centre = vec3(f[i].radius)

    k()
    assert f.centre.to_numpy().tolist() == [[i, i, i] for i in range(5)]


def of_numbers():
    return Leaf(x=1.0, v=[2.0, 3.0])


def nested_of_numbers():
    return Tree(a={"x": 4.0, "v": [5.0, 6.0]}, n=2)


def test_structs_of_constants_made_by_python_helpers(backend):
    @qd.func
    def total(leaf):
        return leaf.x + leaf.v[0] * 10 + leaf.v[1] * 100

    @qd.func
    def total_of_template(leaf: qd.template()):
        return total(leaf)

    @qd.kernel
    def k(out: qd.template()):
        out[0] = total(of_numbers())
        for i in range(1, 3):
            if i > 1:
                out[i] = total_of_template(of_numbers()) + total(nested_of_numbers().a)
        out[3] = total(Leaf()) + nested_of_numbers().n

    assert run(k, 4) == [321, 0, 321 + 654, 2]


class Scaled:
    @qd.func
    def scaled(self, by):
        return self.x * by

    @qd.func
    def name(self):
        return -1.0

    def host_sum(self):
        return self.x + self.y


class Moved:
    @qd.func
    def move(self, by):
        self.x += by


@qd.dataclass
class Inheriting(Moved, Scaled):
    x: qd.f32
    y: qd.f32

    @qd.func
    def name(self):
        return 100.0


def test_inherited_methods(backend):
    f = Inheriting.field(shape=2)
    f[1] = Inheriting(3, 4)

    @qd.kernel
    def k(a: Inheriting) -> qd.f32:
        f[1].move(1.0)
        return a.scaled(2.0) + f[1].scaled(10.0) + a.name()

    assert k(Inheriting(1, 2)) == 2 + 40 + 100
    assert Inheriting(1, 2).host_sum() == 3 and f[1].host_sum() == 8
