"""Branches, loops, static evaluation, ndrange, tasks and their order."""

import itertools
import warnings

import numpy as np
import pytest

import quadrants as qd
from helpers import Array, module_at, raises

N = 24


def test_if_elif_else_chains(backend):
    out = np.zeros(N, np.int32)

    @qd.kernel
    def run(out: Array):
        for i in range(N):
            if i < 4:
                out[i] = 1
            elif i % 3 == 0:
                if i > 10:
                    out[i] = 2
                else:
                    out[i] = 3
            elif i == 5 or i == 7:
                out[i] = 4
            else:
                out[i] = 5

    run(out)
    f = lambda i: 1 if i < 4 else (2 if i > 10 else 3) if i % 3 == 0 else 4 if i in (5, 7) else 5
    assert out.tolist() == [f(i) for i in range(N)]


def test_while_break_continue_nesting(backend):
    out = np.zeros((2, N), np.int32)

    @qd.kernel
    def run(out: Array):
        for i in range(N):
            steps, x = 0, i + 1
            while x != 1:
                x = x // 2 if x % 2 == 0 else 3 * x + 1
                steps += 1
                if steps >= 20:
                    break
            out[0, i] = steps
            total = 0
            for j in range(i):
                if j % 3 == 1:
                    continue
                for k in range(j):
                    if k == 4:
                        break
                    if (k + j) % 2:
                        continue
                    total += k + 1
                if total > 60:
                    break
                total += 1
            out[1, i] = total

    def collatz(x):
        steps = 0
        while x != 1:
            x = x // 2 if x % 2 == 0 else 3 * x + 1
            steps += 1
            if steps >= 20:
                break
        return steps

    def nested(i):
        total = 0
        for j in range(i):
            if j % 3 == 1:
                continue
            for k in range(j):
                if k == 4:
                    break
                if (k + j) % 2:
                    continue
                total += k + 1
            if total > 60:
                break
            total += 1
        return total

    run(out)
    assert out[0].tolist() == [collatz(i + 1) for i in range(N)]
    assert out[1].tolist() == [nested(i) for i in range(N)]


def test_continue_in_parallel_loop_and_while_true(backend):
    out = np.zeros(N, np.int32)

    @qd.kernel
    def run(out: Array):
        for i in range(N):
            if i % 2:
                continue
            k = 0
            while True:
                k += 1
                if k * k > i:
                    break
            out[i] = k

    run(out)
    assert out.tolist() == [0 if i % 2 else int(i**0.5) + 1 for i in range(N)]


def test_range_bounds(backend):
    out = np.zeros((4, N), np.int32)

    @qd.kernel
    def run(a: qd.i32, b: qd.i32, out: Array):
        for i in range(a, b):
            out[0, i] = 1
        for i in range(b, a):
            out[1, i] = 1
        for i in range(-2, 3):
            out[2, i + 2] = i
        for i in range(a * 2):
            for j in range(i, b - 1):
                out[3, i] += j

    run(3, 9, out)
    assert out[0].tolist() == [int(3 <= i < 9) for i in range(N)]
    assert not out[1].any()
    assert out[2, :5].tolist() == [-2, -1, 0, 1, 2]
    assert out[3].tolist() == [sum(range(i, 8)) if i < 6 else 0 for i in range(N)]


def test_loop_bounds_read_once(backend):
    """Changing the bound inside the loop does not change the number of iterations."""
    out = np.zeros(2, np.int32)

    @qd.kernel
    def run(out: Array):
        n = 5
        for _ in range(1):
            m = 4
            for j in range(m):
                m += 1
                out[0] += 1
            out[1] = m
        n += 1

    run(out)
    assert out.tolist() == [4, 8]


