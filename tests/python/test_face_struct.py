"""Host structs, struct types and `qd.dataclass`."""

import operator

import numpy as np
import pytest

import quadrants as qd

E = qd.QuadrantsSyntaxError
vec3 = qd.types.vector(3, qd.f32)


def test_struct():
    s = qd.Struct(a=1, v=[1, 2, 3], d=dict(x=1))
    assert s.keys == ["a", "v", "d"] and len(s) == 3 and s.a == s["a"] == 1 and s.d.x == 1
    assert s.to_dict() == {"a": 1, "v": [1, 2, 3], "d": {"x": 1}}
    assert s.to_dict(include_ndim=True)["__matrix_ndim"] == {"v": 1}
    assert s.to_dict(include_methods=True)["__struct_methods"] == {}
    assert dict(s.items)["a"] == 1 and list(s.entries) == ["a", "v", "d"] and s.methods == {}
    assert type(s).__module__ == "quadrants.lang.struct" and type(s).__name__.startswith("Struct")
    s.v = [4, 5, 6]
    s.a = 2.5
    assert s.v[2] == 6 and s.a == 2.5
    with pytest.raises(TypeError, match="A number is expected when assigning struct members"):
        s.a = "x"
    for wrong in (lambda: qd.Struct(3), lambda: qd.Struct([1])):
        with pytest.raises(E, match="dictionary or keyword arguments"):
            wrong()
    with pytest.raises(AttributeError):
        s.nothing
    with pytest.raises(KeyError):
        s["nothing"]


@pytest.mark.oracle_differs("iter() gives no iterator")
def test_iteration():
    s = qd.Struct(a=1, v=[1, 2], d=dict(x=2.5))
    a, v, d = s
    assert (a, list(v), d.x) == (1, [1, 2], 2.5)
    assert 1 in qd.Struct(a=1) and 2 not in qd.Struct(a=1)


def test_no_operand_of_numpy():
    s = qd.Struct(a=1)
    for left, right in ((np.arange(3), s), (s, np.arange(3)), (np.int32(2), s), (s, np.float64(2))):
        for operation in (operator.add, operator.mul, operator.sub, operator.truediv):
            with pytest.raises(TypeError):
                operation(left, right)


def test_awkward_names():
    s = qd.types.struct(keys=qd.f32, items=qd.i32, entries=qd.i32, methods=qd.i32)(1, 2, 3, 4)
    assert (s.keys, s.items, s.entries, s.methods) == (1.0, 2, 3, 4)
    assert s.to_dict() == dict(keys=1.0, items=2, entries=3, methods=4)


def test_type():
    S = qd.types.struct(a=qd.f32, v=vec3)
    assert S(1, [1, 2, 3]).to_dict() == {"a": 1.0, "v": [1, 2, 3]}
    assert S(3, 4).to_dict() == {"a": 3.0, "v": [4, 4, 4]} and S(v=4).a == 0
    assert S(1, [1, 2, 3], 5, zz=3).to_dict() == {"a": 1.0, "v": [1, 2, 3]}
    assert S(1, [1, 2, 3], a=2).a == 1  # what stands at a place wins over a name
    assert isinstance(S(), S) and isinstance(qd.Struct(a=1.0, v=[1, 2, 3]), S)
    assert not isinstance(qd.Struct(v=[1, 2, 3], a=1.0), S) and not isinstance(3, S)
    assert repr(S).startswith(
        "<qd.StructType a=f32, v=<quadrants.lang.matrix.VectorType object at 0x"
    )
    assert repr(S).endswith(", struct_methods={}>")
    nested = qd.types.struct(s=S, k=qd.i32)
    assert nested(3, 2.7).to_dict() == {"s": {"a": 3.0, "v": [0, 0, 0]}, "k": 2}
    assert nested(dict(a=1, v=[1, 2, 3]), 2).s.v[1] == 2
    assert nested.filled_with_scalar(2).to_dict() == {"s": {"a": 2, "v": [2, 2, 2]}, "k": 2}
    assert qd.types.struct(a=qd.u8, b=qd.i8, c=qd.u1)(257, 128, 5).to_dict() == dict(
        a=1, b=-128, c=1
    )
    for wrong in (3, "f32"):
        with pytest.raises(ValueError, match="Invalid data type"):
            qd.types.struct(a=wrong)


