"""Dense fields: scalar, vector, matrix, struct; layouts, offsets, trees; host access, conversion."""

import numpy as np
import pytest

import quadrants as qd
from helpers import DTYPES, NUMPY, Array, dtype, raises


@pytest.mark.parametrize("name", DTYPES)
def test_scalar_fields_of_every_dtype(backend, name):
    f = qd.field(dtype(name), (3, 4))
    assert f.shape == (3, 4) and f.dtype == dtype(name)
    assert not f.to_numpy().any() and f.to_numpy().dtype == NUMPY[name]
    a = np.arange(12).reshape(3, 4).astype(NUMPY[name])
    f.from_numpy(a)
    assert np.array_equal(f.to_numpy(), a)
    assert f[1, 2] == a[1, 2] and isinstance(f[1, 2], float if name[0] == "f" else int)
    f[2, 3] = 1
    assert f[2, 3] == 1
    f.fill(1)
    assert (f.to_numpy() == 1).all()


def test_shapes(backend):
    assert qd.field(qd.i32, 5).shape == (5,)
    assert qd.field(qd.i32, [2, 3]).shape == (2, 3)
    assert qd.field(qd.i32, np.int64(4)).shape == (4,)
    z = qd.field(qd.i32, ())
    assert z.shape == ()
    z[None] = 3
    assert z[None] == 3 and z[()] == 3 and z.to_numpy() == 3
    big = qd.field(qd.i32, (1,) * 11 + (2,))
    big[(0,) * 11 + (1,)] = 9
    assert big.to_numpy().ravel().tolist() == [0, 9]


def test_python_types_and_default_types(backend):
    assert qd.field(float, 1).dtype == qd.f32 and qd.field(int, 1).dtype == qd.i32
    backend.init(default_fp=qd.f64, default_ip=qd.i64)
    assert qd.field(float, 1).dtype == qd.f64 and qd.field(int, 1).dtype == qd.i64


def test_host_access_wraps_and_casts(backend):
    f = qd.field(qd.u8, 2)
    f[0] = -1
    f[1] = 300
    assert f.to_numpy().tolist() == [255, 44]
    u = qd.field(qd.u64, 1)
    u[0] = 2**64 - 1
    assert u[0] == 2**64 - 1
    b = qd.field(qd.u1, 1)
    b[0] = 5
    assert b[0] == 1
    r = qd.field(qd.f32, 1)
    r[0] = np.float64(0.1)
    assert r[0] == np.float32(0.1)
    r[np.int64(0)] = 3
    assert r[0] == 3.0


def test_host_access_errors(backend):
    f = qd.field(qd.i32, (2, 2))
    with raises(AssertionError, "Slicing is not supported on qd.field"):
        f[0]
    with raises(TypeError, "Detected illegal element of type"):
        f[0.5, 0]
    with pytest.raises(TypeError):
        f[0, 0] = 1.5
    with raises(NotImplementedError, "Struct for is only available in Quadrants scope."):
        for _ in f:
            pass


def test_vector_fields(backend):
    f = qd.Vector.field(3, qd.f32, (2, 2))
    assert (f.n, f.m, f.shape) == (3, 1, (2, 2))
    f[0, 1] = [1, 2, 3]
    f[1, 1] = qd.Vector([4.0, 5.0, 6.0])
    f[0, 1][1] = 20
    f[0, 1].x = 10
    f[1, 1].yz = [50, 60]
    f[1, 1] += 1
    live = f[0, 1]
    f[0, 1][2] = 30
    assert live.to_list() == [10, 20, 30]
    assert f[1, 1].to_list() == [5, 51, 61]
    assert (f[0, 1] + 1).to_list() == [11, 21, 31]
    assert f.to_numpy().shape == (2, 2, 3)
    f.fill([7, 8, 9])
    assert f.to_numpy()[1, 0].tolist() == [7, 8, 9]
    f.fill(2)
    assert (f.to_numpy() == 2).all()


