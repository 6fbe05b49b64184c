"""Chapter 40 on a CPU, which has no blocks, subgroups or tiles: what works anyway, and the errors."""

import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

import quadrants as qd
from quadrants.lang.simt import block, grid, subgroup, warp

Ints = qd.types.ndarray(qd.i32, ndim=1)


@pytest.fixture(params=[False, True], ids=["short", "full"])
def full(request, backend):
    if backend.name != "cpu":
        pytest.skip("errors of targets without subgroups")
    backend.init(print_full_traceback=request.param)
    return request.param


def compiles(operation, *args):
    """Runs a kernel that calls it with the number of the iteration among its arguments."""
    out = np.full(4, -7, np.int32)

    @qd.kernel
    def run(out: Ints):
        for i in range(4):
            out[i] = operation(*args)

    run(out)
    return out.tolist()


def error_of(operation, *args):
    with pytest.raises(Exception) as e:

        @qd.kernel
        def run():
            for _ in range(4):
                operation(*args)

        run()
    return e


BLOCK = [
    (block.thread_idx, ()),
    (block.global_thread_idx, ()),
    (block.sync, ()),
    (block.mem_fence, ()),
    (block.sync_all_nonzero, (1,)),
    (block.sync_any_nonzero, (1,)),
    (block.sync_count_nonzero, (1,)),
]


@pytest.mark.parametrize("operation, args", BLOCK, ids=lambda x: getattr(x, "__name__", ""))
def test_block_operations_name_operation_and_arch(full, operation, args):
    e = error_of(operation, *args)
    text = f"qd.block.{operation.__name__} is not supported for arch Arch."
    assert text in str(e.value)
    if full:
        assert type(e.value) is ValueError
    else:
        assert type(e.value) is qd.QuadrantsCompilationError
        assert "ValueError" in str(e.value) and "operation(*args)" in str(e.value)
        assert "^^^^^^" in str(e.value) and "test_simt.py" in str(e.value)


def test_grid_fence(full):
    e = error_of(grid.mem_fence)
    assert "qd.simt.grid.mem_fence is not supported for arch Arch." in str(e.value)
    assert type(e.value) is (ValueError if full else qd.QuadrantsCompilationError)


SUBGROUP = [
    (subgroup.invocation_id, ()),
    (subgroup.shuffle, (1, 0)),
    (subgroup.shuffle_up, (1, 1)),
    (subgroup.shuffle_down, (1, 1)),
    (subgroup.shuffle_xor, (1, 1)),
    (subgroup.broadcast, (1, 0)),
    (subgroup.broadcast_first, (1,)),
    (subgroup.elect, ()),
    (subgroup.sync, ()),
    (subgroup.mem_fence, ()),
    (subgroup.ballot, (1,)),
    (subgroup.ballot_first_n, (1, 4)),
    (subgroup.all_true_tiled, (1, 1)),
    (subgroup.all_equal_tiled, (1, 5)),
    (subgroup.reduce_add_tiled, (1, 1)),
    (subgroup.reduce_all_max_tiled, (1, 2)),
    (subgroup.segmented_reduce_min_tiled, (1, 1, 6)),
    (subgroup.inclusive_xor_tiled, (1, 1)),
    (subgroup.exclusive_mul_tiled, (1, 1)),
    (subgroup.bitonic_sort_kv_tiled, (1, 2, 3)),
    (warp.ballot, (1,)),
    (warp.sync, (1,)),
    (warp.shfl_up_f32, (1, 1.0, 1)),
]


@pytest.mark.oracle_differs("the process is aborted", run=False)
@pytest.mark.parametrize("operation, args", SUBGROUP, ids=lambda x: getattr(x, "__name__", ""))
def test_subgroup_operations_are_compile_errors(full, operation, args):
    e = error_of(operation, *args)
    assert type(e.value) is qd.QuadrantsCompilationError
    assert f"{operation.__name__} is not supported for arch Arch." in str(e.value)


WHOLE = [
    (getattr(subgroup, name), (1, 1) if name[0] in "sb" else (1,))
    for name in dir(subgroup)
    if name.startswith(
        ("reduce_", "segmented", "inclusive", "exclusive", "all_", "any_", "bitonic")
    )
    and not name.endswith("_tiled")
]


