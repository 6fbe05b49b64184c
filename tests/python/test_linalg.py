"""Sparse matrices, direct and iterative solvers, against NumPy."""

import copy
import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest

import quadrants as qd
from helpers import raises

pytestmark = pytest.mark.usefixtures("backend")

L = qd.linalg
DTYPES = [pytest.param(qd.f32, id="f32"), pytest.param(qd.f64, id="f64")]


@pytest.fixture(autouse=True)
def types_of_the_target(request, backend):
    dtype = request.node.callspec.params.get("dtype") if hasattr(request.node, "callspec") else None
    if dtype is qd.f64 and qd.cfg.arch not in (qd.x64, qd.arm64):
        pytest.skip("sparse matrices of f64 are of CPUs")


def numpy_type(dtype):
    return np.float32 if dtype is qd.f32 else np.float64


def dense(A):
    return np.array([[A[i, j] for j in range(A.m)] for i in range(A.n)])


def random_pair(dtype, n, m, seed):
    """A matrix with zeros, made by a kernel, and the same for NumPy."""
    rng = np.random.default_rng(seed)
    full = np.round(rng.normal(size=(n, m)), 2) * (rng.random((n, m)) < 0.4)
    builder = L.SparseMatrixBuilder(n, m, max_num_triplets=2 * n * m, dtype=dtype)
    fill_half(builder, full.astype(numpy_type(dtype)))
    return builder.build(), full.astype(numpy_type(dtype))