@pytest.mark.parametrize("layout", ["AOS", "SOA"])
def test_matrix_fields_and_layouts(backend, layout):
    f = qd.Matrix.field(2, 3, qd.i32, 4, layout=getattr(qd.Layout, layout))

    @qd.kernel
    def run(k: qd.i32):
        for i in f:
            f[i] = qd.Matrix([[i, 1, 2], [3, 4, 5]])
            f[i][k, i % 3] += 100

    run(1)
    e = np.stack([[[i, 1, 2], [3, 4, 5]] for i in range(4)])
    for i in range(4):
        e[i, 1, i % 3] += 100
    assert np.array_equal(f.to_numpy(), e)
    f[2] = [[1, 1, 1], [2, 2, 2]]
    assert f[2][1, 2] == 2 and f[2].to_list() == [[1, 1, 1], [2, 2, 2]]
    g = qd.Matrix.field(2, 3, qd.f64, 4)
    g.copy_from(f)
    assert np.array_equal(g.to_numpy(), f.to_numpy())
    g.from_numpy(e.astype(np.float64))
    assert np.array_equal(g.to_numpy(), e)


def test_conversion_shapes(backend):
    v = qd.Vector.field(2, qd.i32, 3)
    assert v.to_numpy(keep_dims=True).shape == (3, 2, 1)
    assert qd.Matrix.field(1, 2, qd.i32, 3).to_numpy().shape == (3, 1, 2)
    assert v.to_numpy(dtype=np.float64).dtype == np.float64
    f = qd.field(qd.i32, (2, 3))
    f.from_numpy(np.arange(12).reshape(3, 4).T[:2, :])  # strided source, another dtype
    assert f.to_numpy().tolist() == [[0, 4, 8], [1, 5, 9]]
    with raises(ValueError, "does not match the numpy array shape"):
        f.from_numpy(np.zeros((3, 2)))
    g = qd.field(qd.f32, (2, 3))
    g.copy_from(f)
    assert g.to_numpy().tolist() == [[0, 4, 8], [1, 5, 9]]
    with pytest.raises(ValueError):
        g.copy_from(qd.field(qd.f32, (3, 2)))
    with pytest.raises(TypeError):
        g.copy_from(np.zeros((2, 3)))
    copy = f.to_numpy()
    f.fill(7)
    assert copy[0, 1] == 4


@pytest.mark.parametrize("order", ["ij", "ji"])
def test_order(backend, order):
    f = qd.field(qd.i32, (3, 5), order=order)
    assert f.layout == (None if order == "ij" else (1, 0))

    @qd.kernel
    def run():
        for i, j in f:
            f[i, j] = i * 10 + j

    run()
    i, j = np.indices((3, 5))
    assert np.array_equal(f.to_numpy(), i * 10 + j) and f[2, 4] == 24 and f.shape == (3, 5)
    f.from_numpy((i * 100 + j).astype(np.int32))
    assert f[2, 3] == 203


def test_order_in_three_dimensions_and_addresses(backend):
    f = qd.field(qd.i32, (2, 3, 4), order="kij")
    out = np.zeros(3, np.int64)

    @qd.kernel
    def run(out: Array):
        base = qd.get_addr(f, [0, 0, 0])
        out[0] = qd.cast(qd.get_addr(f, [1, 0, 0]) - base, qd.i64)
        out[1] = qd.cast(qd.get_addr(f, [0, 1, 0]) - base, qd.i64)
        out[2] = qd.cast(qd.get_addr(f, [0, 0, 1]) - base, qd.i64)

    run(out)
    assert out.tolist() == [12, 4, 24]


def test_offsets(backend):
    f = qd.field(qd.i32, (3, 4), offset=(-1, 10))
    v = qd.Vector.field(2, qd.i32, 3, offset=5, order="i")

    @qd.kernel
    def run():
        for i, j in f:
            f[i, j] = i * 100 + j
        for i in v:
            v[i] = [i, -i]

    run()
    i, j = np.indices((3, 4))
    assert np.array_equal(f.to_numpy(), (i - 1) * 100 + j + 10)
    assert f[-1, 10] == -90 and f[1, 13] == 113 and v[7].to_list() == [7, -7]
    g = qd.field(qd.i32, (3, 4))
    g.copy_from(f)
    assert g[0, 0] == -90