def test_dataclass():
    @qd.dataclass
    class Ball:
        center: vec3
        radius: qd.f32

        def area(self):
            return 4 * self.radius**2

        @qd.func
        def grow(self, by):
            self.radius += by

    ball = Ball([1, 2, 3], radius=2)
    assert (
        ball.area() == 16
        and list(Ball.members) == ["center", "radius"]
        and set(Ball.methods) == {"area", "grow"}
    )
    with pytest.raises(E, match="cannot be called from Python-scope"):
        ball.grow(1)
    with pytest.raises(E, match="Default value in @dataclass is not supported."):

        @qd.dataclass
        class Bad:
            a: qd.f32 = 3


unpacked = qd.types.vector(3, qd.f32, unpacked=True)


def test_unpacked():
    @qd.dataclass
    class A:
        r: unpacked
        b: qd.i32

    assert list(A.members) == ["_r0", "_r1", "_r2", "b"]
    count, dtype, name = A._unpacked_groups["r"]
    assert count == 3 and dtype is qd.f32 and name("r", 1) == "_r1"
    a = A(1, 2, 3, 4)
    a.r[1] = 9
    assert a.r[1] == a._r1 == 9 and a.b == 4
    for index in (True, np.int64(1), np.uint8(1)):
        a.r[index] = a.r[index] + 1
    assert a.to_dict() == {"_r0": 1, "_r1": 12, "_r2": 3, "b": 4}
    for index, text in (
        (5, "out of bounds"),
        (-1, "out of bounds"),
        (np.int64(3), "out of bounds"),
        (1.5, "python-int"),
        ("1", "python-int"),
        (np.array([1, 2]), "python-int"),
        (None, "python-int"),
    ):
        with pytest.raises(E, match=text):
            a.r[index]
    for use in (
        lambda: unpacked(1),
        lambda: unpacked.field(shape=3),
        lambda: unpacked.ndarray(shape=3),
    ):
        with pytest.raises(E, match="unpacked=True.*@qd.dataclass"):
            use()


@pytest.mark.parametrize("members", [dict(r=unpacked, _r2=qd.f32), dict(_r2=qd.f32, r=unpacked)])
def test_unpacked_collision(members):
    with pytest.raises(E, match="_r2.*unpacked"):
        qd.types.struct(**members)


A = qd.types.struct(p=vec3)
P = qd.types.struct(pos=vec3, vel=vec3)
C = qd.types.struct(m=qd.types.matrix(2, 2, qd.f32), k=qd.i32)
D = qd.types.struct(a=qd.i32, b=qd.i32)
N = qd.types.struct(s=A, c=qd.i32)
NP, NC, ND, NN = (qd.types.struct(s=kind, c=qd.i32) for kind in (P, C, D, N))


@pytest.mark.parametrize("kind", [list, tuple, np.array, qd.Vector])
def test_a_list_for_a_struct_is_one_value(kind):
    given = kind([1, 2, 3])
    vector = [1.0, 2.0, 3.0]
    for made in (N(given, 4), N(s=given, c=4), N(given, c=4)):
        assert made.to_dict() == {"s": {"p": vector}, "c": 4}
    assert NP(given, 7).to_dict() == {"s": {"pos": vector, "vel": [0.0] * 3}, "c": 7}
    assert NN(given, 5).to_dict() == {"s": {"s": {"p": vector}, "c": 0}, "c": 5}
    assert NC([kind([1, 2]), kind([3, 4])], 4).s.to_dict() == {"m": [[1, 2], [3, 4]], "k": 0}
    with pytest.raises(IndexError):
        N(kind([1, 2]), 4)


def test_a_list_for_a_struct_in_a_field():
    qd.init(arch=qd.cpu, log_level="error")

    @qd.dataclass
    class Body:
        s: A
        c: qd.i32

    f = Body.field(shape=2)
    f[1] = Body([1, 2, 3], 4)
    f[0].s = Body(s=(4, 5, 6)).s
    assert f[1].s.p.to_list() == [1, 2, 3] and f[1].c == 4
    assert f[0].s.p.to_list() == [4, 5, 6]


