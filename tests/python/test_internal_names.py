"""Names below the public surface that client programs and other suites touch."""

import ast
import dataclasses
import gc
import importlib
import os
import pathlib
import re
import warnings
import weakref

import numpy as np
import pytest

import quadrants as qd
from helpers import module_at
from quadrants.lang import impl
from quadrants.lang._kernel_types import (
    FeLlCacheObservations,
    KernelBatchedArgType,
    LaunchObservations,
    LaunchStats,
    SrcLlCacheObservations,
)
from quadrants.lang.kernel_impl import Kernel


@dataclasses.dataclass(frozen=True)
class Pair:
    x: qd.types.ndarray()
    y: qd.types.ndarray()
    n: qd.i32


@qd.kernel(fastcache=True)
def pure_kernel(x: qd.types.ndarray(), s: Pair, a: qd.i32, b: qd.f32):
    for i in x:
        x[i] += s.x[i] * s.n + a + b


@qd.kernel
def plain_kernel(x: qd.types.ndarray()):
    for i in x:
        x[i] += 1


def pattern(kernel):
    s = kernel._primal.src_ll_cache_observations
    return s.cache_key_generated, s.cache_validated, s.cache_loaded, s.cache_stored


@pytest.fixture
def start(tmp_path):
    def start(**options):
        qd.init(arch=qd.cpu, offline_cache_file_path=str(tmp_path), **options)
        return qd.ndarray(qd.f32, (3,))

    return start


def call(x):
    pure_kernel(x, Pair(x, x, 1), 1, 1.0)


def test_classes_are_found_beside_their_values():
    from quadrants.lang.matrix import MatrixField, MatrixNdarray, VectorNdarray

    assert (MatrixField, MatrixNdarray, VectorNdarray) == (
        qd.MatrixField,
        qd.MatrixNdarray,
        qd.VectorNdarray,
    )


def test_the_cpu_has_no_clock_frequency(start):
    start()
    with pytest.raises(NotImplementedError, match=f"for arch {qd.cpu.name}"):
        qd.clock_freq_hz()


def test_fastcache_patterns(start):
    x = start()
    assert pattern(pure_kernel) == (False, False, False, False)
    call(x)
    assert pattern(pure_kernel) == (True, False, False, True)
    call(qd.ndarray(qd.f32, (7,)))
    assert pattern(pure_kernel) == (True, False, False, True)
    x = start()
    assert pattern(pure_kernel) == (False, False, False, False)
    call(x)
    assert pattern(pure_kernel) == (True, True, True, False)
    assert not pure_kernel._primal.fe_ll_cache_observations.cache_hit
    plain_kernel(x)
    assert pattern(plain_kernel) == (False, False, False, False)
    x = start(src_ll_cache=False)
    call(x)
    assert pattern(pure_kernel) == (False, False, False, False)


def test_a_field_is_not_fast_cached(start):
    @qd.kernel(fastcache=True)
    def k(f: qd.template()):
        for i in f:
            f[i] = 1

    start()
    f = qd.field(qd.i32, 3)
    k(f)
    assert pattern(k) == (False, False, False, False)


def test_observations_of_plain_kernels(start):
    x = start()
    plain_kernel(x)
    assert not plain_kernel._primal.launch_observations.found_kernel_in_materialize_cache
    plain_kernel(x)
    assert plain_kernel._primal.launch_observations.found_kernel_in_materialize_cache
    x = start()
    plain_kernel(x)
    assert plain_kernel._primal.fe_ll_cache_observations.cache_hit


def test_what_cannot_be_compiled_is_found_nowhere(start):
    @qd.kernel
    def k(x: qd.types.ndarray(), n: qd.template()):
        x[0] = 1 if qd.static(n) else unknown  # noqa: F821

    def found():
        return k._primal.launch_observations.found_kernel_in_materialize_cache

    start()
    x = qd.ndarray(qd.i32, 3)
    for _ in range(2):
        with pytest.raises(qd.QuadrantsNameError):
            k(x, 0)
        assert not found()
    for seen in False, True:
        k(x, 1)
        assert found() == seen
    with pytest.raises(qd.QuadrantsRuntimeTypeError):
        k(3, 1)
    assert not found()
    k(x, 1)
    assert found()


def test_tables_of_a_kernel(start):
    x = start(offline_cache=False)
    call(x)
    p = pure_kernel._primal
    (key,) = p.materialized_kernels
    assert key[0] is pure_kernel.fn is p.func and key[1] == 0
    assert p._last_launch_key == key
    assert p.used_py_dataclass_parameters_by_key_enforcing == {
        key: {"__qd_s", "__qd_s__qd_x", "__qd_s__qd_n"}
    }
    assert list(p.compiled_kernel_data_by_key) == [key]
    assert p._last_compiled_kernel_data._debug_dump_to_string()
    assert len(p.mapper.mapping) == 1
    assert p.launch_stats.kernel_args_count_by_type == {
        KernelBatchedArgType.QD_ARRAY: 2,
        KernelBatchedArgType.INT: 2,
        KernelBatchedArgType.FLOAT: 1,
    }
    assert p.autodiff_mode.name == "NONE" and pure_kernel._adjoint.autodiff_mode.name == "REVERSE"
    pure_kernel(x, Pair(qd.ndarray(qd.i32, (3,)), x, 1), 1, 1.0)
    assert len(p.mapper.mapping) == len(p.materialized_kernels) == 2
    start()
    assert len(p.materialized_kernels) == 0
    qd.reset()
    assert len(p.materialized_kernels) == 0