def test_root_nests_and_blocks(backend):
    a, b, c = qd.field(qd.i32), qd.field(qd.f32), qd.field(qd.i32)
    v = qd.Vector.field(2, qd.i32)
    qd.root.dense(qd.ij, (2, 3)).dense(qd.ij, (4, 2)).place(a, b)
    qd.root.dense(qd.i, 5).dense(qd.j, 3).place(c)
    qd.root.dense(qd.i, 4).place(v.get_scalar_field(0))
    qd.root.dense(qd.i, 4).place(v.get_scalar_field(1))

    @qd.kernel
    def run():
        for i, j in a:
            a[i, j] += i * 10 + j
            b[i, j] = a[i, j] * 0.5
        for i, j in c:
            c[i, j] = i + j
        for i in v:
            v[i] = [i, i * i]

    run()
    i, j = np.indices((8, 6))
    assert a.shape == (8, 6) and np.array_equal(a.to_numpy(), i * 10 + j)
    assert np.array_equal(b.to_numpy(), (i * 10 + j) * 0.5)
    assert np.array_equal(c.to_numpy(), np.add.outer(np.arange(5), np.arange(3)))
    assert v.to_numpy().tolist() == [[0, 0], [1, 1], [2, 4], [3, 9]]
    a[7, 5] = -1
    assert a.to_numpy()[7, 5] == -1


def test_blocks_visit_every_cell_once_and_lie_together(backend):
    x = qd.field(qd.i32)
    block = qd.root.dense(qd.ij, (4, 4))
    block.dense(qd.ij, (2, 2)).place(x)
    out = np.zeros(3, np.int64)

    @qd.kernel
    def run(out: Array):
        for I in qd.grouped(x):
            x[I] += 1
        base = qd.get_addr(x, [0, 0])
        out[0] = qd.cast(qd.get_addr(x, [0, 1]) - base, qd.i64)
        out[1] = qd.cast(qd.get_addr(x, [1, 0]) - base, qd.i64)
        out[2] = qd.cast(qd.get_addr(x, [0, 2]) - base, qd.i64)

    run(out)
    assert (x.to_numpy() == 1).all() and x.shape == (8, 8)
    assert out.tolist() == [4, 8, 16]


def test_axes_order_and_odd_extents(backend):
    z, w = qd.field(qd.i32), qd.field(qd.i32)
    qd.root.dense(qd.k, 3).dense(qd.i, 2).place(z)
    qd.root.dense(qd.ijk, (3, 5, 7)).place(w)

    @qd.kernel
    def run():
        for i, k in z:
            z[i, k] = i * 10 + k
        for i, j, k in w:
            w[i, j, k] = i * 100 + j * 10 + k

    run()
    assert z.shape == (2, 3) and z.to_numpy().tolist() == [[0, 1, 2], [10, 11, 12]]
    i, j, k = np.indices((3, 5, 7))
    assert np.array_equal(w.to_numpy(), i * 100 + j * 10 + k)


def test_fields_builder(backend):
    x = qd.field(qd.f32)
    fb = qd.FieldsBuilder()
    fb.dense(qd.i, 5).place(x)
    tree = fb.finalize()
    x[3] = 2.0
    y = qd.field(qd.f32)
    fb2 = qd.FieldsBuilder()
    fb2.dense(qd.ij, (2, 2)).place(y)
    fb2.finalize()
    y[1, 1] = 4.0

    @qd.kernel
    def total() -> qd.f32:
        s = 0.0
        for i in x:
            s += x[i]
        for i, j in y:
            s += y[i, j]
        return s

    assert total() == 6.0
    with raises(qd.QuadrantsRuntimeError, "FieldsBuilder finalized"):
        fb.dense(qd.i, 3)
    tree.destroy()
    with raises(qd.QuadrantsRuntimeError, "SNode tree has been destroyed"):
        tree.destroy()


