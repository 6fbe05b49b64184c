"""Device-wide algorithms in kernels, the sizes of their workspaces, and the two host functions."""

import numpy as np
import pytest

import quadrants as qd
from helpers import NUMPY, dtype, raises

A = qd.algorithms
SIX = ["i32", "u32", "f32", "i64", "u64", "f64"]
refused_there = pytest.mark.oracle_differs("the CPU is refused")
SIZES = [0, 1, 2, 255, 256, 257, 1000, 3073, 4097, 70_000]

Numbers = qd.types.ndarray(ndim=1)
Count = qd.types.ndarray(qd.i32, 0)


def depth(n):
    return 1 if n <= 256 else 2 if n <= 65536 else 3


def scratch(slots, wide=False):
    return qd.ndarray(qd.u64 if wide else qd.u32, slots)


def held(values, least=1):
    """The values in an ndarray, which has at least one element."""
    a = qd.ndarray(dtype(next(n for n in SIX if NUMPY[n] == values.dtype)), max(len(values), least))
    padded = np.zeros(a.shape, values.dtype)
    padded[: len(values)] = values
    a.from_numpy(padded)
    return a


def sample(name, n, seed=0):
    rng = np.random.default_rng(seed + n)
    if name[0] == "f":
        return rng.uniform(-1, 1, n).astype(NUMPY[name])
    info = np.iinfo(NUMPY[name])
    return rng.integers(info.min, info.max, n, NUMPY[name], endpoint=True)


@refused_there
@pytest.mark.parametrize("name", SIX)
def test_reduce(backend, name):
    D, T = qd.template(), dtype(name)

    @qd.kernel
    def k(x: Numbers, add: Numbers, least: Numbers, most: Numbers, s: Numbers, n: qd.i32, d: D):
        A.reduce_add(x, add, s, n, T, d)
        A.reduce_min(x, least, s, n, T, d)
        A.reduce_max(x, most, s, n, T, d)

    for n in SIZES:
        values = sample(name, n + 3)
        x = held(values)
        outs = [held(values[:1]) for _ in range(3)]
        k(x, *outs, scratch(A.reduce_scratch_slots(n), T.size == 8), n, depth(n))
        total, least, most = (o.to_numpy()[0] for o in outs)
        with np.errstate(over="ignore"):
            expected = values[:n].sum(dtype=values.dtype)
        if name[0] == "f":
            assert total == pytest.approx(expected, rel=1e-4, abs=1e-3)
        else:
            assert total == expected
        empty = (
            (np.inf, -np.inf)
            if name[0] == "f"
            else (np.iinfo(values.dtype).max, np.iinfo(values.dtype).min)
        )
        assert least == (values[:n].min() if n else empty[0])
        assert most == (values[:n].max() if n else empty[1])


@refused_there
@pytest.mark.parametrize("name", SIX)
def test_exclusive_scan(backend, name):
    D, T = qd.template(), dtype(name)

    @qd.kernel
    def k(x: Numbers, add: Numbers, least: Numbers, most: Numbers, s: Numbers, n: qd.i32, d: D):
        A.exclusive_scan_add(x, add, s, n, T, d)
        A.exclusive_scan_min(x, least, s, n, T, d)
        A.exclusive_scan_max(x, most, s, n, T, d)

    for n in SIZES:
        values = sample(name, n + 2)
        outs = [held(np.full(n + 2, 7, values.dtype)) for _ in range(3)]
        k(held(values), *outs, scratch(A.exclusive_scan_scratch_slots(n), T.size == 8), n, depth(n))
        add, least, most = (o.to_numpy() for o in outs)
        assert all((o[n:] == 7).all() for o in (add, least, most))  # the rest keeps its values
        with np.errstate(over="ignore"):
            sums = np.cumsum(
                np.concatenate([values[:0], [values.dtype.type(0)], values[:n]]), dtype=values.dtype
            )[:n]
        if name[0] == "f":
            np.testing.assert_allclose(add[:n], sums, rtol=2e-5 * max(n, 1) ** 0.5, atol=1e-3)
            first = np.inf
        else:
            assert (add[:n] == sums).all()
            first = np.iinfo(values.dtype).max
        if n > 1:
            assert (least[1:n] == np.minimum.accumulate(values[: n - 1])).all()
            assert (most[1:n] == np.maximum.accumulate(values[: n - 1])).all()
        if n:
            assert least[0] == first


