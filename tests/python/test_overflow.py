"""Overflow of atomics, powers and built-ins is reported in debug mode, once for each place."""

import pytest

import quadrants as qd


def atomic_add(o, v, m):
    o[None] += 100


def atomic_add_called(o, v, m):
    qd.atomic_add(o[None], 100)


def atomic_sub(o, v, m):
    o[None] -= -100


def atomic_mul(o, v, m):
    qd.atomic_mul(o[None], 2)


def atomic_of_a_local(o, v, m):
    x = o[None]
    qd.atomic_mul(x, 2)
    o[None] = x


def atomic_of_a_vector(o, v, m):
    v[None] += 100


def sum_of_parts(o, v, m):
    o[None] = v[None].sum()


def dot(o, v, m):
    o[None] = v[None].dot(v[None])


def trace(o, v, m):
    o[None] = m[None].trace()


def norm_sqr(o, v, m):
    o[None] = v[None].norm_sqr()


def matmul(o, v, m):
    m[None] = m[None] @ m[None]


def matrix_vector(o, v, m):
    v[None] = m[None] @ v[None]


def vector_matrix(o, v, m):
    v[None] = v[None] @ m[None]


def determinant(o, v, m):
    o[None] = m[None].determinant()


def outer_product(o, v, m):
    m[None] = v[None].outer_product(v[None])


def power(o, v, m):
    o[None] = o[None] ** 2


CASES = [
    (atomic_add, "Addition"),
    (atomic_add_called, "Addition"),
    (atomic_sub, "Subtraction"),
    (atomic_mul, "Multiplication"),
    (atomic_of_a_local, "Multiplication"),
    (atomic_of_a_vector, "Addition"),
    (sum_of_parts, "Addition"),
    (dot, "Multiplication"),
    (trace, "Addition"),
    (norm_sqr, "Multiplication"),
    (matmul, "Multiplication"),
    (matrix_vector, "Multiplication"),
    (vector_matrix, "Multiplication"),
    (determinant, "Multiplication"),
    (outer_product, "Multiplication"),
    (power, "Multiplication"),
]


@pytest.mark.oracle_differs("an atomic's place is empty; i32 ones of - and * crash", run=False)
@pytest.mark.parametrize("body, word", CASES, ids=[f.__name__ for f, _ in CASES])
@pytest.mark.parametrize("dtype, large", [(qd.i32, 2**31 - 1), (qd.i8, 100)])
def test_overflow_is_reported(debug_backend, capfd, body, word, dtype, large):
    o, v, m = qd.field(dtype, ()), qd.Vector.field(2, dtype, ()), qd.Matrix.field(2, 2, dtype, ())
    f = qd.func(body)

    @qd.kernel
    def k():
        f(o, v, m)

    def text_of_run(value):
        o[None], v[None], m[None] = value, [value, value], [[value, value], [value, value]]
        qd.sync()
        capfd.readouterr()
        k()
        qd.sync()
        return capfd.readouterr().out

    report = f"{word} overflow detected in File"
    text = text_of_run(large)
    assert report in text
    assert f"in {body.__name__}:" in text.split(report)[1].splitlines()[0]
    assert "overflow" not in text_of_run(1)


@pytest.mark.parametrize(
    "dtype, fits, lost",
    [
        (qd.i32, [(46340, 2), (-2, 31), (-1, 5), (0, 0)], [(46341, 2), (-2, 32), (2, 31)]),
        (
            qd.i64,
            [(3037000499, 2), (-2, 63), (2, 62), (2**63 - 1, 1), (-(2**63), 1)],
            [(3037000500, 2), (2, 63), (-3, 41)],
        ),
        (
            qd.u64,
            [(2**32 - 1, 2), (2, 63), (3, 40), (2**64 - 1, 1)],
            [(2**32, 2), (2, 64), (3, 41)],
        ),
        (qd.i8, [(-2, 7), (11, 2)], [(2, 7), (12, 2)]),
    ],
)
def test_powers_overflow_at_the_limit_of_their_type(debug_backend, capfd, dtype, fits, lost):
    @qd.kernel
    def k(a: dtype, b: qd.i32) -> dtype:
        return a**b

    for pairs, count in ((fits, 0), (lost, 1)):
        for base, exponent in pairs:
            k(base, exponent)
            qd.sync()
            text = capfd.readouterr().out
            assert text.count("Multiplication overflow detected") == count, (base, exponent)


def test_products_of_matrices_are_the_same_with_reports(debug_backend):
    a, b, c = (qd.Matrix.field(n, m, qd.i32, ()) for n, m in ((2, 3), (3, 4), (2, 4)))
    v, w = qd.Vector.field(3, qd.i32, ()), qd.Vector.field(2, qd.i32, ())

    @qd.kernel
    def k():
        for i, j in qd.static(qd.ndrange(2, 3)):
            a[None][i, j] = 3 * i - j
        for i, j in qd.static(qd.ndrange(3, 4)):
            b[None][i, j] = i * i + 2 * j - 3
        c[None] = a[None] @ b[None]
        v[None] = [4, -5, 6]
        w[None] = a[None] @ v[None]
        v[None] = w[None] @ a[None]

    k()
    x, y = a.to_numpy(), b.to_numpy()
    assert (c.to_numpy() == x @ y).all()
    assert w.to_numpy().tolist() == [-7, 8]
    assert v.to_numpy().tolist() == [24, 23, 22]
