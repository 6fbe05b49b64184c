"""What small pieces of the language mean: statements that end in `return`, and what they return.

Each row becomes the body of a kernel `k(n: qd.i32) -> qd.f64` that is called with 3.
"""

import pytest

import quadrants as qd
from helpers import module_at, raises

PREFIX = """\
import math
import numpy as np
import quadrants as qd

@qd.func
def add(a, b, c=0):
    return a + b + c

@qd.func
def size(v):
    return v.n

empty = qd.Vector([])
flags = qd.Vector([2, 0])
cell = qd.field(qd.i32, ())
Pair = qd.types.struct(a=qd.i32, b=qd.types.vector(2, qd.f32))
"""

TABLE = {
    "conditions": [
        ("return 5 and n", 3),
        ("return 0 or n", 3),
        ("return n and 0", 0),
        ("return 1 if 0.5 and 2 else 3", 1),
        ("return (not flags)[1] + (not flags)[0] * 10 + n", 4),
        ("return -n if 1 < n < 4 else n", -3),
    ],
    "calls": [
        ("return add(*[n, 1, 2])", 6),
    ],
    "unused positions": [
        ("v = qd.Vector([1, 2])\nr = 0\nif v.n > 2: r = v[2]\nreturn r", 0),
        ("s = None\nreturn n", 3),
        ("s = [None, n]\nreturn s[1]", 3),
    ],
    "vectors without components": [
        ("v = qd.Vector([])\nw = v + v * 2.0\nreturn n + len(v) + w.n", 3),
        ("return size(qd.Vector([])) + n", 3),
        ("for i in qd.static(range(empty.n)): n = empty[i]\nreturn n", 3),
    ],
    "loops without an index": [
        ("for p in qd.grouped(qd.root): cell[p] += n\nreturn cell[None]", 3),
        ("cell[None] = 0\nfor p in qd.grouped(cell): cell[p] += p.n + 1\nreturn cell[None]", 1),
    ],
    "structs": [
        ("s = qd.Struct(a=n, b=qd.Vector([1, 2]))\nd = s.to_dict()\nreturn d['a'] + d['b'][1]", 5),
        ("s = qd.Struct(a=qd.Struct(b=n))\nreturn s.to_dict()['a']['b']", 3),
        ("s = Pair(a=n, b=[1, 2])\ns = {'a': 5, 'b': [3, 4]}\nreturn s.a + s.b[1]", 9),
    ],
    "python": [
        ("return qd.static(np.sin(0.0))", 0),
        ("return np.sin(0.0) + n", 3),
        ("return math.floor(2.5) + n", 5),
    ],
}


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("group", TABLE)
def test_table(backend, tmp_path, group):
    source = PREFIX
    for k, (body, _) in enumerate(TABLE[group]):
        lines = "".join(f"    {line}\n" for line in body.split("\n"))
        source += f"\n@qd.kernel\ndef k{k}(n: qd.i32) -> qd.f64:\n{lines}"
    path = tmp_path / "table.py"
    path.write_text(source)
    module = module_at(path, "table")
    found = [getattr(module, f"k{k}")(3) for k in range(len(TABLE[group]))]
    assert found == [expected for _, expected in TABLE[group]]


@pytest.mark.oracle_differs("mappings as keywords are unreliable there")
def test_mappings_as_keywords(backend):
    @qd.func
    def digits(a, b=2, c=3):
        return a * 100 + b * 10 + c

    @qd.kernel
    def k(x: qd.i32) -> qd.i32:
        d = {"c": 7, "b": 8}
        return digits(x, **d)

    assert k(1) == 187


@pytest.mark.parametrize("value, shown", [
    (3.5, "3.5"), (3.1, "3.1"), (3e10, "30000000000"), (3e-10, "3e-10"), (1 / 3, "0.33333334"),
    (0.0, "0"), (1234567.0, "1234567"),
])  # fmt: skip
def test_numbers_in_assert_messages(debug_backend, value, shown):
    @qd.kernel
    def k(x: qd.f32, i: qd.i32):
        assert i == 1, f"<{x:.2f}> {i:5d}"

    with raises(qd.QuadrantsAssertionError, f"<{shown}> 3"):
        k(value, 3)


def test_constant_assert_messages(debug_backend):
    @qd.kernel
    def k(i: qd.i32):
        assert i == 1, 17

    with raises(qd.QuadrantsAssertionError, "17"):
        k(3)


@pytest.mark.oracle_differs("takes the process down", run=False)
def test_negative_numbers_of_threads(backend):
    @qd.kernel
    def k():
        qd.loop_config(parallelize=-1)
        for i in range(4):
            pass

    with raises(qd.QuadrantsSyntaxError, "must not be negative"):
        k()
