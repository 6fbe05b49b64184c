"""Chapter 40 on targets with blocks and subgroups: what threads do together, against NumPy."""

import functools

import numpy as np
import pytest

import quadrants as qd
from quadrants.lang.simt import block, grid, reductions, subgroup, warp

pytestmark = pytest.mark.oracle_differs("asks for a GPU", run=False)

N = 512
DTYPES = [qd.i32, qd.u32, qd.i64, qd.u64, qd.f32, qd.f64]
HOST = {
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f32": np.float32,
    "f64": np.float64,
}


@pytest.fixture
def blocks(backend):
    if backend.name == "cpu":
        pytest.skip("a CPU has no blocks")
    backend.init()
    return backend


def host(dtype):
    return HOST[str(dtype).rsplit(".", 1)[-1]]


def values_of(dtype, seed=0, n=N):
    rng = np.random.default_rng(seed)
    kind = host(dtype)
    if np.issubdtype(kind, np.floating):
        return rng.integers(-50, 50, n).astype(kind)
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max, n, dtype=kind, endpoint=True)


def run(operation, values, block_dim=128, out=None):
    """`operation(value)` of each thread; an array each that it gives."""
    dtype = {v: k for k, v in HOST.items()}[values.dtype.type]
    result = getattr(qd, out or dtype)
    given = qd.ndarray(getattr(qd, dtype), values.shape)
    given.from_numpy(values)
    got = qd.ndarray(result, values.shape)

    @qd.kernel
    def apply(
        given: qd.types.ndarray(getattr(qd, dtype), ndim=1), got: qd.types.ndarray(result, ndim=1)
    ):
        qd.loop_config(block_dim=block_dim)
        for i in range(given.shape[0]):
            got[i] = operation(given[i])

    apply(given, got)
    return got.to_numpy()


def tiles(values, log2_size=5):
    return values.reshape(-1, 1 << log2_size)


# --- numbers of threads ---------------------------------------------------------------------------


@pytest.mark.parametrize("block_dim", [1, 16, 32, 64, 192, 1024])
def test_iterations_lie_on_the_threads_of_blocks(blocks, block_dim):
    n = 8 * block_dim
    kinds = "thread_idx global_thread_idx lane plain".split()
    got = qd.ndarray(qd.i32, (len(kinds), n))

    @qd.func
    def numbers():
        return block.global_thread_idx()

    @qd.kernel
    def ask(got: qd.types.ndarray(qd.i32, ndim=2)):
        qd.loop_config(block_dim=block_dim)
        for i in range(n):
            got[0, i] = block.thread_idx()
            got[1, i] = numbers()
            got[2, i] = subgroup.invocation_id()
            got[3, i] = qd.global_thread_idx()

    ask(got)
    thread, in_grid, lane, plain = got.to_numpy()
    i = np.arange(n)
    assert np.array_equal(thread, i % block_dim)
    assert np.array_equal(in_grid, i)
    assert np.array_equal(lane, i % block_dim % 32)
    assert np.array_equal(plain, i)


def test_sizes(blocks):
    assert subgroup.group_size() == 32
    assert subgroup.log2_group_size() == 5

    @qd.kernel
    def fold() -> qd.i32:
        return subgroup.group_size() * 100 + subgroup.log2_group_size()

    assert fold() == 3205


def test_default_block(blocks):
    blocks.init(default_gpu_block_dim=64)
    got = qd.ndarray(qd.i32, (256,))

    @qd.kernel
    def ask(got: qd.types.ndarray(qd.i32, ndim=1)):
        for i in got:
            got[i] = block.thread_idx()

    ask(got)
    assert np.array_equal(got.to_numpy(), np.arange(256) % 64)


def test_outside_of_kernels(blocks):
    for operation in (block.sync, block.thread_idx, subgroup.invocation_id, grid.mem_fence):
        with pytest.raises(qd.QuadrantsRuntimeError, match="cannot be called in Python-scope"):
            operation()
    with pytest.raises(qd.QuadrantsRuntimeError):
        block.SharedArray(4, qd.f32)


# --- shuffles and votes ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_shuffles(blocks, dtype):
    values = values_of(dtype)
    rows = tiles(values)
    lane = np.arange(32)
    for operation, source in [
        (lambda v: subgroup.shuffle(v, 31 - subgroup.invocation_id()), 31 - lane),
        (lambda v: subgroup.shuffle_up(v, 3), np.where(lane < 3, lane, lane - 3)),
        (lambda v: subgroup.shuffle_down(v, 5), np.where(lane > 26, lane, lane + 5)),
        (lambda v: subgroup.shuffle_xor(v, 9), lane ^ 9),
        (lambda v: subgroup.broadcast(v, qd.u32(7)), 0 * lane + 7),
        (lambda v: subgroup.broadcast_first(v), 0 * lane),
    ]:
        assert np.array_equal(tiles(run(operation, values)), rows[:, source])


