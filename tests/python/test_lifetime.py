"""init, reset, a second runtime in one process; objects of a dead runtime raise."""

import gc
import threading
import weakref

import numpy as np
import pytest

import quadrants as qd
from helpers import Array, raises
from quadrants.lang import _ndarray


@qd.kernel
def square(a: Array):
    for i in a:
        a[i] = a[i] * a[i]


def test_kernels_survive_a_reset(backend):
    for _ in range(3):
        a = np.arange(4, dtype=np.int32)
        square(a)
        assert a.tolist() == [0, 1, 4, 9]
        qd.reset()
        backend.init()


def test_captured_values_are_read_again(backend):
    state = {"f": qd.field(qd.i32, 2)}

    @qd.kernel
    def run():
        f = qd.static(state["f"])
        for i in f:
            f[i] += i + 1

    run()
    assert state["f"].to_numpy().tolist() == [1, 2]
    backend.init()
    state["f"] = qd.field(qd.i32, 3)
    run()
    assert state["f"].to_numpy().tolist() == [1, 2, 3]


@pytest.mark.parametrize("use", ["ndarray", "kernel", "field", "sync"])
def test_before_init(backend, use):
    qd.reset()
    uses = {
        "ndarray": lambda: qd.ndarray(qd.f32, 3),
        "field": lambda: qd.field(qd.f32, 3),
        "kernel": lambda: square(np.zeros(3, np.int32)),
        "sync": qd.sync,
    }
    with raises(qd.QuadrantsRuntimeError, "init()"):
        uses[use]()


def test_config_is_none_after_a_reset(backend):
    qd.reset()
    assert qd.cfg is None
    qd.reset()


@pytest.mark.oracle_differs("the established package accepts it after a reset")
def test_root_after_a_reset(backend):
    qd.reset()
    with raises(qd.QuadrantsRuntimeError, "Please call init() first"):
        qd.root.dense(qd.i, 3)


def test_stale_ndarrays_are_empty(backend):
    a = qd.ndarray(qd.f32, 3)
    backend.init()
    assert a.shape is None and a.dtype is None
    with pytest.raises(Exception):
        square(a)
    with pytest.raises(Exception):
        a.to_numpy()
    with pytest.raises(Exception):
        a[0] = 1


@pytest.mark.oracle_differs("the established package has no such step")
def test_a_reset_while_an_ndarray_is_made(backend, monkeypatch):
    made = _ndarray.NativeArray

    def after_a_reset(array):  # by another thread, that is
        qd.reset()
        return made(array)

    monkeypatch.setattr(_ndarray, "NativeArray", after_a_reset)
    with pytest.raises(qd.QuadrantsRuntimeError, match="the runtime was reset"):
        qd.ndarray(qd.f32, (3,))
    monkeypatch.undo()
    backend.init()
    assert qd.ndarray(qd.f32, (3,)).to_numpy().sum() == 0


def test_a_reset_while_an_ndarray_dies(backend):
    for end in (backend.init, qd.reset):
        a = qd.ndarray(qd.f32, 100)
        kept = qd.ndarray(qd.f32, 3)
        watch = weakref.ref(a, lambda _, end=end: end())
        del a
        assert watch() is None and kept.shape is None
        backend.init()
    assert not qd.ndarray(qd.f32, 100).to_numpy().any()


@pytest.mark.oracle_differs("the established package complains of None as a dtype")
def test_stale_ndarrays_in_objects_say_so(backend):
    @qd.data_oriented
    class Cloud:
        def __init__(self):
            self.x = qd.ndarray(qd.f32, 3)

        @qd.kernel
        def move(self):
            self.x[0] += 1

        @qd.kernel
        def clear(self):
            for i in range(self.x.shape[0]):
                self.x[i] = 0

    cloud = Cloud()
    cloud.move()
    backend.init()
    for use in (cloud.move, cloud.clear):
        with raises(qd.QuadrantsRuntimeError, "This ndarray belongs to a runtime that has been"):
            use()
    cloud.x = qd.ndarray(qd.f32, 3)
    cloud.move()
    assert cloud.x[0] == 1


@pytest.mark.oracle_differs("the established package may crash", run=False)
def test_stale_fields_raise(backend):
    f = qd.field(qd.i32, 3)
    v = qd.Vector.field(2, qd.f32, 3)
    f[0] = 1
    v[0] = [1, 2]
    live = v[0]

    @qd.kernel
    def run():
        f[0] = 1

    run()
    backend.init()
    qd.field(qd.i32, 5)[0] = 3
    for use in (lambda: f[0], lambda: f.fill(1), f.to_numpy, run, lambda: v[0][0], lambda: live[0],
                lambda: f.from_numpy(np.zeros(3, np.int32))):  # fmt: skip
        with pytest.raises(Exception):
            use()
    square(np.zeros(3, np.int32))


@pytest.mark.oracle_differs("the established package may crash", run=False)
def test_destroyed_fields_raise(backend):
    f = qd.field(qd.i32)
    fb = qd.FieldsBuilder()
    fb.dense(qd.i, 3).place(f)
    tree = fb.finalize()
    f[0] = 1
    tree.destroy()
    with pytest.raises(Exception):
        f[0]


