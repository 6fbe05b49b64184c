"""Random programs: the compiled function against the same text run as Python on typed numbers.

A seed makes a function with nested branches, loops, breaks and mixed dtypes. It runs in a kernel
over edge values, and as plain Python where `Number` has the specified promotion and wrapping.
Results must have the same bits. `QD_DIFFERENTIAL=20000` runs that many programs.
"""

import importlib.util
import os
import random

import numpy as np
import pytest

from helpers import NUMPY, bits, promote

BATCH = 10
BATCHES = int(os.environ.get("QD_DIFFERENTIAL", "200")) // BATCH
TYPES = ["i32", "i64", "u32", "u64", "i16", "u8", "f32", "f64"]
ARGUMENTS = {"a": "i32", "b": "i64", "c": "u32", "d": "f64", "e": "f32"}


def convert(value, t):
    """`value` as dtype `t`: integers wrap, floats round and flush denormals."""
    if t[0] == "f":
        with np.errstate(all="ignore"):
            v = float(NUMPY[t](value))
        return 0.0 if abs(v) < float(np.finfo(NUMPY[t]).tiny) else v
    if t == "u1":
        return int(value != 0)
    w = bits(t)
    v = int(value) & ((1 << w) - 1)
    return v - (1 << w) if t[0] == "i" and v >> (w - 1) else v


class Number:
    """A value of a dtype, with the language's operators."""

    def __init__(self, t, value):
        self.t, self.v = t, convert(value, t)

    def __bool__(self):
        return self.v != 0

    def __index__(self):
        return self.v

    def __neg__(self):
        return Number(self.t, -self.v)

    def __invert__(self):
        return Number(self.t, ~self.v)


def number(x):
    if isinstance(x, Number):
        return x
    if isinstance(x, bool):
        return Number("u1", x)
    return Number("i32" if isinstance(x, int) else "f32", x)


def binary(function, result=None):
    def op(x, y):
        x, y = number(x), number(y)
        t = promote(x.t, y.t)
        u, v = convert(x.v, t), convert(y.v, t)
        if t[0] == "f":
            u, v = NUMPY[t](u), NUMPY[t](v)
        with np.errstate(all="ignore"):
            return Number(result or t, function(u, v))

    return op


def install():
    for name, f in {
        "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
        "floordiv": lambda x, y: x // y, "mod": lambda x, y: x % y, "and": lambda x, y: x & y,
        "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y,
    }.items():  # fmt: skip
        op = binary(f)
        setattr(Number, f"__{name}__", op)
        setattr(Number, f"__r{name}__", lambda x, y, op=op: op(y, x))
    for name, f in {
        "lt": lambda x, y: x < y, "le": lambda x, y: x <= y, "gt": lambda x, y: x > y,
        "ge": lambda x, y: x >= y, "eq": lambda x, y: x == y, "ne": lambda x, y: x != y,
    }.items():  # fmt: skip
        setattr(Number, f"__{name}__", binary(f, "u1"))
    Number.__lshift__ = lambda x, n: Number(x.t, x.v << number(n).v)
    Number.__rshift__ = lambda x, n: Number(x.t, x.v >> number(n).v)


install()


class Reference:
    """Stands in for the package while the text runs as Python."""

    min = staticmethod(binary(min))
    max = staticmethod(binary(max))

    @staticmethod
    def cast(x, t):
        return Number(t, number(x).v)


for _t in TYPES:
    setattr(Reference, _t, _t)


