"""The Python backend against compiled code: a table of dtypes, operators and shapes, and random programs.

What differs by design stays out: u1 beside i8 (its promotion is an accident of the language), variables
that change their type, aliases of vectors, and integers that are divided by zero.
"""

import itertools
import random

import numpy as np
import pytest

import quadrants as qd
from helpers import NUMPY

torch = pytest.importorskip("torch", reason="the Python backend needs torch")

pytestmark = [pytest.mark.needs_torch, pytest.mark.oracle_differs("older Python backend")]


def on_both(cache_folder, text, arguments):
    """What the kernel `run` in `text` makes of fresh copies of the arguments, on Python and the CPU."""
    from quadrants._test_tools.load_kernel_string import load_kernel_from_string

    found = []
    for arch in (qd.python, qd.cpu):
        qd.init(arch=arch, offline_cache_file_path=str(cache_folder), fast_math=False)
        given = [a.copy() for a in arguments]
        with load_kernel_from_string(text, "run") as run:
            run(*given)
        found.append(given)
    qd.reset()
    return found


# --- dtypes, operators, shapes ---

DTYPES = ["i8", "i16", "i32", "i64", "u1", "f32", "f64"]
ANY = ["x + y", "x - y", "x * y", "x / y", "x < y", "x <= y", "x == y", "x != y", "qd.max(x, y)", "qd.min(x, y)",
       "qd.select(x > y, x, y)", "x // y", "x % y", "qd.atan2(x, y)", "x + 1", "2.5 * x", "1 - y", "3 // y"]  # fmt: skip
WHOLE = ["x & y", "x | y", "x ^ y", "qd.raw_div(x, y)", "qd.raw_mod(x, y)"]
SHIFTS = ["x << 3", "x >> 2", "qd.bit_shr(x, 2)"]
LOGIC = ["not x", "x and y", "x or y", "x if x > y else y", "x < y < 5"]  # of scalars in Python
UNARY = ["-x", "abs(x)", "qd.abs(x)", "x ** 2", "qd.sqrt(abs(x))", "qd.exp(x / 100)", "qd.zero(x)", "qd.one(x)",
         "qd.math.sign(x)", "+x"]  # fmt: skip
REAL_UNARY = ["qd.sin(x)", "qd.floor(x)", "qd.ceil(x)", "qd.round(x)", "qd.tanh(x)", "qd.math.fract(x)", "x ** 0.5",
              "qd.floor(x, qd.i32)", "qd.math.isnan(x)", "qd.rsqrt(abs(x) + 1)"]  # fmt: skip
SHAPES = {
    "scalar": "{a}[i, 0]",
    "vector": "qd.Vector([{a}[i, 0], {a}[i, 1], {a}[i, 2], {a}[i, 3]])",
    "matrix": "qd.Matrix([[{a}[i, 0], {a}[i, 1]], [{a}[i, 2], {a}[i, 3]]])",
}
COMPONENTS = {
    "scalar": ["r"],
    "vector": [f"r[{k}]" for k in range(4)],
    "matrix": [f"r[{k}, {j}]" for k in range(2) for j in range(2)],
}
PAIRS = [(a, b) for a in SHAPES for b in SHAPES if a == b or "scalar" in (a, b)]


def drawn(rng, name, n):
    """Numbers that are not 0 and whose sums and products stay in range."""
    if name == "u1":
        return np.ones((n, 4), np.bool_)
    high = 10 if name == "i8" else 100
    a = rng.uniform(1, high, (n, 4)) * rng.choice([-1, 1], (n, 4))
    return a.astype(NUMPY[name])


def table_text(expressions, x, y):
    """One kernel that stores what each expression of x and y yields."""
    shape = x if x != "scalar" else y
    lines = [
        "import quadrants as qd", "", "@qd.kernel",
        "def run(a: qd.types.ndarray(), b: qd.types.ndarray(), out: qd.types.ndarray()):",
        "    for i in range(a.shape[0]):",
        f"        x = {SHAPES[x].format(a='a')}", f"        y = {SHAPES[y].format(a='b')}",
    ]  # fmt: skip
    for k, e in enumerate(expressions):
        uses = [s for v, s in (("x", x), ("y", y)) if v in e.replace("exp", "").replace("max", "")]
        components = COMPONENTS[shape if shape in uses else "scalar"]
        lines.append(f"        r{k} = {e}")
        lines += [
            f"        out[i, {k}, {j}] = {c.replace('r', f'r{k}')}"
            for j, c in enumerate(components)
        ]
    return "\n".join([*lines, ""])


def same(found, text, rtol):
    np.testing.assert_allclose(found[0][-1], found[1][-1], rtol=rtol, atol=rtol, err_msg=text)