@pytest.mark.oracle_differs("a list is only for a vector or matrix")
def test_a_list_that_is_no_vector_has_the_members():
    assert ND([1, 2], 4).s.to_dict() == {"a": 1, "b": 2}
    assert ND((1,), 4).s.to_dict() == {"a": 1, "b": 0}
    assert NC([[[1, 2], [3, 4]], 7], 4).s.to_dict() == {"m": [[1, 2], [3, 4]], "k": 7}
    for part in (A([1, 2, 3]), {"p": [1, 2, 3]}):
        assert NN([part, 5], 6).to_dict() == {"s": {"s": {"p": [1, 2, 3]}, "c": 5}, "c": 6}


AP = qd.types.struct(a=qd.i32, p=vec3)
NAP = qd.types.struct(s=AP, c=qd.i32)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: NAP(qd.types.struct(z=vec3, a=qd.i32)([1, 2, 3], 5), 4),
        lambda: NAP(NAP(1, 2), 4),
        lambda: NAP(qd.types.struct(a=qd.i32)(1), 4),
        lambda: NAP(qd.types.struct(a=qd.i32, p=vec3, q=qd.i32)(1, 2, 3), 4),
        lambda: NAP(qd.Struct(a=1, q=[1, 2, 3]), c=4),
        lambda: NAP({"zz": 1}, 4),
        lambda: NAP({"a": 1}, 4),
        lambda: NAP(s={"a": 1, "p": 2, "q": 3}, c=4),
        lambda: NAP({}, 4),
        lambda: NAP({"s": {"a": 1, "p": 2}, "c": 4}),  # for the first member
        lambda: NN({"s": {"q": 1}, "c": 2}, 3),
        lambda: AP.cast(qd.Struct(a=1, p=[1, 2, 3], q=2)),
        lambda: qd.types.struct(s=qd.types.struct(r=unpacked))({"r": [1, 2, 3]}),
    ],
)
def test_other_members_than_a_struct_has(wrong):
    with pytest.raises(E, match="^Incompatible arguments for custom struct members!"):
        wrong()


def test_members_in_another_order():
    expect = {"s": {"a": 1, "p": [2, 3, 4]}, "c": 5}
    p = [2, 3, 4]
    for given in (
        {"a": 1, "p": p},
        {"p": p, "a": 1},
        qd.Struct(p=p, a=1),
        qd.types.struct(p=vec3, a=qd.i32)(p, 1),
        {"p": p, "a": 1, "__struct_methods": {}},
    ):
        assert NAP(given, 5).to_dict() == NAP(s=given, c=5).to_dict() == expect
    assert NAP(AP(1, p).to_dict(include_methods=True), 5).to_dict() == expect


def test_copies():
    import copy
    import pickle

    s = qd.types.struct(a=qd.f32, v=vec3)(1, [1, 2, 3])
    other = copy.deepcopy(s)
    other.v[0] = 9
    assert s.v[0] == 1 and other.to_dict() == {"a": 1.0, "v": [9, 2, 3]} and type(other) is type(s)
    assert pickle.loads(pickle.dumps(qd.Vector([1, 2]))).to_list() == [1, 2]


def test_members_are_whole_types():
    qd.init(arch=qd.cpu, log_level="error")
    for open_type in (
        qd.types.vector(3),
        qd.types.vector(dtype=qd.f32),
        qd.types.matrix(2, dtype=qd.f32),
    ):
        with pytest.raises(ValueError, match="member 'a' of a struct needs a whole type"):
            qd.types.struct(a=open_type)
        with pytest.raises(ValueError, match="member 'a' of a struct needs a whole type"):
            qd.Struct.field({"a": open_type}, shape=2)
    for open_type in (qd.types.vector(), qd.types.matrix(2, dtype=qd.f32)):
        with pytest.raises(qd.QuadrantsTypeError, match="open sizes"):
            open_type(1)
    assert qd.types.vector(2)([1, 2]).to_list() == [1, 2]