def test_scans_of_many_tiles(backend):
    """What one block does between the two loops comes in several pieces."""
    if backend.name == "cpu":
        pytest.skip("no tiles")
    n = 17_000_001
    x, out = qd.field(qd.i32, n), qd.field(qd.i32, n)
    s = qd.field(qd.u32, A.exclusive_scan_scratch_slots(n))
    values = np.random.default_rng(0).integers(-9, 10, n).astype(np.int32)
    x.from_numpy(values)

    @qd.kernel
    def run():
        A.exclusive_scan_add(x, out, s, n, qd.i32, 4)

    run()
    expected = np.cumsum(values, dtype=np.int64) - values
    np.testing.assert_array_equal(out.to_numpy(), expected)


@refused_there
def test_select(backend):
    @qd.kernel
    def k(x: Numbers, f: Numbers, out: Numbers, count: Numbers, s: Numbers, n: qd.i32):
        A.select(x, f, out, count, s, n, 3)

    for n in SIZES:
        values = np.arange(n, dtype=np.float32)
        flags = np.random.default_rng(n).integers(0, 2, n, np.int32)
        out, count = held(np.full(n + 1, -1, np.float32)), held(np.array([9], np.int32))
        k(held(values), held(flags), out, count, scratch(A.select_scratch_slots(n)), n)
        kept = values[flags == 1]
        assert count.to_numpy()[0] == len(kept)
        assert out.to_numpy().tolist() == kept.tolist() + [-1] * (n + 1 - len(kept))


@refused_there
def test_select_of_structs(backend):
    S = qd.types.struct(a=qd.f32, v=qd.types.vector(2, qd.i32))
    x, out = S.field(shape=600), S.field(shape=600)
    flags, count = qd.field(qd.i32, 600), qd.field(qd.i32, 1)
    s = qd.field(qd.u32, A.select_scratch_slots(600))

    @qd.kernel
    def k():
        for i in x:
            x[i].a = i
            x[i].v = [i, -i]
            flags[i] = i % 3 == 0
        A.select(x, flags, out, count, s, 600, 2)

    k()
    assert count[0] == 200
    assert out[199].a == 597 and out[199].v.to_list() == [597, -597]
    assert out[200].a == 0


def ordered(keys):
    """Positions in the order of the keys: NaN last, -0.0 in front of 0.0, stable."""
    if keys.dtype.kind != "f":
        return np.argsort(keys, kind="stable")
    u = keys.view(np.uint32 if keys.dtype.itemsize == 4 else np.uint64)
    top = u.dtype.type(1 << (8 * u.dtype.itemsize - 1))
    return np.argsort(np.where(u & top, ~u, u | top), kind="stable")


