"""Every row of the op table that has a Python function, over its dtypes and shapes.

A kernel computes what fold() does, bit for bit, and what plain Python does, as closely as the row says:
with numbers, vectors, and matrices against numbers.
"""

import numpy as np
import pytest

import op_table
import quadrants as qd
from helpers import DTYPES, FLOATS, INTS, NUMPY, Array, assert_close, bits, draw, dtype

TABLE = op_table.functions()
ROWS = {name: row for name, (row, _) in TABLE.items() if row["kind"] == "elementwise"}
ATOMICS = {name: rows for name, rows in TABLE.items() if rows[0]["kind"] == "atomic"}
N = 96  # operands of each function that plain Python gets, too; a multiple of 12
TAKEN = {"any": DTYPES, "ints": [*INTS, "u1"], "floats": FLOATS}
# What neither the row nor plain Python is exact about.
UNLIKE_NUMPY = {"round": lambda x: np.trunc(x + np.copysign(x.dtype.type(0.5), x))}  # halves


def chosen(p, rule):
    """Functions that take dtype p and have results of this rule."""
    return [name for name, row in ROWS.items() if p in TAKEN[row["takes"]] and row["rule"] == rule]


def plain(row, which, p):
    """Operands that plain Python gets: where the row is tested, without what it does not define."""
    second = which == "against"
    seed = 100 + second
    if p == "u1":
        return np.arange(N) % (2 + second) > 0
    if p[0] == "f" and row.get("elementary"):
        low, high = row[which]
        return draw(N, dtype(p), seed=seed, x=(low, high))
    if p[0] == "f":  # no zero; quotients are exact, or far from whole numbers
        return (draw(N, qd.f64, seed=seed, x=(0, 64)).round() - 31.5).astype(NUMPY[p]) / 8
    x = draw(N, dtype(p), seed=seed, x=(-60 if p[0] == "i" else 0, 60))
    if second:
        x = np.where(x == 0, NUMPY[p](7), x)
        x = x & NUMPY[p](bits(p) - 1) if "shift" in row.get("method", "") else x
    return x


def extreme(p):
    """N operands that kernels and fold() must agree on."""
    t = NUMPY[p]
    if p == "u1":
        return np.arange(N) % 2 > 0
    if p[0] == "f":
        info = np.finfo(t)
        edge = [0.0, -0.0, 1, -1, 0.5, -2.5, np.inf, -np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal]  # fmt: skip
    else:
        info = np.iinfo(t)
        edge = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, 31, 33, 64]
    return np.resize(np.array(edge, t), N)