def test_counts_of_bound_arguments(start):
    """Arrays of others, vectors and structs are of no kind that is counted."""

    @qd.kernel
    def fill(a: qd.types.ndarray(), n: qd.u8, flag: bool, v: qd.types.vector(2, qd.f32)):
        for i in a:
            a[i] = n + flag + v[0]

    start(offline_cache=False)
    rest = (3, True, qd.Vector([1.0, 2.0]))
    uints = {KernelBatchedArgType.UINT: 2}
    ndarray = {**uints, KernelBatchedArgType.QD_ARRAY: 1}
    with_grad = {**uints, KernelBatchedArgType.QD_ARRAY_WITH_GRAD: 1}
    x, theirs = qd.ndarray(qd.f32, 3), np.zeros(3, np.float32)
    for array, counts in ((x, ndarray), (theirs, uints), (x, ndarray), (theirs, uints)):
        fill(array, *rest)
        assert fill._primal.launch_stats.kernel_args_count_by_type == counts

    @qd.kernel
    def fill2(a: qd.types.ndarray()):
        for i in a:
            a[i] = 1

    fill2(qd.ndarray(qd.f32, 3, needs_grad=True))
    del with_grad[KernelBatchedArgType.UINT]
    assert fill2._primal.launch_stats.kernel_args_count_by_type == with_grad


def test_tables_of_identities(start):
    """One entry for each tuple of objects, as long as all live; launches without others' arrays and numbers."""

    @dataclasses.dataclass(frozen=True)
    class Frozen:
        a: qd.types.ndarray()

    @dataclasses.dataclass
    class Mutable:
        a: qd.types.ndarray()

    @qd.kernel
    def k(a: qd.types.ndarray(), n: qd.i32):
        a[0] = n

    @qd.kernel
    def real(t: qd.template(), x: qd.f32) -> qd.f32:
        return t + x

    @qd.kernel
    def frozen(d: Frozen):
        d.a[0] = 1

    @qd.kernel
    def mutable(d: Mutable):
        d.a[0] = 1

    def sizes(kernel):
        mapper, context = kernel._primal.mapper, kernel._primal.launch_context_buffer_cache
        calls, launches = len(mapper._mapping_cache), len(context._launch_ctx_cache)
        assert calls == len(mapper._mapping_cache_tracker)
        assert launches == len(context._launch_ctx_cache_tracker)
        return calls, launches

    def after(kernel, *args):
        kernel(*args)
        return sizes(kernel)

    start(offline_cache=False)
    a, b = qd.ndarray(qd.i32, 4), qd.ndarray(qd.i32, 4)
    assert sizes(k) == sizes(real) == sizes(frozen) == sizes(mutable) == (0, 0)
    assert [after(k, *args) for args in ((a, 1), (a, 1), (a, 2), (b, 1))] == [
        (1, 1),
        (1, 1),
        (2, 2),
        (3, 3),
    ]
    large, theirs = 1000, np.zeros(4, np.int32)
    assert [after(k, a, large), after(k, a, large), after(k, theirs, 1)] == [(4, 3), (4, 3), (5, 3)]
    k(n=2, a=a)
    assert sizes(k) == (5, 3)
    x, y = 1.5, 2.5
    assert [after(real, 1, x), after(real, 1, x), after(real, 1, y)] == [(1, 0), (1, 0), (2, 0)]
    f, g = Frozen(a), Frozen(b)
    assert [after(frozen, f), after(frozen, f), after(frozen, g)] == [(1, 1), (1, 1), (2, 2)]
    m = Mutable(a)
    assert [after(mutable, m), after(mutable, m)] == [(1, 0), (1, 0)]
    m.a = b
    assert after(mutable, m) == (2, 0)
    del g, theirs, b, m
    gc.collect()
    assert (sizes(k), sizes(frozen), sizes(mutable)) == ((3, 2), (1, 1), (0, 0))
    with pytest.raises(TypeError):
        k(a, "1")
    assert sizes(k) == (3, 2)
    start(offline_cache=False)
    assert sizes(k) == (0, 0)
    start(offline_cache=False)
    a = qd.ndarray(qd.i32, 4)
    k(a, 1), real(1, x)  # nobody looks yet
    assert (sizes(k), sizes(real)) == ((1, 1), (1, 0))
    assert [after(k, a, 1), after(k, a, 2)] == [(1, 1), (2, 2)]
    start(offline_cache=False)
    k(qd.ndarray(qd.i32, 4), 1)