@pytest.mark.parametrize("shapes", PAIRS, ids="-".join)
@pytest.mark.parametrize("a", DTYPES)
def test_operators_agree(a, shapes, cache_folder):
    rng = np.random.default_rng([DTYPES.index(a), PAIRS.index(shapes)])
    for b in DTYPES:
        if {a, b} == {"i8", "u1"}:
            continue
        whole = "f" not in a[0] + b[0]
        expressions = ANY + (WHOLE if whole else []) + (SHIFTS if whole and a != "u1" else [])
        expressions += LOGIC if whole and shapes == ("scalar", "scalar") else []
        text = table_text(expressions, *shapes)
        out = np.zeros((5, len(expressions), 4))
        same(
            on_both(cache_folder, text, [drawn(rng, a, 5), drawn(rng, b, 5), out]),
            f"{a} {b}\n{text}",
            1e-5,
        )


@pytest.mark.parametrize("a", DTYPES)
def test_functions_and_casts_agree(a, cache_folder):
    rng = np.random.default_rng(DTYPES.index(a))
    expressions = UNARY + (REAL_UNARY if a[0] == "f" else ["~x"])
    expressions = [*expressions, *(f"qd.cast(x, qd.{t})" for t in DTYPES)]
    for shape in SHAPES:
        text = table_text(expressions, shape, "scalar")
        given = np.abs(drawn(rng, a, 5)) if a[0] == "f" else drawn(rng, a, 5)
        out = np.zeros((5, len(expressions), 4))
        same(on_both(cache_folder, text, [given, given, out]), f"{a}\n{text}", 2e-5)


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64"])
def test_wrapping_agrees(name, cache_folder):
    """Sums, products and shifts at the ends of the range."""
    info = np.iinfo(NUMPY[name])
    ends = [info.min, info.min + 1, -1, 0, 1, 3, info.max - 1, info.max]
    pairs = np.array(list(itertools.product(ends, ends)), NUMPY[name])
    expressions = ["x + y", "x - y", "x * y", "-x", "~x", "x ^ y", "x << 1", "x >> 1", "x < y", "qd.max(x, y)",
                   "qd.bit_shr(x, 3)", "x * x * y"]  # fmt: skip
    text = table_text(expressions, "scalar", "scalar")
    a, b = (np.repeat(pairs[:, k : k + 1], 4, 1) for k in (0, 1))
    same(on_both(cache_folder, text, [a, b, np.zeros((len(pairs), len(expressions), 4))]), text, 0)


# --- random programs on both ---


