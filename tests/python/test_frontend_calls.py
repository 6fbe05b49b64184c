"""Calls: references and aliases, deep and threaded tracing, buffer views, members that change."""

import builtins
import dataclasses
import functools
import threading
import unittest.mock

import numpy as np
import pytest

import quadrants as qd
from helpers import Array


def test_references_to_locals_elements_and_fields(backend):
    f = qd.field(qd.i32, 16)

    @qd.func
    def increment(x: qd.template()):
        x += 1

    @qd.kernel
    def k() -> qd.i32:
        a = 1
        increment(a)
        for i in range(10):
            b = 3
            increment(b)
            increment(f[i])
            increment(a)
            v = qd.Vector([1, 2, 3])
            increment(v[1])
            increment(v)
            f[i] += b + v[1]
        return a

    assert k() == 1 + 1 + 10
    assert f.to_numpy().tolist() == [1 + 4 + 4] * 10 + [0] * 6


def test_two_references_to_one_variable(backend):
    @qd.func
    def both(a: qd.template(), b: qd.template()):
        a += 1
        b += 10

    @qd.kernel
    def k() -> qd.i32:
        x = 1
        both(x, x)
        return x

    assert k() == 12


def test_references_to_vectors_and_matrices(backend):
    @qd.func
    def modify(v: qd.template(), m: qd.template()):
        v[0] += 1
        m[1, 0] = v[0]
        v = v * 2

    @qd.kernel
    def k() -> qd.f32:
        v = qd.Vector([1.0, 2.0])
        m = qd.Matrix([[0.0, 0.0], [0.0, 0.0]])
        modify(v, m)
        return v[0] * 100 + v[1] * 10 + m[1, 0]

    assert k() == 4 * 100 + 4 * 10 + 2


def test_funcs_with_loops_called_at_the_top_level(backend):
    f = qd.field(qd.f32, 16)

    @qd.func
    def fill(x: qd.template(), n, v):
        for i in range(n):
            x[i] = v

    @qd.kernel
    def k(n: qd.i32):
        fill(f, 16, 1.0)
        fill(f, n, 2.0)
        if n > 3:
            fill(f, 2, 3.0)

    k(5)
    assert f.to_numpy().tolist() == [3, 3, 2, 2, 2] + [1] * 11


def test_arrays_reach_funcs_both_ways(backend):
    @qd.func
    def by_template(a: qd.template(), i):
        a[i] += 1

    @qd.func
    def by_annotation(a: Array, i):
        a[i] += 1

    @qd.kernel
    def k(a: qd.types.ndarray(dtype=qd.i32, ndim=1)):
        for i in a:
            by_template(a, i)
            by_annotation(a, i)

    a = np.zeros(3, np.int32)
    k(a)
    assert a.tolist() == [2, 2, 2]


def test_one_array_for_two_parameters(backend):
    @qd.kernel
    def double(a: Array, b: Array):
        for i in a:
            b[i] = a[i] * 2

    a, b = np.arange(4, dtype=np.float64), np.zeros(4, np.float32)
    double(a, a)
    double(np.arange(4, dtype=np.int32), b)
    assert a.tolist() == b.tolist() == [0, 2, 4, 6]


