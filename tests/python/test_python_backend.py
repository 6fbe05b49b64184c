"""The Python backend: kernels as plain Python on torch data, compared with the compiled ones."""

import copy
import math
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd

torch = pytest.importorskip("torch", reason="the Python backend needs torch")

pytestmark = [pytest.mark.needs_torch, pytest.mark.oracle_differs("older Python backend")]


@pytest.fixture
def python():
    qd.init(arch=qd.python)
    yield
    qd.reset()


@pytest.fixture(params=["python", "cpu"])
def both(request, cache_folder):
    """A runtime on each of the two; the test body must hold on both."""
    qd.init(arch=getattr(qd, request.param), offline_cache_file_path=str(cache_folder))
    yield request.param
    qd.reset()


def number(x):
    return x.item() if hasattr(x, "item") else x


# --- init ---


def test_import_leaves_torch_alone():
    code = (
        "import sys, quadrants as qd; qd.init(arch=qd.cpu); assert 'torch' not in sys.modules; "
        "qd.init(arch=qd.python); assert 'torch' in sys.modules"
    )
    root = str(pathlib.Path(qd.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, stdout=subprocess.DEVNULL)


def test_config_and_sync(python):
    assert qd.cfg is None
    assert qd.lang.impl.is_python_backend()
    assert qd.lang.misc.is_arch_supported(qd.python)
    qd.sync()


def test_dtype_calls_are_installed_once(python):
    from quadrants.lang import misc

    call = type(qd.f32).__call__
    qd.init(arch=qd.python)
    assert type(qd.f32).__call__ is call and misc._dtype_call_installed
    assert (qd.f32(3), qd.i32(3.7), qd.i32(-3.7), qd.i64(2)) == (3.0, 3, -3, 2)
    assert isinstance(qd.f32(3), float) and isinstance(qd.i32(3.7), int)
    f = qd.field(qd.f32, 2)
    f[0] = 2.5
    assert qd.i32(f[0]) == 2
    qd.init(arch=qd.cpu)
    with pytest.raises(qd.QuadrantsSyntaxError):
        qd.f32(3)


@pytest.mark.parametrize("name", ["f16", "u8", "u16", "u32", "u64"])
def test_missing_dtypes(python, name):
    with pytest.raises(qd.QuadrantsRuntimeError, match=name):
        qd.field(getattr(qd, name), 3)
    with pytest.raises(qd.QuadrantsRuntimeError, match=name):
        qd.ndarray(getattr(qd, name), 3)


@pytest.mark.parametrize("name,stored", [("i8", 44), ("i16", -27380), ("i32", 300300), ("u1", 1)])
def test_stores_keep_low_bits(both, name, stored):
    f = qd.field(getattr(qd, name), 2)
    f[0] = 300 if name == "i8" else 300300

    @qd.kernel
    def copy(x: qd.i32):
        for i in range(1):
            f[1] = x

    copy(300 if name == "i8" else 300300)
    assert [int(f[0]), int(f[1])] == [stored, stored]


def test_missing_features(python):
    with pytest.raises(Exception):
        qd.random()
    with pytest.raises(Exception):
        qd.root.dense(qd.i, 3)
    with pytest.raises(TypeError):
        qd.tensor(qd.f32, shape=3)
    with pytest.raises(NotImplementedError, match="no Python fallback"):
        qd.math.popcnt(3)


def test_switching_targets(cache_folder):
    @qd.kernel
    def twice(a: qd.i32) -> qd.i32:
        return a * 2

    for arch in (qd.python, qd.cpu, qd.python, qd.cpu):
        qd.init(arch=arch, offline_cache_file_path=str(cache_folder))
        assert twice(4) == 8
    qd.reset()
    with pytest.raises(qd.QuadrantsRuntimeError, match="qd.init"):
        twice(4)


# --- containers ---


def test_scalar_field(python):
    f = qd.field(qd.f32, shape=(3, 4))
    assert tuple(f.shape) == (3, 4) == tuple(f.size())
    f[1, 2] = 5
    assert f[1, 2].tolist() == 5.0 and f[1, 2] == 5
    assert f.to_numpy()[1, 2] == 5 and f.grad is None
    f.fill(2)
    assert (f.to_numpy() == 2).all()
    f.from_numpy(np.arange(12, dtype=np.float32).reshape(3, 4))
    assert f[2, 3] == 11
    assert qd.field(float, 3).dtype == torch.float32
    qd.init(arch=qd.python, default_fp=qd.f64, default_ip=qd.i64)
    assert qd.field(float, 3).dtype == torch.float64
    assert qd.field(int, 3).dtype == torch.int64 == qd.Vector([1, 2]).dtype


def test_element_axes(python):
    v = qd.Vector.field(3, qd.f32, shape=(10,))
    m = qd.Matrix.field(2, 3, qd.f32, shape=(4, 5))
    assert tuple(v.shape) == (10,) and tuple(v.size()) == (10, 3)
    assert tuple(m.shape) == (4, 5) and tuple(m.size()) == (4, 5, 2, 3)
    v[2] = qd.Vector([1.0, 2.0, 3.0])
    assert v[2].tolist() == [1, 2, 3] and v[2, 1].tolist() == 2
    assert (v[2].x, v[2].y, v[2].z) == (1, 2, 3)
    v[2].y = 9
    v[2][0] = 7
    assert v[2].tolist() == [7, 9, 3]
    v[2].xz = [0, 1]
    assert v[2].zyx.tolist() == [1, 9, 0]
    v[3] = torch.tensor([4.0, 5.0, 6.0])
    assert v.y.tolist()[2:4] == [9, 5]
    m[1, 2] = [[1, 2, 3], [4, 5, 6]]
    assert m[1, 2, 1, 0] == 4
    assert m[1, 2].transpose().tolist() == [[1, 4], [2, 5], [3, 6]]
    with pytest.raises(AssertionError, match="requires a 2D tensor"):
        qd.Vector([1, 2]).transpose()


def test_zero_dimensional(python):
    for x in (qd.field(qd.i32, shape=None), qd.field(qd.i32, shape=()), qd.field(qd.i32)):
        assert tuple(x.shape) == ()
        x[None] = 4
        x[None] += 3
        assert x[0] == 7 and x[()] == 7 and x[None] == 7 and int(x[None]) == 7


def test_views(python):
    from quadrants.lang._py_tensor import PyTensor, create_tensor

    t = create_tensor((2, 3, 4), torch.float32, batch_ndim=2)
    assert isinstance(t, PyTensor) and tuple(t.shape) == (2, 3) == tuple(t._batch_shape)
    assert t._tc is t
    assert (
        tuple(t._T_tc.shape) == (3, 2) and t._T_np.shape == (3, 2, 4) and t._np.shape == (2, 3, 4)
    )
    t._np[1, 2, 3] = 5
    assert t[1, 2, 3] == 5 and t._T_tc[2, 1].tolist() == [0, 0, 0, 5]
    flat = create_tensor((3,), torch.int32)
    assert flat._T_tc is flat and tuple(flat.shape) == (3,)
    assert tuple(copy.deepcopy(t).shape) == (2, 3)


def test_pytensor_values(python):
    from quadrants.lang._py_tensor import PyTensor

    j = PyTensor([1, 2])
    assert [type(x) for x in j] == [int, int] and [type(x) for x in PyTensor([1.5])] == [float]
    assert (0, *j) == (0, 1, 2)
    assert np.zeros((1, 2, 3))[(0, *j)] == 0
    f = qd.field(qd.i32, shape=(3, 3))
    f[j] = 6
    assert f[j] == 6 and f[1, 2] == 6

    class Other(torch.Tensor):
        pass

    other = torch.ones(2).as_subclass(Other)
    for mixed in (j + other, other + j, torch.add(j, other), torch.add(other, j)):
        assert not isinstance(mixed, PyTensor) and mixed.tolist() == [2, 3]
    assert isinstance(j + torch.ones(2), PyTensor) and isinstance(torch.ones(2) + j, PyTensor)
    assert isinstance(torch.sin(j.float()), PyTensor)


def test_struct_field(python):
    inner = qd.types.struct(k=qd.i32)
    kind = qd.types.struct(a=qd.f32, v=qd.types.vector(3, qd.f32), s=inner)
    f = kind.field(shape=(4,))
    assert list(f.field_dict) == ["a", "v", "s"] and tuple(f.field_dict["v"].size()) == (4, 3)
    f[1].a = 3.5
    f[1].v = qd.Vector([1.0, 2.0, 3.0])
    f[1].v.y = 8
    f[1].s.k = 2
    assert f[1].a == 3.5 and f[1].v.tolist() == [1, 8, 3] and f.s.k[1] == 2
    assert f.field_dict["a"].tolist() == [0, 3.5, 0, 0]
    f[2] = f[1]
    f[3] = kind(a=1.0, v=[4.0, 5.0, 6.0])
    assert f[2].v.tolist() == [1, 8, 3] and f[3].v.tolist() == [4, 5, 6] and f[3].s.k == 0


# --- kernels on both ---


def test_elements_are_copies(both):
    f = qd.field(qd.i32, shape=3)
    v = qd.Vector.field(2, qd.f32, shape=3)

    @qd.kernel
    def swap():
        for _ in range(1):
            a = f[0]
            f[0] = f[1]
            f[1] = a
            a += 100
            b = v[0]
            v[0] = v[1]
            v[1] = b

    f[0], f[1] = 3, 4
    v[0], v[1] = [1.0, 2.0], [3.0, 4.0]
    swap()
    assert f.to_numpy().tolist() == [4, 3, 0]
    assert v.to_numpy().tolist() == [[3, 4], [1, 2], [0, 0]]


def test_loops(both):
    f = qd.field(qd.i32, shape=(3, 4))
    g = qd.field(qd.i32, shape=5)
    v = qd.Vector.field(2, qd.i32, shape=(2, 2))

    @qd.kernel
    def run():
        for i in range(2, 4):
            g[i] = i * i
        for i, j in qd.ndrange(3, (1, 4)):
            f[i, j] += 10 * i + j
        for I in qd.grouped(f):
            f[I] += I[0]
        for i in g:
            g[i] += i
        for i, j in f:
            f[i, j] -= j
        for I in qd.grouped(v):
            v[I] = I + 1
        for i in qd.static(range(2)):
            g[i] = 7 + i
        for i in qd.ndrange((3, 5)):
            g[i] += i * 100
        n = 0
        while n < 3:
            n += 1
            if n == 2:
                continue
            g[4] += n

    run()
    i, j = np.indices((3, 4))
    assert (f.to_numpy() == np.where(j > 0, 10 * i + j, 0) + i - j).all()
    assert g.to_numpy().tolist() == [7, 8, 6, 312, 408]
    assert v.to_numpy()[1, 0].tolist() == [2, 1]


def test_atomics(both):
    f = qd.field(qd.i32, shape=8)
    old = qd.field(qd.i32, shape=8)
    v = qd.Vector.field(2, qd.f32, shape=1)
    z = qd.field(qd.i32, shape=())

    @qd.kernel
    def run():
        qd.loop_config(serialize=True)
        for _ in range(1):
            old[0] = qd.atomic_add(f[0], 3)
            old[1] = qd.atomic_sub(f[1], 3)
            old[2] = qd.atomic_mul(f[2], 3)
            old[3] = qd.atomic_min(f[3], 3)
            old[4] = qd.atomic_max(f[4], 3)
            old[5] = qd.atomic_and(f[5], 3)
            old[6] = qd.atomic_or(f[6], 3)
            old[7] = qd.atomic_xor(f[7], 3)
            v[0] += qd.Vector([1.0, 2.0])
            qd.atomic_add(v[0], qd.Vector([1.0, 2.0]))
            qd.atomic_add(v[0][1], 5.0)
            qd.atomic_add(z[None], 2)

    f.fill(6)
    run()
    assert f.to_numpy().tolist() == [9, 3, 18, 3, 6, 2, 7, 5]
    assert old.to_numpy().tolist() == [6] * 8
    assert v.to_numpy().tolist() == [[2, 9]] and z[None] == 2


def test_arrays(both):
    @qd.kernel
    def fill(a: qd.types.ndarray[qd.f32, 1], b: qd.types.ndarray(dtype=qd.math.vec3, ndim=1)):
        for i in range(a.shape[0]):
            a[i] = i
        for i in range(b.shape[0]):
            b[i] = qd.Vector([1.0, 2.0, i])

    def check(a, b):
        fill(a, b)
        a, b = (x.to_numpy() if hasattr(x, "to_numpy") else np.asarray(x) for x in (a, b))
        assert a.tolist() == [0, 1, 2] and b.tolist() == [[1, 2, 0], [1, 2, 1]]

    check(qd.ndarray(qd.f32, 3), qd.Vector.ndarray(3, qd.f32, 2))
    check(np.zeros(3, np.float32), np.zeros((2, 3), np.float32))
    check(torch.zeros(3), torch.zeros(2, 3))


def test_arguments_and_results(both):
    vec2 = qd.types.vector(2, qd.f32)

    @qd.kernel
    def scalars(a: qd.i32, b: float, c: qd.template()) -> float:
        return a * b + c

    @qd.kernel
    def vector(v: vec2, s: qd.f32) -> vec2:
        return v * s

    @qd.kernel
    def several(a: qd.i32) -> (qd.i32, qd.f32):
        return a + 1, a * 0.5

    assert scalars(2, 1.5, 4) == 7 == scalars(b=1.5, a=2, c=4)
    assert isinstance(scalars(2, 1.5, 4), float)
    assert vector([1, 2], 2.0).to_numpy().tolist() == [2, 4]
    assert several(3) == (4, 1.5)
    with pytest.raises(qd.QuadrantsSyntaxError, match="Missing argument 'c'"):
        scalars(2, 1.5)
    with pytest.raises(qd.QuadrantsSyntaxError, match="Unexpected argument 'd'"):
        scalars(2, 1.5, 4, d=1)
    with pytest.raises(qd.QuadrantsRuntimeTypeError, match="cannot be converted"):
        scalars(2.5, 1.5, 4)


def test_funcs(both):
    @qd.func
    def by_value(v, x: qd.i32):
        v[0] = 100.0
        return x + 1

    @qd.func
    def by_reference(v: qd.template()):
        v[1] = 50.0

    out = qd.Vector.field(2, qd.f32, shape=1)

    @qd.kernel
    def run() -> qd.i32:
        v = qd.Vector([1.0, 2.0])
        n = by_value(v, 3)
        by_reference(v)
        out[0] = v
        return n

    assert run() == 4
    assert out.to_numpy().tolist() == [[1, 50]]


def test_methods(both):
    @qd.data_oriented
    class Counter:
        def __init__(self):
            self.f = qd.field(qd.i32, shape=4)
            self.step = 3

        @qd.func
        def amount(self, i):
            return self.step * i

        @qd.kernel
        def run(self, n: qd.i32):
            for i in range(n):
                self.f[i] += self.amount(i)

    c = Counter()
    c.run(3)
    assert c.f.to_numpy().tolist() == [0, 3, 6, 0]


def test_structs(both):
    @qd.dataclass
    class Ball:
        pos: qd.types.vector(2, qd.f32)
        mass: qd.f32

        @qd.func
        def energy(self):
            return self.mass * self.pos.norm_sqr()

    balls = Ball.field(shape=3)
    total = qd.field(qd.f32, shape=())

    @qd.kernel
    def run():
        for i in range(3):
            balls[i].pos = qd.Vector([1.0 * i, 2.0])
            balls[i].mass = 2.0
            balls[i].pos.x += 1.0
            b = balls[i]
            b2 = Ball(pos=b.pos * 2.0, mass=1.0)
            total[None] += balls[i].energy() + b2.energy()

    run()
    assert balls.pos.to_numpy().tolist() == [[1, 2], [2, 2], [3, 2]]
    assert total[None] == sum(2 * n + 4 * n for n in (5, 8, 13))


def test_pure_and_hints(both):
    f = qd.field(qd.f32, shape=4)

    @qd.kernel(fastcache=True)
    def run(f: qd.types.ndarray()):
        qd.loop_config(block_dim=32, name="loop")
        for i in range(4):
            f[i] = i

    a = qd.ndarray(qd.f32, 4)
    run(a)
    assert a.to_numpy().tolist() == [0, 1, 2, 3] and f.to_numpy().sum() == 0


def test_nested_kernels(both):
    @qd.kernel
    def inner():
        pass

    @qd.kernel
    def outer():
        inner()

    with pytest.raises(qd.QuadrantsSyntaxError, match="cannot call other kernels"):
        outer()


EXPRESSIONS = [
    "a + b * 2", "a - 1.5", "2 / x", "a / b", "n / 2", "n // 3", "n % 3", "-n // 3", "-n % 3", "a // b", "-a % b",
    "n ** 2", "a ** 2", "a ** 0.5", "n & 6", "n | 8", "n ^ 5", "~n", "n << 2", "-n >> 1", "qd.bit_shr(-n, 28)",
    "qd.raw_div(-n, 2)", "qd.raw_mod(-n, 4)", "qd.max(a, b, 0.0)", "qd.min(n, 3)", "qd.abs(-a)", "abs(-n)",
    "qd.sin(a) + qd.cos(b)", "qd.exp(a) - qd.log(b)", "qd.sqrt(a) * qd.rsqrt(b)", "qd.atan2(a, b)", "qd.tanh(a)",
    "qd.floor(a * 3.3)", "qd.ceil(-a)", "qd.round(a + 1.0)", "qd.select(a > b, a, b)", "a if n > 2 else b",
    "qd.cast(a * 3, qd.i32) / 2", "qd.cast(n, float) / 2", "int(-a * 3)", "float(n)", "qd.cast(n > 3, qd.i32)",
    "qd.math.clamp(a, 0.1, 0.9)", "qd.math.mix(a, b, 0.25)", "qd.math.sign(-a)", "qd.math.fract(a)",
    "qd.math.step(a, b)", "qd.math.smoothstep(0.0, 2.0, a)", "qd.math.isnan(a) + 0.0", "qd.math.isinf(a) + 0.0",
    "(v + w).norm()", "v.dot(w)", "v.cross(w).sum()", "v.normalized().x", "(v * w).max()", "v.min()", "v.zyx.y",
    "(v / 2)[1]", "(2 - v).y", "v.outer_product(w).trace()", "m.determinant()", "m.inverse()[0, 1]", "(m @ m)[1, 0]",
    "(m @ v.xy).x", "m.transpose()[0, 1]", "m.trace()", "v.norm_sqr()", "v.norm(1e-2)", "v.norm_inv()",
    "qd.Matrix.identity(qd.f32, 2)[1, 1]", "qd.Vector.one(qd.f32, 3).sum()", "qd.math.vec3(1.0, v.xy).z",
    "qd.types.vector(2, qd.i32)(a * 3, b).x", "qd.Matrix.cols([v, w])[2, 1]", "m.frobenius_inner(m)",
    "qd.math.dot(v, w)", "qd.math.length(v)", "qd.math.reflect(v, w.normalized()).x", "qd.zero(a) + qd.one(n)",
    "(n > 3) and (a > 0)", "not (n > 3)", "(a > b) == (n > 3)",
]  # fmt: skip


def _evaluate(expression, a, b, n):
    """The expression's value in a kernel of the runtime in place."""
    from quadrants._test_tools.load_kernel_string import load_kernel_from_string

    source = f"""
import quadrants as qd

@qd.kernel
def run(data: qd.types.ndarray(), ints: qd.types.ndarray(), out: qd.types.ndarray()):
    for i in range(1):
        a = data[0]
        b = data[1]
        x = a * b
        n = ints[0]
        v = qd.Vector([a, b, 1.0])
        w = qd.Vector([b, 0.5, a])
        m = qd.Matrix([[a, b], [0.5, 2.0]])
        out[0] = {expression}
"""
    with load_kernel_from_string(source, "run") as run:
        out = np.zeros(1, np.float32)
        run(np.array([a, b], np.float32), np.array([n], np.int32), out)
    return float(out[0])


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_agree(expression, cache_folder):
    given = [(1.25, 0.75, 7), (0.3, 2.5, 2)]
    found = {}
    for arch in (qd.python, qd.cpu):
        qd.init(arch=arch, offline_cache_file_path=str(cache_folder), fast_math=False)
        found[arch] = [_evaluate(expression, *g) for g in given]
    qd.reset()
    assert found[qd.python] == pytest.approx(found[qd.cpu], rel=2e-6, abs=1e-6, nan_ok=True)


def test_host_functions(python):
    assert qd.math.isnan(float("nan")) and not qd.math.isnan(1.0)
    assert qd.math.isinf(math.inf) and not qd.math.isinf(1.0)
    assert qd.cast(3.7, qd.i32) == 3 and isinstance(qd.cast(3.7, qd.i32), int)
    f = qd.field(qd.f32, 2)
    f.fill(2.7)
    assert qd.cast(f[0], qd.i32).tolist() == 2
    assert list(qd.ndrange(qd.Vector([2, 1])[0], (1, f[0].int()))) == [(0, 1), (1, 1)]

    @qd.func
    def add(a, b):
        return a + b

    assert add(1, 2) == 3 and add(f[0], 1).tolist() == pytest.approx(3.7)


def test_assert_is_pythons(python):
    @qd.kernel
    def run(n: qd.i32):
        assert n > 3, "too small"

    run(4)
    with pytest.raises(AssertionError, match="too small"):
        run(3)
