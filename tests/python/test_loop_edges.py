"""Loops that wrap around or stop at a border, of every length and offset, beside plain Python."""

import numpy as np
import pytest

import quadrants as qd
from helpers import module_at

LENGTHS = [1, 2, 15, 16, 17, 31, 33, 64, 100, 257]


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("offset", [-70, -33, -1, 0, 1, 2, 40, 300])
def test_remainders(backend, offset, parallel):
    @qd.kernel
    def k(a: qd.types.ndarray(qd.i32, ndim=1), out: qd.types.ndarray(qd.i32, ndim=1), m: qd.i32):
        qd.loop_config(serialize=not parallel)
        for i in range(out.shape[0]):
            out[i] = a[(i + offset) % m] * 3 + a[(i - 1 + m) % m] + a[(i + m - offset) % m]

    for n in LENGTHS:
        for m in (n, n + 5, max(1, n // 2)):
            a = np.arange(m, dtype=np.int32) * 7 + 1
            out = np.zeros(n, np.int32)
            k(a, out, m)
            i = np.arange(n)
            assert (out == a[(i + offset) % m] * 3 + a[(i - 1) % m] + a[(i - offset) % m]).all()


BOUNDS = ["n", "n - 1", "n + 2", "1 - 3 + n", "-2 + n", "m - 4", "long - 2", "2 - n + 9"]


@pytest.mark.parametrize("begin", ["1", *BOUNDS[1:]])
@pytest.mark.parametrize("end", BOUNDS)
def test_sums_of_arguments_as_bounds(backend, begin, end, tmp_path):
    source = f"""
import quadrants as qd
@qd.kernel
def k(out: qd.types.ndarray(qd.i32, ndim=1), m: qd.i32, long: qd.i64):
    n = out.shape[0]
    for i in range({begin}, {end}):
        out[i % n] += i
"""
    (tmp_path / "sums.py").write_text(source)
    module = module_at(tmp_path / "sums.py", "sums")
    for n in (1, 4, 9, 100):
        m, long = n // 2 + 5, n + 3
        out, expected = np.zeros(n, np.int32), np.zeros(n, np.int32)
        module.k(out, m, long)
        for i in range(eval(begin), eval(end)):
            expected[i % n] += i
        assert (out == expected).all(), n


def test_sums_of_arguments_wrap(backend):
    @qd.kernel
    def k(n: qd.i32, end: qd.i32, out: qd.types.ndarray(qd.i32, ndim=1)):
        for i in range(n - 9, n + 5):
            out[0] += 1
        for i in range(n + 5, end):
            out[1] += 1

    out = np.zeros(2, np.int32)
    k(2147483645, -2147483640, out)
    assert out.tolist() == [0, 6]


@pytest.mark.parametrize("n", [33, 64, 201])
@pytest.mark.parametrize("begin", [0, 3, -5])
def test_constant_lengths(backend, n, begin):
    a, out = qd.field(qd.i32, n), qd.field(qd.i32, n)

    @qd.kernel
    def k():
        for _ in range(1):
            for i in range(begin, n - 2):
                out[i % n] = a[(i + 1) % n] - a[(i + n - 1) % n] * 2 + a[(i + 3) % n]

    values = np.arange(n, dtype=np.int32) ** 2
    a.from_numpy(values)
    k()
    expected = np.zeros(n, np.int32)
    for i in range(begin, n - 2):
        expected[i % n] = values[(i + 1) % n] - values[(i - 1) % n] * 2 + values[(i + 3) % n]
    assert (out.to_numpy() == expected).all()


@pytest.mark.parametrize("form", ["<", "<=", ">", ">=", "==", "!="])
@pytest.mark.parametrize("limit", [-1, 0, 1, 5, 50, "n - 2", "n - 1", "n", "n // 2", "m"])
@pytest.mark.parametrize("guards", ["branch", "mirrored", "index", "branch mirrored index"])
def test_comparisons(backend, guards, form, limit, tmp_path):
    branch, mirrored, index = (name in guards for name in ("branch", "mirrored", "index"))
    source = f"""
import quadrants as qd
@qd.kernel
def k(a: qd.types.ndarray(qd.i32, ndim=1), out: qd.types.ndarray(qd.i32, ndim=1), m: qd.i32, parallel: qd.template()):
    n = out.shape[0]
    qd.loop_config(serialize=not parallel)
    for i in range(n):
        s = 0
        if qd.static({branch}):
            if i {form} {limit}:
                s = a[i] + 1
        if qd.static({mirrored}):
            if {limit} {form} i + 1:
                s += a[i] * 2
        if qd.static({index}):
            s += a[i + 1 if i {form} {limit} else i]
        out[i] = s
"""
    path = tmp_path / "program.py"
    path.write_text(source)
    space = {"__name__": "program"}
    exec(compile(source, str(path), "exec"), space)
    for n in LENGTHS:
        for m in (-3, 0, 7, n + 3):
            a = np.arange(n + 1, dtype=np.int32) * 5 + 2
            expected = np.zeros(n, np.int32)
            value = eval(str(limit), {"n": n, "m": m})
            for i in range(n):
                holds = eval(f"i {form} value", {"i": i, "value": value})
                if branch and holds:
                    expected[i] = a[i] + 1
                if mirrored and eval(f"value {form} i + 1", {"i": i, "value": value}):
                    expected[i] += a[i] * 2
                if index:
                    expected[i] += a[i + 1 if holds else i]
            for parallel in (True, False):
                out = np.zeros(n, np.int32)
                space["k"](a, out, m, parallel)
                assert (out == expected).all(), (n, m, parallel)


@pytest.mark.parametrize("parallel", [True, False])
def test_offsets_from_arguments(backend, parallel):
    @qd.kernel
    def k(
        a: qd.types.ndarray(qd.i32, ndim=1),
        out: qd.types.ndarray(qd.i32, ndim=1),
        m: qd.i32,
        q: qd.i32,
    ):
        qd.loop_config(serialize=not parallel)
        for i in range(out.shape[0]):
            out[i] = a[(i - q) % m] + a[(i + q) % m] * 3 + a[(i - m) % m] * 7 + a[(i - q - m) % m]

    for n in LENGTHS:
        for m in (n, n + 9, max(1, n // 2)):
            for q in (-40, -1, 0, 3, 20):
                a = np.arange(m, dtype=np.int32) * 5 + 1
                out = np.zeros(n, np.int32)
                k(a, out, m, q)
                i = np.arange(n)
                back = a[(i - q) % m]
                assert (out == back * 2 + a[(i + q) % m] * 3 + a[i % m] * 7).all()


@pytest.mark.parametrize("n, m", [(5, 4), (40, 70), (257, 33)])
def test_minima_and_planes(backend, n, m):
    x, y = qd.field(qd.f32, (n, m)), qd.field(qd.f32, (n, m))

    @qd.kernel
    def k():
        for i, j in x:
            y[i, j] = (
                x[qd.min(i + 1, n - 1), j]
                + 2 * x[i, qd.max(j - 2, 0)]
                + 3 * x[(i + 1) % n, (j + 1) % m]
                + 5 * x[i, qd.min(m - 1, j + 3)]
            )

    a = np.random.default_rng(0).integers(0, 100, (n, m)).astype(np.float32)
    x.from_numpy(a)
    k()
    i, j = np.arange(n)[:, None], np.arange(m)[None, :]
    expected = (
        a[np.minimum(i + 1, n - 1), j]
        + 2 * a[i, np.maximum(j - 2, 0)]
        + 3 * a[(i + 1) % n, (j + 1) % m]
        + 5 * a[i, np.minimum(j + 3, m - 1)]
    )
    assert (y.to_numpy() == expected).all()


def test_indices_at_the_end_of_i32_wrap_as_before(backend):
    @qd.kernel
    def k(
        a: qd.types.ndarray(qd.i32, ndim=1),
        out: qd.types.ndarray(qd.i32, ndim=1),
        begin: qd.i32,
        m: qd.i32,
    ):
        for _ in range(1):
            for i in range(begin, begin + 40):
                out[i - begin] = a[qd.max(i + 100, m) % 7]

    begin, m = 2**31 - 60, 2**31 - 1
    a, out = np.arange(7, dtype=np.int32) * 10, np.zeros(40, np.int32)
    k(a, out, begin, m)
    assert (out == a[m % 7]).all()  # all sums are negative


@pytest.mark.parametrize("form", ["(i + c) % m", "(i + c) % 2_000_000_000", "(i - c - c) % m"])
def test_sums_beyond_i32_wrap_as_before(backend, form, tmp_path):
    begin, c, m = 1_200_000_000, 1_000_000_000, 2_000_000_000
    source = f"""
import quadrants as qd
@qd.kernel
def k(out: qd.types.ndarray(qd.i32, ndim=1), m: qd.i32):
    for _ in range(1):
        for i in range({begin}, {begin + 100}):
            out[i - {begin}] = {form.replace("c", str(c))}
"""
    path = tmp_path / "program.py"
    path.write_text(source)
    space = {"__name__": "program"}
    exec(compile(source, str(path), "exec"), space)
    out = np.zeros(100, np.int32)
    space["k"](out, m)
    i = np.arange(begin, begin + 100, dtype=np.int64)
    total = i - 2 * c if "-" in form else i + c
    assert (out == ((total + 2**31) % 2**32 - 2**31) % m).all()


@pytest.mark.parametrize("kind", [qd.i32, qd.f32])
def test_carried_values_go_along(backend, kind):
    @qd.kernel
    def k(a: qd.types.ndarray(qd.i32, ndim=1), out: qd.types.ndarray(kind, ndim=1)):
        for _ in range(1):
            last = qd.cast(1, kind)
            for i in range(a.shape[0]):
                last = (a[(i - 1 + a.shape[0]) % a.shape[0]] + a[(i + 2) % a.shape[0]]) - last
            out[0] = last

    for n in LENGTHS:
        a = np.arange(n, dtype=np.int32) ** 2 + 3
        out = np.zeros(1, np.int32 if kind == qd.i32 else np.float32)
        last = 1
        for i in range(n):
            last = int(a[i - 1] + a[(i + 2) % n]) - last
        k(a, out)
        assert out[0] == last


@pytest.mark.parametrize("value", [np.array(3), np.array(3, np.uint8), np.array(True)])
def test_ndrange_of_arrays_without_axes(backend, value):
    n = int(value)
    count = qd.field(qd.i32, 3)

    @qd.kernel
    def k():
        for _ in qd.ndrange(value):
            count[0] += 1
        for _, _ in qd.ndrange((0, value), n):
            count[1] += 1
        for _ in qd.ndrange(value + 1):
            count[2] += 1

    k()
    assert count.to_numpy().tolist() == [n, n * n, n + 1]


@pytest.mark.parametrize("first", [0, 1, 6])
@pytest.mark.parametrize("width", ["i16", "i32", "i64"])
def test_the_only_iteration(backend, first, width):
    """Its index is a constant, of which NVIDIA's assembler forgets the complement."""
    if width not in ("i32", "i64") and backend.name == "vulkan":
        pytest.skip("no 16 bits")
    t = getattr(qd, width)
    out, mask = qd.field(t, 8), qd.field(t, 8)

    @qd.kernel
    def k():
        for i in range(first, first + 1):
            x = qd.cast(i, t)
            out[i + 1] = (x + 1) % 2 + 8 * ((x + 3) % 4) + 64 * (~x & mask[i]) + (~x | mask[i + 1])

    mask.from_numpy((np.arange(8) * 5 + 1).astype(mask.to_numpy().dtype))
    k()
    x, m = first, [5 * n + 1 for n in range(8)]
    expected = (x + 1) % 2 + 8 * ((x + 3) % 4) + 64 * (~x & m[x]) + (~x | m[x + 1])
    assert out.to_numpy().tolist() == [expected if n == x + 1 else 0 for n in range(8)]