def test_fields_declared_after_a_launch(backend):
    x = qd.field(qd.i32, 3)

    @qd.kernel
    def bump():
        for i in x:
            x[i] += 1

    bump()
    y = qd.field(qd.i32, 3)
    y[1] = 5
    bump()
    assert x.to_numpy().tolist() == [2, 2, 2] and y.to_numpy().tolist() == [0, 5, 0]


def test_many_trees(backend):
    fields = []
    for i in range(200):
        fields.append(qd.field(qd.i32, 2))
        if i % 20 == 0:
            fields[-1][1] = i
    assert [f[1] for f in fields[::20]] == list(range(0, 200, 20))


@pytest.mark.parametrize("layout", ["AOS", "SOA"])
def test_struct_fields(backend, layout):
    vec = qd.types.vector(2, qd.f32)
    Inner = qd.types.struct(a=qd.i32, v=vec)
    S = qd.types.struct(inner=Inner, mass=qd.f32)
    s = S.field(shape=4, layout=getattr(qd.Layout, layout))

    @qd.kernel
    def run():
        for i in s:
            s[i].mass = i * 0.5
            s[i].inner.v = [i, 2 * i]
            s[i].inner.a += i
            t = s[i]
            t.mass = 99.0

    @qd.kernel
    def whole():
        s[0] = S(Inner(7, vec(1, 2)), 3.0)

    run()
    assert s.mass.to_numpy().tolist() == [0, 0.5, 1, 1.5]
    assert s.inner.v.to_numpy().tolist() == [[0, 0], [1, 2], [2, 4], [3, 6]]
    whole()
    assert s[0].inner.a == 7 and s[0].inner.v.to_list() == [1, 2] and s[0].mass == 3.0
    s[1].mass = 8.0
    s[1].inner.v[1] = 4
    assert s.mass[1] == 8.0 and s.inner.v[1][1] == 4
    d = s.to_numpy()
    assert d["inner"]["a"].tolist() == [7, 1, 2, 3]
    d["mass"] = np.zeros(4, np.float32)
    s.from_numpy(d)
    assert not s.mass.to_numpy().any()


def test_dataclass_types_with_methods(backend):
    @qd.dataclass
    class Particle:
        pos: qd.types.vector(2, qd.f32)
        vel: qd.types.vector(2, qd.f32)
        alive: qd.i32

        @qd.func
        def advance(self, dt):
            self.pos += self.vel * dt

        @qd.func
        def energy(self):
            return 0.5 * self.vel.norm_sqr()

    p = Particle.field(shape=3)

    @qd.kernel
    def run() -> qd.f32:
        e = 0.0
        for i in p:
            p[i].vel = [1.0, i]
            p[i].advance(0.5)
            e += p[i].energy()
        return e

    assert run() == 0.5 * (1 + 2 + 5)
    assert p.pos.to_numpy().tolist() == [[0.5, 0], [0.5, 0.5], [0.5, 1]]
    one = Particle(alive=3)
    assert one.alive == 3 and one.pos.to_list() == [0, 0]


def test_static_alias_and_template_fields(backend):
    x, y = qd.field(qd.f32, 3), qd.field(qd.f32, 3)

    @qd.kernel
    def copy(src: qd.template(), dst: qd.template()):
        a, b = qd.static(src, dst)
        for i in a:
            b[i] = a[i] + b.shape[0]

    x.fill(2)
    copy(x, y)
    copy(y, x)
    assert y.to_numpy().tolist() == [5] * 3 and x.to_numpy().tolist() == [8] * 3


def test_fill_in_kernels(backend):
    x = qd.field(qd.f32, 3)
    v = qd.Vector.field(2, qd.f32, 3)

    @qd.kernel
    def run(a: qd.f32):
        x.fill(a)
        v.fill(a + 1)

    run(2.5)
    assert x.to_numpy().tolist() == [2.5] * 3 and v.to_numpy().ravel().tolist() == [3.5] * 6


