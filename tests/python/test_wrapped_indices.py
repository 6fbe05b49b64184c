"""Sums of i32 that wrap around, where they are indices and bounds of loops."""

import random

import numpy as np
import pytest

import quadrants as qd
from helpers import module_at

MOST, LEAST = 2**31 - 1, -(2**31)


def wrapped(n):
    return (n + 2**31) % 2**32 - 2**31


# Each is i modulo 2^32; k is 2^31 - 1, one and two are read from memory, i64 sums are cut to i32.
AROUND = [
    "i + k + k + 2",
    "i + 2147483647 + 2147483647 + 2",
    "i - (-k - 1) - (-k - 1)",
    "(p[0] + 1) + (p[1] + 1) + k + k - p[0] - p[1] + i",
    "k - (k - i - 5) - 5",
    "(i - k) - (i - k) + i",
    "(p[1] + k) + (p[0] + k) + (i - p[0] - p[1] + 2)",
    "difference(i + k, 0 - k - 2)",
    "qd.cast(qd.cast(i, qd.i64) * 65536 * 65536 + i, qd.i32)",
    "qd.cast(qd.cast(i, qd.i64) + 2147483647 + 2147483647 + 2, qd.i32)",
    "i + k + k + k + k + 4",
]
PLACES = {
    "array": ("a[{x}]", "a: qd.types.ndarray(qd.i32, ndim=1)"),
    "axis": ("b[{x}, 1]", "b: qd.types.ndarray(qd.i32, ndim=2)"),
    "other axis": ("b[1, {x}]", "b: qd.types.ndarray(qd.i32, ndim=2)"),
    "field": ("F[{x}]", ""),
    "offset": ("G[{x}]", ""),
    "blocks": ("H[{x}]", ""),
    "component": ("F[W[2][({x}) % 4]]", ""),
    "local": ("w[{x}]", ""),
    "clamped": ("c[{x}]", "c: qd.types.ndarray(qd.i32, ndim=1, boundary='clamp')"),
}
HEAD = """
import quadrants as qd
F = qd.field(qd.i32, 8)
G = qd.field(qd.i32, 8, offset=-4)
H = qd.field(qd.i32)
qd.root.dense(qd.i, 4).dense(qd.i, 2).place(H)
W = qd.Vector.field(4, qd.i32, 3)
@qd.func
def difference(x, y): return x - y
"""


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_indices_that_come_around(backend, place, debug, tmp_path):
    qd.init(arch=backend, debug=debug, log_level="error")
    access, parameter = PLACES[place]
    lines = [f"        out[{row}, i] = {access.format(x=x)}" for row, x in enumerate(AROUND)]
    source = f"""{HEAD}
@qd.kernel
def k(k: qd.i32, p: qd.types.ndarray(qd.i32, ndim=1), out: qd.types.ndarray(qd.i32, ndim=2), {parameter}):
    for i in range(4):
        w = qd.Vector([10, 11, 12, 13, 14, 15, 16, 17])
{chr(10).join(lines)}
"""
    path = tmp_path / "around.py"
    path.write_text(source)
    module = module_at(path, "around")
    data = np.arange(10, 18, dtype=np.int32)
    for field in (module.F, module.G, module.H):
        field.from_numpy(data)
    module.W.from_numpy(np.arange(12, dtype=np.int32).reshape(3, 4) % 4)
    arguments = [data] if parameter else []
    if "axis" in place:
        arguments = [
            np.stack([np.zeros(8, np.int32), data]) if "other" in place else np.stack([data] * 2, 1)
        ]
    out = np.zeros((len(AROUND), 4), np.int32)
    p = np.array([LEAST + 9, MOST - 3], np.int32)
    module.k(MOST, p, out, *arguments)
    shift = 4 if place == "offset" else 0
    for row, x in enumerate(AROUND):
        assert out[row].tolist() == [10 + i + shift for i in range(4)], x


