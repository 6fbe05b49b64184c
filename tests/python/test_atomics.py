"""Augmented assignment and atomics: kinds, dtypes, targets, results."""

import os
import subprocess
import sys

import numpy as np
import pytest

import quadrants as qd
from helpers import NUMPY, Array, assert_close, dtype, raises

N = 1000


@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u64", "f32", "f64"])
def test_add_sub_min_max(backend, name):
    dt = dtype(name)
    f = qd.field(dt, 4)
    rng = np.random.default_rng(3)
    x = rng.integers(0, 100, N).astype(NUMPY[name])

    @qd.kernel
    def run(x: Array):
        for i in range(N):
            qd.atomic_add(f[0], x[i])
            f[1] -= x[i]
            qd.atomic_min(f[2], x[i])
            qd.atomic_max(f[3], x[i])

    f[1] = 100 * N
    f[2] = 1000
    run(x)
    assert f.to_numpy().tolist() == [x.sum(), 100 * N - x.sum(), x.min(), x.max()]


@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u64"])
def test_bit_atomics(backend, name):
    dt = dtype(name)
    f = qd.field(dt, 6)
    x = (np.random.default_rng(4).integers(0, 1 << 30, N) | 1).astype(NUMPY[name])

    @qd.kernel
    def run(x: Array):
        for i in range(N):
            f[0] |= x[i]
            f[1] &= x[i]
            f[2] ^= x[i]
            qd.atomic_or(f[3], x[i])
            qd.atomic_and(f[4], x[i])
            qd.atomic_xor(f[5], x[i])

    f[1] = f[4] = (1 << 31) - 1
    run(x)
    o, a, e = (int(g.reduce(x)) for g in (np.bitwise_or, np.bitwise_and, np.bitwise_xor))
    a &= (1 << 31) - 1
    assert f.to_numpy().tolist() == [o, a, e, o, a, e]


def test_atomics_return_the_old_value(backend):
    seen = np.zeros(N, np.int32)
    n = qd.field(qd.i32, ())

    @qd.kernel
    def run(seen: Array):
        for i in range(N):
            seen[qd.atomic_add(n[None], 1)] += 1

    run(seen)
    assert n[None] == N and (seen == 1).all()


def test_atomic_mul_exchange_and_cas(backend):
    f = qd.field(qd.i32, 3)
    f.fill(1)

    @qd.kernel
    def run() -> qd.i32:
        for i in range(10):
            qd.atomic_mul(f[0], 2)
        old = qd.atomic_exchange(f[1], 42)
        a = qd.atomic_cas(f[2], 1, 7)
        b = qd.atomic_cas(f[2], 1, 9)
        return old * 100 + a * 10 + b

    try:
        r = run()
    except qd.QuadrantsCompilationError as e:
        pytest.fail(str(e))
    assert r == 117 and f.to_numpy().tolist() == [1024, 42, 7]


def test_atomics_on_arrays_and_vectors(backend):
    a = np.zeros(8, np.float32)
    v = qd.Vector.field(3, qd.f32, ())
    m = qd.Matrix.ndarray(2, 2, qd.i32, 2)

    @qd.kernel
    def run(a: Array, m: qd.types.ndarray(dtype=qd.types.matrix(2, 2, qd.i32), ndim=1)):
        for i in range(N):
            a[i % 8] += 1
            v[None] += [1, 2, 3]
            qd.atomic_add(v[None], qd.Vector([0.0, 1.0, 0.0]))
            m[i % 2] += qd.Matrix([[1, 0], [2, 3]])
            m[0][0, 1] += 1

    run(a, m)
    assert a.tolist() == [N / 8] * 8
    assert v[None].to_list() == [N, 3 * N, 3 * N]
    assert m.to_numpy().tolist() == [[[500, 1000], [1000, 1500]], [[500, 0], [1000, 1500]]]