def test_storage_is_zero_again(backend):
    for _ in range(3):
        f, a = qd.field(qd.i32, 1000), qd.ndarray(qd.i32, 1000)
        assert not f.to_numpy().any() and not a.to_numpy().any()
        f.fill(5)
        a.fill(5)
        backend.init()


def test_options(backend):
    with raises(KeyError, "no_such_option", "other_option"):
        qd.init(no_such_option=1, other_option=2)
    with pytest.raises(TypeError):
        qd.init(debug=1)
    backend.init(debug=True, default_fp=qd.f64)
    assert qd.cfg.debug is True and qd.cfg.default_fp == qd.f64
    with raises(Exception, "version mismatch"):
        qd.init(require_version="99.0.0")
    qd.init(require_version="1.3")


def test_environment_options(backend, monkeypatch):
    monkeypatch.setenv("QD_DEBUG", "1")
    monkeypatch.setenv("QD_DEFAULT_FP", "64")
    backend.init()
    assert qd.cfg.debug is True and qd.cfg.default_fp == qd.f64
    monkeypatch.setenv("QD_DEBUG", "yes")
    with pytest.raises(ValueError):
        backend.init()
    monkeypatch.delenv("QD_DEBUG")
    backend.init(default_fp=qd.f32)
    assert qd.cfg.default_fp == qd.f32 and qd.cfg.debug is False


@pytest.mark.oracle_differs("it does not name the variable")
@pytest.mark.parametrize(
    "variable", ["QD_DEBUG", "QD_OPT_LEVEL", "QD_DEVICE_MEMORY_GB", "QD_LOAD_IR"]
)
def test_unreadable_variable_is_named(backend, monkeypatch, variable):
    monkeypatch.setenv(variable, "yes")
    with pytest.raises(ValueError, match=f"Environment variable {variable}: "):
        backend.init()


@pytest.mark.parametrize("options", [
    {"opt_level": 0}, {"advanced_optimization": False}, {"cpu_max_num_threads": 1},
    {"fast_math": False}, {"offline_cache": False},
    pytest.param({"constant_folding": False},
                 marks=pytest.mark.oracle_differs("the established package lacks this option")),
    {"real_matrix_scalarize": False}, {"num_compile_threads": 0},
], ids=lambda o: next(iter(o)))  # fmt: skip
def test_options_keep_results(backend, options):
    backend.init(**options)
    x = qd.Vector.field(2, qd.f32, 64)

    @qd.kernel
    def run() -> qd.f32:
        s = 0.0
        for i in x:
            x[i] = [i * 0.5, i + 3 * 2]
            for k in range(3):
                x[i] += k
        for i in x:
            s += x[i].sum()
        return s

    i = np.arange(64)
    assert abs(run() - (i * 0.5 + i + 6 + 6).sum()) < 1e-2


def test_first_calls_from_several_threads(backend):
    arrays = [np.full(100, k, np.int32) for k in range(4)]
    square(np.zeros(3, np.int32))  # the first materialisation may need the main thread
    kernels = []
    for k in range(4):

        @qd.kernel
        def run(a: Array, n: qd.template()):
            for i in a:
                a[i] = a[i] * 10 + n

        kernels.append(run)
    failures = []

    def work(k):
        try:
            for _ in range(2):
                kernels[k](arrays[k], k)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
    assert all((a == k * 100 + k * 10 + k).all() for k, a in enumerate(arrays))


@pytest.mark.oracle_differs("counts our specialisations")
def test_versions_for_dead_objects_go(backend):
    @qd.data_oriented
    class Number:
        def __init__(self, n):
            self.n = n

        @qd.kernel
        def get(self) -> qd.i32:
            return self.n

    assert [Number(k).get() for k in range(20)] == list(range(20))
    gc.collect()
    kept = Number(7)
    assert kept.get() == 7 and len(Number.get._specialisations) == 1


def test_kernels_bound_to_an_object_that_keeps_them_go_with_it(backend):
    @qd.data_oriented
    class Number:
        @qd.kernel
        def get(self) -> qd.i32:
            return 3

    number = Number()
    number.kept = number.get
    assert number.kept() == 3
    gone = weakref.ref(number)
    del number
    gc.collect()
    assert gone() is None


def test_version():
    assert qd.__version__[:2] == (1, 3) and all(isinstance(n, int) for n in qd.__version__)
    assert isinstance(qd.__version_str__, str)


def test_what_funcs_were_made_for_goes_with_the_runtime(backend):
    class Holder:
        x = 3

    @qd.func
    def get(o: qd.template()):
        return o.x

    def use():
        holder = Holder()

        @qd.kernel
        def k(o: qd.template()) -> qd.i32:
            return get(o)

        assert k(holder) == 3
        return weakref.ref(holder)

    gone = use()
    backend.init()
    gc.collect()
    assert gone() is None


def test_a_kernel_keeps_nothing_of_earlier_runtimes():
    @qd.kernel
    def k() -> qd.i32:
        return 1

    programs = []
    for _ in range(6):
        qd.init(arch=qd.cpu)
        assert k() == 1
        programs.append(weakref.ref(qd.lang.impl.get_runtime()._prog))
        qd.reset()
    gc.collect()
    assert sum(program() is not None for program in programs) <= 1
