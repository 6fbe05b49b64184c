"""Chapter 40, section 10: tiles on targets with subgroups, against NumPy."""

import numpy as np
import pytest

import quadrants as qd
from quadrants.lang.simt import _tile, block

pytestmark = pytest.mark.oracle_differs("asks for a GPU", run=False)

SIZES = [16, 32]
DTYPES = [qd.f32, qd.f64]
CHOLESKY = {qd.f32: 1e-5, qd.f64: 1e-10}
SOLVE = {qd.f32: 1e-4, qd.f64: 1e-10}


@pytest.fixture
def blocks(backend):
    if backend.name == "cpu":
        pytest.skip("a CPU has no subgroups")
    backend.init()
    return backend


def tile_class(size):
    return getattr(qd.simt, f"Tile{size}x{size}")


def host(dtype):
    return np.float32 if dtype is qd.f32 else np.float64


def positive(n, dtype, seed=0):
    m = np.random.default_rng(seed).normal(size=(n, n))
    return (m @ m.T + n * np.eye(n)).astype(host(dtype))


def place(kind, values, dtype=None):
    """A field or an ndarray with these values."""
    dtype = dtype or (qd.f32 if values.dtype == np.float32 else qd.f64)
    out = qd.field(dtype, values.shape) if kind == "field" else qd.ndarray(dtype, values.shape)
    out.from_numpy(values)
    return out


@pytest.mark.parametrize("kind", ["field", "ndarray"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 16, 32])
def test_cholesky_and_solve(blocks, kind, size, dtype, n):
    if n > size:
        n = size
    T = tile_class(size)
    a = positive(n, dtype)
    b = np.random.default_rng(1).normal(size=(n, n)).astype(host(dtype))
    A, B = place(kind, a), place(kind, b)
    annotation = qd.template() if kind == "field" else qd.types.ndarray(dtype, ndim=2)

    @qd.kernel
    def factor(A: annotation, B: annotation, n: qd.i32):
        qd.loop_config(block_dim=size)
        for i in range(size):
            t = T.eye(dtype=dtype)
            t[:] = A[0:n, 0:n]
            t.cholesky_(1e-12)
            x = T.zeros(dtype=dtype)
            x[:] = B[0:n, 0:n]
            t.solve_triangular_(x)
            A[0:n, 0:n] = t
            B[0:n, 0:n] = x

    factor(A, B, n)
    L = np.linalg.cholesky(a.astype(np.float64))
    np.testing.assert_allclose(np.tril(A.to_numpy()), L, rtol=CHOLESKY[dtype], atol=CHOLESKY[dtype])
    X = np.linalg.solve(L, b.T.astype(np.float64)).T
    np.testing.assert_allclose(B.to_numpy(), X, rtol=SOLVE[dtype], atol=SOLVE[dtype])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("block_dim", [16, 32, 64])
