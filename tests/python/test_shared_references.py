"""Real functions whose references lead to one variable: each sees what the other stores."""

import pytest

import quadrants as qd

S = qd.types.struct(u=qd.i32, w=qd.i32)


@qd.real_func
def acc(p: qd.ref(qd.i32), q: qd.ref(qd.i32), n: qd.i32):
    for i in range(n):
        p += q


@qd.real_func
def two(p: qd.ref(qd.i32), q: qd.ref(qd.i32)) -> qd.i32:
    p = 1
    q = 2
    r = p
    p = 3
    t = q
    p = 4
    return r * 10 + t


@qd.real_func
def fwd(p: qd.ref(qd.i32)) -> qd.i32:
    return two(p, p)


@qd.real_func
def rec(p: qd.ref(qd.i32), q: qd.ref(qd.i32), n: qd.i32):
    if n > 0:
        p = p + q
        q = q + 1
        rec(q, p, n - 1)


@qd.real_func
def ends(p: qd.ref(qd.i32), c: qd.ref(qd.i32)):
    while c < 10:
        p += 3


@qd.real_func
def three(p: qd.ref(qd.i32), v: qd.i32, q: qd.ref(qd.i32), r: qd.ref(qd.f32)):
    p += v
    q *= 2
    r += q


@qd.kernel
def sums(n: qd.i32) -> qd.i32:
    s = 1
    acc(s, s, n)
    return s


@qd.kernel
def scalar() -> qd.i32:
    s = 0
    r = two(s, s)
    return s * 100 + r


@qd.kernel
def component(k: qd.i32) -> qd.i32:
    v = qd.Vector([5, 6])
    r = two(v[0], v[k])
    return v[0] * 1000 + v[1] * 100 + r


@qd.kernel
def member() -> qd.i32:
    s = S(5, 6)
    r = two(s.u, s.u)
    t = two(s.u, s.w)
    return s.u * 10000 + s.w * 1000 + r * 10 + t


@qd.kernel
def entry(k: qd.i32) -> qd.i32:
    m = qd.Matrix([[1, 2], [3, 4]])
    r = two(m[0, k], m[k, 0])
    return m[0, 0] * 100000 + m[0, 1] * 10000 + m[1, 0] * 1000 + m[1, 1] * 100 + r


@qd.kernel
def forwarded() -> qd.i32:
    s = 0
    r = fwd(s)
    return s * 100 + r


@qd.kernel
def recursive() -> qd.i32:
    s = 1
    rec(s, s, 4)
    return s


@qd.kernel
def loop() -> qd.i32:
    s = 0
    ends(s, s)
    return s


@qd.kernel
def several() -> qd.i32:
    v = qd.Vector([5, 6, 7])
    f = 0.5
    three(v[1], v[0], v[1], f)
    three(v[2], 1, v[0], f)
    return v[0] * 10000 + v[1] * 100 + v[2] + qd.cast(f * 100000, qd.i32)


@pytest.mark.parametrize(
    "kernel, arguments, result",
    [(sums, (5,), 32), (scalar, (), 423), (component, (0,), 4623), (component, (1,), 4212), (member, (), 42242),
     (entry, (0,), 423423), (entry, (1,), 142412), (forwarded, (), 423), (recursive, (), 31), (loop, (), 12),
     (several, (), 3352208)],
)  # fmt: skip
def test_what_one_stores_the_other_sees(backend, kernel, arguments, result):
    assert kernel(*arguments) == result


def test_calls_of_one_function_are_told_apart(backend):
    """By which of its references are one."""

    @qd.kernel
    def k() -> qd.i32:
        a, b = 0, 0
        r = two(a, b)
        t = two(a, a)
        u = two(b, a)
        return ((r * 100 + t) * 100 + u) * 100 + a * 10 + b

    assert k() == 12_23_12_24