def test_elect(blocks):
    got = run(lambda v: subgroup.elect(), values_of(qd.i32))
    assert np.array_equal(got, np.arange(N) % 32 == 0)


PREDICATES = {
    "random": lambda: np.random.default_rng(1).integers(0, 2, N).astype(np.int32),
    "all": lambda: np.full(N, 7, np.int32),
    "none": lambda: np.zeros(N, np.int32),
    "one": lambda: (np.arange(N) % 37 == 0).astype(np.int32),
    "few": lambda: (np.arange(N) % 37 != 0).astype(np.int32),
}


@pytest.mark.parametrize("which", PREDICATES)
def test_votes(blocks, which):
    p = PREDICATES[which]()
    bits = (tiles(p) != 0) @ (np.uint64(1) << np.arange(32, dtype=np.uint64))
    whole = np.repeat(bits.astype(np.uint64), 32)
    assert np.array_equal(run(subgroup.ballot, p, out="u64"), whole)
    assert np.array_equal(run(warp.ballot, p, out="u32"), whole.astype(np.uint32))
    first = run(lambda v: subgroup.ballot_first_n(v, 11), p, out="u32")
    assert np.array_equal(first, (whole & np.uint64(0x7FF)).astype(np.uint32))
    for log2_size in range(6):
        rows = tiles(p, log2_size) != 0
        for operation, expected in [
            (subgroup.all_true_tiled, rows.all(1)),
            (subgroup.any_true_tiled, rows.any(1)),
        ]:
            got = run(lambda v, f=operation: f(v, log2_size), p)
            assert np.array_equal(got, np.repeat(expected, 1 << log2_size))
    assert np.array_equal(run(subgroup.all_true, p), np.repeat((tiles(p) != 0).all(1), 32))
    assert np.array_equal(run(subgroup.any_true, p), np.repeat((tiles(p) != 0).any(1), 32))
    everybody = np.repeat((tiles(p) != 0).all(1) | (tiles(p) == 0).all(1), 32)
    assert np.array_equal(run(lambda v: warp.unique(qd.u32(0xFFFFFFFF), v), p), everybody)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equality_of_lanes(blocks, dtype):
    kind = host(dtype)
    values = (np.random.default_rng(2).integers(0, 3, N) * (np.arange(N) >= 64)).astype(kind)
    for log2_size in (0, 2, 5):
        rows = tiles(values, log2_size)
        expected = np.repeat((rows == rows[:, :1]).all(1), 1 << log2_size)
        got = run(lambda v: subgroup.all_equal_tiled(v, log2_size), values, out="i32")
        assert np.array_equal(got, expected)
    rows = tiles(values)
    same = (rows[:, :, None] == rows[:, None, :]) @ (1 << np.arange(32))
    mask = qd.u32
    got = run(lambda v: warp.match_any(mask(0xFFFFFFFF), v), values, out="u32")
    assert np.array_equal(got, same.astype(np.uint32).ravel())
    got = run(lambda v: warp.match_all(mask(0xFFFFFFFF), v), values, out="u32")
    equal = (rows == rows[:, :1]).all(1)
    assert np.array_equal(got, np.repeat(np.where(equal, 0xFFFFFFFF, 0), 32))


def test_equality_of_special_floats(blocks):
    values = np.zeros(N, np.float32)
    values[:32] = np.nan
    values[40] = -0.0
    got = tiles(run(subgroup.all_equal, values, out="i32"))
    assert not got[0].any() and got[1:].all()


def test_old_shuffles(blocks):
    lane = np.arange(32)
    whole = 0xFFFFFFFF
    ints, floats = values_of(qd.i32), values_of(qd.f32)
    down = np.where(lane > 27, lane, lane + 4)
    up = np.where(lane < 4, lane, lane - 4)
    for operation, values, source in [
        (lambda v: warp.shfl_sync_i32(qd.u32(whole), v, 5), ints, 0 * lane + 5),
        (lambda v: warp.shfl_sync_f32(qd.u32(whole), v, 5), floats, 0 * lane + 5),
        (lambda v: warp.shfl_up_i32(qd.u32(whole), v, 4), ints, up),
        (lambda v: warp.shfl_up_f32(qd.u32(whole), v, 4), floats, up),
        (lambda v: warp.shfl_down_i32(qd.u32(whole), v, 4), ints, down),
        (lambda v: warp.shfl_down_f32(qd.u32(whole), v, 4), floats, down),
        (lambda v: warp.shfl_xor_i32(qd.u32(whole), v, 3), ints, lane ^ 3),
    ]:
        assert np.array_equal(tiles(run(operation, values)), tiles(values)[:, source])