@pytest.mark.oracle_differs("some abort the process", run=False)
@pytest.mark.parametrize("operation, args", WHOLE, ids=lambda x: getattr(x, "__name__", ""))
def test_whole_subgroups_need_a_size(full, operation, args):
    e = error_of(operation, *args)
    assert "subgroup size 0 is not a power of two" in str(e.value)
    assert type(e.value) is (AssertionError if full else qd.QuadrantsCompilationError)


@pytest.mark.parametrize("name", "reduce_add reduce_all_min inclusive_max exclusive_add".split())
def test_block_reductions_need_subgroups(full, name):
    e = error_of(getattr(block, name), 1, 32, qd.i32)
    assert "subgroup size 0 is not a power of two" in str(e.value)


def test_other_checks_at_compile_time(full):
    plain = AssertionError if full else qd.QuadrantsCompilationError
    e = error_of(subgroup.segmented_reduce_add_tiled, 1, 1, 7)
    assert type(e.value) is plain
    assert "segmented_reduce_add_tiled requires log2_size <= 6" in str(e.value)
    e = error_of(block.radix_rank_match_atomic_or, 1, 256, 8, 0, 8, 0, 0)
    assert type(e.value) is plain
    assert "block.radix_rank_match_atomic_or: subgroup size must be 32 or 64" in str(e.value)


@pytest.mark.oracle_differs("asks CUDA's driver", run=False)
@pytest.mark.parametrize("operation", [warp.match_any, warp.match_all])
def test_matches_need_compute_70(full, operation):
    e = error_of(operation, 1, 1)
    assert "only available on compute_70 or higher" in str(e.value)


def test_group_size_folds(full):
    assert subgroup.group_size() == 0 == qd.lang.impl.get_runtime().prog.subgroup_size()
    assert type(subgroup.group_size()) is int
    assert compiles(subgroup.group_size) == [0] * 4

    @qd.func
    def plus(n: qd.template()):
        return qd.static(n + 3)

    @qd.kernel
    def run() -> qd.i32:
        return plus(qd.simt.subgroup.group_size())

    assert run() == 3
    with pytest.raises(AssertionError, match="subgroup size 0 is not a power of two"):
        subgroup.log2_group_size()


@pytest.mark.parametrize("relation", ["lt", "le", "eq", "gt", "ge"])
def test_lane_masks(full, relation):
    mask = getattr(subgroup, f"lanemask_{relation}")
    holds = {"lt": "__lt__", "le": "__le__", "eq": "__eq__", "gt": "__gt__", "ge": "__ge__"}[
        relation
    ]
    out = np.zeros(32, np.uint32)

    @qd.kernel
    def run(out: qd.types.ndarray(qd.u32, ndim=1)):
        for lane in range(32):
            out[lane] = mask(lane)

    run(out)
    want = [sum(1 << k for k in range(32) if getattr(k, holds)(lane)) for lane in range(32)]
    assert out.tolist() == want


@pytest.mark.oracle_differs("most abort the process", run=False)
@pytest.mark.parametrize("dtype", [qd.i32, qd.u32, qd.i64, qd.u64, qd.f32, qd.f64])
def test_tiles_of_one_lane(full, dtype):
    number = np.dtype(
        {"i32": "i4", "u32": "u4", "i64": "i8", "u64": "u8", "f32": "f4", "f64": "f8"}[str(dtype)]
    )
    real = number.kind == "f"
    low = -np.inf if real else np.iinfo(number).min
    high = np.inf if real else np.iinfo(number).max
    out = np.zeros(20, number)
    s = qd.simt.subgroup

    @qd.kernel
    def run(x: dtype, out: qd.types.ndarray(dtype, ndim=1)):
        out[0] = s.reduce_add_tiled(x, 0)
        out[1] = s.reduce_all_min_tiled(x, 0)
        out[2] = s.segmented_reduce_max_tiled(x, 1, 0)
        out[3] = s.inclusive_mul_tiled(x, 0)
        out[4] = s.exclusive_add_tiled(x, 0)
        out[5] = s.exclusive_mul_tiled(x, 0)
        out[6] = s.exclusive_min_tiled(x, 0)
        out[7] = s.exclusive_max_tiled(x, 0)
        key, value = s.bitonic_sort_kv_tiled(x, x + x, 0)
        out[8], out[9] = key, value
        out[10] = s.all_true_tiled(7, 0)
        out[11] = s.any_true_tiled(0, 0)
        out[12] = s.all_equal_tiled(x, 0)
        if qd.static(not real):
            out[13] = s.exclusive_and_tiled(x, 0)
            out[14] = s.exclusive_or_tiled(x, 0)
            out[15] = s.inclusive_xor_tiled(x, 0)

    run(3, out)
    every = [0, 0, 0] if real else [number.type(0) - 1 if number.kind == "i" else high, 0, 3]
    want = [3, 3, 3, 3, 0, 1, high, low, 3, 6, 1, 0, 1, *every, 0, 0, 0, 0]
    assert out.tolist() == np.array(want, number).tolist()


