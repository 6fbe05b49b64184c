"""The mathematics of `quadrants._library` and `quadrants.math`, run as plain Python."""

import warnings

import numpy as np
import pytest

import face_host
import quadrants as qd
import quadrants._library as library
import quadrants.math as math

run = face_host.as_python(library)
maths = face_host.as_python(math)
DTYPES = [qd.f32, qd.f64]
NUMPY = {qd.f32: np.float32, qd.f64: np.float64}


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def cases(n, dt, count=60):
    rng = np.random.default_rng(n)
    for k in range(count):
        a = rng.normal(size=(n, n))
        if k % 5 == 1:
            a[:, -1] = a[:, 0]  # rank deficient
        if k % 5 == 2:
            a *= 10.0 ** rng.integers(-12, 12)
        if k % 5 == 3:  # spread singular values
            q, _ = np.linalg.qr(rng.normal(size=(n, n)))
            a = q * 10.0 ** -np.arange(0, 4 * n, 4) @ np.linalg.qr(rng.normal(size=(n, n)))[0]
        if k % 5 == 4:
            a = rng.integers(-1, 2, size=(n, n)).astype(float)
        yield a.astype(NUMPY[dt])
    yield np.zeros((n, n), NUMPY[dt])
    yield np.eye(n, dtype=NUMPY[dt])
    yield -np.eye(n, dtype=NUMPY[dt])
    yield np.ones((n, n), NUMPY[dt])


def symmetric_cases(n, dt):
    for a in cases(n, dt):
        yield (a + a.T) / 2
    if n > 1:
        a = np.eye(n) * 2 - np.eye(n, k=1) - np.eye(n, k=-1)
        yield a.astype(NUMPY[dt])


def close(got, want, tolerance, scale=1.0):
    np.testing.assert_allclose(
        np.asarray(got, float), want, rtol=0, atol=tolerance * max(scale, 1e-30)
    )


@pytest.mark.parametrize("dt", DTYPES)
@pytest.mark.parametrize("n", [2, 3])
def test_svd(n, dt):
    tol = 1e-5 if dt is qd.f32 else 1e-12
    for a in cases(n, dt):
        u, s, v = (np.asarray(x, float) for x in run.svd(qd.Matrix(a), dt))
        size = np.abs(a).max()
        close(u @ s @ v.T, a, tol, size)
        close(u.T @ u, np.eye(n), tol)
        close(v.T @ v, np.eye(n), tol)
        sigma = np.diag(s)
        assert np.all(np.diff(np.abs(sigma)) <= tol * size)
        close(np.abs(sigma), np.linalg.svd(a.astype(float), compute_uv=False), tol, size)
        if n == 3:
            assert abs(np.linalg.det(u) - 1) < tol * 5 and abs(np.linalg.det(v) - 1) < tol * 5
        else:
            assert np.all(sigma >= 0)
    u, s, v = run.svd(qd.Matrix(np.zeros((n, n), NUMPY[dt])), dt)
    assert np.array_equal(u.entries, np.eye(n)) and np.array_equal(v.entries, np.eye(n))


@pytest.mark.parametrize("dt", DTYPES)
@pytest.mark.parametrize("n", [2, 3])
def test_polar(n, dt):
    tol = 2e-5 if dt is qd.f32 else 1e-12
    for a in cases(n, dt):
        r, p = (np.asarray(x, float) for x in run.polar_decompose(qd.Matrix(a), dt))
        size = np.abs(a).max()
        close(r @ p, a, tol, size)
        close(r.T @ r, np.eye(n), tol)
        close(p, p.T, tol, size)
        if n == 2:
            assert np.all(np.linalg.eigvalsh((p + p.T) / 2) >= -tol * max(size, 1e-30))