def test_active_lanes(blocks):
    got = qd.ndarray(qd.u32, (64,))

    @qd.kernel
    def ask(got: qd.types.ndarray(qd.u32, ndim=1)):
        qd.loop_config(block_dim=32)
        for i in range(64):
            if i % 3 == 0:
                got[i] = warp.active_mask()
            warp.sync(qd.u32(0xFFFFFFFF))

    ask(got)
    found = got.to_numpy()
    assert all((int(found[i]) >> (i % 32)) & 1 for i in range(0, 64, 3))


# --- reductions and scans of subgroups ------------------------------------------------------------

FOLDS = {"add": np.add, "min": np.minimum, "max": np.maximum}
SCANS = {
    **FOLDS,
    "mul": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def identity(op, kind):
    if op in ("min", "max"):
        if np.issubdtype(kind, np.floating):
            return kind(np.inf if op == "min" else -np.inf)
        return kind(getattr(np.iinfo(kind), "max" if op == "min" else "min"))
    return {"mul": kind(1), "and": ~kind(0) if not np.issubdtype(kind, np.floating) else None}.get(
        op, kind(0)
    )


def small(values, op):
    """Values of which products stay exact."""
    if op == "mul" and np.issubdtype(values.dtype, np.floating):
        return np.where(values > 0, 1, -1).astype(values.dtype)
    return values


@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions(blocks, op, dtype):
    values = values_of(dtype)
    with np.errstate(over="ignore"):
        for log2_size in (0, 1, 3, 5):
            expected = FOLDS[op].reduce(tiles(values, log2_size), axis=1, dtype=values.dtype)
            one = getattr(subgroup, f"reduce_{op}_tiled")
            got = run(lambda v: one(v, log2_size), values)
            assert np.array_equal(got[:: 1 << log2_size], expected)
            everybody = getattr(subgroup, f"reduce_all_{op}_tiled")
            got = run(lambda v: everybody(v, log2_size), values)
            assert np.array_equal(got, np.repeat(expected, 1 << log2_size))
        expected = FOLDS[op].reduce(tiles(values), axis=1, dtype=values.dtype)
        assert np.array_equal(run(getattr(subgroup, f"reduce_{op}"), values)[::32], expected)
        got = run(getattr(subgroup, f"reduce_all_{op}"), values)
        assert np.array_equal(got, np.repeat(expected, 32))


@pytest.mark.parametrize("op", SCANS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scans(blocks, op, dtype):
    kind = host(dtype)
    if op in ("and", "or", "xor") and np.issubdtype(kind, np.floating):
        with pytest.raises(qd.QuadrantsCompilationError):
            run(getattr(subgroup, f"inclusive_{op}"), values_of(dtype))
        return
    values = small(values_of(dtype), op)
    with np.errstate(over="ignore"):
        for log2_size in (0, 2, 5):
            rows = tiles(values, log2_size)
            expected = SCANS[op].accumulate(rows, axis=1, dtype=kind)
            f = getattr(subgroup, f"inclusive_{op}_tiled")
            assert np.array_equal(
                tiles(run(lambda v: f(v, log2_size), values), log2_size), expected
            )
            first = np.full((len(rows), 1), identity(op, kind))
            shifted = np.concatenate([first, expected[:, :-1]], axis=1)
            f = getattr(subgroup, f"exclusive_{op}_tiled")
            assert np.array_equal(tiles(run(lambda v: f(v, log2_size), values), log2_size), shifted)
        f = getattr(subgroup, f"inclusive_{op}")
        assert np.array_equal(
            tiles(run(f, values)), SCANS[op].accumulate(tiles(values), axis=1, dtype=kind)
        )


@pytest.mark.parametrize("op", FOLDS)
@pytest.mark.parametrize("dtype", [qd.i32, qd.u64, qd.f32], ids=str)
def test_segments(blocks, op, dtype):
    values = values_of(dtype)
    heads = (np.random.default_rng(3).integers(0, 4, N) == 0).astype(np.int32)
    flags = qd.ndarray(qd.i32, (N,))
    flags.from_numpy(heads)
    for log2_size in (0, 2, 5):
        f = getattr(subgroup, f"segmented_reduce_{op}_tiled")
        given, got = qd.ndarray(dtype, (N,)), qd.ndarray(dtype, (N,))
        given.from_numpy(values)

        @qd.kernel
        def apply(
            given: qd.types.ndarray(dtype, ndim=1),
            flags: qd.types.ndarray(qd.i32, ndim=1),
            got: qd.types.ndarray(dtype, ndim=1),
        ):
            for i in given:
                got[i] = f(given[i], flags[i], log2_size)

        apply(given, flags, got)
        expected = values.copy()
        with np.errstate(over="ignore"):
            for i in range(N):
                if not heads[i] and i % (1 << log2_size):
                    expected[i] = FOLDS[op](expected[i - 1], values[i])
        assert np.array_equal(got.to_numpy(), expected)


@qd.func
def join(a, b):
    """(a, b) -> first digit of a, last digit of b: associative, not commutative."""
    return a // 16 * 16 + b % 16


def join_host(values):
    return values[0] // 16 * 16 + values[-1] % 16


@pytest.mark.parametrize("log2_size", [1, 4, 5])
def test_order_is_kept(blocks, log2_size):
    values = np.random.default_rng(4).integers(0, 256, N).astype(np.int32)
    rows = tiles(values, log2_size)
    got = run(lambda v: reductions._inclusive_scan_tiled(v, join, log2_size), values)
    expected = [[join_host(r[: k + 1]) for k in range(len(r))] for r in rows]
    assert np.array_equal(tiles(got, log2_size), expected)
    got = run(lambda v: reductions._reduce_tiled(v, join, log2_size), values)
    assert np.array_equal(tiles(got, log2_size)[:, 0], [join_host(r) for r in rows])


@pytest.mark.parametrize("log2_size", range(6))
@pytest.mark.parametrize("key, value", [(qd.i32, qd.f64), (qd.f32, qd.i32), (qd.u64, qd.u32)])
def test_sorting(blocks, key, value, log2_size):
    keys = (values_of(key).astype(np.float64) % 5).astype(host(key))
    values = values_of(value, 1)
    arrays = []
    for dtype, data in [(key, keys), (value, values), (key, keys), (value, values)]:
        arrays.append(qd.ndarray(dtype, (N,)))
        arrays[-1].from_numpy(data)

    @qd.kernel
    def sort(
        k: qd.types.ndarray(key, ndim=1),
        v: qd.types.ndarray(value, ndim=1),
        ko: qd.types.ndarray(key, ndim=1),
        vo: qd.types.ndarray(value, ndim=1),
    ):
        for i in k:
            a, b = subgroup.bitonic_sort_kv_tiled(k[i], v[i], log2_size)
            ko[i] = a
            vo[i] = b

    sort(*arrays)
    got = zip(arrays[2].to_numpy().tolist(), arrays[3].to_numpy().tolist(), strict=True)
    got = list(got)
    size = 1 << log2_size
    given = list(zip(keys.tolist(), values.tolist(), strict=True))
    expected = [p for at in range(0, N, size) for p in sorted(given[at : at + size])]
    assert got == expected


# --- blocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_dim", [32, 64, 96, 256, 1024])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_block_reductions_and_scans(blocks, dtype, block_dim):
    values = values_of(dtype, n=3 * block_dim)
    rows = values.reshape(3, block_dim)
    with np.errstate(over="ignore"):
        for op, fold in FOLDS.items():
            total = fold.reduce(rows, axis=1, dtype=rows.dtype)
            f = getattr(block, f"reduce_{op}")
            got = run(lambda v: f(v, block_dim, dtype), values, block_dim)
            assert np.array_equal(got[::block_dim], total)
            f = getattr(block, f"reduce_all_{op}")
            got = run(lambda v: f(v, block_dim, dtype), values, block_dim)
            assert np.array_equal(got, np.repeat(total, block_dim))
            scan = fold.accumulate(rows, axis=1, dtype=rows.dtype)
            f = getattr(block, f"inclusive_{op}")
            got = run(lambda v: f(v, block_dim, dtype), values, block_dim)
            assert np.array_equal(got.reshape(rows.shape), scan)
            f = getattr(block, f"exclusive_{op}")
            got = run(lambda v: f(v, block_dim, dtype), values, block_dim)
            first = np.full((3, 1), identity(op, host(dtype)))
            assert np.array_equal(got.reshape(rows.shape), np.concatenate([first, scan[:, :-1]], 1))


@pytest.mark.parametrize("block_dim", [32, 160, 512])
def test_order_is_kept_in_blocks(blocks, block_dim):
    values = np.random.default_rng(5).integers(0, 256, 2 * block_dim).astype(np.int32)
    rows = values.reshape(2, block_dim)
    totals = [join_host(r) for r in rows]
    got = run(lambda v: block.reduce(v, block_dim, join, qd.i32), values, block_dim)
    assert np.array_equal(got[::block_dim], totals)
    got = run(lambda v: block.reduce_all(v, block_dim, join, qd.i32), values, block_dim)
    assert np.array_equal(got, np.repeat(totals, block_dim))
    got = run(lambda v: block.inclusive_scan(v, block_dim, join, qd.i32), values, block_dim)
    expected = [[join_host(r[: k + 1]) for k in range(block_dim)] for r in rows]
    assert np.array_equal(got.reshape(rows.shape), expected)


def test_block_size_must_be_whole_subgroups(blocks):
    for block_dim in (0, 48, -32):
        with pytest.raises(qd.QuadrantsCompilationError, match="multiple of subgroup size"):
            run(lambda v, n=block_dim: block.reduce_add(v, n, qd.i32), values_of(qd.i32))


@pytest.mark.parametrize("p", [0, 1, 2])
def test_barriers_that_vote(blocks, p):
    given = np.array([0, 1, 1])[p] * np.ones(256, np.int32)
    if p == 2:
        given[5] = 0
    rows = given.reshape(2, 128)
    for operation, expected in [
        (block.sync_all_nonzero, rows.all(1)),
        (block.sync_any_nonzero, rows.any(1)),
        (block.sync_count_nonzero, rows.sum(1)),
    ]:
        assert np.array_equal(run(operation, given), np.repeat(expected, 128))


@pytest.mark.parametrize("dtype", [qd.i8, qd.u16, *DTYPES, qd.f16], ids=str)
def test_shared_arrays_of_each_type(blocks, dtype):
    got = qd.ndarray(dtype, (256,))

    @qd.kernel
    def reverse(got: qd.types.ndarray(dtype, ndim=1)):
        qd.loop_config(block_dim=64)
        for i in range(256):
            shared = block.SharedArray(64, dtype)
            t = block.thread_idx()
            shared[t] = qd.cast(i % 100, dtype)
            block.sync()
            got[i] = shared[63 - t]

    reverse(got)
    i = np.arange(256)
    assert np.array_equal(got.to_numpy(), (i // 64 * 64 + 63 - i % 64) % 100)


def test_shared_vectors_and_matrices(blocks):
    V, M = qd.types.vector(3, qd.f32), qd.types.matrix(2, 2, qd.i32)
    got = qd.ndarray(qd.f32, (64, 7))

    @qd.kernel
    def rotate(got: qd.types.ndarray(qd.f32, ndim=2)):
        qd.loop_config(block_dim=32)
        for i in range(64):
            vectors = block.SharedArray((4, 8), V)
            matrices = block.SharedArray([32], M)
            t = block.thread_idx()
            vectors[t // 8, t % 8] = V(i, 2 * i, 3 * i)
            matrices[t] = M([[t, 1], [2, 3]])
            block.sync()
            u = (t + 1) % 32
            v = vectors[u // 8, u % 8]
            for k in qd.static(range(3)):
                got[i, k] = v[k]
            got[i, 3] = vectors[u // 8, u % 8].yx[1]
            got[i, 4] = matrices[u][0, 0]
            got[i, 5] = matrices[u][1, t % 2]
            got[i, 6] = vectors.shape[0] * 100 + vectors.shape[1] + matrices.shape[0]

    rotate(got)
    i = np.arange(64)
    u = i // 32 * 32 + (i + 1) % 32
    expected = np.stack([u, 2 * u, 3 * u, u, u % 32, 2 + i % 2, 0 * i + 440], axis=1)
    assert np.array_equal(got.to_numpy(), expected)


ATOMICS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@pytest.mark.parametrize("dtype", [qd.i32, qd.f16, qd.f32, qd.f64], ids=str)
@pytest.mark.parametrize("op", ATOMICS)
def test_atomics_on_shared_arrays(blocks, op, dtype):
    if dtype is not qd.i32 and op in ("mul", "and", "or", "xor"):
        pytest.skip("of integers")
    atomic = getattr(qd, f"atomic_{op}")
    got = qd.ndarray(dtype, (4,))

    @qd.kernel
    def fold(got: qd.types.ndarray(dtype, ndim=1)):
        qd.loop_config(block_dim=64)
        for i in range(256):
            cell = block.SharedArray((1,), dtype)
            if block.thread_idx() == 0:
                cell[0] = qd.cast(3, dtype)
            block.sync()
            atomic(cell[0], qd.cast(i % 3 + 1, dtype))
            block.sync()
            if block.thread_idx() == 0:
                got[i // 64] = cell[0]

    fold(got)
    i = np.arange(256).reshape(4, 64) % 3 + 1
    first = np.full((4, 1), 3)
    with np.errstate(over="ignore"):
        given = np.concatenate([first, i], 1).astype(np.int32)
        expected = ATOMICS[op].reduce(given, axis=1, dtype=np.int32)
    assert np.array_equal(got.to_numpy().astype(np.float64), expected)


def test_augmented_assignment_of_shared_elements_is_atomic(blocks):
    got = qd.ndarray(qd.i32, (8, 16))

    @qd.kernel
    def histogram(got: qd.types.ndarray(qd.i32, ndim=2)):
        qd.loop_config(block_dim=128)
        for i in range(1024):
            bins = block.SharedArray((16,), qd.i32)
            t = block.thread_idx()
            if t < 16:
                bins[t] = 0
            block.sync()
            bins[i * 7 % 16] += 1
            block.sync()
            if t < 16:
                got[i // 128, t] = bins[t]

    histogram(got)
    rows = (np.arange(1024) * 7 % 16).reshape(8, 128)
    assert np.array_equal(got.to_numpy(), [np.bincount(r, minlength=16) for r in rows])


def test_each_occurrence_is_an_array_of_its_own(blocks):
    got = qd.ndarray(qd.i32, (64,))

    @qd.func
    def neighbour(v, n: qd.template()):
        shared = block.SharedArray((n,), qd.i32)
        t = block.thread_idx()
        shared[t] = v
        block.sync()
        return shared[(t + 1) % 64]

    @qd.kernel
    def twice(got: qd.types.ndarray(qd.i32, ndim=1)):
        qd.loop_config(block_dim=64)
        for i in range(64):
            a = neighbour(i, 64)
            b = neighbour(a, 128)
            kept = block.SharedArray((64,), qd.i32)
            for k in qd.static(range(2)):
                other = block.SharedArray((64,), qd.i32)
                other[block.thread_idx()] = k
            kept[i] = b
            block.sync()
            got[i] = kept[63 - i]

    twice(got)
    i = 63 - np.arange(64)
    assert np.array_equal(got.to_numpy(), (i + 2) % 64)


def test_arrays_are_passed_and_named(blocks):
    got = qd.ndarray(qd.f32, (128,))

    @qd.func
    def fill(to: qd.template(), at, v):
        to[at] = v

    @qd.func
    def total(of, n: qd.template()):
        s = 0.0
        for k in range(n):
            s += of[k]
        return s

    @qd.kernel
    def run_it(got: qd.types.ndarray(qd.f32, ndim=1)):
        qd.loop_config(block_dim=32)
        for i in range(128):
            a = block.SharedArray((32,), qd.f32)
            other = a
            fill(a, block.thread_idx(), qd.f32(i))
            block.sync()
            got[i] = total(other, 32)

    run_it(got)
    expected = np.repeat(np.arange(128).reshape(4, 32).sum(1), 32)
    assert np.array_equal(got.to_numpy(), expected)


@pytest.mark.parametrize("kib", [40, 64, 160])
def test_large_arrays_in_consecutive_tasks(blocks, kib):
    n = kib * 256
    if qd.lang.impl.get_max_shared_memory_bytes(is_lowerbound_ok=False) < kib << 10:
        pytest.skip("the device's blocks have less")
    got = qd.ndarray(qd.f32, (3, 256))

    @qd.kernel
    def three(got: qd.types.ndarray(qd.f32, ndim=2)):
        for k in qd.static(range(3)):
            qd.loop_config(block_dim=128)
            for i in range(256):
                big = block.SharedArray((n,), qd.f32)
                small = block.SharedArray((4,), qd.f32)
                t = block.thread_idx()
                big[n - 1 - t] = qd.f32(i + k)
                if t == 0:
                    small[3] = 0.5
                block.sync()
                got[k, i] = big[n - 128 + t] + small[3]

    three(got)
    i = np.arange(256)
    swapped = i // 128 * 128 + 127 - i % 128
    assert np.array_equal(got.to_numpy(), [swapped + k + 0.5 for k in range(3)])


def test_too_large_arrays(blocks):
    @qd.kernel
    def much():
        for _ in range(32):
            big = block.SharedArray((100000,), qd.f64)
            big[0] = 1.0
            block.sync()

    with pytest.raises(Exception, match="shared arrays of a loop have 800000 bytes"):
        much()


@pytest.mark.parametrize("shape", [2.0, (4, 2.5), np.int32(3), "4", None])
def test_shapes_are_integers(blocks, shape):
    @qd.kernel
    def wrong():
        for _ in range(32):
            a = block.SharedArray(shape, qd.f32)
            a[0] = 1.0

    with pytest.raises(Exception, match="shape must be an integer or a tuple of integers"):
        wrong()


@pytest.mark.parametrize("dtype", [float, int])
def test_python_types_are_no_elements(blocks, dtype):
    @qd.kernel
    def wrong():
        for _ in range(32):
            a = block.SharedArray(4, dtype)
            a[0] = 1.0

    with pytest.raises(qd.QuadrantsTypeError):
        wrong()


def test_indices_of_shared_arrays_are_checked(blocks):
    @qd.kernel
    def constant():
        for _ in range(32):
            a = block.SharedArray((4, 2), qd.f32)
            a[1, 2] = 1.0

    with pytest.raises(Exception, match="index 2 of a shared array's axis 1"):
        constant()

    @qd.kernel
    def one_axis():
        for _ in range(32):
            a = block.SharedArray((4, 2), qd.f32)
            a[1] = 1.0

    with pytest.raises(Exception, match="dim 2 accessed with indices of dim 1"):
        one_axis()
    blocks.init(debug=True)

    @qd.kernel
    def runtime(n: qd.i32):
        for i in range(32):
            a = block.SharedArray((4,), qd.f32)
            a[i % n] = 1.0

    runtime(4)
    with pytest.raises(AssertionError, match="shared array: index 4 of axis 0, which has 4"):
        runtime(5)
    runtime(3)


def test_prints_and_asserts_beside_shared_arrays(blocks, capfd):
    blocks.init(debug=True)

    @qd.kernel
    def speak(n: qd.i32):
        qd.loop_config(block_dim=32)
        for i in range(32):
            a = block.SharedArray((32,), qd.i32)
            a[i] = i
            block.sync()
            assert a[31 - i] < n, "too large"
            if i == 5:
                print("found", a[7])

    speak(32)
    assert "found 7" in capfd.readouterr().out
    with pytest.raises(AssertionError, match="too large"):
        speak(20)


def test_ranks_of_digits(blocks):
    keys = np.random.default_rng(6).integers(0, 2**32, 1024, dtype=np.uint32)
    given = qd.ndarray(qd.u32, (1024,))
    given.from_numpy(keys)
    rank = qd.ndarray(qd.i32, (1024,))
    counts = qd.ndarray(qd.i32, (2, 4, 256))

    @qd.kernel
    def ranks(
        given: qd.types.ndarray(qd.u32, ndim=1),
        rank: qd.types.ndarray(qd.i32, ndim=1),
        counts: qd.types.ndarray(qd.i32, ndim=3),
    ):
        qd.loop_config(block_dim=256)
        for i in range(1024):
            bins = block.SharedArray((256,), qd.i32)
            before = block.SharedArray((256,), qd.i32)
            r = block.radix_rank_match_atomic_or(given[i], 256, 8, 5, 6, bins, before)
            rank[i] = r
            counts[0, i // 256, i % 256] = bins[i % 256]
            counts[1, i // 256, i % 256] = before[i % 256]

    ranks(given, rank, counts)
    digits = ((keys >> 5) & 63).reshape(4, 256)
    order = np.argsort(digits, axis=1, kind="stable")
    assert np.array_equal(np.argsort(rank.to_numpy().reshape(4, 256), axis=1), order)
    found = counts.to_numpy()
    for k in range(4):
        number = np.bincount(digits[k], minlength=256)
        assert np.array_equal(found[0, k], number)
        assert np.array_equal(found[1, k], np.cumsum(number) - number)


# --- fences and flags -----------------------------------------------------------------------------


def test_one_block_waits_for_another(blocks):
    n = 8
    payload, ready, got = (qd.ndarray(qd.i32, (n,)) for _ in range(3))
    ready.fill(0)

    @qd.kernel
    def chain(
        payload: qd.types.ndarray(qd.i32, ndim=1),
        ready: qd.types.ndarray(qd.i32, ndim=1),
        got: qd.types.ndarray(qd.i32, ndim=1),
    ):
        qd.loop_config(block_dim=1)
        for me in range(n):
            before = 1
            if me > 0:
                while qd.volatile_load(ready[me - 1]) == 0:
                    pass
                grid.mem_fence()
                before = qd.volatile_load(payload[me - 1])
            payload[me] = before * 2
            grid.mem_fence()
            qd.atomic_exchange(ready[me], 1)
            got[me] = before

    chain(payload, ready, got)
    assert np.array_equal(got.to_numpy(), 2 ** np.arange(n))


def test_loads_are_made_again_behind_a_barrier(blocks):
    data, got = qd.ndarray(qd.i32, (128,)), qd.ndarray(qd.i32, (128,))
    data.from_numpy(np.arange(128, dtype=np.int32))

    @qd.kernel
    def pass_on(data: qd.types.ndarray(qd.i32, ndim=1), got: qd.types.ndarray(qd.i32, ndim=1)):
        qd.loop_config(block_dim=128)
        for i in range(128):
            for _ in range(3):
                v = data[(i + 1) % 128]
                block.sync()
                data[i] = v
                block.sync()
            got[i] = data[i]

    pass_on(data, got)
    assert np.array_equal(got.to_numpy(), (np.arange(128) + 3) % 128)


def test_subgroups_exchange_through_shared_memory(blocks):
    got = qd.ndarray(qd.i32, (96,))

    @qd.kernel
    def turn(got: qd.types.ndarray(qd.i32, ndim=1)):
        qd.loop_config(block_dim=96)
        for i in range(96):
            a = block.SharedArray((96,), qd.i32)
            a[i] = i
            subgroup.sync()
            subgroup.mem_fence()
            got[i] = a[i // 32 * 32 + (i + 5) % 32]

    turn(got)
    i = np.arange(96)
    assert np.array_equal(got.to_numpy(), i // 32 * 32 + (i + 5) % 32)


def test_matrix_product_by_tiles(blocks):
    n, t = 64, 16
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-8, 8, (n, n)).astype(np.float32) for _ in range(2))
    arrays = [qd.ndarray(qd.f32, (n, n)) for _ in range(3)]
    arrays[0].from_numpy(a), arrays[1].from_numpy(b)
    A = qd.types.ndarray(qd.f32, ndim=2)

    @qd.kernel
    def multiply(a: A, b: A, c: A):
        qd.loop_config(block_dim=t * t)
        for i in range(n * n):
            sa = block.SharedArray((t, t), qd.f32)
            sb = block.SharedArray((t, t), qd.f32)
            tile, thread = i // (t * t), block.thread_idx()
            y, x = thread // t, thread % t
            row, col = tile // (n // t) * t + y, tile % (n // t) * t + x
            total = 0.0
            for k in range(n // t):
                sa[y, x] = a[row, k * t + x]
                sb[y, x] = b[k * t + y, col]
                block.sync()
                for j in range(t):
                    total += sa[y, j] * sb[j, x]
                block.sync()
            c[row, col] = total

    multiply(*arrays)
    assert np.array_equal(arrays[2].to_numpy(), a @ b)


@pytest.mark.parametrize("use", ["field", "ndarray"])
def test_reduced_blocks_feed_an_atomic(blocks, use):
    total = qd.field(qd.i64, ()) if use == "field" else None
    array = qd.ndarray(qd.i64, (1,))
    array.fill(0)
    add = functools.partial(block.reduce_add, block_dim=128, dtype=qd.i64)

    @qd.kernel
    def sum_up(to: qd.types.ndarray(qd.i64, ndim=1)):
        for i in range(1024):
            s = add(qd.i64(i))
            if block.thread_idx() == 0:
                if qd.static(use == "field"):
                    total[None] += s
                else:
                    to[0] += s

    sum_up(array)
    got = total[None] if use == "field" else array.to_numpy()[0]
    assert got == 1023 * 512


def test_plain_python_reads_and_writes_shared_arrays(blocks):
    got = qd.ndarray(qd.i32, (64,))

    def turn(a, t, v):
        a[t] = v
        block.sync()
        return a[63 - t]

    @qd.kernel
    def apply(got: qd.types.ndarray(qd.i32, ndim=1)):
        qd.loop_config(block_dim=64)
        for i in range(64):
            a = block.SharedArray((64,), qd.i32)
            got[i] = turn(a, i, i * 2)

    apply(got)
    assert np.array_equal(got.to_numpy(), 2 * (63 - np.arange(64)))