@pytest.mark.oracle_differs("nesting this deep exhausts its stack")
def test_deep_static_recursion_on_any_thread(backend):
    depth = 150

    @qd.func
    def deep(x, n: qd.template()):
        r = x
        if qd.static(n > 0):
            for i in range(1):
                r = deep(x + n, n - 1)
        return r

    @qd.kernel
    def here() -> qd.i32:
        return deep(0, depth)

    @qd.kernel
    def there() -> qd.i32:
        return deep(0, depth)

    results = [here()]
    thread = threading.Thread(target=lambda: results.append(there()))
    thread.start()
    thread.join()
    assert results == [depth * (depth + 1) // 2] * 2


def test_nested_data_oriented_objects(backend):
    f = qd.field(qd.f32, 4)

    @qd.data_oriented
    class Part:
        def __init__(self):
            self.arr = qd.ndarray(qd.f32, (4,))
            self.arr.fill(2)

        @qd.func
        def value(self, i):
            return self.arr[i]

    @qd.data_oriented
    class Whole:
        def __init__(self):
            self.part = Part()
            self.by_name = {"k": f}
            self.pair = (1, 2)

        @qd.kernel
        def k(self, n: qd.i32):
            for i in range(n):
                self.by_name["k"][i] = self.part.value(i) + self.pair[1]

        @classmethod
        @qd.kernel
        def of_the_class(cls, n: qd.i32) -> qd.i32:
            return n

    Whole().k(4)
    assert f.to_numpy().tolist() == [4] * 4
    assert Whole.of_the_class(3) == 3


def test_array_members_and_lists_of_arrays(backend):
    @qd.data_oriented
    class Sim:
        def __init__(self, k):
            self.k, self.n = k, 5
            self.f = qd.field(qd.f32, shape=5)
            self.a = qd.ndarray(qd.f32, (5,))
            self.arrays = [qd.ndarray(qd.f32, (5,)), qd.ndarray(qd.i32, (5,))]

        @qd.func
        def get(self, i):
            return self.a[i] * self.k

        @qd.kernel
        def run(self, m: qd.i32):
            for i in range(self.n):
                self.a[i] = i
                self.f[i] = self.get(i) + m
                for a in qd.static(self.arrays):
                    a[i] += i

    one, two = Sim(2), Sim(3)
    one.run(1), two.run(1), one.run(2)
    assert one.f.to_numpy().tolist() == [i * 2 + 2 for i in range(5)]
    assert two.f.to_numpy().tolist() == [i * 3 + 1 for i in range(5)]
    assert one.arrays[1].to_numpy().tolist() == [2 * i for i in range(5)]


def test_rebinding_an_array_member(backend):
    @qd.data_oriented
    class A:
        def __init__(self, n):
            self.n, self.a = n, qd.ndarray(qd.f32, (3,))

        @qd.kernel
        def k(self) -> qd.f32:
            return self.n + self.a[0]

    x = A(1)
    assert x.k() == 1
    x.a = qd.ndarray(qd.f32, (5,))
    x.a.fill(2.5)
    assert x.k() == 3.5
    x.a = qd.ndarray(qd.i32, (3,))  # another type: compiled anew
    x.a.fill(7)
    assert x.k() == 8
    assert A(5).k() == 5


def test_primitive_members_at_run_time(backend):
    @qd.data_oriented(template_primitives=False)
    class C:
        def __init__(self):
            self.n, self.x = 3, 1.5

        @qd.kernel
        def k(self) -> qd.f32:
            return self.n * self.x

    c = C()
    assert c.k() == 4.5
    c.n = 5
    assert c.k() == 7.5


def test_funcs_that_take_nested_dataclasses(backend):
    @dataclasses.dataclass(frozen=True)
    class Inner:
        p: qd.types.ndarray()
        k: qd.f32

    @dataclasses.dataclass(frozen=True)
    class Outer:
        a: qd.types.ndarray()
        inner: Inner
        n: qd.i32

    @qd.func
    def shifted(x: Inner, i):
        return x.p[i] + x.k

    @qd.func
    def value(o: Outer, i):
        return o.inner.p[i] * o.inner.k + shifted(o.inner, i)

    @qd.kernel
    def k(o: Outer):
        for i in range(o.n):
            o.a[i] = value(o, i)

    a, p = qd.ndarray(qd.f32, (4,)), qd.ndarray(qd.f32, (4,))
    p.from_numpy(np.arange(4, dtype=np.float32))
    k(Outer(a, Inner(p, 2.5), 4))
    assert a.to_numpy().tolist() == [i * 2.5 + i + 2.5 for i in range(4)]


def test_buffer_views(backend):
    a = qd.ndarray(qd.f32, (10,))

    @qd.func
    def total(v):
        s = 0.0
        for i in range(v.size):
            s += v[i]
        return s

    @qd.func
    def set_all(v: qd.BufferView, x):
        for i in range(v.shape[0]):
            v[i] = x

    @qd.kernel
    def k(v: qd.BufferView, w: qd.BufferView[qd.f32]):
        for i in range(v.size):
            v[i] = i + 1
        w[0] += 100
        part = v.subview(1, 2)
        set_all(part, 9.0)
        w[1] = total(v)

    k(a[2:6], qd.BufferView(a, 7, 3))
    assert a.to_numpy().tolist() == [0, 0, 1, 9, 9, 4, 0, 100, 23, 0]


def test_buffer_views_made_in_a_kernel(backend):
    @qd.kernel
    def k(a: qd.types.ndarray(dtype=qd.f32, ndim=1)):
        v = qd.BufferView(a, 2, 4)
        for i in range(4):
            v[i] = i + 1
        w = v[1:3]
        w[0] += 10
        v.subview(3, 1)[0] = 50
        a[0] = w.size

    a = qd.ndarray(qd.f32, (10,))
    k(a)
    assert a.to_numpy().tolist() == [2, 0, 1, 12, 3, 50, 0, 0, 0, 0]


def test_buffer_views_check_their_range(debug_backend):
    a = qd.ndarray(qd.f32, (10,))

    @qd.kernel
    def k(v: qd.BufferView, i: qd.i32):
        v[i] = 1

    with pytest.raises(qd.QuadrantsAssertionError) as e:
        k(a[0:2], 5)
        qd.sync()
    assert "BufferView Out Of Range" in str(e.value)
    assert "got index 5 (offset=0, size=2)" in str(e.value)
    assert not a.to_numpy().any()


def test_a_failed_trace_is_retried_with_the_same_text(backend):
    @qd.kernel
    def k(n: qd.i32):
        missing_everywhere(n)  # noqa: F821

    texts = []
    for _ in range(3):
        with pytest.raises(qd.QuadrantsNameError) as e:
            k(1)
        texts.append(str(e.value))
    assert "missing_everywhere" in texts[0] and len(set(texts)) == 1


def doubled(f):
    @functools.wraps(f)
    def around(*args):
        return f(*args) * 2

    return around


def test_wrappers_with_the_marks_of_what_they_wrap_are_called(backend):
    @doubled
    @qd.func
    def shifted(x):
        return x + 1

    @doubled
    @qd.real_func
    def real(x: qd.i32) -> qd.i32:
        return x + 1

    root = doubled(qd.sqrt)

    @qd.kernel
    def k(f: qd.template(), x: qd.i32) -> qd.types.vector(4, qd.f64):
        return qd.Vector([shifted(x), f(x), real(x), root(x * 4.0)])

    assert k(shifted, 9).to_list() == [20, 20, 20, 12]


def test_an_object_with_every_attribute_is_no_kernel(backend):
    stand_in = unittest.mock.MagicMock(return_value=4)

    @qd.kernel
    def k() -> qd.i32:
        return stand_in(1)

    assert k() == 4


def test_builtins_are_known_by_what_they_are(backend, monkeypatch):
    largest, absolute = max, abs

    @qd.kernel
    def k(x: qd.i32) -> qd.i32:
        return max(x, 5) + min(x, 5) * 10 + largest(x, 5) * 100 + abs(x) * 1000

    with monkeypatch.context() as m:
        m.setattr(builtins, "max", min)
        m.setattr(builtins, "abs", lambda x: absolute(x) + 100)
        found = k(7)
    assert found == 5 + 50 + 700 + 107000


def test_a_print_of_the_programs_own_prints_from_the_kernel(backend, monkeypatch, capfd):
    @qd.kernel
    def before():
        print("before")

    before()
    monkeypatch.setattr(builtins, "print", lambda *a, own=print: own("own", *a))

    @qd.kernel
    def after(x: qd.i32):
        print("after", x)

    after(1)
    after(2)
    qd.sync()
    assert capfd.readouterr().out.splitlines() == ["before", "after 1", "after 2"]


def test_recursion_in_branches_that_differ(backend):
    """A GPU's assembler mixed up the threads of a group that leave such functions at different depths."""
    n = 4096
    x, out = qd.field(qd.i32, n), qd.field(qd.i32, n)
    x.from_numpy(np.random.default_rng(3).integers(-(2**31), 2**31, n, dtype=np.int32))

    @qd.real_func
    def walk(a: qd.i32, left: qd.i32) -> qd.i32:
        if left == 0:
            return 1
        if a % 3 == 0:
            return a - walk(a // 2, left - 1)
        for k in range(5):
            if k * k > (a & 15):
                return a + k
        return walk(a * 5 + 1, left - 1) * 2

    @qd.kernel
    def run():
        for i in x:
            out[i] = walk(x[i], 7)
            if x[i] % 2 == 0:
                out[i] += walk(out[i], 5)

    def wrap(v):
        return (v + 2**31) % 2**32 - 2**31

    def expected(a, left):
        if left == 0:
            return 1
        if a % 3 == 0:
            return wrap(a - expected(a // 2, left - 1))
        for k in range(5):
            if k * k > (a & 15):
                return wrap(a + k)
        return wrap(2 * expected(wrap(a * 5 + 1), left - 1))

    run()
    for a, got in zip(x.to_numpy().tolist(), out.to_numpy().tolist()):
        want = expected(a, 7)
        if a % 2 == 0:
            want = wrap(want + expected(want, 5))
        assert got == want