class Maker:
    """Writes a random function twice: for the compiler and, with explicit casts, for Python."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.scopes = [dict(ARGUMENTS)]
        self.kernel, self.python = [], []
        self.names = 0
        self.loops = 0

    def pick(self, *options):
        return self.rng.choice(options)

    def visible(self, t):
        return [n for s in self.scopes for n, u in s.items() if u == t]

    def leaf(self, t):
        names = self.visible(t)
        if names and self.rng.random() < 0.8:
            return self.rng.choice(names)
        if t[0] == "f":
            return f"qd.cast({self.pick(0.5, -1.25, 3.0, 0.0, 8.75)}, qd.{t})"
        value = self.pick(0, 1, 2, 3, 7, 100, 255, 1000003)
        return f"qd.cast({value}, qd.{t})"

    def expr(self, t, depth):
        """An expression whose type is `t`."""
        if depth == 0 or self.rng.random() < 0.15:
            return self.leaf(t)
        sub = lambda u=t: self.expr(u, depth - 1)
        choice = self.rng.random()
        if choice < 0.12:
            return f"qd.cast({self.castable(t, depth - 1)}, qd.{t})"
        if choice < 0.2:
            return f"({sub()} if {self.condition(depth - 1)} else {sub()})"
        if t[0] == "f":
            if choice < 0.3:
                return f"qd.{self.pick('min', 'max')}({sub()}, {sub()})"
            return f"({sub()} {self.pick('+', '-', '*')} {sub()})"
        if choice < 0.3 and bits(t) >= 32:
            return f"qd.{self.pick('min', 'max')}({sub()}, {sub()})"
        if choice < 0.38 and t in ("i32", "i64"):
            sign = self.pick("", "-")
            divisor = f"{sign}(({sub()} & 15) + {2 if sign else 1})"  # minimum // -1 overflows
            return f"({sub()} {self.pick('//', '%')} {divisor})"
        if choice < 0.48:
            return f"({sub()} {self.pick('<<', '>>')} ({sub()} & {bits(t) - 1}))"
        if choice < 0.54:
            return f"({self.pick('-', '~')}{sub()})"
        if choice < 0.62 and t in ("i64", "u64", "u32"):
            narrow = {"i64": "i32", "u64": "u32", "u32": "i32"}[t]  # promotes to t
            return f"({sub()} {self.pick('+', '-', '*', '^')} {sub(narrow)})"
        if choice < 0.7 and bits(t) >= 32:
            return f"({sub()} {self.pick('+', '*', '&')} {self.pick(1, 3, 12345)})"
        return f"({sub()} {self.pick('+', '-', '*', '&', '|', '^')} {sub()})"

    def castable(self, t, depth):
        """An expression of another type that converts to `t` without undefined results."""
        if t[0] == "f":
            source = self.pick("i32", "i16", "u8", "f32" if t == "f64" else "i32")
            if t == "f32" and source == "i32":
                return f"({self.expr('i32', depth)} & 65535)"
            return self.expr(source, depth)
        source = self.pick(*[u for u in TYPES if u != t])
        if source[0] == "f":
            low = 0.0 if t[0] == "u" else -100.0
            return f"qd.max(qd.min({self.expr(source, depth)}, 100.0), {low})"
        return self.expr(source, depth)

    def condition(self, depth):
        t = self.pick("i32", "i64", "u32", "f64", "f32")
        test = f"{self.expr(t, depth)} {self.pick('<', '<=', '>', '==', '!=')} {self.leaf(t)}"
        choice = self.rng.random()
        if choice < 0.15 and depth:
            return f"(({test}) {self.pick('and', 'or')} ({self.condition(depth - 1)}))"
        if choice < 0.25:
            return f"({self.leaf(t)} <= {self.leaf(t)} < {self.leaf(t)})"
        return f"({test})"

    def line(self, indent, kernel, python=None):
        self.kernel.append("    " * indent + kernel)
        self.python.append("    " * indent + (python or kernel))

    def block(self, indent, budget):
        self.scopes.append({})
        for _ in range(budget):
            self.statement(indent, budget)
        self.scopes.pop()

    def statement(self, indent, budget):
        choice = self.rng.random()
        mutable = [(n, t) for s in self.scopes[1:] for n, t in s.items() if n[0] == "v"]
        if choice < 0.3 or not mutable:
            t = self.rng.choice(TYPES)
            name = f"v{self.names}"
            self.names += 1
            e = self.expr(t, 3)
            self.line(indent, f"{name} = {e}", f"{name} = qd.cast({e}, qd.{t})")
            self.scopes[-1][name] = t
        elif choice < 0.5:
            name, t = self.rng.choice(mutable)
            source = t if t[0] == "f" else self.pick("i32", "i64", "u32", t)
            e = self.expr(source, 3)
            self.line(indent, f"{name} = {e}", f"{name} = qd.cast({e}, qd.{t})")
        elif choice < 0.65:
            name, t = self.rng.choice(mutable)
            op = self.pick("+", "-", "*") if t[0] == "f" else self.pick("+", "-", "&", "|", "^")
            e = self.expr(t, 2)
            self.line(indent, f"{name} {op}= {e}", f"{name} = qd.cast({name} {op} ({e}), qd.{t})")
        elif choice < 0.82 and budget > 1:
            self.line(indent, f"if {self.condition(2)}:")
            self.block(indent + 1, budget - 1)
            if self.rng.random() < 0.3:
                self.line(indent, f"elif {self.condition(1)}:")
                self.block(indent + 1, 1)
            if self.rng.random() < 0.5:
                self.line(indent, "else:")
                self.block(indent + 1, budget - 1)
        elif budget > 1 and self.loops < 2:
            self.loop(indent, budget)
        else:
            self.line(indent, "pass")

    def loop(self, indent, budget):
        self.loops += 1
        k = f"k{self.names}"
        self.names += 1
        if self.rng.random() < 0.6:
            bound = self.pick("3", f"({self.leaf('i32')} & 3)", f"(({self.leaf('i32')} & 1) + 2)")
            self.line(indent, f"for {k} in range({bound}):")
            self.python.append("    " * (indent + 1) + f"{k} = qd.cast({k}, qd.i32)")
        else:
            self.line(indent, f"{k} = qd.cast(0, qd.i32)")
            self.line(indent, f"while {k} < 3 and {self.condition(1)}:")
            self.line(indent + 1, f"{k} += 1", f"{k} = qd.cast({k} + 1, qd.i32)")
        self.scopes.append({k: "i32"})
        if self.rng.random() < 0.5:
            self.line(indent + 1, f"if {self.condition(1)}:")
            self.line(indent + 2, self.pick("break", "continue"))
        self.block(indent + 1, budget - 1)
        self.scopes.pop()
        self.loops -= 1

    def make(self):
        self.scopes.append({})
        for t in ("i64", "f64", "u32", "i32"):
            name = f"v{self.names}"
            self.names += 1
            e = self.expr(t, 2)
            self.line(1, f"{name} = {e}", f"{name} = qd.cast({e}, qd.{t})")
            self.scopes[-1][name] = t
        for _ in range(5):
            self.statement(1, 3)
        self.line(1, "return v0, v1, v2, v3")
        return "\n".join(self.kernel), "\n".join(self.python)


KERNEL = """
@qd.func
def body{n}(a, b, c, d, e):
{body}