def test_reductions_into_locals(backend):
    x = np.random.default_rng(5).random(20000)
    f32, i64 = x.astype(np.float32), (x * 1000).astype(np.int64)
    out = np.zeros(5, np.float64)

    @qd.kernel
    def run(x: Array, n: Array, out: Array):
        s = qd.f64(0.0)
        lo, hi = n[0], n[0]
        count, x0 = 0, 0
        for i in range(x.shape[0]):
            s += x[i]
            qd.atomic_min(lo, n[i])
            qd.atomic_max(hi, n[i])
            if n[i] > 500:
                count += 1
            x0 ^= qd.cast(n[i], qd.i32)
        out[0], out[1], out[2], out[3], out[4] = s, lo, hi, count, x0

    run(f32, i64, out)
    assert_close(out[0], f32.astype(np.float64).sum(), rtol=1e-12)
    assert out[1:].tolist() == [
        i64.min(), i64.max(), (i64 > 500).sum(), np.bitwise_xor.reduce(i64)
    ]  # fmt: skip


def test_reduction_result(backend):
    x = np.arange(5000, dtype=np.float32)

    @qd.kernel
    def run(x: Array) -> qd.f32:
        s = 0.0
        for i in x:
            s += x[i] * 0.001
        return s

    assert abs(run(x) / (x.astype(np.float64).sum() * 0.001) - 1) < 1e-5


def test_plain_augmented_assignment(backend):
    out = np.zeros((8, 4), np.int32)
    out[:] = [7, -7, 13, 100]

    @qd.kernel
    def run(out: Array):
        for i in range(4):
            out[0, i] *= 3
            out[1, i] //= 2
            out[2, i] %= 4
            out[3, i] <<= 2
            out[4, i] >>= 1
            out[5, i] **= 2
            a = out[6, i]
            a -= 5
            a *= 2
            out[6, i] = a
            out[7, i] /= 2

    run(out)
    x = np.array([7, -7, 13, 100])
    e = [x * 3, x // 2, x % 4, x << 2, x >> 1, x**2, (x - 5) * 2, np.trunc(x / 2)]
    assert_close(out, np.stack(e).astype(np.int32))


def test_mixed_types_cast_to_the_target(backend):
    f = qd.field(qd.i32, 2)

    @qd.kernel
    def run():
        f[0] += 2.75
        f[1] += qd.cast(300, qd.i64)

    run()
    assert f.to_numpy().tolist() == [2, 300]


def test_histogram(backend):
    x = np.random.default_rng(9).integers(0, 64, 50000).astype(np.uint8)
    h = np.zeros(64, np.int32)

    @qd.kernel
    def run(x: Array, h: Array):
        for i in x:
            h[x[i]] += 1

    run(x, h)
    assert np.array_equal(h, np.bincount(x, minlength=64))


def test_own_and_neighbouring_elements(backend):
    """Atomics that only one iteration reaches, beside some that several reach."""
    n = 2000
    own, near, pair = qd.field(qd.f32, n), qd.field(qd.i32, n), qd.Vector.field(2, qd.i32, (n, 2))
    out = np.zeros((n, 2), np.int32)

    @qd.kernel
    def run(o: qd.types.ndarray(dtype=qd.i32, ndim=2), times: int):
        for i in range(n - 1):
            for t in range(times):
                own[i + 1] += 0.5
                near[i] += 1
                near[i + 1] += 1
                pair[i, t % 2] += qd.Vector([i, 1])
            own[i + 1] *= own[i + 1]
            o[i, 1] = qd.atomic_max(o[i, 0], i) + qd.atomic_sub(pair[i, 0][1], 2)

    run(out, 4)
    assert own.to_numpy().tolist() == [0] + [4] * (n - 1)
    assert near.to_numpy().tolist() == [4] + [8] * (n - 2) + [4]
    i = np.arange(n - 1)
    np.testing.assert_array_equal(
        pair.to_numpy()[:-1], np.stack([2 * i, 0 * i, 2 * i, 0 * i + 2], 1).reshape(-1, 2, 2)
    )
    np.testing.assert_array_equal(out[:-1], np.stack([i, 0 * i + 2], 1))


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("count, trips", [(4096, 0), (64, 3), (4096, 4), (33, 11), (4096, 37)])
def test_totals_of_several_turns(backend, name, count, trips):
    """Components and turns whose totals go to neighbours, and to other fields and arrays."""
    dt = dtype(name)
    low, n = -2, trips
    v = qd.Vector.field(3, dt, 40, offset=low)
    m, y = qd.Matrix.field(2, 2, dt, (40, 3)), qd.field(dt, 40)
    sums, bounds = qd.field(dt, count), qd.field(qd.i32, 2)

    @qd.kernel
    def run(a: qd.types.ndarray(dtype=dt, ndim=2), count: qd.i32):
        for i in range(count):
            x, s = qd.cast(i % 5 - 1, dt), qd.cast(0, dt)
            for j in range(bounds[0], bounds[1]):
                v[j] += qd.Vector([x, 2 * x, -x])
                s += x + j
            for j in range(bounds[1] - bounds[0]):
                m[j, 1] += qd.Matrix([[x, 1], [2, 3 * x]])
                a[j, 0] += x
                a[j, 1] -= 2 * x
                qd.atomic_max(y[j], x * j)
                s += y.shape[0]
            sums[i] = s

    bounds.from_numpy(np.array([low, low + n]))
    a = np.zeros((40, 2), np.dtype(name.replace("f", "float")))
    run(a, count)
    x = np.arange(count) % 5 - 1
    there = (np.arange(40) < n).astype(float)[:, None]
    total = x.sum()
    assert v.to_numpy().tolist() == (there * [total, 2 * total, -total]).tolist()
    assert a.tolist() == (there * [total, -2 * total]).tolist()
    each = np.array([[total, count], [2 * count, 3 * total]])
    assert m.to_numpy()[:, 1].tolist() == (there[:, :, None] * each).tolist()
    assert not m.to_numpy()[:, [0, 2]].any()
    assert y.to_numpy().tolist() == [max(0, x.max() * j) if j < n else 0 for j in range(40)]
    expected = n * x + sum(range(low, low + n)) + 40 * n
    assert sums.to_numpy().tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["f32", "f64", "i32"])