def test_loop_config_serialize(backend):
    out = np.zeros(N, np.int32)
    stop = np.zeros(1, np.int32)

    @qd.kernel
    def run(out: Array, stop: Array):
        last = 0
        qd.loop_config(serialize=True)
        for i in range(N):
            if i == 17:
                stop[0] = i
                break
            out[i] = last + i
            last = out[i]

    run(out, stop)
    assert stop[0] == 17
    assert out.tolist() == [i * (i + 1) // 2 if i < 17 else 0 for i in range(N)]


no_adaptive = pytest.mark.oracle_differs("the established package misses block_dim_adaptive")


@pytest.mark.parametrize(
    "option",
    ["parallelize", "block_dim", "name", pytest.param("adaptive", marks=no_adaptive)],
)
def test_loop_config_keeps_results(backend, option):
    out = np.zeros(1000, np.int32)

    @qd.kernel
    def run(out: Array):
        if qd.static(option == "parallelize"):
            qd.loop_config(parallelize=2)
        elif qd.static(option == "block_dim"):
            qd.loop_config(block_dim=64)
        elif qd.static(option == "name"):
            qd.loop_config(name="squares")
        else:
            qd.loop_config(block_dim_adaptive=False)
        for i in range(1000):
            out[i] = i * i

    run(out)
    assert np.array_equal(out, np.arange(1000) ** 2)


def test_loop_config_rejects_unknown_and_positional(backend):
    @qd.kernel
    def unknown():
        qd.loop_config(colour=1)
        for i in range(3):
            pass

    @qd.kernel
    def positional():
        qd.loop_config(8)
        for i in range(3):
            pass

    for k in (unknown, positional):
        with raises(qd.QuadrantsTypeError):
            k()


def test_ndrange_one_to_four_dimensions(backend):
    out = np.zeros((4, 5, 6, 7), np.int32)

    @qd.kernel
    def run(n: qd.i32, out: Array):
        for i in qd.ndrange(4):
            out[i, 0, 0, 0] += 1
        for i, j in qd.ndrange(4, (1, n)):
            out[i, j, 0, 1] += 10 * i + j
        for i, j, k in qd.ndrange((1, 3), 5, (2, 6)):
            out[i, j, k, 2] += 1
        for i, j, k, l in qd.ndrange(4, n, 6, (3, 7)):
            out[i, j, k, l] += i * 1000 + j * 100 + k * 10 + l

    run(5, out)
    e = np.zeros_like(out)
    i, j, k, l = np.indices(out.shape)
    e[:, 0, 0, 0] += 1
    e[:, 1:5, 0, 1] += (10 * i + j)[:, 1:5, 0, 1]
    e[1:3, :, 2:6, 2] += 1
    e[..., 3:] += (i * 1000 + j * 100 + k * 10 + l)[..., 3:]
    assert np.array_equal(out, e)


def test_ndrange_order_axes_and_emptiness(backend):
    out = np.zeros((3, 8, 2), np.int32)
    counts = np.zeros(3, np.int32)

    @qd.kernel
    def run(out: Array, counts: Array):
        n = 0
        qd.loop_config(serialize=True)
        for i, j in qd.ndrange(2, 4):
            out[0, n, 0], out[0, n, 1] = i, j
            n += 1
        m = 0
        qd.loop_config(serialize=True)
        for i, j in qd.ndrange(2, 4, axes=(1, 0)):
            out[1, m, 0], out[1, m, 1] = i, j
            m += 1
        for i, j in qd.ndrange(3, (5, 2)):
            counts[0] += 1
        for I in qd.grouped(qd.ndrange(2, (1, 4))):
            counts[1] += I[0] * 10 + I[1]
        for i, j in qd.ndrange((-2, 1), 2):
            counts[2] += i

    run(out, counts)
    assert out[0].tolist() == [[i, j] for i in range(2) for j in range(4)]
    assert out[1].tolist() == [[i, j] for j in range(4) for i in range(2)]
    assert counts.tolist() == [0, 3 * 10 + 2 * 6, -6]


def test_ndrange_on_the_host():
    assert list(qd.ndrange(2, 3)) == [(i, j) for i in range(2) for j in range(3)]
    assert list(qd.ndrange((1, 3), 2, axes=(1, 0))) == [(1, 0), (2, 0), (1, 1), (2, 1)]
    assert list(qd.ndrange()) == [()]
    assert qd.ndrange(2, 3, axes=(0, 1)).axes is None
    assert (
        list(qd.ndrange(np.True_, (np.False_, 2))) == [(0, 0), (0, 1)] == list(qd.ndrange(True, 2))
    )


@pytest.mark.parametrize(
    "make,cls,text",
    [
        (lambda: qd.ndrange(2, 3, axes=(0, 1, 2)), qd.QuadrantsSyntaxError,
         "qd.ndrange(axes=(0, 1, 2)) has 3 entries but ndrange was called with 2"),
        (lambda: qd.ndrange(2, 3, axes=(0, 0)), qd.QuadrantsSyntaxError,
         "qd.ndrange(axes=(0, 0)) is not a permutation of range(2)"),
        (lambda: qd.ndrange(2, 3, axes=(0, "1")), qd.QuadrantsTypeError,
         "entries must be Python ints; got str ('1')"),
        (lambda: qd.ndrange(2, (1, 2, 3)), qd.QuadrantsSyntaxError,
         "Every argument of ndrange should be a scalar or a tuple/list like (begin, end)"),
        (lambda: qd.ndrange(2, 1.5), qd.QuadrantsTypeError,
         "Every argument of ndrange should be an integer scalar or a tuple/list of (int, int)"),
    ],
)  # fmt: skip
def test_ndrange_misuse(make, cls, text):
    with raises(cls, text):
        make()


def test_grouped_and_struct_for_over_fields(backend):
    f = qd.field(qd.i32, (5, 4))
    v = qd.Vector.field(2, qd.f32, (3, 2, 2))
    o = qd.field(qd.i32, (4, 3), offset=(-2, 1))
    z = qd.field(qd.i32, ())

    @qd.kernel
    def run():
        for i, j in f:
            f[i, j] += i * 10 + j
        for I in qd.grouped(f):
            f[I] += I.x + I.y
        for I in qd.grouped(v):
            v[I] = [I[0] * 100 + I[1] * 10 + I[2], I.sum()]
        for i, j in o:
            o[i, j] = i * 100 + j
        for I in qd.grouped(z):
            z[I] += 7

    run()
    i, j = np.indices((5, 4))
    assert np.array_equal(f.to_numpy(), i * 11 + j * 2)
    a, b, c = np.indices((3, 2, 2))
    assert np.array_equal(v.to_numpy(), np.stack([a * 100 + b * 10 + c, a + b + c], -1))
    i, j = np.indices((4, 3))
    assert np.array_equal(o.to_numpy(), (i - 2) * 100 + j + 1)
    assert z[None] == 7


def test_struct_for_over_ndarrays(backend):
    a = np.zeros((5, 4), np.int32)
    b = qd.Vector.ndarray(3, qd.i32, (2, 3))
    c = qd.ndarray(qd.i32, ())

    @qd.kernel
    def run(a: Array, b: qd.types.ndarray(dtype=qd.types.vector(3, qd.i32), ndim=2), c: Array):
        for i, j in a:
            a[i, j] = i * 10 + j
        for I in qd.grouped(b):
            b[I] = [I[0], I[1], I[0] * I[1]]
        for I in qd.grouped(c):
            c[I] = 5

    run(a, b, c)
    i, j = np.indices((5, 4))
    assert np.array_equal(a, i * 10 + j)
    i, j = np.indices((2, 3))
    assert np.array_equal(b.to_numpy(), np.stack([i, j, i * j], -1))
    assert c[None] == 5


@pytest.mark.of_cpus("iterations read what others write")
def test_tasks_run_in_order(backend):
    """Serial parts and loops alternate; each sees everything before it."""
    x = qd.field(qd.i32, 100)
    log = np.zeros(4, np.int32)

    @qd.kernel
    def run(log: Array):
        for i in x:
            x[i] = i
        s = 0
        for i in x:
            s += x[i]
        log[0] = s
        x[0] = 1000
        n = x[0] // 10
        for i in range(n):
            x[i] = x[99 - i] if i >= 50 else x[i] * 0 + 1
        t = 0
        for i in range(50):
            t += x[i]
        log[1] = t
        log[2] = n
        if log[2] == 100:
            for i in range(10):
                log[3] += i

    run(log)
    assert log.tolist() == [4950, 50, 100, 45]
    assert x.to_numpy().tolist() == [1] * 100


def test_top_level_while_is_serial(backend):
    out = np.zeros(2, np.int64)

    @qd.kernel
    def run(out: Array):
        a, b, n = 0, 1, 0
        while b < 1000:
            a, b = b, a + b
            n += 1
        out[0], out[1] = b, n

    run(out)
    assert out.tolist() == [1597, 16]


def test_locals_shared_by_tasks(backend):
    out = np.zeros(3, np.float32)

    @qd.kernel
    def run(n: qd.i32, out: Array):
        lo = 1e9
        hi = -1e9
        v = qd.Vector([0.0, 0.0])
        for i in range(n):
            x = float((i * 37) % 101)
            qd.atomic_min(lo, x)
            qd.atomic_max(hi, x)
            v += [1.0, x]
        out[0], out[1] = lo, hi
        out[2] = v[1] / v[0]

    run(1010, out)
    assert out[0] == 0 and out[1] == 100
    assert abs(out[2] - 50) < 1e-3


def test_static_for_unrolls(backend):
    out = np.zeros((5, 4), np.int32)
    table = [3, 1, 4, 1]

    @qd.kernel
    def run(out: Array):
        for i in range(4):
            for k in qd.static(range(3)):
                out[0, i] += k * i
            for k, value in qd.static(enumerate(table)):
                if i == k:
                    out[1, i] = value
            for a, b in qd.static(zip((1, 2), [10, 20])):
                out[2, i] += a * b
            for a, b in qd.static(qd.ndrange(2, 3)):
                out[3, i] += a * 10 + b
            for I in qd.static(qd.grouped(qd.ndrange(2, (1, 3)))):
                out[4, i] += I[0] * 10 + I[1]

    run(out)
    assert out[0].tolist() == [0, 3, 6, 9]
    assert out[1].tolist() == table
    assert out[2].tolist() == [50] * 4
    assert out[3].tolist() == [36] * 4
    assert out[4].tolist() == [26] * 4


def test_static_break_and_continue(backend):
    out = np.zeros(2, np.int32)

    @qd.kernel
    def run(out: Array):
        for k in qd.static(range(10)):
            if qd.static(k == 6):
                break
            if qd.static(k % 2):
                continue
            out[0] += k
        for _ in range(1):
            for k in qd.static(range(3)):
                for j in range(10):
                    if j > k:
                        break
                    out[1] += 1

    run(out)
    assert out.tolist() == [6, 6]


def test_static_break_and_continue_behind_a_branch(backend):
    out = np.zeros(4, np.int32)

    @qd.kernel
    def run(out: Array, n: qd.i32):
        for _ in range(1):
            for k in qd.static(range(4)):
                if n > k:
                    out[k] = 10
                if qd.static(k == 1):
                    continue
                if qd.static(k == 3):
                    break
                out[k] += 1

    run(out, 2)
    assert out.tolist() == [11, 10, 1, 0]


def test_static_if_never_looks_at_the_dead_branch(backend):
    flag = False

    @qd.kernel
    def run() -> qd.i32:
        r = 1
        if qd.static(flag):
            r = undefined_name + 1  # noqa: F821
        elif qd.static(not flag):
            r = 2
        return r

    assert run() == 2


def test_static_choice_of_the_iterable(backend):
    def count(flag):
        out = np.zeros(1, np.int32)

        @qd.kernel
        def run(n: qd.i32, out: Array):
            for _ in range(1):
                for k in range(n) if qd.static(flag) else qd.static(range(8)):
                    out[0] += k

        run(5, out)
        return out[0]

    assert count(True) == 10 and count(False) == 28


def test_static_names_and_tests(backend):
    f = qd.field(qd.i32, 4)
    mode = "fast"

    @qd.func
    def twice(x):
        return 2 * x

    @qd.kernel
    def run():
        g = qd.static(f)
        op = qd.static(twice)
        for i in range(4):
            if qd.static(mode == "fast" and 3 in (1, 2, 3)):
                g[i] = op(i)
            else:
                g[i] = -1

    run()
    assert f.to_numpy().tolist() == [0, 2, 4, 6]


def test_unrolling_limit_warns(backend):
    backend.init(unrolling_limit=4)
    out = np.zeros(1, np.int32)

    @qd.kernel
    def run(out: Array):
        for k in qd.static(range(6)):
            out[0] += k

    with pytest.warns(SyntaxWarning, match="You are unrolling more than"):
        run(out)
    assert out[0] == 15


@pytest.mark.parametrize("limit", [0, 6])
def test_unrolling_within_the_limit_is_silent(backend, limit):
    backend.init(unrolling_limit=limit)
    out = np.zeros(1, np.int32)

    @qd.kernel
    def run(out: Array):
        for k in qd.static(range(6)):
            out[0] += k

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(out)
    assert out[0] == 15


def test_variables_keep_their_type_and_scope(backend):
    out = np.zeros(6, np.float64)

    @qd.kernel
    def run(out: Array):
        a = 1
        a = 2.9  # cast to i32
        out[0] = a
        b: qd.f64 = 3
        out[1] = b / 2
        for i in range(1):
            c = 5
            out[2] = c
        for i in range(1):
            c = 6.5
            out[3] = c
        x, y = 1, 2
        x, y = y, x
        out[4] = x * 10 + y
        if (n := x + 5) > 6:
            out[5] = n

    run(out)
    assert out.tolist() == [2, 1.5, 5, 6.5, 21, 7]


def test_lists_tuples_dicts_at_compile_time(backend):
    out = np.zeros(5, np.int32)

    @qd.kernel
    def run(n: qd.i32, out: Array):
        a = [n, n + 1, n * 2]
        b = [a, 7]
        a[0] = 100
        out[0] = b[0][0]
        d = {"x": n, "y": n + 3}
        out[1] = d["x"] * d["y"]
        sq = [v * v for v in a]
        out[2] = sq[1] + len(sq)
        t = (n, 2)
        p, q = t
        out[3] = p - q
        out[4] = sum([x for x in qd.static(range(5)) if x % 2])

    run(4, out)
    assert out.tolist() == [4, 28, 28, 2, 4]


def count_to_six(dtype):
    out = np.zeros(1, np.int32)

    @qd.kernel
    def run(n: dtype, out: Array):
        for i in range(n):
            out[0] += 1

    run(6, out)
    return out[0]


@pytest.mark.parametrize("name", ["i64", "u64", "u32", "f32", "f64"])
def test_dtype_of_loop_bound_is_cast_with_a_warning(backend, name):
    with pytest.warns(Warning, match=f"Casting range_for boundary values from {name} to i32"):
        assert count_to_six(getattr(qd, name)) == 6


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "u16"])
def test_narrow_loop_bounds_are_cast_silently(backend, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count_to_six(getattr(qd, name)) == 6


SNIPPETS = {}


def snippet(cls, text, *args):
    def add(fn):
        SNIPPETS[fn.__name__] = (qd.kernel(fn), cls, text, args)
        return fn

    return add


Syntax, Type, Name = qd.QuadrantsSyntaxError, qd.QuadrantsTypeError, qd.QuadrantsNameError
Compilation = qd.QuadrantsCompilationError


@snippet(Syntax, "Range should have 1 or 2 arguments, found 3")
def range_step():
    for i in range(0, 10, 2):
        pass


@snippet(Syntax, "Cannot break in the outermost loop")
def break_parallel():
    for i in range(10):
        if i == 3:
            break


@snippet(Syntax, "'else' clause for 'for' not supported in Quadrants kernels")
def for_else():
    for i in range(10):
        pass
    else:
        pass


@snippet(Syntax, "'else' clause for 'while' not supported in Quadrants kernels")
def while_else():
    while False:
        pass
    else:
        pass


@snippet(Syntax, 'Unsupported node "Try"')
def try_statement():
    try:
        pass
    except ValueError:
        pass


@snippet(Syntax, 'Unsupported node "Raise"')
def raise_statement():
    raise ValueError


@snippet(Syntax, 'Unsupported node "Lambda"')
def lambda_expression():
    f = lambda x: x


@snippet(Syntax, 'Unsupported node "Delete"')
def del_statement():
    a = 1
    del a


@snippet(Syntax, 'Unsupported node "ClassDef"')
def class_statement():
    class A:
        pass


@snippet(Syntax, 'Unsupported node "ImportFrom"')
def import_statement():
    from math import pi  # noqa: F401


@snippet(Syntax, 'Unsupported node "Set"')
def set_display():
    a = {1, 2}


@snippet(Syntax, 'Unsupported node "GeneratorExp"')
def generator_expression():
    a = sum(i for i in range(3))


@snippet(Syntax, "Function definition is not allowed in 'qd.kernel'.")
def nested_def():
    def inner():
        pass


@snippet(Name, 'Name "undefined_thing" is not defined')
def undefined_name_used():
    a = undefined_thing  # noqa: F821


@snippet(Name, 'Name "inside" is not defined')
def leaves_scope():
    if 1:
        inside = 3
    a = inside


@snippet(Syntax, "is already declared in the outer scope and cannot be used as loop variable")
def loop_variable_shadows():
    i = 0
    for i in range(3):
        pass


@snippet(Syntax, "You are trying to `break` a static `for` loop, but the `break` statement is inside",
         1)  # fmt: skip
def static_break_in_runtime_if(n: qd.i32):
    for k in qd.static(range(3)):
        if n:
            break


@snippet(Syntax, "You are trying to `continue` a static `for` loop, but the `continue` statement is",
         1)  # fmt: skip
def static_continue_in_runtime_if(n: qd.i32):
    for k in qd.static(range(3)):
        if n:
            continue


@snippet(Compilation, "Cannot loop over the object")
def loop_over_list():
    for i in [1, 2]:
        pass


@snippet(Syntax, "Group for should have 1 loop target, found 2")
def grouped_two_targets():
    for i, j in qd.grouped(qd.ndrange(2, 3)):
        pass


@snippet(Compilation, "not equal to the dimension of the ndrange")
def ndrange_target_count():
    for i, j, k in qd.ndrange(2, 3):
        pass


@snippet(Type, "Static assert with non-static condition", 1)
def static_assert_runtime(n: qd.i32):
    qd.static_assert(n > 0)


@snippet(Compilation, "three is not two")
def static_assert_fails():
    qd.static_assert(3 == 2, "three is not two")


@snippet(Syntax, "The number of targets is not equal to value length")
def unpack_count():
    a, b = (1, 2, 3)


@snippet(Syntax, "Cannot unpack type", 1)
def unpack_scalar(n: qd.i32):
    a, b = n


@snippet(Syntax, "Static assign cannot have type overloading")
def retyped_variable():
    a = 1
    a: qd.f32 = 2.0


@snippet(Syntax, "is immutable in the kernel", 3)
def assign_argument(a: qd.i32):
    a = 2


@snippet(Syntax, "is immutable in the kernel", 3)
def augment_argument(a: qd.i32):
    a += 2


@snippet(Syntax, "Recreating variables is not allowed")
def static_rebinding():
    a = qd.static(1)
    a = qd.static(2)


@snippet(Compilation, "Input to qd.static must be compile-time constants or global pointers", 1)
def static_of_runtime(n: qd.i32):
    for k in qd.static(range(2)):
        if qd.static(n > k):
            pass


@snippet(Syntax, "'with' in Quadrants kernels only supports")
def with_statement():
    with open("x"):
        pass


@pytest.mark.parametrize("name", SNIPPETS)
def test_misuse(backend, name):
    kernel, cls, text, args = SNIPPETS[name]
    with raises(cls, text):
        kernel(*args)

    @qd.kernel
    def still_works() -> qd.i32:
        return 3

    assert still_works() == 3


def test_short_loops(backend):
    """Loops of few trips, which are copied out unless something leaves them."""
    out = np.zeros((4, 64), np.int32)

    @qd.kernel
    def run(o: qd.types.ndarray(dtype=qd.i32, ndim=2), three: int):
        for i in range(4):
            n = 0
            local = qd.Matrix.zero(qd.i32, 3, 3)
            for a in range(-1, 2):
                for b in range(3):
                    local[a + 1, b] = a * b + i
                    if b == 1 and i == 2:
                        continue
                    for c in range(three):
                        o[i, n] += c + a
                        n += 1
                        if c == i:
                            break
            for a, b in qd.ndrange((0, 3), (2, -1 + 4)):
                n += local[a, b] * (a + 1)
            for a in range(5, 5):
                n += 1000
            for a in range(7, 5):
                n += 1000
            o[i, 63] = n

    def expected():
        o = np.zeros((4, 64), np.int32)
        for i in range(4):
            n = 0
            local = {}
            for a in (-1, 0, 1):
                for b in range(3):
                    local[a + 1, b] = a * b + i
                    if b == 1 and i == 2:
                        continue
                    for c in range(3):
                        o[i, n] += c + a
                        n += 1
                        if c == i:
                            break
            o[i, 63] = n + sum(local[a, 2] * (a + 1) for a in range(3))
        return o

    run(out, 3)
    np.testing.assert_array_equal(out, expected())


def test_loops_without_end_while_compiling(backend):
    @qd.kernel
    def unrolled():
        for _ in qd.static(itertools.count()):
            pass

    @qd.kernel
    def targets():
        for a, b in qd.static([itertools.count(), (1, 2)]):
            pass

    @qd.kernel
    def comprehension():
        x = [i for i in qd.static(itertools.cycle([1, 2]))]

    @qd.kernel
    def call():
        print(max(*itertools.repeat(1)))

    class Items:  # a sequence that raises no IndexError
        def __getitem__(self, n):
            return n

    @qd.kernel
    def sequence():
        for a, b in qd.static([Items(), (1, 2)]):
            pass

    @qd.kernel
    def unpacked():
        a, b = qd.static(Items())

    for k in unrolled, targets, comprehension, call, sequence, unpacked:
        with pytest.raises(
            qd.QuadrantsCompilationError, match="gave 100000 items and has no length"
        ):
            k()

    @qd.kernel
    def numbered() -> qd.i32:
        s = 0
        for a, b in qd.static(zip((5, 6), itertools.count())):
            s += a * b
        return s

    assert numbered() == 6


def test_nested_short_loops_stay_loops(backend, tmp_path):
    # Copies of copies: 2^24 of them would need all memory.
    nest = "".join("    " + "  " * k + f"for i{k} in range(2):\n" for k in range(12))
    inner = "    " + "  " * 12
    source = "import quadrants as qd\n@qd.func\ndef f(r, a):\n    s = 0\n" + nest
    source += f"{inner}r += 1\n{inner}s = i11 + a\n    return r, s\n"
    source += "@qd.kernel\ndef k(a: qd.i32) -> qd.i32:\n    r = 0\n    s = 0\n"
    source += "    qd.loop_config(serialize=True)\n" + nest
    source += f"{inner}r, s = f(r, a)\n    return r + s\n"
    (tmp_path / "nest.py").write_text(source)
    assert module_at(tmp_path / "nest.py", "nest").k(5) == 2**24 + 6