def test_index_forms(backend):
    f = qd.field(qd.i32, (3, 4))

    @qd.kernel
    def run(a: qd.i64, b: qd.u8):
        I = qd.Vector([1, 2])
        f[I] = 1
        f[a, b] = 2
        f[I + [1, 1]] = 3
        f[(0, 0)] = 4
        f[qd.Vector([2]), 0] = 5

    run(0, 3)
    e = np.zeros((3, 4), int)
    e[1, 2], e[0, 3], e[2, 3], e[0, 0], e[2, 0] = 1, 2, 3, 4, 5
    assert np.array_equal(f.to_numpy(), e)


def test_repr():
    qd.init()
    f = qd.field(qd.i32, 3)
    assert repr(f) == "<qd.field>"
    assert repr(qd.Vector.field(3, qd.f32, 2)) == "<3x1 qd.Matrix.field>"
    assert repr(qd.root) == "qd.root"
    qd.reset()


def declare(*args, **kwargs):
    return lambda: qd.field(qd.i32, *args, **kwargs)


@pytest.mark.parametrize(
    "make,cls,text",
    [
        (declare(shape=(3, 0)), RuntimeError, "Every dimension of a Quadrants field should be positive"),
        (declare(shape=-2), RuntimeError, "Every dimension of a Quadrants field should be positive"),
        (declare(shape=2.5), TypeError, ""),
        (declare(shape=(1,) * 13), RuntimeError, "Too many dimensions. The maximum dimensionality is 12"),
        (declare(offset=3), qd.QuadrantsSyntaxError, "shape cannot be None when offset is set"),
        (declare(order="i"), qd.QuadrantsSyntaxError, "shape cannot be None when order is set"),
        (declare(shape=(2, 2), order="i"), qd.QuadrantsSyntaxError,
         "The dimensionality of shape and order must be the same"),
        (declare(shape=(2, 2), order="ii"), qd.QuadrantsSyntaxError, "The axes in order must be different"),
        (declare(shape=(2, 2), order="i*"), qd.QuadrantsSyntaxError, "Invalid axis"),
        (declare(shape=(2, 2), offset=1), qd.QuadrantsSyntaxError,
         "The dimensionality of shape and offset must be the same"),
        (lambda: qd.field("f32", 3), ValueError, "Invalid data type"),
    ],
)  # fmt: skip
def test_misuse_of_declarations(backend, make, cls, text):
    with raises(cls, text):
        make()


def test_misuse_of_trees(backend):
    x = qd.field(qd.i32)
    qd.root.dense(qd.i, 4).place(x)
    with raises(RuntimeError, "This variable has been placed."):
        qd.root.dense(qd.i, 4).place(x)


def test_unplaced_field(backend):
    qd.field(qd.i32)

    @qd.kernel
    def k():
        pass

    with raises(RuntimeError, "These field(s) are not placed"):
        k()


MISUSE = {}


def snippet(cls, text):
    def add(fn):
        MISUSE[fn.__name__] = (fn, cls, text)
        return fn

    return add


@snippet(qd.QuadrantsCompilationError, "Field with dim 2 accessed with indices of dim 1")
def index_count(f: qd.template()):
    f[0] = 1


@snippet(qd.QuadrantsSyntaxError, "do not support index of slice type")
def sliced(f: qd.template()):
    a = f[0:1, 0]


@snippet(qd.QuadrantsTypeError, "indices must be integers, however 'f32' is provided as index 0")
def float_index(f: qd.template()):
    f[0.5, 1] = 1


@snippet(qd.QuadrantsTypeError, "unsupported operand type(s) for *")
def field_as_operand(f: qd.template()):
    a = 3 * f


@snippet(
    qd.QuadrantsCompilationError,
    "Number of struct-for indices does not match loop variable dimensionality",
)
def loop_arity(f: qd.template()):
    for i in f:
        pass


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_in_kernels(backend, name):
    fn, cls, text = MISUSE[name]
    f = qd.field(qd.i32, (2, 2))
    with raises(cls, text):
        qd.kernel(fn)(f)
    f[1, 1] = 3
    assert f[1, 1] == 3