def test_what_cannot_be_watched_is_told_once(start):
    @dataclasses.dataclass(frozen=True, slots=True)
    class Slots:
        n: qd.i32

    class Odd(tuple):
        pass

    @qd.kernel
    def of_slots(s: Slots) -> qd.i32:
        return s.n

    @qd.kernel
    def of_template(t: qd.template()) -> qd.i32:
        return 1

    start(offline_cache=False)
    with pytest.warns(UserWarning, match="'Slots' object. Template mapper caching disabled"):
        assert of_slots(Slots(3)) == 3
    with pytest.warns(UserWarning, match="'Odd' object. Template mapper caching disabled"):
        of_template(Odd((1, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of_slots(Slots(4)), of_template(Odd((1, 3)))
        of_template(3), of_template(None), of_template(qd.field(qd.i32, 3)), of_template(2.5)
    for _ in range(3):
        assert of_slots(Slots(5)) == 5
    assert of_slots._primal.mapper._mapping_cache  # nobody looked: that it was called
    of_slots(Slots(6))
    assert of_slots._primal.mapper._mapping_cache == {}


def test_mapping_has_a_feature_for_each_parameter(start):
    @qd.data_oriented
    class Owner:
        @qd.kernel
        def method(self):
            pass

    @qd.kernel
    def k(a: qd.types.ndarray(), t: qd.template(), n: qd.i32):
        for I in qd.grouped(a):
            a[I] += n * t

    x = start(offline_cache=False)
    y = qd.Vector.ndarray(2, qd.i32, (3, 3))
    k(x, 1, 0), k(x, 2, 0), k(x, 1, 0), k(y, 2, 0)
    p = k._primal
    assert [n for _, n in p.mapper.mapping.items()] == [0, 1, 2]
    assert [(a[1:], t, n) for a, t, n in p.mapper.mapping] == [
        ((1, False, 0, None), 1, "#"),
        ((1, False, 0, None), 2, "#"),
        ((2, False, 0, None), 2, "#"),
    ]
    assert [key[1] for key in p.materialized_kernels] == [0, 1, 2]
    assert p._last_launch_key[1] == 2
    k(x, 2, 0)
    assert p._last_launch_key[1] == 1 and len(p.mapper.mapping) == 3
    p.reset()
    assert not p.materialized_kernels
    k(x, 2, 5)
    assert len(p.materialized_kernels) == 1 and x.to_numpy().tolist() == [10] * 3

    owner = Owner()
    owner.method()
    (feature,) = next(iter(Owner.method._primal.mapper.mapping))
    assert feature() is owner


def test_mapping_of_layouts_and_members(start):
    start(offline_cache=False)
    t = qd.tensor(qd.i32, (2, 3), layout=(1, 0), backend=qd.Backend.NDARRAY)
    x = qd.ndarray(qd.i32, 3)
    t.fill(0), x.fill(0)
    plain_kernel2(t), by_member(Pair(x, x, 1))
    ((array,),) = plain_kernel2._primal.mapper.mapping
    assert array[1:] == (2, False, 0, (1, 0))
    ((members,),) = by_member._primal.mapper.mapping
    assert members[0][1:] == (1, False, 0, None) and len(members) == 3


@qd.kernel
def plain_kernel2(x: qd.types.ndarray()):
    for i, j in x:
        x[i, j] += 1


@qd.func
def bump(x):
    return x + 1


@qd.kernel
def by_member(s: Pair):
    for i in s.x:
        s.x[i] = bump(s.x[i])


@qd.kernel
def returning() -> tuple[qd.i32, qd.f32]:
    print("returning")
    return 1, 2.0


def test_attributes_of_a_kernel(start):
    start()
    p = returning._primal
    assert p.func is returning.fn and not p.materialized_kernels
    for _ in range(2):  # the second time from the cache
        start()
        x = qd.ndarray(qd.i32, 3)
        x.fill(0)
        by_member(Pair(x, x, 1)), returning()
        assert len(p.materialized_kernels) == 1
        used = by_member._primal.used_py_dataclass_parameters_by_key_enforcing
        assert [names - {"__qd_s"} for names in used.values()] == [{"__qd_s__qd_x"}]


def test_adjoints_are_kernels():
    adjoint = plain_kernel._adjoint
    assert isinstance(adjoint, Kernel) and adjoint is plain_kernel._adjoint
    assert adjoint.func is plain_kernel.fn and not adjoint.materialized_kernels


def test_records_are_assignable():
    assert SrcLlCacheObservations() == SrcLlCacheObservations(False, False, False, False)
    p = plain_kernel._primal
    p.src_ll_cache_observations.cache_loaded = True
    p.fe_ll_cache_observations = FeLlCacheObservations(True)
    assert p.src_ll_cache_observations.cache_loaded and p.fe_ll_cache_observations.cache_hit
    assert not LaunchObservations().found_kernel_in_materialize_cache
    assert LaunchStats().kernel_args_count_by_type[KernelBatchedArgType.UINT] == 0


def test_launches_go_through_replaced_methods(start, monkeypatch):
    x = start(offline_cache=False)
    seen = []
    original = Kernel.launch_kernel

    def double(self, key, t_kernel, compiled_kernel_data, *args, qd_stream=None):
        seen.append((self.fn.__name__, compiled_kernel_data is None, len(args)))
        return original(self, key, t_kernel, compiled_kernel_data, *args, qd_stream=qd_stream)

    with monkeypatch.context() as m:
        m.setattr(Kernel, "launch_kernel", double)
        plain_kernel(x)
        plain_kernel(x=x)
    plain_kernel(x)
    assert seen == [("plain_kernel", True, 1), ("plain_kernel", False, 1)]
    assert x.to_numpy().tolist() == [3] * 3


def watch(monkeypatch, cls, name, note):
    """Calls `note` with the arguments of each call of a method."""
    original = getattr(cls, name)

    def double(self, *args):
        note(*args)
        return original(self, *args)

    monkeypatch.setattr(cls, name, double)


def test_launches_go_through_replaced_methods_of_the_program(start, monkeypatch):
    x = start(offline_cache=False)
    prog = impl.get_runtime().prog
    seen = []

    def is_ours(config, caps, kernel):
        return config == prog.config() and caps.hashed_key() == prog.get_device_caps().hashed_key()

    @qd.kernel
    def add(x: qd.types.ndarray(), a: qd.i32) -> qd.i32:
        for i in x:
            x[i] += a
        return a + 1

    def is_code(data, context):
        return "kernel" in data._debug_dump_to_string()

    with monkeypatch.context() as m:
        watch(m, type(prog), "compile_kernel", lambda *args: seen.append(is_ours(*args)))
        watch(m, type(prog), "launch_kernel", lambda *args: seen.append(is_code(*args)))
        assert add(x, 2) == 3
        assert add(x, 3, qd_stream=qd.create_stream()) == 4
    assert add(x, 4) == 5
    assert seen == [True] * 3
    assert x.to_numpy().tolist() == [9] * 3
    with pytest.raises(AttributeError, match="read-only"):
        prog.launch_kernel = None


def test_a_stand_in_for_launches(start, monkeypatch):
    x = start(offline_cache=False)
    contexts = []
    program_class = type(impl.get_runtime().prog)
    with monkeypatch.context() as m:
        m.setattr(program_class, "launch_kernel", lambda self, *launch: contexts.append(launch))
        assert plain_kernel(x) is None
    assert x.to_numpy().tolist() == [0] * 3
    ((data, context),) = contexts
    impl.get_runtime().prog.launch_kernel(data, context)
    assert x.to_numpy().tolist() == [1] * 3


def test_compiling_in_steps(start):
    x = start()
    plain_kernel(x)
    for _ in range(2):  # the second time from the disk
        prog = impl.get_runtime().prog
        plain_kernel(x)
        ((key, kernel),) = plain_kernel._primal.materialized_kernels.items()
        compiled = prog.compile_kernel(prog.config(), prog.get_device_caps(), kernel)
        data, name = compiled.compiled_kernel_data, compiled.cache_key
        assert compiled.cache_hit is True
        dump = plain_kernel._primal.compiled_kernel_data_by_key[key]._debug_dump_to_string()
        assert data._debug_dump_to_string() == dump and re.fullmatch("T[0-9a-f]+", name)
        caps = prog.get_device_caps()
        assert prog.load_fast_cache(name, "plain_kernel", prog.config(), caps) is not None
        x = start()
        prog = impl.get_runtime().prog  # in which no kernel has run
        loaded = prog.load_fast_cache(name, "plain_kernel", prog.config(), caps)
        assert "plain_kernel" in loaded._debug_dump_to_string()
        assert prog.load_fast_cache("T0", "plain_kernel", prog.config(), caps) is None


@pytest.mark.oracle_differs("dies of what is stale", run=False)
def test_what_cannot_be_compiled(start):
    plain_kernel(start())
    (kernel,) = plain_kernel._primal.materialized_kernels.values()
    start()
    prog = impl.get_runtime().prog
    with pytest.raises(qd.QuadrantsRuntimeError, match="plain_kernel no longer has"):
        prog.compile_kernel(prog.config(), prog.get_device_caps(), kernel)
    with pytest.raises(TypeError, match="materialized kernel"):
        prog.compile_kernel(prog.config(), prog.get_device_caps(), None)


def test_streams_are_made_by_the_program(backend, monkeypatch):
    prog = impl.get_runtime().prog
    seen = []
    for name in ("stream_create", "stream_synchronize", "event_create", "event_synchronize"):
        watch(monkeypatch, type(prog), name, lambda *_, name=name: seen.append(name))
    stream, event = qd.create_stream(), qd.create_event()
    event.synchronize(), stream.synchronize()
    expect = ["stream_create", "event_create", "event_synchronize", "stream_synchronize"]
    assert seen == expect
    handle = prog.stream_create()
    prog.set_current_cuda_stream(handle)
    prog.set_current_cuda_stream(0)
    prog.stream_destroy(handle)


def test_what_else_the_program_has(backend):
    prog = impl.get_runtime().prog
    x = qd.ndarray(qd.f32, 3)
    prog.fill_float(x.arr, 2.5)
    assert x.to_numpy().tolist() == [2.5] * 3
    assert prog.get_ndarray_data_ptr_as_int(x.arr) and x.arr.device_allocation_ptr()
    with pytest.raises(AttributeError, match="Program.* has no attribute 'zz'"):
        prog.zz


@pytest.mark.oracle_differs("dies without a profiler", run=False)
def test_timings_of_a_program_without_a_profiler(start):
    plain_kernel(start())
    prog = impl.get_runtime().prog
    prog.sync_kernel_profiler()
    assert prog.get_kernel_profiler_records() == [] and prog.kernel_profiler_total_time() == 0
    assert prog.query_kernel_profile_info("plain_kernel").counter == 0
    assert prog.set_kernel_profiler_toolkit("cupti") is False


def test_timings_that_the_program_has(start):
    x = start(kernel_profiler=True)
    plain_kernel(x)
    prog = impl.get_runtime().prog
    records = prog.get_kernel_profiler_records()
    assert "plain_kernel" in records[-1].name and records[-1].kernel_time >= 0
    assert prog.kernel_profiler_total_time() >= records[-1].kernel_time / 1e3
    assert prog.query_kernel_profile_info(records[-1].name).counter == 1
    prog.clear_kernel_profiler()
    assert prog.get_kernel_profiler_records() == []


def test_ensure_compiled(start):
    x = start(offline_cache=False)
    plain_kernel._primal.ensure_compiled(x)
    assert x.to_numpy().tolist() == [0] * 3
    before = impl.get_runtime().get_num_compiled_functions()
    plain_kernel(x)
    assert impl.get_runtime().get_num_compiled_functions() == before

    @qd.kernel
    def bad(x: qd.types.ndarray()):
        for i in x:
            x[i] = unknown_name  # noqa: F821

    told = "exception while trying to ensure compiled <function test_ensure_compiled.<locals>.bad"
    with pytest.raises(qd.QuadrantsNameError, match=re.escape(told)):
        bad._primal.ensure_compiled(x)
    with pytest.raises(qd.QuadrantsRuntimeTypeError, match="ensure compiled") as e:
        plain_kernel._primal.ensure_compiled("x")
    assert str(e.value).count("ensure compiled") == 1  # a call of the kernel says so too


def test_template_mapper(start):
    from quadrants.lang._template_mapper import TemplateMapper
    from quadrants.lang.kernel_arguments import ArgMetadata

    x = start(offline_cache=False)
    mapper = TemplateMapper([ArgMetadata(qd.template(), "a"), ArgMetadata(qd.types.ndarray(), "b")])
    assert mapper.lookup(False, (1, x))[0] == 0
    assert mapper.lookup(False, (2, x))[0] == 1
    assert mapper.lookup(False, (1, qd.ndarray(qd.f32, (9,))))[0] == 0
    assert mapper.lookup(False, (1, qd.ndarray(qd.i32, (9,))))[0] == 2
    assert len(mapper.mapping) == 3
    with pytest.raises(ValueError):
        mapper.lookup(True, (1.0, x))


def test_template_mapper_builtins_are_writable(monkeypatch):
    from quadrants.lang import _template_mapper

    monkeypatch.setitem(_template_mapper.__builtins__, "__debug__", False)
    assert __debug__


def test_symbol_resolver():
    from quadrants.lang.ast.symbol_resolver import ASTResolver

    node = ast.parse("qd.math.pi", mode="eval").body
    assert ASTResolver.resolve_to(node, qd.math.pi, {"qd": qd})
    assert not ASTResolver.resolve_to(node, qd.math.inf, {"qd": qd})
    assert not ASTResolver.resolve_to(node, qd.math.pi, {})
    assert not ASTResolver.resolve_to(ast.Constant(1), 1, {})


def test_args_hasher(start):
    from quadrants.lang._fast_caching import FIELD_METADATA_CACHE_VALUE
    from quadrants.lang._fast_caching.args_hasher import FastcacheSkip, hash_args
    from quadrants.lang.kernel_arguments import ArgMetadata

    x = start(offline_cache=False)

    @dataclasses.dataclass
    class Opts:
        n: int = dataclasses.field(metadata={FIELD_METADATA_CACHE_VALUE: True})
        scale: float = 1.0

    none = [None]
    assert hash_args(False, [x], none) == hash_args(False, [qd.ndarray(qd.f32, (9,))], none)
    assert hash_args(False, [x], none) != hash_args(False, [qd.ndarray(qd.i32, (9,))], none)
    assert (
        hash_args(False, [1], none) == hash_args(False, [2], none) != hash_args(False, [2.0], none)
    )
    template = [ArgMetadata(qd.Template, "a")]
    assert hash_args(False, [1], template) != hash_args(False, [2], template)
    assert hash_args(False, [Opts(1, 2.0)], none) == hash_args(False, [Opts(1, 3.0)], none)
    assert hash_args(False, [Opts(1)], none) != hash_args(False, [Opts(2)], none)
    f = qd.field(qd.i32, 3)
    assert hash_args(False, [f], template) is FastcacheSkip.WARN
    for metas in ([ArgMetadata(qd.Tensor, "a")], none):
        assert hash_args(False, [f], metas) is FastcacheSkip.FIELD_VIA_TENSOR
    with pytest.raises(RuntimeError):
        hash_args(False, [x], [])
    with pytest.raises(ValueError):
        hash_args(True, [1.0], template)


def test_other_hashers(start, tmp_path):
    from quadrants.lang._fast_caching import config_hasher, function_hasher, python_side_cache
    from quadrants.lang._wrap_inspect import FunctionSourceInfo

    start()
    first = config_hasher.hash_compile_config()
    assert config_hasher.hash_device_caps().startswith("T")
    start(random_seed=5)
    assert config_hasher.hash_compile_config() != first
    path = tmp_path / "f.py"
    path.write_text("a\nb\nc\nd\n")
    info = FunctionSourceInfo(function_name="f", filepath=str(path), start_lineno=1, end_lineno=2)
    assert function_hasher._read_file(info) == ["b\n", "c\n"]
    hashed = function_hasher.hash_functions([info])
    path.write_text("A\nb\nc\nD\n")
    assert function_hasher.validate_hashed_function_infos(hashed)
    path.write_text("a\nb\nX\nd\n")
    assert not function_hasher.validate_hashed_function_infos(hashed)
    path.unlink()
    assert not function_hasher.validate_hashed_function_infos(hashed)
    side = python_side_cache.PythonSideCache()
    assert side.try_load("k") is None
    side.store("k", "text")
    (file,) = tmp_path.glob("python_side_cache/k.cache.txt")
    os.utime(file, (1, 1))
    assert side.try_load("k") == "text"
    assert file.stat().st_mtime > 1  # a read is use


def test_dedent_takes_columns_away():
    from quadrants._test_tools import textwrap2

    assert textwrap2.dedent(2, "\n    a\n      b\n\n c") == "\n  a\n    b\n\n"
    assert textwrap2.dedent(0, "  a") == "  a"


def test_replaced_runtime_methods(monkeypatch):
    calls = []
    materialize, clear = impl.PyQuadrants.materialize, impl.PyQuadrants.clear
    monkeypatch.setattr(
        impl.PyQuadrants,
        "materialize",
        lambda self: (calls.append("materialize"), materialize(self)),
    )
    monkeypatch.setattr(
        impl.PyQuadrants, "clear", lambda self: (calls.append("clear"), clear(self))
    )
    qd.init(arch=qd.cpu, offline_cache=False)
    f = qd.field(qd.i32, 3)
    calls.clear()
    f.to_numpy(copy=False)
    assert "materialize" in calls
    calls.clear()

    @qd.kernel
    def k() -> qd.i32:
        return f[1] + 3

    assert [k() for _ in range(4)] == [3] * 4
    assert calls == ["materialize"] * 4
    calls.clear()
    qd.reset()
    assert calls == ["clear"]


def test_a_runtime_method_that_is_replaced_between_launches(monkeypatch):
    qd.init(arch=qd.cpu, offline_cache=False)

    @qd.kernel
    def k() -> qd.i32:
        return 3

    assert k() == 3
    calls = []
    monkeypatch.setattr(impl.PyQuadrants, "materialize", lambda self: calls.append(1))
    assert k() == k() == 3 and len(calls) == 2
    monkeypatch.undo()
    assert k() == 3 and len(calls) == 2


def test_a_runtime_method_that_is_replaced_again_and_again(monkeypatch):
    """Each is called, and what it returns is let go."""
    qd.init(arch=qd.cpu, offline_cache=False)

    class Made:
        pass

    @qd.kernel
    def k() -> qd.i32:
        return 3

    assert k() == 3
    made, arrays = [], []
    for n in range(3):

        def materialize(self, n=n):
            one = Made()
            made.append((n, weakref.ref(one)))
            return one

        arrays.append(qd.ndarray(qd.i32, 2))  # of which it is to be told
        monkeypatch.setattr(impl.PyQuadrants, "materialize", materialize)
        assert k() == 3
    assert [n for n, _ in made] == [0, 1, 2] and not any(one() for _, one in made)


def test_type_errors_of_arguments_and_results():
    cls = qd.QuadrantsRuntimeTypeError
    e = cls.get(0, qd.i32, "f32")
    assert type(e) is cls
    assert str(e) == "Argument 0 (type=f32) cannot be converted into required type i32"
    e = cls.get_ret("i32", qd.f32)
    assert (
        type(e) is cls and str(e) == "Return (type=f32) cannot be converted into required type i32"
    )


# Module -> the names that programs import from it, beside `quadrants`.
PLACES = """
quadrants._funcs: eig make_spd polar_decompose randn solve svd sym_eig
quadrants._lib.utils: compare_version get_os_name import_qd_python_core in_docker is_ci locale_encode
quadrants._snode: FieldsBuilder fields_builder snode_tree
quadrants._snode.fields_builder: FieldsBuilder SNodeTree
quadrants._snode.snode_tree: SNodeTree
quadrants.lang: init reset Field Vector ndrange kernel root expr runtime_ops stream_parallel i ijkl
quadrants.lang._ndrange: GroupedNDRange ndrange
quadrants.lang.exception: handle_exception_from_cpp
quadrants.lang.expr: Expr
quadrants.lang.impl: Expr Field ScalarField MatrixField StructField Matrix Vector Struct SNode SharedArray
quadrants.lang.impl: Ndarray ScalarNdarray VectorNdarray MatrixNdarray root field ndarray static grouped
quadrants.lang.impl: static_assert static_print zero one axes stop_grad deactivate_all_snodes get_traceback
quadrants.lang.kernel_impl: Func Kernel
quadrants.lang.matrix: Field Matrix MatrixField MatrixNdarray ScalarField VectorNdarray
quadrants.lang.misc: loop_config axes i j k l ij ijk ijkl assume_in_range block_local global_thread_idx
quadrants.lang.misc: no_activate mesh_local mesh_patch_idx get_os_name extension Extension checkpoint
quadrants.lang.ops: is_quadrants_expr
quadrants.lang.runtime_ops: sync
quadrants.lang.snode: activate append deactivate is_active length get_addr rescale_index BitpackedFields
quadrants.lang.struct: Struct StructField ScalarField
quadrants.lang.util: in_python_scope in_quadrants_scope is_matrix_class is_quadrants_class get_traceback
quadrants.lang.util: dtype_to_torch_dtype warnings
quadrants.linalg: matrixfree_cg sparse_cg sparse_matrix sparse_solver
quadrants.linalg.matrixfree_cg: LinearOperator MatrixFreeBICGSTAB MatrixFreeCG
quadrants.linalg.sparse_cg: SparseCG
quadrants.linalg.sparse_matrix: SparseMatrix SparseMatrixBuilder
quadrants.linalg.sparse_solver: SparseSolver
quadrants.profiler: kernel_metrics kernel_profiler memory_profiler scoped_profiler
quadrants.profiler.kernel_metrics: CuptiMetric get_predefined_cupti_metrics
quadrants.profiler.kernel_profiler: print_kernel_profiler_info query_kernel_profiler_info
quadrants.profiler.memory_profiler: print_memory_profiler_info
quadrants.profiler.scoped_profiler: clear_scoped_profiler_info print_scoped_profiler_info
quadrants.tools: diagnose np2ply
quadrants.tools.np2ply: PLYWriter
"""


@pytest.mark.parametrize("row", PLACES.strip().splitlines())
def test_places_of_names(row):
    place, _, names = row.partition(": ")
    module = importlib.import_module(place)
    for name in names.split():
        found = getattr(module, name)
        assert found is getattr(qd, name, found)  # one object, wherever it is asked for


def test_lang_has_the_public_names():
    import quadrants.lang.field
    import quadrants.lang.kernel  # noqa: F401

    assert qd.lang.field is qd.field and qd.lang.kernel is qd.kernel  # and not these modules


@pytest.mark.oracle_differs("some of the names are missing there")
def test_lang_lists_the_public_names():
    missing = {n for n in dir(qd) if not n.startswith("_")} - set(dir(qd.lang))
    assert not missing and "zz" not in dir(qd.lang)
    with pytest.raises(AttributeError, match="quadrants.lang.*no attribute .zz"):
        qd.lang.zz


def test_import_paths():
    from quadrants._test_tools import qd_init_same_arch  # noqa: F401
    from quadrants.lang.kernel import Kernel as same
    from quadrants.lang.kernel import transform_tree  # noqa: F401

    assert same is Kernel is impl.Kernel
    assert isinstance(plain_kernel._primal, Kernel)


def test_places_of_destroyed_trees_are_given_again(start):
    start()

    def make():
        builder = qd.FieldsBuilder()
        builder.dense(qd.i, 4).place(qd.field(qd.i32))
        return builder.finalize()

    def count():
        return (
            impl.get_runtime().prog.get_snode_tree_size(),
            len(qd.FieldsBuilder._finalized_roots()),
        )

    first = impl.get_runtime().prog.get_snode_tree_size()
    trees = [make() for _ in range(4)]
    assert [t.id for t in trees] == [first + n for n in range(4)]
    trees[1].destroy(), trees[2].destroy()
    assert count() == (first + 4,) * 2
    assert [make().id for _ in range(3)] == [first + 2, first + 1, first + 4]
    assert count() == (first + 5,) * 2
    with pytest.raises(qd.QuadrantsRuntimeError, match="SNode tree has been destroyed"):
        trees[1].id


def test_program(start):
    x = start(offline_cache=False)
    program = impl.get_runtime().prog
    assert program.get_total_compilation_time() == 0
    plain_kernel(x)
    assert 0 < program.get_total_compilation_time() < 600
    assert program.get_num_offloaded_tasks_on_last_call() == 2
    program.dump_cache_data_to_disk()
    assert program.config().arch == qd.cfg.arch
    assert program.get_device_caps().hashed_key().startswith("T")
    assert program._get_num_ndarrays() >= 1


# Statements -> tasks as the chapter counts them, and as they run if that is fewer: bounds that are
# arguments need no task here.
COUNTED = """
pass                                                        -> 0
for i in f: f[i] = 1                                        -> 1
for i in range(n): f[i] = 1                                 -> 2 1
for i in range(n, 8): f[i] = 1                              -> 2 1
for i in a: a[i] = 1                                        -> 2 1
for i in range(1, a.shape[0]): a[i] = 1                     -> 2 1
for i, j in qd.ndrange(a.shape[0], 3): a[i] = j             -> 2 1
for i in a: a[i] = 1; for i in a: a[i] += 1                 -> 3 2
f[0] = 1; for i in a: a[i] = 1                              -> 2
for i in a: a[i] = 1; f[0] = 1; for i in a: a[i] = 1        -> 4 3
for i in range(f[0]): f[i] = 1                              -> 2
for i in range(1, a.shape[0] - 1): a[i] = 1                 -> 2 1
for i in range(n - 1): a[i] = 1; for i in range(n - 1): f[i] = 1       -> 3 2
for i in a: a[i] = 1; for i in range(n + 1, n + 3): a[i] = 1           -> 4 2
qd.loop_config(serialize=True); for i in a: a[i] = 1        -> 1
for i in f: f[i] = 1; f[0] = n                              -> 2
"""


def test_counted_tasks(start, tmp_path):

    rows = [row.split("->") for row in COUNTED.strip().splitlines()]
    lines = ["import quadrants as qd", "f = None"]
    for k, (body, _) in enumerate(rows):
        lines += ["@qd.kernel", f"def k{k}(a: qd.types.ndarray(qd.i32, 1), n: qd.i32):"]
        lines += ["    " + statement.strip() for statement in body.split(";")]
    (tmp_path / "counted.py").write_text("\n".join(lines) + "\n")
    module = module_at(tmp_path / "counted.py", "counted")
    start()
    module.f, a = qd.field(qd.i32, 8), qd.ndarray(qd.i32, 8)
    count = impl.get_runtime().prog.get_num_offloaded_tasks_on_last_call
    for k, (body, expected) in enumerate(rows):
        a.fill(0), module.f.fill(0)
        getattr(module, f"k{k}")(a, 3)
        assert count() == int(expected.split()[0]), body
        launched = getattr(module, f"k{k}")._primal._specialisations()[0]["tasks"]
        assert launched == int(expected.split()[-1]), body


def test_subscript_with_several_indices(start):
    start()
    plane = qd.field(qd.i32, (2, 3))

    def at(i, j):
        return impl.subscript(None, plane, i, j)

    @qd.kernel
    def k(i: qd.i32) -> qd.i32:
        plane[1, 2] = 7
        return at(i, i + 1) + impl.subscript(None, plane, 1, 2) * 10

    assert k(1) == 77


def test_enumerations_print_their_names():
    assert repr(qd.x64) == str(qd.x64) == "Arch.x64" and repr([qd.Layout.SOA]) == "[Layout.SOA]"
    assert repr(qd.extension.sparse) == "Extension.sparse"
    with pytest.raises(RuntimeError, match=r"Arch=\[Arch\.metal\] is not supported"):
        qd.init(arch=[qd.metal], enable_fallback=False)


@pytest.mark.of_cpus("NumPy shares the memory of CPUs alone")
def test_capsule_adapter(backend):
    from quadrants.lang.field import _TORCH_MPS_SUPPORTS_DLPACK_BYTES_OFFSET, _DLPackV1Adapter

    assert _TORCH_MPS_SUPPORTS_DLPACK_BYTES_OFFSET in (True, False)
    t = qd.tensor(qd.i32, (2, 3), layout=(1, 0))
    view = np.from_dlpack(_DLPackV1Adapter(t.to_dlpack(versioned=True)))
    view[1, 2] = 5
    assert view.shape == (2, 3) and view.strides == (4, 8) and t[1, 2] == 5


@pytest.mark.oracle_differs("its stub is its own")
def test_stub_lists_the_native_names():
    from quadrants._lib.core import quadrants_python

    stub = pathlib.Path(quadrants_python.__file__).with_name("quadrants_python.pyi").read_text()
    names = {n for n in dir(quadrants_python) if not n.startswith("__")}
    declared = set(re.findall(r"^(?:(?:def|class) )?(\w+)(?=[(:])", stub, re.M))
    assert declared == names
    for cls in ("FieldBase", "NdarrayBase", "TensorBase"):
        body = re.search(rf"^class {cls}:\n((?: .*\n)+)", stub, re.M).group(1)
        members = {n for n in vars(getattr(quadrants_python, cls)) if not n.startswith("__")}
        assert members <= set(re.findall(r"^    (?:def )?(\w+)(?=[(:])", body, re.M))


def test_versions_of_what_is_gone_are_listed(backend):
    class Gone:
        def __init__(self, a):
            self.a = a

    @qd.kernel
    def k(o: qd.template(), x: qd.i32) -> qd.i32:
        return o.a + x

    assert k(Gone(1), 1) == 2
    gc.collect()
    assert len(k._primal.mapper.mapping) == 1


def test_what_values_are_and_where_code_runs(backend):
    from quadrants.lang import ops, util
    from quadrants.lang.expr import Expr

    seen = {}

    def note(value):
        seen["here"] = util.in_python_scope(), util.in_quadrants_scope()
        seen["value"] = isinstance(value, Expr), ops.is_quadrants_expr(value)

    @qd.kernel
    def k(a: qd.i32):
        qd.static(note(a + 1))

    k(1)
    assert seen == {"here": (False, True), "value": (True, True)}
    assert util.in_python_scope() and not util.in_quadrants_scope()
    values = [qd.Vector([1]), qd.Matrix([[1]]), qd.Struct(a=1), 1]
    assert [util.is_matrix_class(v) for v in values] == [True, True, False, False]
    assert [util.is_quadrants_class(v) for v in values] == [True, True, True, False]
    assert not any(map(ops.is_quadrants_expr, values))


def outer_call():
    from quadrants.lang.util import get_traceback

    return get_traceback(), get_traceback(0)


def test_traceback_texts():
    above, here = outer_call()
    assert "in test_traceback_texts" in above and "in outer_call" not in above
    assert "in outer_call" in here and "in get_traceback" not in here


def test_turns_of_a_box():
    box = qd.ndrange(3, (1, 4), 2)
    assert [int(n) for n in box.acc_dimensions] == [18, 6, 2]
    assert qd.ndrange(3, (1, 4), 2, axes=(2, 0, 1)).acc_dimensions == [18, 9, 3]
    assert type(box.grouped()).__name__ == "GroupedNDRange"


def test_errors_of_the_native_layer_become_public():
    from quadrants._lib import core
    from quadrants.lang.exception import handle_exception_from_cpp

    for name in ("AssertionError", "IndexError", "SyntaxError", "TypeError"):
        error = handle_exception_from_cpp(getattr(core, f"Quadrants{name}")("text"))
        assert type(error) is getattr(qd.lang.exception, f"Quadrants{name}")
        assert error.args == ("text",)
    other = ValueError("text")
    assert handle_exception_from_cpp(other) is other


def test_facts_about_the_machine(monkeypatch, capsys):
    from quadrants._lib import utils

    assert utils.compare_version("1.10.0", "1.9.0") and not utils.compare_version("1.9", "1.9")
    assert not utils.compare_version("1.2.3", "1.2.4")
    for name, asked in {"QD_CI": utils.is_ci, "QD_IN_DOCKER": utils.in_docker}.items():
        monkeypatch.delenv(name, raising=False)
        assert not asked()
        monkeypatch.setenv(name, "1")
        assert asked()
    assert utils.locale_encode("a/b") == b"a/b"
    utils.print_red_bold("a", 1, sep="-")
    utils.print_yellow_bold("b")
    assert capsys.readouterr().out == "\033[31m\033[1ma-1\n\033[0m\033[33m\033[1mb\n\033[0m"
    assert os.path.samefile(utils.package_root, os.path.dirname(qd.__file__))