@pytest.mark.oracle_differs("aborts the process", run=False)
def test_bitwise_scans_take_integers(full):
    for name in ("inclusive_and_tiled", "exclusive_and_tiled", "exclusive_or_tiled"):
        e = error_of(getattr(subgroup, name), 1.5, 0)
        assert isinstance(e.value, qd.QuadrantsTypeError)


@pytest.mark.oracle_differs("aborts the process", run=False)
def test_generic_scans(full):
    from quadrants.lang.simt import reductions

    @qd.kernel
    def run(x: qd.i32) -> qd.types.vector(3, qd.i32):
        a = reductions._inclusive_scan_tiled(x, reductions._bin_add, 0)
        b = reductions._exclusive_scan_tiled(x, reductions._bin_min, 9, 0)
        return qd.Vector([a, b, reductions._reduce_tiled(x, reductions._bin_max, 0)])

    assert list(run(5)) == [5, 9, 5]


# --- shared arrays ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [2.5, (4, 1.0), np.int32(4), "4", (np.int64(2),)])
def test_shapes_of_shared_arrays(full, shape):
    e = error_of(block.SharedArray, shape, qd.f32)
    assert "shape must be an integer or a tuple of integers" in str(e.value)
    assert type(e.value) is (ValueError if full else qd.QuadrantsCompilationError)


@pytest.mark.parametrize("dtype", [int, float])
def test_dtypes_of_shared_arrays(full, dtype):
    assert isinstance(error_of(block.SharedArray, 4, dtype).value, qd.QuadrantsTypeError)


@pytest.mark.oracle_differs("optimises them away, or fails when linking")
@pytest.mark.parametrize("dtype", [qd.f32, qd.u1, qd.types.vector(3, qd.f32)])
def test_shared_arrays_are_compile_errors(full, dtype):
    e = error_of(block.SharedArray, (4, 4), dtype)
    assert type(e.value) is qd.QuadrantsCompilationError
    assert "qd.simt.block.SharedArray is not supported for arch" in str(e.value)


# --- outside kernels ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [block.thread_idx, block.global_thread_idx, qd.global_thread_idx, subgroup.invocation_id],
)
@pytest.mark.oracle_differs("other classes")
def test_indices_exist_in_kernels_only(full, operation):
    with pytest.raises(qd.QuadrantsRuntimeError):
        operation()


def test_a_task_of_one_iteration_has_one_thread(backend):
    @qd.kernel
    def k() -> qd.i32:
        return qd.global_thread_idx()

    assert k() == 0


def test_without_a_runtime(backend):
    qd.reset()
    for operation in (block.sync, grid.mem_fence, subgroup.group_size, block.thread_idx):
        with pytest.raises(
            qd.QuadrantsRuntimeError, match=r"Maybe you forgot to call `qd.init\(\)`"
        ):
            operation()


# --- old names ----------------------------------------------------------------------------------


def test_old_names_of_fences(full):
    for old, new in ((block.mem_sync, block.mem_fence), (grid.memfence, grid.mem_fence)):
        room = f"qd.simt.{old.__module__.split('.')[-1]}"
        with pytest.warns(DeprecationWarning) as seen:
            for _ in range(2):
                with pytest.raises(ValueError, match="not supported for arch"):
                    old()
        assert len(seen) == 2
        assert f"{room}.{old.__name__}" in str(seen[0].message)
        assert f"{room}.{new.__name__}" in str(seen[0].message)


OLD = [
    ("barrier", "sync", ()),
    ("memory_barrier", "mem_fence", ()),
    ("ballot_full_subgroup", "ballot", (1,)),
]