@qd.kernel
def run{n}(
    a: qd.types.NDArray, b: qd.types.NDArray, c: qd.types.NDArray, d: qd.types.NDArray,
    e: qd.types.NDArray, r0: qd.types.NDArray, r1: qd.types.NDArray, r2: qd.types.NDArray,
    r3: qd.types.NDArray,
):
    for i in range(a.shape[0]):
        x0, x1, x2, x3 = body{n}(a[i], b[i], c[i], d[i], e[i])
        r0[i] = x0
        r1[i] = x1
        r2[i] = x2
        r3[i] = x3
"""


def inputs():
    rng = np.random.default_rng(17)
    columns = []
    for t in ARGUMENTS.values():
        if t[0] == "f":
            special = [0.0, 1.0, -1.0, 0.5, -2.75, 1e6]
            rest = rng.integers(-4000, 4000, 18) / 16
        else:
            info = np.iinfo(NUMPY[t])
            special = [0, 1, 2, info.max, info.min, info.max - 7]
            rest = rng.integers(max(info.min, -1000), 1000, 18)
        column = np.concatenate([np.array(special, NUMPY[t]), rest.astype(NUMPY[t])])
        columns.append(rng.permutation(column))
    return columns


def same_bits(a, b):
    return a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


@pytest.mark.oracle_differs("the established package folds % of constants with C semantics")
@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_programs(backend, tmp_path, batch):
    backend.init(fast_math=False)
    texts = [Maker(batch * BATCH + n).make() for n in range(BATCH)]
    path = tmp_path / "generated.py"
    path.write_text(
        "import quadrants as qd\n"
        + "\n".join(KERNEL.format(n=n, body=kernel) for n, (kernel, _) in enumerate(texts))
    )
    spec = importlib.util.spec_from_file_location("generated", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    columns = inputs()
    for n, (kernel, python) in enumerate(texts):
        space = {"qd": Reference}
        exec(f"def body(a, b, c, d, e):\n{python}\n", space)
        rows = []
        for values in zip(*columns):
            arguments = [Number(t, v.item()) for t, v in zip(ARGUMENTS.values(), values)]
            rows.append([x.v for x in space["body"](*arguments)])
        out = [np.zeros(len(rows), NUMPY[t]) for t in ("i64", "f64", "u32", "i32")]
        getattr(module, f"run{n}")(*columns, *out)
        for k, column in enumerate(zip(*rows)):
            expect = np.array(column, out[k].dtype)
            if not same_bits(out[k], expect):
                at = int(np.flatnonzero(out[k] != expect)[0])
                given = [c[at] for c in columns]
                pytest.fail(
                    f"seed {batch * BATCH + n}, result {k}: {out[k][at]!r}, expected "
                    f"{expect[at]!r} for {given}\n{kernel}"
                )