@pytest.mark.parametrize("dt", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_sym_eig_and_make_spd(n, dt):
    tol = 1e-5 if dt is qd.f32 else 1e-12
    for a in symmetric_cases(n, dt):
        w, q = run.sym_eig(qd.Matrix(a), dt)
        w, q = np.asarray(w, float), np.asarray(q, float)
        size = np.abs(a).max()
        assert np.all(np.diff(w) >= 0)
        close(w, np.linalg.eigvalsh(a.astype(float)), tol, size)
        close(q.T @ q, np.eye(n), tol)
        close(q @ np.diag(w) @ q.T, a, tol, size)
        spd = run.make_spd(qd.Matrix(a), dt)
        wf, qf = np.linalg.eigh(a.astype(float))
        close(spd, qf @ np.diag(np.maximum(wf, 0)) @ qf.T, tol, size)
        close(run.make_spd(spd, dt), spd.entries, tol, size)


@pytest.mark.parametrize("dt", DTYPES)
def test_eig(dt):
    tol = 1e-5 if dt is qd.f32 else 1e-12
    for a in cases(2, dt):
        values, vectors = (np.asarray(x, float) for x in run.eig(qd.Matrix(a), dt))
        size = max(np.abs(a).max(), 1e-30)
        for k in range(2):
            x = vectors[0::2, k] + 1j * vectors[1::2, k]
            close(abs(x) @ abs(x), 1, tol)
            value = values[k, 0] + 1j * values[k, 1]
            assert np.abs(a / size @ x - value / size * x).max() < tol * 30
    values, vectors = run.eig(qd.Matrix(np.eye(2, dtype=NUMPY[dt])), dt)
    assert np.array_equal(vectors.entries, [[1, 0], [0, 0], [0, 1], [0, 0]])


@pytest.mark.parametrize("dt", DTYPES)
@pytest.mark.parametrize("n", [2, 3])
def test_solve(n, dt):
    tol = 1e-5 if dt is qd.f32 else 1e-12
    rng = np.random.default_rng(1)
    for _ in range(60):
        a = rng.normal(size=(n, n)) + 3 * np.eye(n)[rng.permutation(n)]
        x = rng.normal(size=n)
        b = (a.astype(NUMPY[dt]).astype(float) @ x).astype(NUMPY[dt])
        got = run.solve(qd.Matrix(a.astype(NUMPY[dt])), qd.Vector(b), dt)
        close(got, x, tol * np.linalg.cond(a))


@pytest.mark.parametrize("dt", DTYPES)
@pytest.mark.parametrize("n", range(1, 13))
def test_inverse(n, dt):
    rng = np.random.default_rng(n)
    eps = np.finfo(NUMPY[dt]).eps
    for _ in range(5):
        a = (np.eye(n)[rng.permutation(n)] + rng.normal(size=(n, n)) * 0.15).astype(NUMPY[dt])
        got = np.asarray(run.inverse(qd.Matrix(a)))
        assert got.dtype == NUMPY[dt]
        cond = np.linalg.cond(a.astype(float))
        close(got, np.linalg.inv(a.astype(float)), 50 * cond * eps)
    assert not np.isfinite(np.asarray(run.inverse(qd.Matrix(np.ones((n, n)) * 0)))).any()


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_determinant(n):
    for a in cases(n, qd.f64):
        got = run.determinant(qd.Matrix(a))
        close(got, np.linalg.det(a), 1e-12, np.abs(a).max() ** n)


def test_wrong_shapes():
    with pytest.raises(AssertionError, match="SVD only supports 2×2 and 3×3 matrices."):
        run.svd(qd.Matrix(np.eye(4)), qd.f64)
    with pytest.raises(AssertionError, match="Polar decomposition only supports"):
        run.polar_decompose(qd.Matrix(np.eye(4)), qd.f64)
    with pytest.raises(AssertionError, match="Eigen solver only supports 2×2 matrices."):
        run.eig(qd.Matrix(np.eye(3)), qd.f64)
    with pytest.raises(AssertionError, match="up to 6×6."):
        run.sym_eig(qd.Matrix(np.eye(7)), qd.f64)
    with pytest.raises(AssertionError, match="Only square matrix is supported"):
        run.solve(qd.Matrix(np.ones((3, 2))), qd.Vector([1.0, 2.0]), qd.f64)
    with pytest.raises(AssertionError, match="dimension dismatch"):
        run.solve(qd.Matrix(np.eye(3)), qd.Vector([1.0, 2.0]), qd.f64)


@pytest.mark.parametrize("dt", DTYPES)
def test_randn(dt):
    draws = np.array([run.randn(dt) for _ in range(4000)])
    assert np.isfinite(draws).all() and draws.dtype == NUMPY[dt]
    assert abs(draws.mean()) < 0.06 and abs(draws.std() - 1) < 0.06


# --- quadrants.math ---


def test_scalar_functions():
    assert maths.clamp(5, 1, 3) == 3 and maths.clamp(-5, 1, 3) == 1
    assert maths.mix(2.0, 4.0, 0.25) == 2.5
    assert maths.step(1.0, 0.5) == 0 and maths.step(1.0, 1.0) == 1
    assert maths.smoothstep(0.0, 2.0, 1.0) == 0.5 and maths.smoothstep(0.0, 2.0, 9.0) == 1
    assert maths.fract(-0.25) == 0.75 and maths.mod(-7.0, 3.0) == 2
    assert maths.sign(-3) == -1 and maths.sign(0.0) == 0 and maths.sign(2.5) == 1
    assert maths.degrees(np.pi) == pytest.approx(180) and maths.radians(180.0) == pytest.approx(
        np.pi
    )
    assert maths.log2(8.0) == pytest.approx(3)


def test_bits():
    values = np.array([0, 1, np.inf, -np.inf, np.nan, 3.4e38], np.float32)
    assert [bool(maths.isnan(v)) for v in values] == [False] * 4 + [True, False]
    assert [bool(maths.isinf(v)) for v in values] == [False, False, True, True, False, False]


def reference_fns(mask, base, offset):
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    order = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [p for p in order if mask >> p & 1]
    return found[abs(offset) - 1] if abs(offset) <= len(found) else 0xFFFFFFFF


def test_fns():
    rng = np.random.default_rng(3)
    for _ in range(400):
        mask = int(rng.integers(0, 2**32)) | int(rng.integers(0, 2**32)) * (rng.random() < 0.2)
        base, offset = int(rng.integers(0, 32)), int(rng.integers(-8, 9))
        got = maths.fns(np.uint32(mask), np.uint32(base), np.int32(offset))
        assert int(got) == reference_fns(mask, base, offset), (mask, base, offset)
    assert int(maths.fns(np.uint32(0xFFFFFFFF), np.uint32(0), np.int32(32))) == 31


def test_vectors():
    x, n = qd.Vector([1.0, -1.0]) / np.sqrt(2), qd.Vector([0.0, 1.0])
    close(maths.reflect(x, n), [2**-0.5, 2**-0.5], 1e-12)
    bent = np.asarray(maths.refract(x, n, 0.5))
    assert bent[0] == pytest.approx(2**-0.5 * 0.5) and np.linalg.norm(bent) == pytest.approx(1)
    close(maths.refract(x, n, 1.6), [0, 0], 0)
    assert maths.distance(x, x) == 0 and maths.length(qd.Vector([3.0, 4.0])) == 5


def test_rotations():
    for turn in (
        maths.rot_by_axis(qd.Vector([1.0, 2.0, 3.0]), 0.7),
        maths.rotation3d(0.1, 0.2, 0.3),
    ):
        block = np.asarray(turn)[:3, :3]
        close(block @ block.T, np.eye(3), 1e-12)
        assert np.linalg.det(block) == pytest.approx(1)
    u = np.array([1.0, 2.0, 3.0]) / np.sqrt(14)
    skew = np.cross(np.eye(3), u)
    c, s = np.cos(0.7), np.sin(0.7)
    block = np.asarray(maths.rot_by_axis(qd.Vector([1.0, 2.0, 3.0]), 0.7))[:3, :3]
    close(block, c * np.eye(3) + (1 - c) * np.outer(u, u) - s * skew, 1e-12)
    close(maths.rotation2d(np.pi / 2) @ qd.Vector([1.0, 0.0]), [0, 1], 1e-12)
    moved = (
        maths.translate(1.0, 2.0, 3.0)
        @ maths.scale(2.0, 2.0, 2.0)
        @ qd.Vector([1.0, 1.0, 1.0, 1.0])
    )
    close(moved, [3, 4, 5, 1], 0)


def complex_of(v):
    return complex(v[0], v[1])


def test_complex():
    rng = np.random.default_rng(5)
    for _ in range(50):
        z, w = rng.normal(size=2), rng.normal(size=2)
        a, b = complex(*z), complex(*w)
        z, w = qd.Vector(z), qd.Vector(w)
        assert complex_of(maths.cmul(z, w)) == pytest.approx(a * b)
        assert complex_of(maths.cdiv(z, w)) == pytest.approx(a / b)
        assert complex_of(maths.cinv(z)) == pytest.approx(1 / a)
        assert complex_of(maths.cexp(z)) == pytest.approx(np.exp(a))
        assert complex_of(maths.clog(z)) == pytest.approx(np.log(a))
        assert complex_of(maths.csqrt(z)) == pytest.approx(np.sqrt(a))
        assert complex_of(maths.cpow(z, 2.5)) == pytest.approx(a**2.5)
    zero = qd.Vector([0.0, 0.0])
    close(maths.csqrt(zero), [0, 0], 0)
    close(maths.cpow(zero, 2), [0, 0], 0)