class Program:
    """Text of a kernel body over typed values, made from a seed."""

    LEAVES = {
        "i32": ["i0", "i1", "p.x", "q[1]", "3", "-7"],
        "i64": ["l0", "l1"],
        "f32": ["a0", "a1", "v.x", "w[2]", "v.dot(w)", "1.5", "-0.25"],
        "f64": ["d0", "d1"],
    }

    def __init__(self, seed):

        self.rng = random.Random(seed)
        self.lines = []

    def pick(self, *choices):
        return self.rng.choice(choices)

    def integer(self, depth):
        if depth == 0:
            return self.pick(*self.LEAVES[self.pick("i32", "i32", "i64")])
        a, b = self.integer(depth - 1), self.integer(self.rng.randrange(depth))
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} & {b})", f"({a} | {b})", f"({a} ^ {b})",
            f"({a} // (({b} & 7) + 1))", f"({a} % (({b} & 7) + 1))", f"(-{a})", f"(~{a})",
            f"({a} << 2)", f"({a} >> 1)", f"qd.min({a}, {b})", f"qd.max({a}, {b})",
            f"qd.select({self.condition(depth - 1)}, {a}, {b})",
            f"qd.cast(qd.min(qd.max({self.real(depth - 1)}, -900.0), 900.0), qd.i32)",
        )  # fmt: skip

    def real(self, depth):
        if depth == 0:
            return self.pick(*self.LEAVES[self.pick("f32", "f32", "f64")])
        a, b = self.real(depth - 1), self.real(self.rng.randrange(depth))
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"({a} / (qd.abs({b}) + 1))", f"(-{a})",
            f"qd.min({a}, {b})", f"qd.max({a}, {b})", f"({a} + {self.integer(depth - 1)})",
            f"({self.pick('i0', 'l1')} / (qd.abs({b}) + 0.5))", f"qd.abs({a})", f"qd.sqrt(qd.abs({a}))",
            f"({a} if {self.condition(depth - 1)} else {b})", f"(v * {a} + w).sum()", f"(m @ v)[1] * {a}",
            f"qd.cast({a}, qd.f32)", f"(w - {b}).y",
        )  # fmt: skip

    def condition(self, depth):
        make = self.pick(self.integer, self.integer, self.real)
        a, b = make(depth), make(depth)
        test = f"({a} {self.pick('<', '<=', '>', '>=', '==', '!=')} {b})"
        return test if self.rng.random() < 0.7 else f"({test} {self.pick('and', 'or')} (i0 > i1))"

    def block(self, indent, depth):
        for _ in range(self.rng.randrange(1, 4)):
            kind = self.rng.randrange(10 if depth else 3)
            if kind >= 6:
                self.control(kind, indent, depth)
                continue
            if kind == 0:
                self.lines.append(f"{indent}x = qd.cast({self.integer(2)}, qd.i32)")
            elif kind == 1:
                self.lines.append(f"{indent}y = qd.cast({self.real(2)}, qd.f64)")
            elif kind == 2:
                self.lines.append(f"{indent}r[{self.rng.randrange(3)}] += {self.real(2)}")
            elif kind == 3:
                self.lines.append(f"{indent}if {self.condition(2)}:")
                self.block(indent + "    ", depth - 1)
                self.lines.append(f"{indent}else:")
                self.block(indent + "    ", depth - 1)
            elif kind == 4:
                name = f"k{len(self.lines)}"
                self.lines.append(f"{indent}for {name} in range({self.rng.randrange(1, 5)}):")
                self.lines.append(f"{indent}    y = qd.cast(y * 0.5 + {name} * a0, qd.f64)")
                self.lines.append(f"{indent}    if {name} == i0 % 4:")
                self.lines.append(f"{indent}        {self.pick('break', 'continue')}")
                self.block(indent + "    ", depth - 1)
            else:
                self.lines.append(f"{indent}r = r * {self.pick('0.5', 'a0', '-1')} + v")

    def control(self, kind, indent, depth):
        """While loops, unrolled loops, calls that write to their argument, atomics that return."""
        name = f"k{len(self.lines)}"
        if kind == 6:
            self.lines.append(f"{indent}{name} = 0")
            self.lines.append(f"{indent}while {name} < {self.rng.randrange(1, 4)}:")
            self.lines.append(f"{indent}    {name} += 1")
            self.lines.append(f"{indent}    if {self.condition(1)}:")
            self.lines.append(f"{indent}        continue")
            self.block(indent + "    ", depth - 1)
        elif kind == 7:
            self.lines.append(
                f"{indent}for {name} in qd.static(range({self.rng.randrange(1, 4)})):"
            )
            self.lines.append(f"{indent}    r[{name}] -= {self.real(1)}")
            self.block(indent + "    ", depth - 1)
        elif kind == 8:
            self.lines.append(f"{indent}y = qd.cast(scaled(r, {self.real(1)}), qd.f64)")
        else:
            op = self.pick("add", "sub", "min", "max", "and", "or", "xor")
            self.lines.append(
                f"{indent}x = qd.atomic_{op}(ints[i, 0], qd.cast({self.integer(1)}, qd.i32))"
            )

    def text(self):
        head = [
            "import quadrants as qd", "", "@qd.func", "def scaled(v: qd.template(), s):",
            "    t = v.sum() * s", "    v[0] = v[1] * 0.5", "    return t", "", "@qd.kernel",
            "def run(ints: qd.types.ndarray(), longs: qd.types.ndarray(), floats: qd.types.ndarray(), "
            "doubles: qd.types.ndarray(), out: qd.types.ndarray()):",
            "    for i in range(ints.shape[0]):",
            "        i0 = ints[i, 0]", "        i1 = ints[i, 1]",
            "        l0 = longs[i, 0]", "        l1 = longs[i, 1]",
            "        a0 = floats[i, 0]", "        a1 = floats[i, 1]",
            "        d0 = doubles[i, 0]", "        d1 = doubles[i, 1]",
            "        p = qd.Vector([i0, i1])", "        q = p * 2 - 3",
            "        v = qd.Vector([a0, a1, 1.0])", "        w = qd.Vector([a1, 0.5, i0])",
            "        m = qd.Matrix([[a0, 0.5, a1], [1.0, 2.0, a0], [a1, a1, 1.0]])",
            "        x = i0 * 1", "        y = d0 * 1", "        r = v * 1",
        ]  # fmt: skip
        self.block("        ", 2)
        tail = [
            "        out[i, 0] = x",
            "        out[i, 1] = y",
            "        out[i, 2] = r.x + r.y + r.z",
        ]
        return "\n".join([*head, *self.lines, *tail, ""])


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_agree(seed, cache_folder):
    rng = np.random.default_rng(seed)
    n = 6
    ints = rng.integers(-20, 20, (n, 2)).astype(np.int32)
    longs = rng.integers(-40, 40, (n, 2))
    floats = rng.uniform(-2, 2, (n, 2)).astype(np.float32)
    doubles = rng.uniform(-2, 2, (n, 2))
    text = Program(seed).text()
    found = on_both(cache_folder, text, [ints, longs, floats, doubles, np.zeros((n, 3))])
    np.testing.assert_array_equal(found[0][0], found[1][0], err_msg=text)
    same(found, text, 1e-4)
