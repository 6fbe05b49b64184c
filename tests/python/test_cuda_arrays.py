"""Arrays of CuPy, JAX and whoever else says by the CUDA Array Interface where on a GPU they lie."""

import numpy as np
import pytest

import quadrants as qd
from conftest import PRESENT
from cuda_standin import driver_marks
from helpers import Array, Backend

on_gpu = [
    pytest.mark.oracle_differs("it takes none"),
    pytest.mark.skipif("cuda" not in PRESENT, reason="no CUDA device"),
]

DTYPES = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 bool".split()


class TestOfCuPy:
    pytestmark = on_gpu

    @pytest.fixture
    def cupy(self, cache_folder):
        cupy = pytest.importorskip("cupy")
        Backend("cuda", cache_folder).init()
        yield cupy
        qd.reset()

    def test_they_are_used_in_place(self, cupy):
        @qd.kernel
        def add(a: Array, b: Array, s: qd.f32):
            for i, j in a:
                a[i, j] += b[i, j] * s

        a, b = (
            cupy.zeros((50, 7), cupy.float32),
            cupy.arange(350, dtype=cupy.float32).reshape(50, 7),
        )
        at = a.data.ptr
        for _ in range(4):
            add(a, b, 2.0)
            b += 1
        want = 8 * np.arange(350, dtype=np.float32).reshape(50, 7) + 2 * (1 + 2 + 3)
        assert a.data.ptr == at and (a.get() == want).all()
        add(a, np.ones((50, 7), np.float32), 1.0)  # beside what has to be copied
        assert (a.get() == want + 1).all()

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_dtypes(self, cupy, dtype):
        @qd.kernel
        def turn(a: Array, b: Array):
            for i in a:
                b[a.shape[0] - 1 - i] = a[i]

        a = cupy.asarray(np.arange(9) % 2 if dtype == "bool" else np.arange(9), dtype=dtype)
        b = cupy.zeros_like(a)
        turn(a, b)
        assert (b.get() == a.get()[::-1]).all()

    def test_shapes_and_elements(self, cupy):
        @qd.kernel
        def scale(
            a: qd.types.ndarray(qd.types.vector(3, qd.f32), 1), s: qd.types.ndarray(qd.f32, 0)
        ):
            for i in a:
                a[i] *= s[None]

        a, s = cupy.ones((6, 3), cupy.float32), cupy.asarray(3, dtype=cupy.float32)
        scale(a, s)
        assert (a.get() == 3).all()
        scale(cupy.zeros((0, 3), cupy.float32), s)

    def test_streams_come_first(self, cupy):
        @qd.kernel
        def double(a: Array):
            for i in a:
                a[i] *= 2

        a = cupy.zeros(20_000_000, cupy.float32)
        with cupy.cuda.Stream(non_blocking=True):
            for _ in range(30):
                a += 1
            double(a)
        assert float(a.min()) == float(a.max()) == 60

    def test_mistakes(self, cupy):
        @qd.kernel
        def k(a: qd.types.ndarray(qd.f32, 2)):
            for i, j in a:
                a[i, j] = 1

        with pytest.raises(ValueError, match="contiguous"):
            k(cupy.zeros((4, 4), cupy.float32)[:, ::2])
        with pytest.raises(ValueError, match="ndim=2"):
            k(cupy.zeros(4, cupy.float32))
        with pytest.raises(ValueError, match="f32"):
            k(cupy.zeros((4, 4), cupy.float64))
        a = cupy.zeros((4, 4), cupy.float32)
        k(a)
        assert float(a.sum()) == 16