@qd.kernel
def fill_half(A: qd.types.sparse_matrix_builder(), full: qd.types.ndarray()):
    for i, j in qd.ndrange(full.shape[0], full.shape[1]):
        if full[i, j] != 0:
            A[i, j] += 0.5 * full[i, j]  # entries of one place add up
            A[i, j] -= -0.5 * full[i, j]


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic(dtype):
    A, a = random_pair(dtype, 6, 6, 1)
    B, b = random_pair(dtype, 6, 6, 2)
    C, c = random_pair(dtype, 6, 4, 3)
    assert A.shape == (6, 6) and (C.n, C.m) == (6, 4) and A.dtype == dtype
    cases = [
        (A, a),
        (A + B, a + b),
        (A - B, a - b),
        (A * B, a * b),
        (A * 2.5, a * 2.5),
        (3 * A, 3 * a),
        (A * np.float32(2), a * 2),
        (A @ B, a @ b),
        (A @ C, a @ c),
        (C.transpose(), c.T),
        (C.transpose() @ A, c.T @ a),
    ]
    for made, expected in cases:
        assert np.allclose(dense(made), expected, rtol=1e-5, atol=1e-6)
    A += B
    assert np.allclose(dense(A), a + b)
    A -= B
    assert np.allclose(dense(A), a, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_with_vectors(dtype):
    A, a = random_pair(dtype, 5, 3, 4)
    x = np.array([1, -2, 0.5], numpy_type(dtype))
    field, array = qd.field(dtype, shape=3), qd.ndarray(dtype, 3)
    field.from_numpy(x)
    array.from_numpy(x)
    for given in (x, x.astype(np.float64), field):
        y = A @ given
        assert isinstance(y, np.ndarray) and y.dtype == numpy_type(dtype)
        assert np.allclose(y, a @ x, rtol=1e-5)
    y = A @ array
    assert isinstance(y, qd.Ndarray) and np.allclose(y.to_numpy(), a @ x, rtol=1e-5)


def test_elements_and_text(tmp_path):
    A = L.SparseMatrix(2, 3)
    assert str(A) == "[0, 0, 0]\n[0, 0, 0]"
    A[1, 2] = 1.5
    A[0, 0] = -2
    assert A[1, 2] == 1.5 and A[0, 1] == 0
    assert str(A) == repr(A) == "[ -2,   0,   0]\n[  0,   0, 1.5]"
    A.mmwrite(str(tmp_path / "a.mtx"))
    assert (tmp_path / "a.mtx").read_text() == (
        "%%MatrixMarket matrix coordinate real general\n%\n2 3 2\n1 1 -2\n2 3 1.5\n"
    )
    for key in ((2, 0), (0, 3), (-1, 0)):
        with raises(IndexError, "2 x 3"):
            A[key]
        with raises(IndexError, "2 x 3"):
            A[key] = 1


def test_builders(capsys):
    builder = L.SparseMatrixBuilder(3, 3, max_num_triplets=10)

    @qd.kernel
    def fill(A: qd.types.sparse_matrix_builder(), n: qd.i32, v: qd.types.ndarray()):
        for i in range(n):
            A[i % 3, 0] += v[0]

    two = np.array([2.0])  # f64 for a builder of f32
    fill(builder, 4, two)
    builder.print_triplets()
    out = capsys.readouterr().out
    assert "n=3, m=3, num_triplets=4 (max=10)" in out and "[0, 0] = 2" in out
    A = builder.build()
    assert [A[i, 0] for i in range(3)] == [4, 2, 2] and A.dtype == qd.f32
    assert dense(builder.build()).sum() == 0  # it is empty now
    fill(builder, 11, two)
    for act in (builder.print_triplets, builder.build):
        with raises(qd.QuadrantsRuntimeError, "max_num_triplets"):
            act()
    assert dense(builder.build()).sum() == 0


@pytest.mark.parametrize(
    "body, error, text",
    [
        ("A[0, 0] = 1.0", TypeError, ""),
        ("A[0, 0] *= 2.0", qd.QuadrantsSyntaxError, "+="),
        ("A[0] += 2.0", IndexError, "2 axes"),
        ("A[0, 1, 2] += 2.0", IndexError, "2 axes"),
    ],
)
def test_builders_take_sums_alone(body, error, text, tmp_path):
    program = f"""
import quadrants as qd
@qd.kernel
def k(A: qd.types.sparse_matrix_builder()):
    {body}
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    scope = {"__name__": "program", "__file__": str(path)}
    exec(compile(program, path, "exec"), scope)
    with pytest.raises((error, qd.QuadrantsCompilationError)) as info:
        scope["k"](L.SparseMatrixBuilder(3, 3, max_num_triplets=10))
    assert text in str(info.value)


def test_sizes_and_indices_are_integers_of_32_bits():
    for size in (2**31, 2**40, -1):
        for make in (
            lambda size=size: L.SparseMatrix(size, 3),
            lambda size=size: L.SparseMatrix(3, size),
            lambda size=size: L.SparseMatrixBuilder(3, size, 4),
            lambda size=size: L.SparseMatrixBuilder(3, 3, size),
        ):
            with raises(qd.QuadrantsRuntimeError, "at most"):
                make()
    for size in (2.5, "a"):
        with pytest.raises(TypeError):
            L.SparseMatrix(size, 3)
    A = L.SparseMatrix(3, 3)
    A[np.int64(1), 2] = 4
    assert A[1, np.int32(2)] == 4
    for key in (1, (1.5, 0), ("a", 0), (slice(2), 0)):
        with pytest.raises(TypeError):
            A[key]


def test_a_builder_goes_on_after_triplets_outside():
    builder = L.SparseMatrixBuilder(3, 3, max_num_triplets=10)

    @qd.kernel
    def add(A: qd.types.sparse_matrix_builder(), i: qd.i32):
        A[i, 0] += 1.0

    for row in (3, -1):
        add(builder, row)
        with raises(qd.QuadrantsRuntimeError, f"[{row}, 0]"):
            builder.build()
        add(builder, 1)
        assert builder.build()[1, 0] == 1


def test_triplets_of_ndarrays():
    A = L.SparseMatrix(2, 2)
    numbers = qd.ndarray(qd.f32, 6)
    numbers.from_numpy(np.array([0, 0, 1, 1, 1, 2], np.float32))
    A.build_from_ndarray(numbers)
    assert dense(A).tolist() == [[1, 0], [0, 2]]
    vectors = qd.Vector.ndarray(3, qd.f32, 2)
    vectors.from_numpy(np.array([[0, 1, 3], [0, 1, 4]], np.float32))
    A.build_from_ndarray(vectors)
    assert dense(A).tolist() == [[0, 7], [0, 0]]
    with raises(qd.QuadrantsRuntimeError, "divisible by 3"):
        A.build_from_ndarray(qd.ndarray(qd.f32, 5))
    with raises(qd.QuadrantsRuntimeError, "only supports building from"):
        A.build_from_ndarray(np.ones(6))
    numbers.from_numpy(np.array([0, 0, 1, 5, 1, 2], np.float32))
    with raises(qd.QuadrantsRuntimeError, "Out of bound"):
        A.build_from_ndarray(numbers)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["LLT", "LDLT", "LU"])
@pytest.mark.parametrize("ordering", ["AMD", "COLAMD"])
def test_direct_solvers(dtype, kind, ordering):
    _, a = random_pair(dtype, 8, 8, 5)
    a = a @ a.T + 3 * np.eye(8) if kind != "LU" else a + 3 * np.eye(8)
    A = L.SparseMatrix(8, 8, dtype=dtype)
    for i in range(8):
        for j in range(8):
            if a[i, j]:
                A[i, j] = a[i, j]
    b = np.arange(8).astype(numpy_type(dtype))
    field, array = qd.field(dtype, shape=8), qd.ndarray(dtype, 8)
    field.from_numpy(b)
    array.from_numpy(b)
    solver = L.SparseSolver(dtype=dtype, solver_type=kind, ordering=ordering)
    with raises(qd.QuadrantsRuntimeError, "Please call compute()"):
        solver.solve(b)
    solver.analyze_pattern(A)
    solver.factorize(A)
    tolerance = 1e-4 if dtype is qd.f32 else 1e-10
    assert solver.info() is True
    expected = np.linalg.solve(a.astype(np.float64), b)
    for given in (b, field):
        x = solver.solve(given)
        assert isinstance(x, np.ndarray) and np.allclose(
            x, expected, rtol=tolerance, atol=tolerance
        )
    x = solver.solve(array)
    assert isinstance(x, qd.Ndarray) and np.allclose(x.to_numpy(), expected, atol=10 * tolerance)
    solver.compute(2.0 * A)
    assert np.allclose(solver.solve(b), expected / 2, rtol=tolerance, atol=tolerance)


def test_a_singular_matrix_is_told_by_info():
    solver = L.SparseSolver(solver_type="LLT")
    solver.compute(L.SparseMatrix(2, 2))
    assert solver.info() is False and np.isnan(solver.solve(np.ones(2, np.float32))).all()
    A = L.SparseMatrix(2, 2)
    A[0, 0] = A[1, 1] = 1
    solver.compute(A)
    assert solver.info() is True and solver.solve(np.ones(2, np.float32)).tolist() == [1, 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_conjugate_gradients(dtype):
    _, a = random_pair(dtype, 8, 8, 6)
    a = a @ a.T + 3 * np.eye(8)
    A = L.SparseMatrix(8, 8, dtype=dtype)
    for i in range(8):
        for j in range(8):
            A[i, j] = a[i, j]
    b = np.arange(8).astype(numpy_type(dtype))
    x, ok = L.SparseCG(A, b).solve()
    x = x if isinstance(x, np.ndarray) else x.to_numpy()
    assert ok and np.allclose(a @ x, b, atol=1e-3)
    _, ok = L.SparseCG(A, b, x0=np.ones(8, numpy_type(dtype)), max_iter=1, atol=1e-12).solve()
    assert not ok


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", ["MatrixFreeCG", "MatrixFreeBICGSTAB"])
@pytest.mark.parametrize("shape", [(12,), (5, 4), (3, 4, 2)], ids=str)
def test_matrix_free_solvers(dtype, method, shape, capsys):
    x, b, check = (qd.field(dtype, shape=shape) for _ in range(3))

    @qd.kernel
    def apply(v: qd.template(), out: qd.template()):
        for at in qd.grouped(v):
            out[at] = 4 * v[at]
            for axis in qd.static(range(len(shape))):
                for step in qd.static((-1, 1)):
                    other = at
                    other[axis] += step
                    if 0 <= other[axis] < shape[axis]:
                        out[at] -= 0.5 * v[other]

    b.from_numpy(np.arange(np.prod(shape)).reshape(shape).astype(numpy_type(dtype)))
    operator = L.LinearOperator(apply)
    tolerance = 1e-4 if dtype is qd.f32 else 1e-10
    assert getattr(L, method)(operator, b, x, tol=tolerance, quiet=False) is True
    operator.matvec(x, check)
    assert np.allclose(check.to_numpy(), b.to_numpy(), atol=10 * tolerance)
    out = capsys.readouterr().out
    assert ">>> Initial residual = " in out and "converged at #iterations" in out
    x.fill(0)
    assert getattr(L, method)(operator, b, x, tol=1e-30, maxiter=1) is False
    assert capsys.readouterr().out == ""


def test_wrong_systems_are_refused():
    A, x = L.SparseMatrix(3, 4), np.ones(3, np.float32)
    B = L.SparseMatrix(4, 3)
    for act in (lambda: A + B, lambda: A - B, lambda: A * B, lambda: A @ A, lambda: A @ x):
        with raises(AssertionError, "Dimension mismatch"):
            act()
    with raises(qd.QuadrantsRuntimeError, "Dimension mismatch"):
        A @ qd.ndarray(qd.f32, 3)
    for act in (lambda: A + 1, lambda: A @ 2, lambda: A @ [1, 2, 3, 4], lambda: A * "a"):
        with raises(qd.QuadrantsRuntimeError, "does not support"):
            act()
    for act in (
        lambda: L.SparseMatrix(2, 2, dtype=qd.i32),
        lambda: L.SparseMatrix(2, 2, storage_format="x"),
        lambda: L.SparseMatrixBuilder(2, 2, 4, dtype=qd.i32),
        lambda: L.SparseSolver(dtype=qd.i32),
        lambda: L.SparseSolver(solver_type="QR"),
        lambda: L.SparseSolver(ordering="X"),
        lambda: L.SparseSolver().compute(3),
        lambda: L.SparseSolver().compute(A),
        lambda: L.SparseSolver().factorize(L.SparseMatrix(2, 2)),
        lambda: L.SparseCG(A, x),
        lambda: L.SparseCG(3, x),
    ):
        with pytest.raises(qd.QuadrantsRuntimeError):
            act()
    f, i = qd.field(qd.f32, shape=(4, 4)), qd.field(qd.i32, shape=(4, 4))
    other, deep = qd.field(qd.f32, shape=(2, 2)), qd.field(qd.f32, shape=(2, 2, 2, 2))
    operator = L.LinearOperator(lambda x, Ax: None)
    for method in (L.MatrixFreeCG, L.MatrixFreeBICGSTAB):
        with raises(qd.QuadrantsTypeError, "Dtype mismatch"):
            method(operator, i, f)
        with raises(qd.QuadrantsTypeError, "Not supported dtype: i32"):
            method(operator, i, i)
        with raises(qd.QuadrantsRuntimeError, "Dimension mismatch"):
            method(operator, other, f)
        with raises(qd.QuadrantsRuntimeError, "only support 1D, 2D, 3D"):
            method(operator, deep, deep)
        for given in (None, 3, np.ones(4), qd.Vector.field(1, qd.f32, shape=4)):
            with raises(qd.QuadrantsTypeError, "takes fields of numbers"):
                method(operator, given, f)
        with raises(qd.QuadrantsTypeError, "takes a LinearOperator"):
            method(5, f, f)
    with raises(TypeError, "max_iter is an integer"):
        L.SparseCG(L.SparseMatrix(3, 3), x, max_iter=1.5)
    with raises(qd.QuadrantsRuntimeError, "Dimension mismatch"):
        operator.matvec(f, other)


def test_kernels_that_fill_builders_start_warm(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        """
import sys
import quadrants as qd
qd.init(arch=qd.cpu, log_level="error", offline_cache_file_path=sys.argv[1])

@qd.kernel
def fill(A: qd.types.sparse_matrix_builder()):
    for i in range(5):
        A[i, i] += i

builder = qd.linalg.SparseMatrixBuilder(5, 5, max_num_triplets=5)
fill(builder)
A = builder.build()
from quadrants._lib import core
print("RESULT", sum(A[i, i] for i in range(5)), core.counters()["lowered"])
"""
    )
    for lowered in ("1", "0"):
        done = subprocess.run(
            [sys.executable, path, str(tmp_path / "cache")],
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.split("RESULT ")[1].split() == ["10.0", lowered]


# --- what others found ------------------------------------------------------------------------------


def test_a_subtraction_is_one_of_the_builders_type():
    @qd.kernel
    def fill(A: qd.types.sparse_matrix_builder(), a: qd.u8, b: qd.u32, c: qd.u1, d: qd.i32):
        A[0, 0] -= a
        A[0, 1] -= b
        A[0, 2] -= c
        A[0, 3] -= d

    builder = qd.linalg.SparseMatrixBuilder(1, 4, 8)
    fill(builder, 5, 7, True, -(2**31))
    made = builder.build()
    assert [made[0, j] for j in range(4)] == [-5, -7, -1, 2**31]


def test_reverse_mode_adds_nothing_to_builders():
    f = qd.field(qd.f32, 3, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def fill(A: qd.types.sparse_matrix_builder()):
        for i in f:
            A[i, i] += f[i]
            loss[None] += f[i] * 2

    builder = qd.linalg.SparseMatrixBuilder(3, 3, 30)
    f.fill(3)
    with qd.ad.Tape(loss):
        fill(builder)
    made = builder.build()
    assert [made[i, i] for i in range(3)] == [3, 3, 3]
    assert f.grad.to_numpy().tolist() == [2, 2, 2]


def diagonal(n, value=4.0, others=()):
    A = qd.linalg.SparseMatrix(n, n)
    for i in range(n):
        A[i, i] = value
    for i, j in others:
        A[i, j] = A[j, i] = 1.0
    return A


@pytest.mark.parametrize("kind", ["LLT", "LDLT", "LU"])
def test_a_matrix_of_another_pattern_than_analysed(kind):
    b = np.arange(1, 7, dtype=np.float32)
    solver = qd.linalg.SparseSolver(solver_type=kind)
    patterns = [
        (),
        [(0, 5), (1, 3), (2, 4)],
        [(0, 1)],
        [(i, j) for i in range(6) for j in range(i)],
    ]
    for analysed, factorised in itertools.product(patterns, repeat=2):
        solver.analyze_pattern(diagonal(6, 9.0, analysed))
        A = diagonal(6, 9.0, factorised)
        solver.factorize(A)
        assert solver.info() and np.allclose(A @ solver.solve(b), b, atol=1e-4)
    A = diagonal(6, 9.0)
    solver.analyze_pattern(A)
    A[0, 5] = A[5, 0] = 1.0
    solver.factorize(A)
    assert np.allclose(A @ solver.solve(b), b, atol=1e-4)


@pytest.mark.parametrize("kind", ["LLT", "LDLT", "LU"])
def test_solvers_of_nothing(kind):
    solver = qd.linalg.SparseSolver(solver_type=kind)
    solver.compute(qd.linalg.SparseMatrix(0, 0))
    assert solver.info() and solver.solve(np.zeros(0, np.float32)).shape == (0,)


def test_threads_share_matrices_and_solvers():
    A, Z = diagonal(40, 8.0, [(i, i + 1) for i in range(39)]), qd.linalg.SparseMatrix(40, 40)
    solver = qd.linalg.SparseSolver()
    solver.compute(A)
    b = np.ones(40, np.float32)
    failed = []

    def work(number):
        try:
            for _ in range(200):
                if number == 0:
                    solver.compute(A)
                elif number == 1:
                    solver.solve(b)
                elif number == 2:
                    A.__iadd__(Z)
                elif number == 3:
                    A @ b
                else:
                    str(A)
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(n % 5,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all("compute()" in str(e) or "analyze_pattern" in str(e) for e in failed)
    solver.compute(A)
    assert np.allclose(A @ solver.solve(b), b, atol=1e-4)


def test_conjugate_gradients_keep_what_they_were_given():
    A = diagonal(3)
    b, x0 = np.full(3, 2, np.float32), np.zeros(3, np.float32)
    solver, stopped = qd.linalg.SparseCG(A, b), qd.linalg.SparseCG(A, b, x0, max_iter=0)
    b[:] = x0[:] = 7
    x, ok = solver.solve()
    if isinstance(x, qd.Ndarray):
        x = x.to_numpy()
    assert ok and np.allclose(x, 0.5)
    assert np.allclose(np.asarray(stopped.solve()[0]), 0)
    for most in (2**31, 2**40, -1):
        with pytest.raises(ValueError, match="max_iter is at most"):
            qd.linalg.SparseCG(A, b, max_iter=most)
    with pytest.raises(TypeError):
        qd.linalg.SparseCG(A, b, max_iter=1.5)


def test_messages_name_what_is_wrong():
    A = diagonal(3)
    with pytest.raises(TypeError, match="real numbers, not complex"):
        A @ np.ones(3, complex)
    with pytest.raises(TypeError, match="a row and a column"):
        A[0]
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        copy.deepcopy(A)
    with pytest.raises(TypeError, match="what another SparseMatrix holds"):
        qd.linalg.SparseMatrix(3, 3, sm=5)
    with pytest.raises(qd.QuadrantsRuntimeError, match="triplets, not -5"):
        qd.linalg.SparseMatrixBuilder(3, 3, -5)
    with pytest.raises(qd.QuadrantsRuntimeError, match="columns, not -5"):
        qd.linalg.SparseMatrix(3, -5)


def test_matrices_of_no_columns():
    J = L.SparseMatrixBuilder(0, 3, 4).build()
    T = J.transpose()
    assert J.shape == (0, 3) and T.shape == (3, 0) == L.SparseMatrix(3, 0).shape
    square = T @ J
    assert square.shape == (3, 3) and (square @ np.ones(3, np.float32) == 0).all()
    assert T.transpose().shape == (0, 3) and (T @ np.ones(0, np.float32)).tolist() == [0, 0, 0]
    assert (T + T).shape == (3, 0) and isinstance(str(T), str)
    N = L.SparseMatrix(3, 3)
    for act in (lambda: T + N, lambda: T * N, lambda: T @ N):
        with raises(AssertionError, "Dimension mismatch"):
            act()
    for act in (lambda: T[2, 2], lambda: T.__setitem__((2, 2), 1)):
        with raises(IndexError, "Out of bound access"):
            act()
    for act in (lambda: L.SparseSolver().compute(T), lambda: L.SparseCG(T, np.ones(3))):
        with raises(qd.QuadrantsRuntimeError, "a square matrix"):
            act()


@pytest.mark.filterwarnings("error")
def test_triplets_that_no_matrix_has():
    for dtype, row in ((qd.i64, 2**32 + 1), (qd.f64, np.nan), (qd.f64, np.inf), (qd.i32, -1)):
        numbers = qd.ndarray(dtype, 3)
        numbers.from_numpy(np.array([row, 0, 7], numpy_type(dtype)))
        A = L.SparseMatrix(3, 3)
        with raises(qd.QuadrantsRuntimeError, "Out of bound access"):
            A.build_from_ndarray(numbers)


def test_indices_beyond_32_bits_in_kernels():
    @qd.kernel
    def fill(A: qd.types.sparse_matrix_builder(), row: qd.i64, column: qd.u32):
        A[row, column] += 1.0

    for row, column in ((2**32 + 1, 1), (1, 2**32 - 1), (-1, 1)):
        builder = L.SparseMatrixBuilder(3, 3, 9)
        fill(builder, row, column)
        with raises(qd.QuadrantsRuntimeError, "Out of bound access"):
            builder.build()


def test_threads_that_share_a_solver():
    import threading

    matrices = []
    for n in (3, 40, 7):
        A = L.SparseMatrix(n, n)
        for k in range(n):
            A[k, k] = k + 2.0
        matrices.append(A)
    solver, wrong, stop = L.SparseSolver(), [], threading.Event()

    def solve():
        while not stop.is_set():
            for A in matrices:
                b = np.arange(A.n, dtype=np.float32) + 2
                try:
                    x = solver.solve(b)
                except (AssertionError, qd.QuadrantsRuntimeError):
                    continue  # one of another size is factorised, or none is yet
                if not (np.isnan(x).all() or np.allclose(x, 1)):
                    wrong.append(x)

    threads = [threading.Thread(target=solve) for _ in range(3)]
    for t in threads:
        t.start()
    for k in range(300):
        solver.compute(matrices[k % 3])
    stop.set()
    for t in threads:
        t.join()
    assert not wrong


def test_matrix_free_solvers_say_what_they_take():
    f = qd.field(qd.f32, 4)
    moved = qd.field(qd.f32, shape=4, offset=2)
    operator = L.LinearOperator(lambda x, Ax: None)
    for method in (L.MatrixFreeCG, L.MatrixFreeBICGSTAB):
        with raises(qd.QuadrantsRuntimeError, "different offsets"):
            method(operator, f, moved)
        for given in ({"tol": "a"}, {"maxiter": None}):
            with raises(qd.QuadrantsTypeError, "takes numbers for tol and maxiter"):
                method(operator, f, f, **given)
    with raises(qd.QuadrantsTypeError, "takes a kernel"):
        L.LinearOperator(None)
    for given in (None, np.ones(4)):
        with raises(qd.QuadrantsTypeError, "matvec takes two fields"):
            operator.matvec(given, f)


def test_builders_in_kernels_take_additions_alone():
    builder = L.SparseMatrixBuilder(3, 3, 9)

    @qd.kernel
    def store(A: qd.types.sparse_matrix_builder()):
        for i in range(3):
            A[i, i] = 1.0

    @qd.kernel
    def read(A: qd.types.sparse_matrix_builder()) -> qd.f32:
        return A[1, 1]

    @qd.kernel
    def atomic(A: qd.types.sparse_matrix_builder()):
        for i in range(3):
            qd.atomic_add(A[i, i], 1.0)

    for kernel in (store, read, atomic):
        with raises(qd.QuadrantsSyntaxError, "takes `A[i, j] += v` and `-= v` alone"):
            kernel(builder)

    @qd.kernel
    def between(A: qd.types.sparse_matrix_builder()):
        for i in range(3):
            A[i * 1.0, i] += 1.0

    with raises(qd.QuadrantsTypeError, "index"):
        between(builder)