@pytest.mark.parametrize("debug", [False, True])
def test_stores_and_sums_that_come_around(backend, debug):
    qd.init(arch=backend, debug=debug, log_level="error")
    array = qd.types.ndarray(qd.i32, ndim=1)

    @qd.kernel
    def stores(k: qd.i32, o: array):
        for i in range(8):
            o[i + k + k + 2] = i
            o[i - (-k - 1) - (-k - 1)] += 10

    @qd.kernel
    def buckets(n: qd.i32, o: array):
        for i in range(n):
            h = i * 1664525 + 1013904223
            o[h - (h // 64) * 64] += 1

    @qd.kernel
    def one_after_the_other(n: qd.i32, o: array):
        qd.loop_config(serialize=True)
        h = 1
        for _ in range(n):
            h = h * 1664525 + 1013904223
            o[h - (h >> 6 << 6)] += 1

    @qd.kernel
    def wide(n: qd.i32, o: array):
        for i in range(n):
            h = qd.cast(qd.cast(i, qd.i64) * 1000003 * 7919, qd.i32)
            o[h - (h // 64) * 64] += 1

    o = np.zeros(8, np.int32)
    stores(MOST, o)
    assert o.tolist() == [10 + i for i in range(8)]

    def count(hashes):
        return np.bincount([wrapped(h) % 64 for h in hashes], minlength=64).tolist()

    serial = [1]
    for _ in range(1000):
        serial.append(wrapped(serial[-1] * 1664525 + 1013904223))
    for kernel, hashes in [
        (buckets, [i * 1664525 + 1013904223 for i in range(1000)]),
        (one_after_the_other, serial[1:]),
        (wide, [i * 1000003 * 7919 for i in range(1000)]),
    ]:
        o = np.zeros(64, np.int32)
        kernel(1000, o)
        assert o.tolist() == count(hashes)


def test_a_clamped_index_is_the_wrapped_one(backend):
    @qd.kernel
    def k(
        k: qd.i32,
        a: qd.types.ndarray(qd.i32, ndim=1, boundary="clamp"),
        o: qd.types.ndarray(qd.i32, ndim=1),
    ):
        for i in range(4):
            o[i] = a[i + k]

    o = np.zeros(4, np.int32)
    k(MOST, np.arange(64, dtype=np.int32), o)
    assert o.tolist() == [63, 0, 0, 0]


BOUNDS = [("k - 1", "k + 1 + i"), ("n", "n + k + k + 2"), ("0", "y - (x + i)"), ("0", "h - (h // 4) * 4"),
          ("k + k + 2", "3"), ("n - (k + i)", "3 + n - (k + i)"), ("i + k + 1", "i - k"), ("p[0]", "p[0] + p[1]")]  # fmt: skip


@pytest.mark.parametrize("serial", [True, False])
@pytest.mark.parametrize("bounds", BOUNDS, ids=" to ".join)
def test_bounds_that_come_around(backend, bounds, serial, tmp_path):
    loop = "range({}, {})" if serial else "qd.ndrange(({}, {}))"
    (tmp_path / "bounds.py").write_text(f"""
import quadrants as qd
@qd.kernel
def k(k: qd.i32, n: qd.i32, x: qd.i32, y: qd.i32, p: qd.types.ndarray(qd.i32, ndim=1), o: qd.types.ndarray(qd.i32, ndim=1)):
    for i in range(4):
        h = (i + 1000) * 1664525 + 1013904223
        for j in {loop.format(*bounds)}:
            o[i] += 1
            if o[i] > 50: break
""")
    module = module_at(tmp_path / "bounds.py", "bounds")
    names = {"k": MOST, "n": 7, "x": LEAST, "y": 5, "p": [MOST - 2, 2]}
    o, expected = np.zeros(4, np.int32), []
    for i in range(4):
        names |= {"i": i, "h": wrapped((i + 1000) * 1664525 + 1013904223)}
        begin, end = (wrapped(eval(b, {}, names)) for b in bounds)
        expected.append(min(max(0, end - begin), 51))
    module.k(*(names[n] for n in "knxy"), np.array(names["p"], np.int32), o)
    assert o.tolist() == expected


def _sum(rng, depth):
    """Text of a sum of i32 (Python's own numbers would not wrap), and its value by those of the leaves."""
    if depth == 0 or rng.random() < 0.1:
        kind = rng.randrange(4)
        if kind == 0:
            n = rng.choice(
                [MOST, LEAST + 1, 2**30, -(2**30), 1, -1, 64, rng.randrange(LEAST + 1, MOST)]
            )
            return f"(i * 0 + ({n}))", lambda leaves: n
        name = rng.choice("ijxyz") if kind < 3 else rng.choice(["p[0]", "p[1]", "p[2]"])
        return name, lambda leaves: leaves[name]
    a, value_a = _sum(rng, depth - 1)
    b, value_b = _sum(rng, depth - 1)
    if rng.random() < 0.5:
        return f"({a} + {b})", lambda leaves: value_a(leaves) + value_b(leaves)
    return f"({a} - {b})", lambda leaves: value_a(leaves) - value_b(leaves)


@pytest.mark.parametrize("seed", range(6))
def test_random_sums(backend, seed, tmp_path):
    """Whatever the sum, an array and what is taken from it again lead to the place that is meant."""
    rng = random.Random(seed)
    extremes = [MOST, LEAST, LEAST + 1, 2**30, -(2**30), 0, 5, -7]
    values = {
        n: rng.choice([*extremes, rng.randrange(LEAST, MOST)])
        for n in ("x", "y", "z", "p[0]", "p[1]", "p[2]")
    }
    rows, expected = [], []
    for row in range(30):
        text, value = _sum(rng, rng.randrange(1, 5))

        # What leads back to i + 2 * j: of the sum at i = j = 0, and of how it grows with each.
        def at(i, j, value=value):
            return value(values | {"i": i, "j": j})

        di, dj = wrapped(at(1, 0) - at(0, 0)), wrapped(at(0, 1) - at(0, 0))
        back = wrapped(-at(0, 0))
        place = f"{text} + ({back}) + i * ({1 - di}) + j * ({2 - dj})"
        rows.append(f"            o[{row}, i, j] = a[{place}] + 100 * F[{place}]")
        rows.append(
            f"            for _ in range({place}, {place} + {row % 3}): o[{row}, i, j] += 10000"
        )
        expected.append(
            [[101 * (i + 2 * j) + 10000 * (row % 3) for j in range(3)] for i in range(4)]
        )
    (tmp_path / "sums.py").write_text(f"""
import quadrants as qd
F = qd.field(qd.i32, 16)
@qd.kernel
def k(x: qd.i32, y: qd.i32, z: qd.i32, p: qd.types.ndarray(qd.i32, ndim=1), a: qd.types.ndarray(qd.i32, ndim=1),
      o: qd.types.ndarray(qd.i32, ndim=3)):
    for i in range(4):
        for j in range(3):
{chr(10).join(rows)}
""")
    module = module_at(tmp_path / "sums.py", "sums")
    a = np.arange(16, dtype=np.int32)
    module.F.from_numpy(a)
    o = np.zeros((len(expected), 4, 3), np.int32)
    p = np.array([values[f"p[{n}]"] for n in range(3)], np.int32)
    module.k(values["x"], values["y"], values["z"], p, a, o)
    assert o.tolist() == expected


def test_fields_far_from_zero(backend):
    """A wrapped index is in range of a field that lies there."""
    far, edge = qd.field(qd.i32, 16, offset=-800000000), qd.field(qd.i32, 16, offset=LEAST + 1)
    wide = qd.field(qd.i32, (4, 16), offset=(0, -800000000))

    @qd.kernel
    def k(a: qd.i32, most: qd.i32) -> qd.i32:
        far[a + 1500000000] = 7
        for i in range(4):
            wide[i, a + 1500000000] = i + 1
        edge[most + 2] = 5
        return far[a + 1500000000] + edge[most + 2]

    assert k(1994967299, MOST) == 12
    assert far[-799999997] == 7 and edge[LEAST + 1] == 5
    assert [wide[i, -799999997] for i in range(4)] == [1, 2, 3, 4]