@pytest.mark.parametrize("count", [1, 31, 32, 1000, 4096])
def test_all_threads_come_to_one_element(backend, name, count):
    """The index is an inner loop's counter: threads of a subgroup may join what they have; or not,
    where loops end early, branches differ or the last subgroup is not whole."""
    dt = dtype(name)
    f, ends = qd.field(dt, (5, 8)), qd.field(qd.i32, ())
    v, w, u = qd.Vector.field(3, dt, 8), qd.field(dt, 8), qd.field(dt, 8)

    @qd.kernel
    def run(n: qd.i32):
        for i in range(n):
            x = qd.cast(i % 7 + 1, dt)
            for j in range(8):
                f[0, j] += x
                f[1, j] -= x
                qd.atomic_min(f[2, j], x - j)
                qd.atomic_max(f[3, j], x + j)
            for j in range(i % 9):
                v[j] += qd.Vector([x, 2 * x, -x])
                if (i + j) % 3 == 0:
                    f[4, j] += x
                else:
                    f[4, 7 - j] -= 1
            for j in range(ends[None]):
                w[j * j % 8] += x
            for j in range(8):
                if (i * 7 + j) % 3 == 1:  # threads that go on are not at what follows
                    continue
                u[j] += x

    ends[None] = 3
    f.fill(1)
    run(count)
    i = np.arange(count)
    x, j = (i % 7 + 1)[:, None], np.arange(8)[None, :]
    turns = j < (i % 9)[:, None]
    hit = turns & ((i[:, None] + j) % 3 == 0)
    got = f.to_numpy()
    assert got[0].tolist() == [1 + x.sum()] * 8
    assert got[1].tolist() == [1 - x.sum()] * 8
    assert got[2].tolist() == np.minimum(1, (x - j).min(0)).tolist()
    assert got[3].tolist() == np.maximum(1, (x + j).max(0)).tolist()
    missed = (turns & ~hit).sum(0)[::-1]
    assert got[4].tolist() == (1 + (hit * x).sum(0) - missed).tolist()
    sums = (turns * x).sum(0)
    assert v.to_numpy().tolist() == np.stack([sums, 2 * sums, -sums], 1).tolist()
    assert w.to_numpy().tolist() == [x.sum(), x.sum(), 0, 0, x.sum(), 0, 0, 0]
    comes = (i[:, None] * 7 + j) % 3 != 1
    assert u.to_numpy().tolist() == (comes * x).sum(0).tolist()


def test_misuse(backend):
    @qd.kernel
    def run():
        qd.atomic_add(3, 4)

    with raises(
        qd.QuadrantsSyntaxError,
        "cannot use a non-writable target as the first operand of 'atomic_add'",
    ):
        run()