@refused_there
@pytest.mark.parametrize("name", SIX)
def test_sort(backend, name):
    T, end, D = dtype(name), 8 * dtype(name).size, qd.template()

    @qd.kernel
    def pairs(k: Numbers, k2: Numbers, v: Numbers, v2: Numbers, s: Numbers, n: Count, d: D):
        A.sort(k, k2, v, v2, s, n, T, True, end, d)

    @qd.kernel
    def alone(k: Numbers, k2: Numbers, s: Numbers, n: Count, d: D):
        A.sort(k, k2, k, k2, s, n, T, False, end, d)

    count = qd.ndarray(qd.i32, ())
    for n in SIZES:
        values = sample(name, n + 5)
        values[: n // 2] = values[n // 2 : n // 2 + n // 2]  # equal keys
        if name[0] == "f" and n > 6:
            values[:6] = [np.nan, np.inf, -np.inf, -0.0, 0.0, -0.0]
        count.fill(n)
        ids = np.arange(n + 5, dtype=np.int64)
        order = np.concatenate([ordered(values[:n]), ids[n:]])
        k, v, s = held(values), held(ids), scratch(A.sort_scratch_slots(n))
        pairs(k, held(values), v, held(ids), s, count, depth(n))
        assert v.to_numpy().tolist() == order.tolist()
        assert k.to_numpy().tobytes() == values[order].tobytes()
        k = held(values)
        alone(k, held(values), s, count, depth(n))
        assert k.to_numpy().tobytes() == values[order].tobytes()


@refused_there
@pytest.mark.parametrize("name", ["i32", "u32", "f32", "f64"])
def test_reduce_by_key(backend, name):
    T = dtype(name)

    @qd.kernel
    def k(
        keys: Numbers, values: Numbers, ko: Numbers, vo: Numbers, runs: Numbers, s: Numbers, n: qd.i32
    ):  # fmt: skip
        A.reduce_by_key_add(keys, values, ko, vo, runs, s, n, T, 3)

    for n in SIZES:
        rng = np.random.default_rng(n)
        keys = np.repeat(rng.integers(0, 5, n + 1, np.int32), rng.integers(1, 700, n + 1))[:n]
        values = rng.integers(0, 9, n).astype(NUMPY[name])
        ko, vo = held(np.full(n + 1, -1, np.int32)), held(np.full(n + 1, 77, values.dtype))
        runs = held(np.array([-5], np.int32))
        k(held(keys), held(values), ko, vo, runs, scratch(A.reduce_by_key_scratch_slots(n)), n)
        heads = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if n else []
        r = len(heads)
        assert runs.to_numpy()[0] == r
        assert ko.to_numpy().tolist() == (keys[heads].tolist() if n else []) + [-1] * (n + 1 - r)
        if n:
            assert vo.to_numpy()[:r].tolist() == np.add.reduceat(values, heads).tolist()
        assert vo.to_numpy()[n] == 77


@refused_there
def test_fields_counts_on_the_device_and_a_graph(backend):
    x, out = qd.field(qd.i32, 300), qd.field(qd.i32, 300)
    total, s, n = qd.field(qd.i32, 1), qd.field(qd.u32, 64), qd.field(qd.i32, ())

    @qd.func
    def prefix(d: qd.template()):
        A.exclusive_scan_add(x, out, s, n[None], qd.i32, d)

    @qd.kernel(graph=True)
    def k(turns: Count):
        while qd.graph.do_while(turns):
            for i in x:
                x[i] = turns[()]
            prefix(2)
            A.reduce_max(out, total, s, n[None], qd.i32, 2)
            turns[()] -= 1

    turns = qd.ndarray(qd.i32, ())
    for n[None] in (300, 10):
        turns.fill(3)
        k(turns)
        assert total[0] == n[None] - 1
        assert out.to_numpy()[: n[None]].tolist() == list(range(n[None]))


@refused_there
def test_misuse(backend):
    x, y = qd.field(qd.i16, 4), qd.field(qd.i32, 4)
    o, s, n = qd.field(qd.i32, 1), qd.field(qd.u32, 2000), qd.field(qd.i32, ())

    def calling(text):
        source = f"def k():\n    {text}\n"
        names = {"A": A, "x": x, "y": y, "o": o, "s": s, "n": n, "qd": qd}
        import linecache

        name = f"<calls {text}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), names)
        return qd.kernel(names["k"])

    C, S = qd.QuadrantsCompilationError, qd.QuadrantsSyntaxError
    for text, kind, words in [
        ("A.reduce_add(x, o, s, 4, qd.i16, 1)", C, "device reduce dtype i16 not supported"),
        ("A.sort(x, x, x, x, s, n, qd.f16, False, 16, 1)", C, "sort key dtype f16 not supported"),
        ("A.exclusive_scan_add(y, o, s, 4, qd.i32, 5)", C, "log256_max_n=5"),
        ("A.exclusive_scan_add(y, y, s, 4, qd.i32, 1)", C, "in place"),
        (
            "for i in range(3): A.reduce_add(y, o, s, 4, qd.i32, 1)",
            S,
            "reduce_add.*requires_top_level",
        ),
    ]:
        with pytest.raises(kind, match=words):
            calling(text)()
    with raises(S):
        A.reduce_add(y, o, s, 4, qd.i32, 1)


def test_scratch_slots(backend):
    ns = (-3, 0, 1, 2, 255, 256, 257, 65536, 65537, 10**6, 2**24 + 1)
    table = {
        A.reduce_scratch_slots: [1, 1, 1, 1, 1, 1, 2, 256, 259, 3923, 65796],
        A.exclusive_scan_scratch_slots: [1, 1, 1, 1, 1, 1, 2, 256, 259, 3923, 65796],
        A.select_scratch_slots: [1, 1, 2, 3, 256, 257, 259, 65792, 65796, 1003923, 16843013],
        A.reduce_by_key_scratch_slots: [1, 1, 1, 2, 255, 256, 259, 65792, 65796, 1003923, 16843013],
        A.sort_scratch_slots: [1, 1, 256, 256, 256, 256, 514, 65792, 66051, 1004115, 16843268],
    }
    for slots, expected in table.items():
        assert [slots(n) for n in ns] == expected
    assert [A.reduce_scratch_slots(300, D) for D in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert A.sort_scratch_slots(n=70000, log256_max_n=2) == 70418
    for slots in (A.reduce_scratch_slots, A.exclusive_scan_scratch_slots, A.sort_scratch_slots):
        with pytest.raises(ValueError, match="log256_max_n"):
            slots(10, 5)
        with pytest.raises(ValueError, match="log256_max_n"):
            slots(2**33)

    @qd.kernel
    def inside(m: qd.i32) -> qd.types.vector(4, qd.i32):
        return qd.Vector(
            [
                A.reduce_scratch_slots(m, 3),
                A.select_scratch_slots(m),
                A.reduce_by_key_scratch_slots(m),
                A.sort_scratch_slots(m, 2),
            ]
        )

    for n in (1, 256, 300, 70000):
        expected = [A.reduce_scratch_slots(n, 3), A.select_scratch_slots(n)]
        expected += [A.reduce_by_key_scratch_slots(n), A.sort_scratch_slots(n, 2)]
        assert inside(n).to_list() == expected


def test_names(backend):
    from quadrants.algorithms._radix_sort import _min_log256_for_n
    from quadrants.algorithms._reduce import _reduce_depth_for_n

    for minimal in (_min_log256_for_n, _reduce_depth_for_n):
        assert [minimal(n) for n in (0, 1, 256, 257, 65536, 65537)] == [1, 1, 1, 2, 2, 3]
    assert A.sort._qd_requires_top_level and A.reduce_add._qd_requires_top_level


@pytest.mark.parametrize("name", ["i32", "f32", "u8", "f64"])
def test_parallel_sort(backend, name):
    for n in (1, 2, 37, 1000):
        keys = qd.field(dtype(name), n, offset=-5)
        values = qd.field(qd.i32, n, offset=3)
        given = np.random.default_rng(n).integers(0, 200, n).astype(NUMPY[name])
        keys.from_numpy(given)
        values.from_numpy(np.arange(n, dtype=np.int32))
        with pytest.warns(DeprecationWarning, match="qd.algorithms.sort"):
            A.parallel_sort(keys, values)
        assert (keys.to_numpy() == np.sort(given)).all()
        assert (given[values.to_numpy()] == np.sort(given)).all()
        keys.from_numpy(given)
        with pytest.warns(DeprecationWarning):
            A.parallel_sort(keys)
        assert (keys.to_numpy() == np.sort(given)).all()


def test_parallel_sort_refuses_ndarrays(backend):
    with pytest.warns(DeprecationWarning), raises(qd.QuadrantsRuntimeTypeError):
        A.parallel_sort(qd.ndarray(qd.i32, 4))


@pytest.mark.of_cpus("others scan")
def test_prefix_sum_executor_needs_a_gpu(backend):
    with pytest.warns(DeprecationWarning, match="exclusive_scan_add"):
        executor = A.PrefixSumExecutor(10)
    with pytest.raises(RuntimeError, match="Only qd.i32 type is supported for prefix sum"):
        executor.run(qd.field(qd.f32, 10))
    with pytest.raises(RuntimeError, match="is not supported for prefix sum"):
        executor.run(qd.field(qd.i32, 10))
    with pytest.warns(DeprecationWarning), raises(RuntimeError):
        A.PrefixSumExecutor(1)


@pytest.mark.parametrize("n", [2, 63, 64, 65, 2048, 2049, 70_000])
def test_prefix_sum_executor(backend, n):
    if backend.name == "cpu":
        pytest.skip("a CPU is refused")
    x = qd.field(qd.i32, n)
    values = sample("i32", n)
    with pytest.warns(DeprecationWarning):
        executor = A.PrefixSumExecutor(n)
    for _ in range(2):
        x.from_numpy(values)
        executor.run(x)
        assert np.array_equal(x.to_numpy(), np.cumsum(values, dtype=np.int32))


@refused_there
@pytest.mark.parametrize("keys", ["equal", "two", "rising", "falling"])
def test_sorting_keys_that_are_much_alike(backend, keys):
    n = 9000
    i = np.arange(n, dtype=np.int32)
    given = {"equal": 0 * i + 7, "two": i % 2, "rising": i, "falling": n - i}[keys]
    k, v = held(given.astype(np.int32)), held(i)
    tmp = [held(0 * i), held(0 * i)]
    count = qd.ndarray(qd.i32, ())
    count.fill(n)

    @qd.kernel
    def run(k: Numbers, kt: Numbers, v: Numbers, vt: Numbers, s: Numbers, n: Count):
        A.sort(k, kt, v, vt, s, n, qd.i32, True, 32, 2)

    run(k, tmp[0], v, tmp[1], scratch(A.sort_scratch_slots(n)), count)
    order = np.argsort(given, kind="stable")
    assert np.array_equal(k.to_numpy(), given[order])
    assert np.array_equal(v.to_numpy(), order)


@pytest.mark.oracle_differs("it goes on for ever")
def test_no_workspace_is_endless():
    for slots in A.reduce_scratch_slots, A.exclusive_scan_scratch_slots, A.sort_scratch_slots:
        with pytest.raises(ValueError, match="log256_max_n"):
            slots(float("inf"))


@pytest.mark.of_cpus("these have no subgroups")
def test_there_are_no_tiles_of_lanes(backend):
    @qd.kernel
    def k() -> qd.i32:
        return qd.simt.subgroup.lane_in_tile(1)

    with pytest.raises(qd.QuadrantsCompilationError, match="which has no subgroups"):
        k()