class TestOfJax:
    pytestmark = on_gpu

    def test_they_are_read_in_place_and_never_written(self, cache_folder, monkeypatch):
        monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        jax = pytest.importorskip("jax")
        if jax.default_backend() != "gpu":
            pytest.skip("this JAX has no GPU")
        Backend("cuda", cache_folder).init()

        @qd.kernel
        def total(a: Array) -> qd.f32:
            s = 0.0
            for i in a:
                s += a[i]
            return s

        a = jax.numpy.arange(1000.0)
        for _ in range(3):
            assert total(a) == 499500
            a = a + 0
        with pytest.raises(qd.QuadrantsRuntimeTypeError, match=r"numpy\.asarray"):
            total(jax.device_put(a, jax.devices("cpu")[0]))
        qd.reset()


FOREIGN = """
class Foreign:
    def __init__(self, shape=(8,), typestr="<f4", dtype="float32", read_only=False, **more):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.more = dict(data=(ADDRESS, read_only), shape=shape, typestr=typestr, version=3, **more)
    @property
    def __cuda_array_interface__(self):
        if self.more.get("gone"): raise AttributeError("on a CPU")
        return self.more
@qd.kernel
def k(a: qd.types.ndarray()):
    for I in qd.grouped(a): a[I] = 1
@qd.kernel
def look(a: qd.types.ndarray()) -> qd.i32:
    return a.shape[0]
def tries(f, *args, **more):
    try:
        f(Foreign(*args, **more))
        print("fine")
    except Exception as e:
        print(type(e).__name__, str(e).splitlines()[1 if "ensure compiled" in str(e) else 0])
"""


class TestOnTheStandIn:
    pytestmark = driver_marks

    def test_what_they_say_is_believed_or_refused(self, cuda_run):
        program = (
            "qd.init(arch=qd.cuda, log_level=qd.ERROR)\n"
            + FOREIGN
            + """
for _ in range(2):
    tries(k)
    tries(k, (4, 5), strides=(20, 4))
    tries(k, (1, 4), strides=(400, 4))
    tries(k, strides=None, stream=1)
    tries(k, stream=77)
tries(k, (4, 5), strides=(4, 16))
tries(k, mask=3)
tries(k, typestr="<c8", dtype="complex64")
tries(k, gone=True)
tries(k, read_only=True)
tries(look, read_only=True)
"""
        )
        lines, log, _ = cuda_run(program.replace("ADDRESS", str(0x7000000)))
        assert lines[:10] == ["fine"] * 10
        for line, said in zip(
            lines[10:],
            [
                "ValueError Non contig",
                "ValueError Argument a: arrays with masks",
                "QuadrantsRuntimeTypeError",
                "QuadrantsRuntimeTypeError Argument a: a Foreign that is not on a GPU",
                "ValueError Argument a is a read-only",
                "fine",
            ],
            strict=True,
        ):
            assert line.startswith(said), line
        # None is copied; what another stream does is waited for.
        assert not [x for x in log if x.startswith(("write", "read 3"))]
        assert log.count("wait 77") == 2

    def test_those_of_another_gpu_are_refused(self, cuda_run):
        program = (
            "qd.init(arch=qd.cuda, log_level=qd.ERROR)\n"
            + FOREIGN
            + "tries(k)\ntries(look)\nk(qd.ndarray(qd.f32, 3))\n"
        )
        lines, _, _ = cuda_run(program.replace("ADDRESS", str(0x8000000)))
        assert len(lines) == 2 and all("GPU 2, and kernels run on GPU 0" in x for x in lines)
        # The GPU is the one that the thread had to do with before.
        lines, _, _ = cuda_run(program.replace("ADDRESS", str(0x8000000)), "second")
        assert len(lines) == 2 and all("GPU 2, and kernels run on GPU 1" in x for x in lines)

    def test_a_cpu_cannot_use_them(self, cuda_run):
        program = "qd.init(arch=qd.cpu, log_level=qd.ERROR)\n" + FOREIGN + "tries(k)\n"
        lines, _, _ = cuda_run(program.replace("ADDRESS", "64"))
        assert lines == [
            "ValueError Argument a is an array on a GPU, which arch=x64 cannot use: pass a copy on the host"
        ]