@pytest.mark.of_cpus("one thread")
def test_an_index_that_the_loop_itself_counts(backend):
    """The place differs by iteration, though it is made of a variable of the kernel only."""
    backend.init(cpu_max_num_threads=1)
    x = qd.field(qd.f32, 4)

    @qd.kernel
    def run():
        count = 0
        for i in range(9):
            count += 1
            x[count % 4] += 1.0

    run()
    assert x.to_numpy().tolist() == [2, 3, 2, 2]


def add_under_a_swap(lock, count, n):
    for _ in range(n):
        while qd.atomic_cas(lock[0], 0, 1) != 0:
            pass
        count[0] = count[0] + 1
        qd.atomic_exchange(lock[0], 0)


def add_under_a_maximum(lock, count, n):
    for _ in range(n):
        while qd.atomic_max(lock[0], 1) != 0:
            pass
        count[0] = count[0] + 1
        qd.atomic_sub(lock[0], 1)


def look_twice(lock, count, n):
    for i in range(n):
        if count[0] < i:
            while qd.atomic_cas(lock[0], 0, 1) != 0:
                pass
            if count[0] < i:
                count[0] = i
            qd.atomic_exchange(lock[0], 0)


@pytest.mark.parametrize("body", [add_under_a_swap, add_under_a_maximum, look_twice])
def test_plain_statements_stay_between_the_ends_of_a_lock(backend, body, monkeypatch):
    """Kept in a register over the loop of locks, the count lost most updates."""
    monkeypatch.setenv("QD_CPU_TIER", "1")
    backend.init(cpu_max_num_threads=2)
    n = 100000 if backend.name == "cpu" else 300  # threads that wait for one lock at a time

    body.__annotations__ = {"lock": Array, "count": Array, "n": qd.i32}
    run = qd.kernel(body)
    for _ in range(20):
        lock, count = np.zeros(1, np.int32), np.zeros(1, np.int32)
        run(lock, count, n)
        assert count[0] == (n - 1 if body is look_twice else n)


WAITING = """
import quadrants as qd
qd.init(arch=qd.cpu, cpu_max_num_threads=2)
f = qd.field(qd.i32, 4)
@qd.kernel
def k(n: qd.i32):
    for i in range(n):
        if i == 0:
            {poll}
        if i == n - 1:
            qd.atomic_exchange(f[0], 1)
k(1000)
print("over")
"""
POLLS = {
    "volatile": "while qd.volatile_load(f[0]) == 0: pass",
    "exchange": "while qd.atomic_exchange(f[0], 0) == 0: pass",
    "cas": "while qd.atomic_cas(f[0], 1, 2) != 1: pass",
    "max": "while qd.atomic_max(f[0], 0) < 1: pass",
    "bounded": "\n            ".join(
        ["for j in range(10**9):", "    if qd.volatile_load(f[0]) != 0:", "        break"]
    ),
}


