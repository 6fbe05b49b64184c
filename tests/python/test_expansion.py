"""Small funcs are expanded into their callers by the optimised tier: how far, and that it stays right."""

import linecache

import numpy as np
import pytest

import quadrants as qd
from helpers import Array


def chain(depth, fan):
    """A kernel that calls through `depth` funcs, each of which calls the one below `fan` times."""
    lines = ["@qd.func", "def f0(x: qd.f32) -> qd.f32:", "    s = x"]
    lines += ["    for k in range(3):", "        s = s * 1.5 + qd.sqrt(x + k) / (s + 2.0)"]
    lines += ["        if s > 3.0:", "            s = s - 1.0", "    return s"]
    for d in range(1, depth):
        lines += [
            "@qd.func",
            f"def f{d}(x: qd.f32) -> qd.f32:",
            "    s = x",
            "    for k in range(2):",
        ]
        lines += [f"        s = s + f{d - 1}(s + {i}.0) * 0.1" for i in range(fan)] + [
            "    return s"
        ]
    lines += ["@qd.kernel", "def k(x: qd.f32) -> qd.f32:", f"    return f{depth - 1}(x)"]
    name = f"<chain {depth} {fan}>"
    linecache.cache[name] = (1, None, [x + "\n" for x in lines], name)
    names = {"qd": qd}
    exec(compile("\n".join(lines), name, "exec"), names)
    return names["k"]


def optimised_lines(depth, folder, monkeypatch):
    """Lines of optimised LLVM IR, which is written to the current folder."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    qd.init(arch=qd.cpu, print_kernel_llvm_ir_optimized=True, offline_cache=False)
    qd._lib.core.prepare_kernel(chain(depth, 4), (0.5,))
    return sum(len(f.read_text().splitlines()) for f in folder.iterdir())


@pytest.mark.oracle_differs("has no such functions", run=False)
def test_nested_calls_do_not_multiply(backend, tmp_path, monkeypatch):
    small = optimised_lines(4, tmp_path / "4", monkeypatch)
    large = optimised_lines(12, tmp_path / "12", monkeypatch)
    assert 100 < small and large < 8 * small


def test_loads_of_an_expanded_func_see_what_its_caller_wrote(backend):
    @qd.func
    def g(a: Array, i: qd.i32):
        s = 0.0
        for k in range(i, i + 3):
            s += a[k] * a[k] + qd.sin(a[k])
        if s > 3.0:
            s = s * 0.5 + a[i + 1]
            if a[i + 2] > 10:
                s = s - a[i]
        else:
            s = s * 2 - a[i]
            if a[i + 2] < -10:
                s = s + a[i + 1] * 3
        return s

    @qd.kernel
    def k(a: Array, out: Array, n: qd.i32):
        for j in range(n):
            b = 3 * j
            for x in range(6):
                a[b + x % 3] = x + 2.0 * j - 4
                out[6 * j + x] = g(a, b) + g(a, b)

    n = 16
    a, out = np.zeros(3 * n, np.float32), np.zeros(6 * n, np.float32)
    k(a, out, n)
    if hasattr(qd._lib.core, "finish_optimisations"):
        qd._lib.core.finish_optimisations()
    k(a, out, n)
    b, expected = np.zeros(3, np.float64), []
    for j in range(n):
        b[:] = np.arange(3, 6) + 2.0 * j - 4  # left there by the first launch
        for x in range(6):
            b[x % 3] = x + 2.0 * j - 4
            s = (b * b + np.sin(b)).sum()
            if s > 3:
                s = s * 0.5 + b[1] - (b[0] if b[2] > 10 else 0)
            else:
                s = s * 2 - b[0] + (b[1] * 3 if b[2] < -10 else 0)
            expected.append(2 * s)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-3)