@pytest.mark.parametrize("kind", ["field", "ndarray", "shared"])
def test_parts_that_reach_over_the_edge(blocks, size, block_dim, kind):
    if block_dim < size:
        pytest.skip("a tile has a lane a row")
    T = tile_class(size)
    rows, cols = 21, 19
    x = np.random.default_rng(0).normal(size=(rows, cols)).astype(np.float32)
    src, out = place("ndarray", x), place("ndarray", np.full((40, 40), -1, np.float32))
    field = place("field", x)
    two = qd.types.ndarray(qd.f32, ndim=2)

    @qd.kernel
    def copy(src: two, out: two, r0: qd.i32, r1: qd.i32, c0: qd.i32, c1: qd.i32):
        qd.loop_config(block_dim=block_dim)
        for i in range(block_dim):
            t = T.eye()
            if qd.static(kind == "shared"):
                sh = block.SharedArray((rows, cols), qd.f32)
                at = i
                while at < rows * cols:
                    sh[at // cols, at % cols] = src[at // cols, at % cols]
                    at += block_dim
                block.sync()
                t[:] = sh[r0:r1, c0:c1]
            elif qd.static(kind == "field"):
                t[:] = field[r0:r1, c0:c1]
            else:
                t[:] = src[r0:r1, c0:c1]
            if i < qd.simt.subgroup.group_size():
                out[2:38, 3:39] = t

    for r0, r1, c0, c1 in [
        (0, 21, 0, 19),
        (3, 9, 2, 5),
        (10, 40, 15, 40),
        (20, 21, 18, 19),
        (5, 5, 0, 9),
    ]:
        out.from_numpy(np.full((40, 40), -1, np.float32))
        copy(src, out, r0, r1, c0, c1)
        tile = np.eye(size, dtype=np.float32)
        part = x[r0 : min(r1, r0 + size), c0 : min(c1, c0 + size)]
        tile[: part.shape[0], : part.shape[1]] = part
        expected = np.full((40, 40), -1, np.float32)
        expected[2 : 2 + size, 3 : 3 + size] = tile[:36, :36]
        np.testing.assert_array_equal(out.to_numpy(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_and_outer_products(blocks, dtype):
    T = qd.simt.Tile16x16
    x = np.random.default_rng(0).normal(size=(3, 20, 20)).astype(host(dtype))
    src, out = place("ndarray", x), place("field", np.zeros_like(x))
    three = qd.types.ndarray(dtype, ndim=3)

    @qd.kernel
    def update(src: three, n: qd.i32):
        qd.loop_config(block_dim=16)
        for i in range(3 * 16):
            e = i // 16
            t = T.zeros(dtype=dtype)
            t[:] = src[e, 0:n, 0:n]
            v = src[e, 0:n, 1]
            t -= qd.outer(v, v)
            for k in range(2, 4):
                v = src[e, 0:n, k]
                w = src[e, 1 : n + 1, k + 1]
                t -= qd.outer(v, w)
            lane = qd.cast(qd.simt.subgroup.invocation_id(), dtype)
            product = qd.outer(lane, 2.0)
            lane = 100.0
            t -= product
            out[e, 0:n, 0:n] = t

    n = 13
    update(src, n)
    expected = x[:, :n, :n].astype(np.float64)
    column = lambda k, at=0: x[:, at : at + n, k].astype(np.float64)  # noqa: E731
    product = lambda a, b: a[:, :, None] * b[:, None, :]  # noqa: E731
    expected -= product(column(1), column(1))
    for k in range(2, 4):
        expected -= product(column(k), column(k + 1, 1))
    expected -= np.arange(n)[None, :, None] * 2.0
    got = out.to_numpy()
    np.testing.assert_allclose(got[:, :n, :n], expected, rtol=1e-5, atol=1e-5)
    assert (got[:, n:] == 0).all() and (got[:, :, n:] == 0).all()


def test_rows_by_number(blocks):
    out = place("ndarray", np.zeros((32, 32), np.float32))

    @qd.kernel
    def fill(out: qd.types.ndarray(qd.f32, ndim=2)):
        qd.loop_config(block_dim=32)
        for i in range(32):
            t = qd.simt.Tile32x32.zeros()
            for j in qd.static(range(32)):
                t.r[j] = i * 100 + j
            t.r[3] += 0.5
            if i == 4:
                t.r[0] = t.r[1] - 1000
            out[0:32, 0:32] = t

    fill(out)
    expected = np.arange(32)[:, None] * 100.0 + np.arange(32)
    expected[:, 3] += 0.5
    expected[4, 0] = 401 - 1000
    np.testing.assert_array_equal(out.to_numpy(), expected)


def test_the_pivot_has_a_floor_of_its_lane(blocks):
    out = place("ndarray", np.zeros((16, 16), np.float32))

    @qd.kernel
    def factor(out: qd.types.ndarray(qd.f32, ndim=2)):
        qd.loop_config(block_dim=16)
        for i in range(16):
            t = qd.simt.Tile16x16.zeros()
            t.cholesky_((i + 1.0) * (i + 1.0))
            out[0:16, 0:16] = t

    factor(out)
    np.testing.assert_allclose(np.diag(out.to_numpy()), np.arange(1, 17), rtol=1e-6)


@qd.func
def factored(T: qd.template(), a: qd.template(), eps):
    t = T.eye()
    t[:] = a[0:16, 0:16]
    t.cholesky_(eps)
    a[0:16, 0:16] = t


def test_tiles_as_arguments(blocks):
    m = positive(16, qd.f32)
    a, b = place("field", m), place("field", m)
    wide = True

    @qd.kernel
    def both():
        qd.loop_config(block_dim=32)
        for i in range(32):
            factored(qd.simt.Tile32x32 if qd.static(wide) else qd.simt.Tile16x16, a, 1e-9)
            factored(qd.simt.Tile16x16, b, 1e-9)

    both()
    for got in (a, b):
        np.testing.assert_allclose(np.tril(got.to_numpy()), np.linalg.cholesky(m), rtol=1e-5)


def test_both_sizes_in_one_kernel_and_default_dtype(backend):
    if backend.name == "cpu":
        pytest.skip("a CPU has no subgroups")
    m = positive(16, qd.f64)
    for fp in (qd.f64, qd.f32):
        backend.init(default_fp=fp)
        a = place("field", m)

        @qd.kernel
        def factor():
            qd.loop_config(block_dim=32)
            for i in range(32):
                t = qd.simt.Tile16x16.eye()
                t[:] = a[0:16, 0:16]
                t.cholesky_(1e-12)
                u = qd.simt.Tile32x32.eye()
                u.eye_()
                t -= qd.outer(0.0, u.r[0])
                a[0:16, 0:16] = t

        factor()
        error = abs(np.tril(a.to_numpy()) - np.linalg.cholesky(m)).max()
        assert (error < 1e-12) == (fp is qd.f64)
        qd.reset()


@pytest.mark.parametrize("batched", [False, True])
def test_methods_of_made_types(blocks, batched):
    T = _tile._make_tile(16, qd.f32)
    assert T is _tile._make_tile(16, qd.f32) and T.SIZE == 16 and T.zeros is T
    assert _tile._make_tile(16, qd.f64) is not T
    x = np.random.default_rng(0).normal(size=(2, 20, 20)).astype(np.float32)
    src = place("ndarray", x if batched else x[0])
    out = place("ndarray", np.zeros_like(x) if batched else np.zeros_like(x[0]))
    array = qd.types.ndarray(qd.f32, ndim=3 if batched else 2)

    @qd.kernel
    def move(src: array, out: array):
        qd.loop_config(block_dim=16)
        for i in range(16):
            t = T()
            if qd.static(batched):
                t._load3d(src, 1, 2, 15, 1, 17)
            else:
                t._load(src, 2, 15, 1, 17)
            t._ger_sub(1.0, 2.0)
            for k in range(3, 5):
                t._set_col(k, t._get_col(k) + t._get_col(k + 1))
            if qd.static(batched):
                t._store3d(out, 0, 4, 20, 3, 18)
            else:
                t._store(out, 4, 20, 3, 18)

    move(src, out)
    tile = np.zeros((16, 16), np.float32)
    tile[:13] = x[1 if batched else 0, 2:15, 1:17]
    tile -= 2
    for k in range(3, 5):
        tile[:, k] += tile[:, k + 1]
    got = out.to_numpy()
    expected = np.zeros((20, 20), np.float32)
    expected[4:20, 3:18] = tile[:, :15]
    np.testing.assert_allclose(got[0] if batched else got, expected, rtol=1e-6, atol=1e-6)


def test_conversion_between_array_and_tile(blocks):
    a = place("field", np.arange(256.0).reshape(16, 16), qd.f64)
    b = qd.field(qd.i32, (16, 16))

    @qd.kernel
    def copy():
        qd.loop_config(block_dim=16)
        for i in range(16):
            t = qd.simt.Tile16x16.zeros(dtype=qd.f32)
            t[:] = a[0:16, 0:16]
            b[0:16, 0:16] = t

    copy()
    np.testing.assert_array_equal(b.to_numpy(), np.arange(256).reshape(16, 16))