@pytest.mark.parametrize("old, new, args", OLD, ids=[row[0] for row in OLD])
def test_old_names_of_subgroups_warn_once(monkeypatch, old, new, args):
    calls = []
    monkeypatch.setattr(subgroup, f"_{old}_deprecation_warned", False)
    monkeypatch.setattr(subgroup, new, lambda *a: calls.append(a))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        getattr(subgroup, old)(*args)
        getattr(subgroup, old)(*args)
    assert calls == [args, args] and len(seen) == 1
    assert seen[0].category is DeprecationWarning
    assert f"qd.simt.subgroup.{old}()" in str(seen[0].message)
    assert f"qd.simt.subgroup.{new}()" in str(seen[0].message)
    assert getattr(subgroup, f"_{old}_deprecation_warned") is True


def test_old_names_in_kernels_warn_at_the_users_line(tmp_path):
    (tmp_path / "prog.py").write_text(
        textwrap.dedent(
            """
            import quadrants as qd
            qd.init(arch=qd.cpu, offline_cache=False)

            @qd.kernel
            def k():
                qd.simt.block.mem_sync()

            for _ in range(2):
                try:
                    k()
                except qd.QuadrantsCompilationError:
                    pass
            """
        )
    )
    done = subprocess.run([sys.executable, "prog.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("qd.simt.block.mem_sync() is deprecated") == 1


# --- tiles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 32])
def test_tiles_require_a_gpu(full, size):
    tile = getattr(qd.simt, f"Tile{size}x{size}")
    text = f"Tile{size}x{size} requires a GPU backend"
    for make in (tile.zeros, tile.eye, lambda: tile.zeros(dtype=qd.f64)):
        with pytest.raises(qd.QuadrantsSyntaxError, match=text):
            make()
    for make in (tile.zeros, tile.eye):
        e = error_of(make)
        assert type(e.value) is qd.QuadrantsSyntaxError and text in str(e.value)
    with pytest.raises(TypeError):
        tile.zeros(qd.f32)
    assert isinstance(error_of(tile.zeros, qd.f32).value, TypeError)


def test_tile_sizes_need_no_runtime():
    qd.reset()
    from quadrants.lang.simt._tile import _make_tile, _tile_cache

    assert qd.simt.Tile16x16.SIZE == 16 and qd.simt.Tile32x32.SIZE == 32
    assert _make_tile(16, qd.f32) is _make_tile(16, qd.f32) is _tile_cache[(16, qd.f32)]
    assert _make_tile(16, qd.f32) is not _make_tile(16, qd.f64)
    assert _make_tile(32).SIZE == 32 and _make_tile(32).zeros is _make_tile(32)
    with pytest.raises(AttributeError, match="Tile64x64"):
        qd.simt.Tile64x64


def test_size_is_pure(backend, recwarn):
    @qd.kernel(fastcache=True)
    def run() -> qd.i32:
        return qd.simt.Tile16x16.SIZE

    assert run() == 16 and not recwarn


def test_parts_of_arrays_are_no_values():
    from quadrants.lang.simt._tile import _TileSliceProxy, _VecSliceProxy

    for part in (_TileSliceProxy(None, 0, 16, 0, 16), _VecSliceProxy(None, 0, 16, 0)):
        assert "not a value" in repr(part)
        for use in (
            lambda: part + 1,
            lambda: 1 + part,
            lambda: part - 1,
            lambda: part * 2,
            lambda: part[0],
        ):
            with pytest.raises(TypeError, match="only valid in tile operations"):
                use()


def test_outer_products():
    product = qd.outer(1.0, 2.0)
    for use in (lambda: product + 1, lambda: 1 + product, lambda: product + product):
        with pytest.raises(TypeError, match="does not support composition"):
            use()


# --- loops --------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 96, 0, -4])
@pytest.mark.oracle_differs("a plain RuntimeError with full tracebacks")
def test_block_sizes_are_powers_of_two(full, size):
    @qd.kernel
    def run():
        qd.loop_config(block_dim=size)
        for _ in range(3):
            pass

    with pytest.raises(qd.QuadrantsCompilationError, match="is_power_of_two"):
        run()


@pytest.mark.parametrize("options", ["block_dim=2.0", "block_dim='x'", "parallelize=1.5", "name=3"])
def test_types_of_loop_options(full, options):
    name, value = options.split("=")
    value = eval(value)

    @qd.kernel
    def run():
        if qd.static(name == "block_dim"):
            qd.loop_config(block_dim=value)
        elif qd.static(name == "parallelize"):
            qd.loop_config(parallelize=value)
        else:
            qd.loop_config(name=value)
        for _ in range(3):
            pass

    with pytest.raises(qd.QuadrantsTypeError):
        run()