def test_huge_field(backend):
    x = qd.field(qd.f64, (1 << 20, 1 << 20, 1 << 5))  # no address space has room for it
    with pytest.raises(RuntimeError):
        x[0, 0, 0] = 1


def test_components_in_cells_of_different_sizes(backend):
    v, beside = qd.Vector.field(3, qd.i32), qd.field(qd.f64)
    qd.root.dense(qd.ij, (2, 3)).place(v.get_scalar_field(0), beside)
    qd.root.dense(qd.i, 2).dense(qd.j, 3).place(v.get_scalar_field(1))
    qd.root.dense(qd.j, 3).dense(qd.i, 2).place(v.get_scalar_field(2))
    beside.fill(0.5)

    @qd.func
    def shift(x: qd.template(), by):
        x += by
        x[1] *= 2

    @qd.kernel
    def fill(x: qd.template()):
        for i, j in x:
            x[i, j] = [i, j, 10 * i + j]
        for I in qd.grouped(x):
            x[I].xz = x[I].zx
            qd.atomic_max(x[I].z, 1)

    @qd.kernel
    def change() -> qd.types.vector(3, qd.i32):
        shift(v[1, 2], 1)
        total = qd.Vector([0, 0, 0])
        for i, j in qd.ndrange(2, 3):
            v[i, j] += [0, 0, 100]
            total += v[i, j]
            for k in qd.static(range(3)):
                total[k] += v[i, j][k]
        return total

    fill(v)
    expected = np.array([[[10 * i + j, j, max(i, 1)] for j in range(3)] for i in range(2)])
    assert (v.to_numpy() == expected).all()
    expected[1, 2] = [13, 6, 2]
    expected[..., 2] += 100
    assert change().to_list() == (2 * expected.sum((0, 1))).tolist()
    assert (v.to_numpy() == expected).all() and (beside.to_numpy() == 0.5).all()

    @qd.kernel
    def pick(k: qd.i32) -> qd.i32:
        return v[0, 0][k]

    with pytest.raises(RuntimeError, match="not dynamic indexable"):
        pick(1)


def one_by_one(f):
    """Numbers the cells in the order in which a serial loop comes to them."""
    count = qd.field(qd.i32, ())

    @qd.kernel
    def number():
        qd.loop_config(serialize=True)
        for I in qd.grouped(f):
            f[I] = count[None]
            count[None] += 1

    number()
    return f.to_numpy()


@pytest.mark.of_cpus("one thread")
def test_cells_are_visited_as_they_lie_in_memory(backend):
    f = qd.field(qd.i32, shape=(3, 2, 4), order="kij")
    g = qd.field(qd.i32)
    qd.root.dense(qd.j, 5).dense(qd.i, 3).place(g)
    expect = np.arange(24).reshape(4, 3, 2).transpose(1, 2, 0)
    np.testing.assert_array_equal(one_by_one(f), expect)
    np.testing.assert_array_equal(one_by_one(g), np.arange(15).reshape(5, 3).T)
    a = qd.tensor(qd.i32, shape=(3, 4), backend=qd.Backend.NDARRAY, layout=(1, 0))
    np.testing.assert_array_equal(one_by_one_of_array(a), np.arange(12).reshape(4, 3).T)


def one_by_one_of_array(a):
    @qd.kernel
    def number(a: qd.types.ndarray(qd.i32, 2)):
        count = 0
        for _ in range(1):
            for i, j in a:
                a[i, j] = count
                count += 1

    number(a)
    return a.to_numpy()


def test_the_last_index_may_be_the_largest(backend):
    f = qd.field(qd.i32, shape=8, offset=2**31 - 8)
    g = qd.field(qd.i64, shape=(2, 3), offset=(5, 2**31 - 3))

    @qd.kernel
    def run():
        for i in f:
            f[i] = i
        for i, j in g:
            g[i, j] = qd.i64(i) * 10 + j

    run()
    last = 2**31
    assert f.to_numpy().tolist() == list(range(last - 8, last))
    assert g.to_numpy().tolist() == [[10 * i + j for j in range(last - 3, last)] for i in (5, 6)]