@pytest.mark.parametrize("poll", POLLS)
def test_an_early_iteration_may_wait_for_a_late_one(poll, tmp_path):
    (tmp_path / "wait.py").write_text(WAITING.format(poll=POLLS[poll]))
    command = [sys.executable, tmp_path / "wait.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "over"


# A sum over all iterations has chunks of many, which nobody may wait in.
SUMMING = """
import quadrants as qd
qd.init(arch=qd.cpu, cpu_max_num_threads=2)
f = qd.field(qd.i32, 2)
total = qd.field(qd.i32, ())
@qd.kernel
def k(n: qd.i32):
    qd.loop_config(block_dim=1)
    for i in range(n):
        if i == 3:
            ok = 0
            while not ok:
                if {question}:
                    ok = 1
        elif i == n - 1:
            qd.atomic_add(f[0], 1)
        total[None] += 1
k(64)
print(total[None])
"""


@pytest.mark.parametrize("question", ["qd.atomic_or(f[0], 0) > 0", "qd.volatile_load(f[0]) > 0"])
def test_iterations_wait_for_each_other_beside_a_sum(question, tmp_path):
    (tmp_path / "wait.py").write_text(SUMMING.format(question=question))
    command = [sys.executable, tmp_path / "wait.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "64"


TICKETS = """
import quadrants as qd
qd.init(arch=qd.cpu, cpu_max_num_threads=2)
Vec = qd.types.ndarray(qd.i32, 1)
@qd.kernel
def k(x: Vec, n: qd.i32):
    for i in range(n):
        mine = qd.atomic_add(x[0], 1)
        {wait}
        x[2] = x[2] + 1
        qd.atomic_add(x[1], 1)
x = qd.ndarray(qd.i32, 4)
for _ in range(10):
    x.fill(0)
    k(x, 3000)
    print(x[2])
"""
WAITS = {
    "while": "while qd.volatile_load(x[1]) != mine: pass",
    "for": "\n        ".join(
        ["for _ in range(10**9):", "    if qd.atomic_add(x[1], 0) == mine:", "        break"]
    ),
}


@pytest.mark.parametrize("tier", ["0", "1"])
@pytest.mark.parametrize("wait", WAITS)
def test_a_ticket_lock_keeps_what_it_guards(wait, tier, tmp_path):
    (tmp_path / "tickets.py").write_text(TICKETS.format(wait=WAITS[wait]))
    command = [sys.executable, tmp_path / "tickets.py"]
    env = dict(os.environ, QD_CPU_TIER=tier)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-10:] == ["3000"] * 10


@qd.func
def scaled(a: qd.template(), k):
    a *= k


@qd.func
def scaled_parts(a: qd.template(), k):
    a[0] *= k
    a.yx += k


@qd.func
def only_read(a: qd.template()):
    return a[0] * 10 + a.y


def test_several_components_as_targets(backend):
    f = qd.Vector.field(4, qd.i32, 2)
    s = qd.types.struct(v=qd.types.vector(3, qd.i32)).field(shape=1)

    @qd.kernel
    def run():
        v = qd.Vector([1, 2, 3, 4])
        f[1] = [1, 2, 3, 4]
        s[0].v = [1, 2, 3]
        scaled(f[1].xz, 10)
        scaled(v[1:3], 100)
        scaled(s[0].v.zx, 7)
        scaled_parts(s[0].v.yz, 2)
        f[0] = v
        f[0][0] = only_read(v.zw)

    run()
    assert f.to_numpy().tolist() == [[3004, 200, 300, 4], [10, 2, 30, 4]]
    assert s[0].v.to_numpy().tolist() == [7, 6, 23]

    @qd.kernel
    def count():
        for i in range(N):
            qd.atomic_add(f[0].xy, [1, 2])
            qd.atomic_max(f[0][2:4], i)

    f.fill(0)
    count()
    assert f[0].to_numpy().tolist() == [N, 2 * N, N - 1, N - 1]

    @qd.kernel
    def old() -> qd.types.vector(2, qd.i32):
        v = qd.Vector([5, 6, 7])
        before = qd.atomic_sub(v.zx, 1)
        return before * 10 + v.zx

    assert list(old()) == [76, 54]


@qd.func
def twice(x: qd.template()):
    x = x + 1
    x = x + 1


@qd.func
def changed(x: qd.template()):
    x[0] = 7
    return x


@qd.func
def changed_beside(x: qd.template(), v: qd.template()):
    v[0] = 7
    return x


@qd.func
def passed_on(x: qd.template()):
    changed(x.yx)
    twice(x)
    return x.sum()


@pytest.mark.parametrize("kind", ["variable", "field"])
def test_several_components_are_read_anew(backend, kind):
    f = qd.Vector.field(3, qd.i32, 6)

    @qd.kernel
    def run() -> qd.types.matrix(4, 3, qd.i32):
        out = qd.Matrix.zero(qd.i32, 4, 3)
        a = b = c = d = qd.Vector([1, 2, 3])
        for k in qd.static(range(4)):
            f[k] = [1, 2, 3]
        if qd.static(kind == "variable"):
            twice(a.xy)
            r = changed(b.xz)
            s = changed_beside(c[0:2], c)
            t = passed_on(d.xy)
            out = qd.Matrix.rows([a, [r[0], r[1], s[0]], [s[1], t, 0], d])
        else:
            twice(f[0].xy)
            r = changed(f[1].xz)
            s = changed_beside(f[2][0:2], f[2])
            t = passed_on(f[3].xy)
            out = qd.Matrix.rows([f[0], [r[0], r[1], s[0]], [s[1], t, 0], f[3]])
        return out

    assert run().to_list() == [[3, 4, 3], [7, 3, 7], [2, 12, 0], [3, 9, 3]]


@pytest.mark.parametrize("op", ["+=", "-=", "&=", "|=", "^="])
@pytest.mark.parametrize("of, by", [("i32", "f32"), ("i8", "u1"), ("u16", "f32"), ("u1", "u32")])
def test_parts_are_changed_as_the_whole(backend, tmp_path, op, of, by):
    """The operand takes the element's type first."""
    if by == "f32" and op in ("&=", "|=", "^="):
        pytest.skip("integers only")
    source = f"""
import quadrants as qd
@qd.kernel
def k(a: qd.{of}, b: qd.{by}) -> qd.types.matrix(3, 2, qd.i32):
    v, w, u = [qd.Vector([a, a]) for _ in qd.static(range(3))]
    o = qd.Vector([b, b])
    v {op} o
    w.xy {op} o
    u[0:2] {op} o
    return qd.Matrix.rows([qd.cast(v, qd.i32), qd.cast(w, qd.i32), qd.cast(u, qd.i32)])
"""
    path = tmp_path / "parts.py"
    path.write_text(source)
    space = {"__name__": "parts"}
    exec(compile(source, str(path), "exec"), space)
    a = {"i32": 123456789, "i8": 46, "u16": 65535, "u1": 1}[of]
    rows = space["k"](a, {"f32": 2.7, "u1": 1, "u32": 2}[by]).to_list()
    assert rows[1] == rows[0] and rows[2] == rows[0]
    assert rows[0] != [0, 0] or (of, op) in (
        ("u1", "+="),
        ("u1", "&="),
        ("u1", "-="),
        ("u1", "^="),
        ("i8", "&="),
    )


@qd.real_func
def halts_at(a: qd.template(), k: qd.i32):
    if k > 1:
        return
    a[0] = k


@qd.real_func
def first_of(a: qd.template()) -> qd.i32:
    return a[0]


def test_real_functions_take_several_components_as_values(backend):
    @qd.kernel
    def reads() -> qd.i32:
        v = qd.Vector([1, 2, 3])
        return first_of(v.zy)

    assert reads() == 3

    @qd.kernel
    def writes():
        v = qd.Vector([1, 2, 3])
        halts_at(v.zy, 1)

    with raises(qd.QuadrantsSyntaxError, "non-writable target"):
        writes()


@pytest.mark.parametrize("layout", [qd.Layout.AOS, qd.Layout.SOA])
@pytest.mark.parametrize("shape", [(2,), (3,), (4,), (2, 2), (4, 1), (2, 4)])
def test_vectors_are_added_from_many_threads(backend, shape, layout):
    """Some GPUs add two or four numbers at a time: only where they lie side by side, on an even place."""
    cells, n = 7, 10000
    make = qd.Vector.field if len(shape) == 1 else qd.Matrix.field
    whole = make(*shape, qd.f32, shape=cells, layout=layout)
    member = make(*shape, qd.f32)
    beside = qd.field(qd.f32)
    padding = [qd.field(qd.f32) for _ in range(-(1 + int(np.prod(shape))) % 4)]
    qd.root.dense(qd.i, cells).place(beside, member, *padding)  # steps of 16 bytes, from 4 on
    wide = make(*shape, qd.f64, shape=cells)
    seen = qd.field(qd.f32, n)

    @qd.kernel
    def k():
        for i in range(n):
            at = i * i % cells
            one = whole[0] * 0 + 1
            whole[at] += one * (i % 5)
            member[at] -= one * (i % 3)
            wide[at] += one * (i % 4)
            beside[at] += 1
            old = qd.atomic_add(member[at], one * 0)
            seen[i] = old[0] if qd.static(len(shape) == 1) else old[0, 0]

    k()
    i = np.arange(n)
    at = i * i % cells

    def sums(what):
        found = np.zeros(cells)
        np.add.at(found, at, what)
        return np.broadcast_to(found.reshape(cells, *[1] * len(shape)), (cells, *shape))

    assert (whole.to_numpy().reshape(cells, *shape) == sums(i % 5)).all()
    assert (member.to_numpy().reshape(cells, *shape) == -sums(i % 3)).all()
    assert (wide.to_numpy().reshape(cells, *shape) == sums(i % 4)).all()
    assert (beside.to_numpy() == np.bincount(at, minlength=cells)).all()
    assert (seen.to_numpy() <= 0).all()