def operands(names, p):
    pairs = []
    for name in names:
        x, y = (
            np.concatenate([plain(ROWS[name], k, p), extreme(p)]) for k in ("tested", "against")
        )
        y[N:] = y[N + (np.arange(N) * 5 + np.arange(N) // 12 * 7) % N]
        pairs.append((x, y))
    return np.stack([x for x, _ in pairs]), np.stack([y for _, y in pairs])


def computed(names, x, y, kind):
    """What kernels make of operands, by shapes: numbers, vectors, matrices and numbers."""
    table = [
        (k, getattr(qd.lang.ops, name), ROWS[name]["operands"]) for k, name in enumerate(names)
    ]
    out = np.zeros((3, *x.shape), kind)

    @qd.kernel
    def run(x: Array, y: Array, out: Array):
        for i in range(x.shape[1]):
            for k, f, count in qd.static(table):
                out[0, k, i] = f(x[k, i]) if qd.static(count == 1) else f(x[k, i], y[k, i])
        for i in range(x.shape[1] // 3):
            for k, f, count in qd.static(table):
                a = qd.Vector([x[k, 3 * i + c] for c in qd.static(range(3))])
                b = qd.Vector([y[k, 3 * i + c] for c in qd.static(range(3))])
                r = f(a) if qd.static(count == 1) else f(a, b)
                for c in qd.static(range(3)):
                    out[1, k, 3 * i + c] = r[c]
        for i in range(x.shape[1] // 4):
            for k, f, count in qd.static(table):
                a = qd.Matrix([[x[k, 4 * i + 2 * c + d] for d in qd.static(range(2))] for c in qd.static(range(2))])  # fmt: skip
                r = f(a) if qd.static(count == 1) else f(a, y[k, 4 * i])
                for c in qd.static(range(4)):
                    out[2, k, 4 * i + c] = r[c // 2, c % 2]

    run(x, y, out)
    return out


KINDS = {"same0": lambda p: NUMPY[p], "boolean": lambda p: np.bool_, "count32": lambda p: np.int32}


def test_every_row_is_tried():
    assert {name for p in DTYPES for rule in KINDS for name in chosen(p, rule)} == set(ROWS)
    assert len(ROWS) > 40 and len(ATOMICS) > 9


@pytest.mark.parametrize("p,rule", [(p, rule) for p in DTYPES for rule in KINDS if chosen(p, rule)])
def test_a_kernel_computes_what_fold_does(backend, p, rule, monkeypatch):
    names = chosen(p, rule)
    x, y = operands(names, p)
    results = []
    for tier in ("interpret", "1"):
        monkeypatch.setenv("QD_CPU_TIER", tier)
        backend.init(fast_math=False, offline_cache=False)
        results.append(computed(names, x, y, KINDS[rule](p)))
    folded, compiled = results
    for k, name in enumerate(names):
        same = (compiled[:, k] == folded[:, k]) | (compiled[:, k] != compiled[:, k])
        assert same.all(), (name, x[k][~same[0]], y[k][~same[0]])
        assert_close(compiled[1, k], compiled[0, k])
        if ROWS[name]["operands"] == 1:
            assert_close(compiled[2, k], compiled[0, k])


@pytest.mark.parametrize("fast_math", [False, True])
@pytest.mark.parametrize("rule", ["same0", "boolean"])
@pytest.mark.parametrize("p", [p for p in DTYPES if p != "u1"])
def test_a_kernel_computes_what_plain_python_does(backend, p, rule, fast_math):
    names = [n for n in chosen(p, rule) if ROWS[n].get("face") != "kernel_value"]
    backend.init(fast_math=fast_math)
    x, y = (a[:, :N].copy() for a in operands(names, p))
    out = computed(names, x, y, KINDS[rule](p))[0]
    # A GPU's quotients are approximations.
    fast = fast_math and p == "f32" and backend.name != "cpu"
    near = [k for k, name in enumerate(names) if fast and name == "truediv"]
    for k, name in enumerate(names):
        row = ROWS[name]
        wide = np.longdouble if row.get("elementary") else NUMPY[p]
        given = [a[k].astype(wide) for a in (x, y)][: row["operands"]]
        with np.errstate(over="ignore"):  # of f16
            expect = UNLIKE_NUMPY.get(name, getattr(qd.lang.ops, name))(*given).astype(out.dtype)
        try:
            assert_close(out[k], expect, ulp=2 if k in near else row["ulp"] or None)
        except AssertionError as e:
            raise AssertionError(f"{name}: {e}") from None


@pytest.mark.parametrize("p", [*INTS, "f32", "f64"])
def test_an_atomic_stores_what_its_row_says(backend, p):
    names = [n for n, (row, _) in ATOMICS.items() if p in TAKEN[row["takes"]] and n != "atomic_cas"]
    table = [(k, getattr(qd, name)) for k, name in enumerate(names)]
    x, y = operands(["min"] * len(names), p)
    place, old = x[:, :N].copy(), np.zeros((len(names), N), NUMPY[p])

    @qd.kernel
    def run(place: Array, y: Array, old: Array):
        for i in range(N):
            for k, f in qd.static(table):
                old[k, i] = f(place[k, i], y[k, i])

    run(place, y, old)
    assert_close(old, x[:, :N])
    for k, name in enumerate(names):
        text = op_table.op_functions.computed(*ATOMICS[name])
        assert_close(place[k], eval(text, vars(qd.lang.ops), {"x": x[k, :N], "y": y[k, :N]}))
