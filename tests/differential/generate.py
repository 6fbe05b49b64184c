"""Random programs of the kernel language, from a seed.

`program(seed)` gives a `Program`: the source of one kernel and its funcs, the arrays and fields it
works on, and its arguments. It is typed while it is generated, so that it compiles; it is meant to
be well defined (indices in range, no races, loops that end), not to make sense. Two profiles:
`full` uses the whole type system, `plain` only what means the same when Python itself runs it (64-bit
types, no wrapping, no re-typing).
"""

import random
from dataclasses import dataclass, field

import numpy as np
from structs import Structs

INTS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
FLOATS = ["f16", "f32", "f64"]
ALL = INTS + ["u1"] + FLOATS
NP = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "u1": np.bool_, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
WEIGHTS = {"i32": 6, "f32": 6, "f64": 3, "i64": 3, "u32": 3, "u8": 2, "u64": 2}


def bits(t):
    return int(t[1:])


def promote(a, b):
    if a == b:
        return a
    if a[0] == "f" or b[0] == "f":
        return max((t for t in (a, b) if t[0] == "f"), key=bits)
    if "u1" in (a, b):
        o = b if a == "u1" else a
        return "u1" if o == "i8" else o
    if bits(a) != bits(b):
        return max(a, b, key=bits)
    return a if a[0] == "u" else b


@dataclass
class Data:
    """An array. `kind`: ndarray argument or field; `use`: how kernels may touch it."""

    name: str
    kind: str  # "array" | "field"
    t: str
    shape: tuple
    elem: tuple = ()
    use: str = "read"  # "read" | "own" (each iteration its own cell) | "atomic"
    layout: str = "AOS"


@dataclass
class Program:
    seed: int
    name: str
    source: str
    data: list
    scalars: list  # (name, dtype, value), the kernel's arguments after its arrays
    profile: str = "full"
    result: str | None = None
    reorders: bool = (
        False  # sums floats over a parallel loop: the interpreter adds in another order
    )
    types: list = field(default_factory=list)
    struct_fields: list = field(default_factory=list)  # name, StructType, shape

    def declarations(self):
        """Statements that create types and fields, to run after `init`."""
        out = [line for t in self.types for line in t.declaration()]
        out += [f"{name} = {t.name}.field(shape={shape})" for name, t, shape in self.struct_fields]
        for d in self.data:
            if d.kind != "field" or "." in d.name:
                continue
            shape = repr(d.shape)
            layout = f", layout=qd.Layout.{d.layout}" if d.layout != "AOS" else ""
            if not d.elem:
                out.append(f"{d.name} = qd.field(qd.{d.t}, shape={shape})")
            elif len(d.elem) == 1:
                out.append(
                    f"{d.name} = qd.Vector.field({d.elem[0]}, qd.{d.t}, shape={shape}{layout})"
                )
            else:
                n, m = d.elem
                out.append(f"{d.name} = qd.Matrix.field({n}, {m}, qd.{d.t}, shape={shape}{layout})")
        return out

    def inputs(self):
        """Fresh values of all arrays, by name."""
        rng = np.random.default_rng(self.seed ^ 0x5EED)
        return {d.name: values(rng, d.t, d.shape + d.elem, self.profile) for d in self.data}


def values(rng, t, shape, profile="full"):
    n = int(np.prod(shape))
    if t == "u1":
        return rng.integers(0, 2, n).astype(bool).reshape(shape)
    if t[0] == "f":
        a = np.where(rng.random(n) < 0.5, rng.integers(-8, 9, n) / 2, rng.normal(0, 4, n))
        a = a.astype(NP[t])
        if profile == "full":
            odd = rng.random(n) < 0.06
            special = [
                np.inf,
                -np.inf,
                np.nan,
                -0.0,
                1e30 if t != "f16" else 6e4,
                1e-30 if t != "f16" else 6e-8,
            ]
            special += [1e-40, 1e5, -3e9] if t != "f16" else [0.1, -2049]
            with np.errstate(all="ignore"):
                a = np.where(odd, rng.choice(np.array(special), n).astype(NP[t]), a)
        else:
            a = np.where(a == 0, NP[t](1.5), a)
        return a.astype(NP[t]).reshape(shape)
    if profile == "plain":
        return rng.integers(-50, 50, n).astype(NP[t]).reshape(shape)
    info = np.iinfo(NP[t])
    small = rng.integers(0 if info.min == 0 else -9, 10, n).astype(NP[t])
    wide = rng.integers(info.min, info.max, n, dtype=NP[t], endpoint=True)
    edge = rng.choice(np.array([info.min, info.max, 0, 1, info.max // 2], dtype=NP[t]), n)
    return np.select([rng.random(n) < 0.55, rng.random(n) < 0.7], [small, wide], edge).reshape(
        shape
    )


class Var:
    def __init__(self, name, t, shape=(), mutable=True, literal=False, top=False, tuple_of=None):
        self.name, self.t, self.shape = name, t, shape
        self.mutable, self.literal, self.top = mutable, literal, top


class Generator(Structs):
    def __init__(self, seed, profile, ip="i32", fp="f32"):
        self.r = random.Random(f"{seed}/{profile}")
        self.plain = profile == "plain"
        self.profile, self.seed, self.ip, self.fp = profile, seed, ip, fp
        if self.plain:
            self.ip, self.fp = "i64", "f64"
        self.name = f"p{seed}"
        self.lines, self.scopes, self.data, self.funcs = [], [], [], []
        self.counter = 0
        self.indent = 0
        self.where = "serial"  # serial | parallel | func
        self.own = None  # index text of the own cell, and the shape it runs over
        self.budget = 0
        self.loops = 0  # nesting of runtime loops
        self.frozen_top = False
        self.indexing = 0
        self.nested = 0  # depth of run-time scopes
        self.n, self.m = self.r.choice([3, 5, 6, 8]), self.r.choice([2, 3])

    # -- small tools

    def chance(self, p):
        return self.r.random() < p

    def pick(self, items):
        return self.r.choice(items)

    def fresh(self, prefix="v"):
        self.counter += 1
        return f"{prefix}{self.counter}"

    def emit(self, text):
        self.lines.append("    " * self.indent + text)

    def a_type(self, kind="any"):
        if self.plain:
            pool = {"int": ["i64"], "float": ["f64"], "any": ["i64", "f64"]}[kind]
        else:
            pool = {"int": INTS + ["u1"], "float": FLOATS, "any": ALL}[kind]
        return self.r.choices(pool, [WEIGHTS.get(t, 1) for t in pool])[0]

    def vars(self, test):
        return [v for s in self.scopes for v in s if test(v)]

    def add(self, v):
        self.scopes[-1].append(v)
        return v

    def add_variable(self, name, t, shape, top, mutable=True):
        return self.add(Var(name, t, shape, mutable, top=top))

    def cell(self, d):
        """One cell of an array, or one member of a cell."""
        root, _, member = d.name.partition(".")
        return f"{root}[{self.index(d)}]" + ("." + member if member else "")

    # -- scalar expressions: text and dtype

    def literal(self, kind):
        if kind == "float" or kind == "any" and self.chance(0.4):
            x = self.pick([0.5, 1.0, 2.0, 0.1, 3.25, -1.5, 1e-3, 7.0, 100.0, -0.25])
            return repr(x), self.fp
        x = self.pick(
            [0, 1, 2, 3, 5, 7, 10, 31, 100, -1, -3, 255]
            if not self.plain
            else [1, 2, 3, 5, 7, 10, -3]
        )
        return (f"({x})" if x < 0 else str(x)), self.ip

    def leaf(self, kind):
        """A runtime scalar without operators."""
        choices = self.vars(
            lambda v: not v.literal and v.shape == () and self.fits(v.t, kind) and self.readable(v)
        )
        arrays = [d for d in self.data if self.may_read(d) and self.fits(d.t, kind)]
        if self.indexing > 1 or self.indexing and choices:
            arrays = []
        if choices and (not arrays or self.chance(0.6)):
            v = self.pick(choices)
            return v.name, v.t
        if arrays:
            d = self.pick(arrays)
            text = self.cell(d)
            if d.elem:
                text += self.component(d.elem)
            return text, d.t
        lit, t = self.literal(kind)
        if self.plain:
            return lit, t
        t = self.a_type(kind) if kind != "any" else self.a_type()
        return f"qd.cast({lit}, qd.{t})", t

    def readable(self, v):
        return not (self.frozen_top and v.top and v.name in self.reducing)

    def fits(self, t, kind):
        return kind == "any" or (t[0] == "f") == (kind == "float")

    def may_read(self, d):
        if self.where == "func":
            return False
        return (
            d.use == "read"
            or self.where == "serial"
            and d.use == "own"
            or self.owns(d)
            or self.where == "serial"
            and d.use == "atomic"
        )

    def owns(self, d):
        return (
            self.where == "parallel"
            and d.use == "own"
            and self.own is not None
            and d.shape == self.own[1]
        )

    def index(self, d):
        if d.use == "own" and self.where == "parallel":
            return self.own[0]
        return ", ".join(self.bounded(n) for n in d.shape)

    def bounded(self, n):
        """An index expression in 0 .. n - 1."""
        exact = self.vars(lambda v: getattr(v, "below", 99) <= n)
        if exact and self.chance(0.6):
            return self.pick(exact).name
        if self.chance(0.4):
            return str(self.r.randrange(n))
        self.indexing += 1
        a, t = self.leaf("int")
        self.indexing -= 1
        if t == "u1":
            return f"qd.cast({a}, qd.i32) % {n}"
        if t == "i8" or self.plain:
            return f"{a} % {n}"
        wide = self.pick(["i64", "u64", "i32"])
        return self.pick(
            [f"({a} % {n})", f"qd.cast({a} % {n}, qd.{wide})", f"(qd.cast({a}, qd.{wide}) % {n})"]
        )

    def component(self, shape):
        if len(shape) == 1:
            if self.chance(0.4):
                return "." + "xyzw"[self.r.randrange(min(4, shape[0]))]
            return f"[{self.bounded(shape[0])}]"
        return f"[{self.bounded(shape[0])}, {self.bounded(shape[1])}]"

    def operand(self, depth, kind):
        """A scalar or, sometimes, a literal: to be combined with a runtime scalar."""
        if self.chance(0.25):
            consts = self.vars(lambda v: v.literal)
            if consts and kind != "float" and self.chance(0.6):
                return self.pick(consts).name, self.ip
            return self.literal(kind)
        return self.scalar(depth, kind)

    def pair(self, depth, kind):
        a = self.scalar(depth, kind)
        b = self.operand(depth, kind)
        return (a, b) if self.chance(0.75) else (b, a)

    def scalar(self, depth, kind="any"):
        if depth <= 0 or self.chance(0.12):
            return self.leaf(kind)
        if kind == "any":
            kind = self.pick(["int", "float"])
        return (self.int_scalar if kind == "int" else self.float_scalar)(depth - 1)

    def condition(self, depth):
        """An integer usable as a condition."""
        which = self.r.randrange(8)
        if which == 0 and not self.plain:
            return self.scalar(depth, "int")[0]
        if which == 1:
            return (
                f"({self.condition(depth - 1)} {self.pick(['and', 'or'])} {self.condition(depth - 1)})"
                if depth > 0
                else self.comparison(0)
            )
        if which == 2:
            return f"(not {self.condition(depth - 1)})" if depth > 0 else self.comparison(0)
        return self.comparison(depth)

    def comparison(self, depth):
        kind = self.pick(["int", "float"] if self.plain else ["int", "float", "any"])
        (a, _), (b, _) = self.pair(depth, kind)
        op = self.pick(["<", "<=", ">", ">=", "==", "!="])
        if self.chance(0.12):
            c, _ = self.scalar(depth, kind)
            return f"({a} {op} {b} {self.pick(['<', '<=', '>', '!='])} {c})"
        return f"({a} {op} {b})"

    def int_scalar(self, depth):
        r = self.r
        if self.plain:
            which = r.choice(
                ["arith", "div", "bits", "minmax", "unary", "ifexp", "shift", "call", "and_or"]
            )
        else:
            which = r.choice(
                ["arith"] * 4
                + ["div"] * 2
                + [
                    "bits",
                    "bits",
                    "shift",
                    "shift",
                    "minmax",
                    "unary",
                    "unary",
                    "cast",
                    "cast",
                    "cast",
                ]
                + [
                    "ifexp",
                    "select",
                    "and_or",
                    "compare",
                    "compare",
                    "raw",
                    "bitshr",
                    "count",
                    "bitcast",
                    "pow",
                    "call",
                    "vec",
                    "vec",
                    "round",
                    "math",
                ]
            )
        if which == "arith":
            (a, ta), (b, tb) = self.pair(depth, "int")
            op = r.choice("+-*")
            if self.plain:
                return f"(({a} {op} {b}) % 10007)", "i64"
            return f"({a} {op} {b})", promote(ta, tb)
        if which == "div":
            (a, ta), (b, tb) = self.pair(depth, "int")
            op = r.choice(["//", "%"])
            if self.plain:
                return f"({a} {op} ({b} % 17 + 1))", "i64"
            if b.strip("()-").isdigit() and int(b.strip("()-")) == 0:
                b = "3"
            return f"({a} {op} {b})", promote(ta, tb)
        if which == "bits":
            (a, ta), (b, tb) = self.pair(depth, "int")
            return f"({a} {r.choice('&|^')} {b})", promote(ta, tb)
        if which == "shift":
            a, ta = self.scalar(depth, "int")
            if self.plain:
                return f"(({a} % 1000) {r.choice(['<<', '>>'])} {r.randrange(6)})", "i64"
            b, _ = self.scalar(depth - 1, "int")
            w = bits(ta)
            count = str(r.randrange(w)) if self.chance(0.5) else f"({b} & {w - 1})"
            return f"({a} {r.choice(['<<', '>>'])} {count})", ta
        if which == "minmax":
            (a, ta), (b, tb) = self.pair(depth, "int")
            f = r.choice(["min", "max"] if self.plain else ["qd.min", "qd.max", "min", "max"])
            if self.chance(0.2):
                c, tc = self.scalar(depth - 1, "int")
                return f"{f}({a}, {b}, {c})", promote(ta, promote(tb, tc))
            return f"{f}({a}, {b})", promote(ta, tb)
        if which == "unary":
            a, ta = self.scalar(depth, "int")
            f = r.choice(
                ["-{}", "~{}", "abs({})"]
                if self.plain
                else ["-{}", "~{}", "abs({})", "qd.abs({})", "(not {})"]
            )
            return f"({f.format(a)})", "u1" if "not" in f else ta
        if which == "cast":
            a, _ = self.scalar(depth, "any")
            t = self.a_type("int")
            how = r.randrange(4)
            if how == 0:
                return f"qd.{t}({a})", t
            if how == 1:
                return f"int({a})", self.ip
            return f"qd.cast({a}, qd.{t})", t
        if which == "ifexp":
            a, ta = self.scalar(depth, "int")
            b, tb = self.operand(depth, "int")
            return f"({a} if {self.condition(depth)} else {b})", promote(ta, tb)
        if which == "select":
            a, ta = self.scalar(depth, "int")
            b, tb = self.operand(depth, "int")
            return f"qd.select({self.condition(depth)}, {a}, {b})", promote(ta, tb)
        if which == "and_or":
            (a, ta), (b, tb) = self.scalar(depth, "int"), self.scalar(depth, "int")
            return f"({a} {r.choice(['and', 'or'])} {b})", promote(ta, tb)
        if which == "compare":
            return self.comparison(depth), "u1"
        if which == "raw":
            (a, ta), (b, tb) = self.pair(depth, "int")
            return f"qd.{r.choice(['raw_div', 'raw_mod'])}({a}, {b})", promote(ta, tb)
        if which == "bitshr":
            a, ta = self.scalar(depth, "int")
            return f"qd.bit_shr({a}, {r.randrange(bits(ta))})", ta
        if which == "count":
            a, _ = self.scalar(depth, "int")
            t = r.choice(["i32", "u32", "i64", "u64"])
            return f"qd.math.{r.choice(['popcnt', 'clz', 'ffs'])}(qd.cast({a}, qd.{t}))", "i32"
        if which == "bitcast":
            a, ta = self.scalar(depth, "int")
            if bits(ta) == 1:
                return a, ta
            t = ("u" if ta[0] == "i" else "i") + ta[1:]
            return f"qd.bit_cast({a}, qd.{t})", t
        if which == "pow":
            a, ta = self.scalar(depth, "int")
            if self.chance(0.5):
                return f"({a} ** {r.randrange(1, 5)})", ta
            b, _ = self.scalar(depth - 1, "int")
            return f"({a} ** ({b} & 3))", ta
        if which == "round":
            a, _ = self.scalar(depth, "float")
            t = r.choice(["i32", "i64", "i16"])
            return f"qd.{r.choice(['floor', 'ceil', 'round'])}({a}, qd.{t})", t
        if which == "math":
            a, _ = self.scalar(depth, "float")
            return f"qd.math.{r.choice(['isnan', 'isinf'])}({a})", "u1"
        if which == "vec":
            return self.vector_to_scalar(depth, "int")
        return self.call_scalar(depth, "int")

    def float_scalar(self, depth):
        r = self.r
        if self.plain:
            which = r.choice(
                ["arith", "arith", "div", "minmax", "unary", "ifexp", "mixed", "call", "sqrt"]
            )
        else:
            which = r.choice(
                ["arith"] * 5
                + ["div"] * 2
                + [
                    "mod",
                    "mod",
                    "minmax",
                    "minmax",
                    "unary",
                    "cast",
                    "cast",
                    "cast",
                    "ifexp",
                    "select",
                    "mixed",
                ]
                + [
                    "mixed",
                    "sqrt",
                    "round",
                    "round",
                    "math",
                    "elementary",
                    "elementary",
                    "pow",
                    "call",
                    "vec",
                    "vec",
                    "bitcast",
                ]
            )
        if which == "arith":
            (a, ta), (b, tb) = self.pair(depth, "float")
            return f"({a} {r.choice('+-*')} {b})", promote(ta, tb)
        if which == "mixed":
            a, ta = self.scalar(depth, "float")
            b, tb = self.scalar(depth, "int")
            if self.chance(0.5):
                a, ta, b, tb = b, tb, a, ta
            return f"({a} {r.choice('+-*')} {b})", promote(ta, tb)
        if which == "div":
            if self.plain:
                a, _ = self.scalar(depth, "any")
                b, _ = self.scalar(depth - 1, "float")
                return f"({a} / (abs({b}) + 0.5))", "f64"
            (a, ta), (b, tb) = self.pair(depth, "any")
            if b.strip("()-.").replace(".", "").isdigit() and float(b.strip("()")) == 0:
                b = "4"
            ta, tb = (t if t[0] == "f" else self.fp for t in (ta, tb))
            return f"({a} / {b})", promote(ta, tb)
        if which == "mod":
            (a, ta), (b, tb) = self.pair(depth, "float")
            return f"({a} {r.choice(['//', '%'])} {b})", promote(ta, tb)
        if which == "minmax":
            (a, ta), (b, tb) = self.pair(depth, "float")
            return f"{r.choice(['min', 'max'])}({a}, {b})", promote(ta, tb)
        if which == "unary":
            a, ta = self.scalar(depth, "float")
            return f"({r.choice(['-{}', 'abs({})']).format(a)})", ta
        if which == "cast":
            a, _ = self.scalar(depth, "any")
            t = self.a_type("float")
            how = r.randrange(4)
            if how == 0:
                return f"float({a})", self.fp
            return f"qd.cast({a}, qd.{t})", t
        if which == "ifexp":
            a, ta = self.scalar(depth, "float")
            b, tb = self.operand(depth, "float")
            return f"({a} if {self.condition(depth)} else {b})", promote(ta, tb)
        if which == "select":
            a, ta = self.scalar(depth, "float")
            b, tb = self.operand(depth, "any")
            return f"qd.select({self.condition(depth)}, {a}, {b})", promote(ta, tb)
        if which == "sqrt":
            if self.plain:
                a, _ = self.scalar(depth, "float")
                return f"(abs({a}) ** 2)", "f64"
            a, ta = self.scalar(depth, "any")
            t = ta if ta[0] == "f" else self.fp
            return (f"qd.sqrt({a})" if self.chance(0.3) else f"qd.sqrt(abs({a}))"), t
        if which == "round":
            a, ta = self.scalar(depth, "float")
            return f"qd.{r.choice(['floor', 'ceil', 'round'])}({a})", ta
        if which == "math":
            f = r.choice(["clamp", "fract", "sign", "mix"])
            a, ta = self.scalar(depth, "float")
            if f == "fract":
                return f"qd.math.fract({a})", ta
            if f == "sign":
                return f"qd.math.sign({a})", self.fp
            b, tb = self.scalar(depth - 1, "float")
            c, tc = self.scalar(depth - 1, "float")
            return f"qd.math.{f}({a}, {b}, {c})", promote(ta, promote(tb, tc))
        if which == "elementary":
            a, ta = self.scalar(depth, "float")
            f = r.choice(
                ["sin", "cos", "tan", "asin", "acos", "tanh", "exp", "log", "atan2", "rsqrt"]
            )
            if f in ("asin", "acos"):
                return f"qd.{f}(qd.math.clamp({a}, -1.0, 1.0))", promote(ta, self.fp)
            if f in ("tan",):
                return f"qd.{f}(qd.math.clamp({a}, -1.5, 1.5))", promote(ta, self.fp)
            if f in ("log", "rsqrt"):
                return f"qd.{f}(abs({a}) + 0.125)", promote(ta, self.fp)
            if f == "atan2":
                b, tb = self.scalar(depth - 1, "float")
                t = promote(ta, tb)
                return f"qd.atan2({a}, {b})", "f32" if t == "f16" else t
            return f"qd.{f}(qd.math.clamp({a}, -20.0, 20.0))", promote(ta, self.fp)
        if which == "pow":
            a, ta = self.scalar(depth, "float")
            if self.chance(0.7):
                return f"({a} ** {r.choice([0, 1, 2, 2, 2, 3, 4, 5, 8])})", ta
            b, tb = self.scalar(depth - 1, "float")
            t = promote(promote(ta, self.fp), promote(tb, self.fp))
            return f"((abs({a}) + 0.25) ** qd.math.clamp({b}, -3.0, 3.0))", t
        if which == "bitcast":
            a, _ = self.scalar(depth, "int")
            t = r.choice(["i16", "i32", "u32", "i64", "u64"])
            return f"qd.bit_cast(qd.cast({a}, qd.{t}), qd.f{t[1:]})", "f" + t[1:]
        if which == "vec":
            return self.vector_to_scalar(depth, "float")
        return self.call_scalar(depth, "float")

    # -- vectors and matrices: text, dtype, shape

    def a_shape(self):
        return self.pick([(2,), (3,), (3,), (4,), (2, 2), (2, 3), (3, 3), (3, 2)])

    def vector_leaf(self, shape, kind):
        found = self.vars(lambda v: v.shape == shape and self.fits(v.t, kind) and self.readable(v))
        arrays = [
            d for d in self.data if d.elem == shape and self.may_read(d) and self.fits(d.t, kind)
        ]
        if found and (not arrays or self.chance(0.6)):
            v = self.pick(found)
            return v.name, v.t
        if arrays and self.chance(0.7):
            d = self.pick(arrays)
            return self.cell(d), d.t
        return self.vector_literal(shape, kind)

    def vector_literal(self, shape, kind):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        items, t = [], None
        for _ in range(count):
            e, te = self.operand(1, kind)
            items.append(e)
            t = te if t is None else promote(t, te)
        if len(shape) == 1:
            text = f"[{', '.join(items)}]"
        else:
            m = shape[1]
            text = (
                "["
                + ", ".join(f"[{', '.join(items[i * m : i * m + m])}]" for i in range(shape[0]))
                + "]"
            )
        name = "Vector" if len(shape) == 1 else "Matrix"
        if self.chance(0.25):
            t = self.a_type(kind)
            return f"qd.{name}({text}, dt=qd.{t})", t
        return f"qd.{name}({text})", t

    def vector(self, depth, shape, kind="any"):
        if kind == "any":
            kind = self.pick(["int", "float"])
        if depth <= 0:
            return self.vector_leaf(shape, kind)
        d = depth - 1
        r = self.r
        options = (
            ["arith"] * 4
            + ["scale"] * 2
            + ["leaf"] * 2
            + ["unary", "minmax", "select", "cast", "literal"]
        )
        if len(shape) == 1:
            options += ["swizzle", "swizzle", "matvec", "slice"] + (
                ["cross"] if shape == (3,) else []
            )
        else:
            options += ["transpose", "matmul", "outer"]
            if kind == "float" and shape[0] == shape[1]:
                options += ["inverse"]
        if kind == "int":
            options += ["bits", "compare", "idiv"]
        else:
            options += ["round", "fdiv", "sqrt"]
        which = r.choice(options)
        if which == "arith":
            (a, ta), (b, tb) = self.vector(d, shape, kind), self.vector(d, shape, kind)
            return f"({a} {r.choice('+-*')} {b})", promote(ta, tb)
        if which == "scale":
            (a, ta), (b, tb) = self.vector(d, shape, kind), self.operand(d, kind)
            if self.chance(0.5):
                a, b = b, a
            return f"({a} {r.choice('+-*')} {b})", promote(ta, tb)
        if which == "unary":
            a, ta = self.vector(d, shape, kind)
            return f"({r.choice(['-{}', 'abs({})']).format(a)})", ta
        if which == "minmax":
            (a, ta), (b, tb) = self.vector(d, shape, kind), self.vector(d, shape, kind)
            return f"qd.{r.choice(['min', 'max'])}({a}, {b})", promote(ta, tb)
        if which == "select":
            (a, ta), (b, tb) = self.vector(d, shape, kind), self.vector(d, shape, kind)
            return f"qd.select({self.condition(d)}, {a}, {b})", promote(ta, tb)
        if which == "cast":
            a, _ = self.vector(d, shape, "any")
            t = self.a_type(kind)
            return (f"qd.cast({a}, qd.{t})" if self.chance(0.5) else f"({a}).cast(qd.{t})"), t
        if which == "literal":
            return self.vector_literal(shape, kind)
        if which == "swizzle":
            n = r.choice([2, 3, 4])
            a, ta = self.vector(d, (n,), kind)
            return f"({a}).{''.join(r.choice('xyzw'[:n]) for _ in range(shape[0]))}", ta
        if which == "slice":
            n = shape[0]
            if self.chance(0.5):
                m = r.choice([2, 3])
                a, ta = self.vector(d, (n, m), kind)
                return f"({a})[:, {self.bounded(m)}]", ta
            a, ta = self.vector(d, (4,), kind)
            return f"({a})[{4 - n}:]" if self.chance(0.5) else f"({a})[:{n}]", ta
        if which == "matvec":
            k = r.choice([2, 3])
            (a, ta), (b, tb) = self.vector(d, (shape[0], k), kind), self.vector(d, (k,), kind)
            return f"({a} @ {b})", promote(ta, tb)
        if which == "matmul":
            k = r.choice([2, 3])
            (a, ta), (b, tb) = (
                self.vector(d, (shape[0], k), kind),
                self.vector(d, (k, shape[1]), kind),
            )
            return f"({a} @ {b})", promote(ta, tb)
        if which == "outer":
            (a, ta), (b, tb) = self.vector(d, shape[:1], kind), self.vector(d, shape[1:], kind)
            return f"({a}).outer_product({b})", promote(ta, tb)
        if which == "inverse":
            a, ta = self.vector(d, shape, kind)
            return f"({a}).inverse()", ta
        if which == "transpose":
            a, ta = self.vector(d, shape[::-1], kind)
            return f"({a}).transpose()", ta
        if which == "cross":
            (a, ta), (b, tb) = self.vector(d, shape, kind), self.vector(d, shape, kind)
            return f"({a}).cross({b})", promote(ta, tb)
        if which == "bits":
            (a, ta), (b, tb) = self.vector(d, shape, kind), self.vector(d, shape, kind)
            return f"({a} {r.choice('&|^')} {b})", promote(ta, tb)
        if which == "compare":
            other = r.choice(["int", "float"])
            (a, _), (b, _) = self.vector(d, shape, other), self.vector(d, shape, other)
            return f"({a} {r.choice(['<', '>=', '=='])} {b})", "u1"
        if which == "idiv":
            (a, ta), (b, tb) = self.vector(d, shape, kind), self.vector(d, shape, kind)
            return f"({a} {r.choice(['//', '%'])} {b})", promote(ta, tb)
        if which == "fdiv":
            (a, ta), (b, tb) = self.vector(d, shape, kind), self.operand(d, "float")
            if b.strip("()-.").replace(".", "").isdigit() and float(b.strip("()")) == 0:
                b = "4.0"
            return f"({a} / {b})", promote(ta, tb)
        if which == "sqrt":
            a, ta = self.vector(d, shape, kind)
            return f"qd.sqrt(abs({a}))", ta
        if which == "round":
            a, ta = self.vector(d, shape, kind)
            return f"qd.{r.choice(['floor', 'ceil', 'round'])}({a})", ta
        return self.vector_leaf(shape, kind)

    def vector_to_scalar(self, depth, kind):
        r = self.r
        shape = self.a_shape() if self.chance(0.95) else (4, 4)
        a, t = self.vector(depth, shape, kind)
        options = ["sum", "max", "min", "item", "item"]
        if len(shape) == 1:
            options += ["dot", "norm_sqr"]
            if shape == (2,):
                options.append("cross")
        elif shape[0] == shape[1]:
            options += ["trace", "determinant"]
        if kind == "int":
            options += ["any", "all"]
        else:
            options += ["norm"]
        which = r.choice(options)
        if which in ("sum", "max", "min", "norm_sqr", "trace", "determinant", "norm"):
            return f"({a}).{which}()", t
        if which in ("any", "all"):
            return f"({a}).{which}()", "u1"
        if which in ("dot", "cross"):
            b, tb = self.vector(depth - 1, shape, kind)
            return f"({a}).{which}({b})", promote(t, tb)
        return f"({a}){self.component(shape)}", t

    # -- funcs

    def call_scalar(self, depth, kind):
        able = [
            f
            for f in self.funcs
            if f["returns"] == 1 and self.fits_func(f, kind) and f not in self.busy
        ]
        if not able:
            return self.leaf(kind)
        f = self.pick(able)
        args = self.arguments(f, depth)
        if args is None:
            return self.leaf(kind)
        text = f"{f['name']}({', '.join(args)})"
        t = f["out"]
        if t is None:
            t = self.a_type(kind)
            return f"qd.cast({text}, qd.{t})", t
        return text, t

    def fits_func(self, f, kind):
        return (
            f["out"] is None
            and not self.plain
            or f["out"] is not None
            and self.fits(f["out"], kind)
        )

    def arguments(self, f, depth):
        args = []
        for p in f["params"]:
            if p["shape"]:
                args.append(self.vector(min(depth, 1), p["shape"], p["kind"])[0])
            elif self.chance(0.3):
                args.append(self.call_scalar(min(depth, 1) - 1, p["kind"])[0])
            else:
                args.append(self.operand(min(depth, 1), p["kind"])[0])
        return args

    def func(self):
        """A func: scalar parameters of a kind, a few statements, one result or a tuple."""
        name = f"{self.name}_f{len(self.funcs)}"
        saved = self.scopes, self.struct_scopes, self.where, self.own, self.indent
        self.scopes, self.struct_scopes, self.where, self.own, self.indent = (
            [[]], [[]], "func", None, 1,
        )  # fmt: skip
        params, text = [], []
        for _ in range(self.r.randrange(1, 4)):
            p = self.fresh("a")
            kind = self.pick(["int", "float"])
            shape = () if self.plain or self.chance(0.75) else self.pick([(2,), (3,), (2, 2)])
            note = ""
            if self.plain:
                t = "i64" if kind == "int" else "f64"
            else:
                t = self.a_type(kind)
                if shape == ():
                    note = f": qd.{t}"
            body_name = p
            params.append(dict(name=p, kind=kind, shape=shape))
            text.append(p + note)
            if shape == ():
                self.add(Var(body_name, t, (), mutable=not self.plain))
            else:  # the element type is the caller's: used through a cast
                w = self.fresh("w")
                self.emit(f"{w} = qd.cast({p}, qd.{t})")
                self.add(Var(w, t, shape))
        self.lines, outer = (
            [
                f"    {l.strip()}"
                for l in self.lines[len(self.lines) - sum(1 for p in params if p["shape"]) :]
            ]
            if any(p["shape"] for p in params)
            else [],
            self.lines[: len(self.lines) - sum(1 for p in params if p["shape"])],
        )
        self.budget = self.r.randrange(0, 4)
        self.statements()
        returns = 1 if self.chance(0.75) else 2
        if returns == 1:
            e, out = self.scalar(2)
            self.emit(f"return {e}")
        else:
            (a, ta), (b, tb) = self.scalar(2), self.scalar(1)
            out = (ta, tb)
            self.emit(f"return {a}, {b}")
        head = ["@qd.func", f"def {name}({', '.join(text)}):"]
        self.lines = outer + head + self.lines
        self.scopes, self.struct_scopes, self.where, self.own, self.indent = saved
        self.funcs.append(dict(name=name, params=params, returns=returns, out=out))

    # -- statements

    def statements(self):
        while self.budget > 0:
            self.budget -= 1
            self.statement()

    def statement(self):
        deep = self.indent > 4
        r = self.r
        choices = ["local"] * 4 + ["assign"] * 4 + ["augment"] * 3 + ["store"] * 4
        if not deep:
            choices += ["if"] * 3 + ["for"] * 2 + ["while", "static"]
        if not self.plain:
            choices += (
                ["vlocal"] * 2 + ["vassign"] * 3 + ["vstore"] * 2 + ["atomic"] * 2 + ["template"]
            )
            choices += ["struct"] * (4 if self.types else 0)
        choices += ["unpack", "tuple"]
        getattr(self, "do_" + r.choice(choices))()

    def writable(self, test):
        return self.vars(
            lambda v: (
                v.mutable and not v.literal and test(v) and not (self.where == "parallel" and v.top)
            )
        )

    def do_local(self):
        e, t = self.scalar(self.r.randrange(1, 4))
        name = self.fresh()
        if not self.plain and self.chance(0.1):
            t = self.a_type()
            self.emit(f"{name}: qd.{t} = {e}")
        elif self.chance(0.15):
            e, t = self.literal("any")
            self.emit(f"{name} = {e}")
        else:
            self.emit(f"{name} = {e}")
        self.add(Var(name, t, (), top=self.where == "serial" and len(self.scopes) == 1))

    def do_assign(self):
        found = self.writable(lambda v: v.shape == ())
        if not found:
            return self.do_local()
        v = self.pick(found)
        kind = "any" if not self.plain else ("float" if v.t[0] == "f" else "int")
        e, _ = (
            self.operand(self.r.randrange(1, 4), kind) if not self.plain else self.scalar(2, kind)
        )
        self.emit(f"{v.name} = {e}")

    def aug(self, t):
        """An augmented assignment's operator and operand, for a target of dtype t."""
        if self.plain:
            if t == "f64":
                return self.pick(["+=", "-=", "*="]), self.operand(1, "float")[0]
            return self.pick(["+=", "-=", "&=", "|=", "^="]), self.operand(1, "int")[0]
        if t[0] == "f":
            op = self.pick(["+=", "-=", "*=", "/=", "+=", "-=", "//=", "%="])
            e = (
                self.operand(2, "any")[0]
                if op in ("+=", "-=", "*=")
                else self.scalar(2, "float")[0]
            )
            return op, e
        op = self.pick(["+=", "-=", "*=", "&=", "|=", "^=", "<<=", ">>=", "//=", "%=", "+=", "-="])
        if op in ("<<=", ">>="):
            return op, str(self.r.randrange(bits(t)))
        if op in ("+=", "-=", "*="):
            return op, self.operand(2, "any" if self.chance(0.3) else "int")[0]
        return op, self.scalar(2, "int")[0]

    def do_augment(self):
        found = self.writable(lambda v: v.shape == ())
        if not found:
            return self.do_local()
        v = self.pick(found)
        op, e = self.aug(v.t)
        self.emit(f"{v.name} {op} {e}")

    def target(self, elem=()):
        able = [
            d for d in self.data
            if d.elem == elem and d.use != "read" and (self.owns(d) or self.where == "serial")
        ]  # fmt: skip
        return self.pick(able) if able else None

    def do_store(self):
        d = self.target()
        if d is None:
            return self.do_assign()
        at = self.cell(d)
        if self.chance(0.35):
            op, e = self.aug(d.t)
            self.emit(f"{at} {op} {e}")
        else:
            kind = "any" if not self.plain else ("float" if d.t[0] == "f" else "int")
            self.emit(f"{at} = {self.scalar(self.r.randrange(1, 4), kind)[0]}")

    def do_vlocal(self):
        shape = self.a_shape()
        e, t = self.vector(self.r.randrange(1, 3), shape)
        name = self.fresh("w")
        self.emit(f"{name} = {e}")
        self.add(Var(name, t, shape, top=self.where == "serial" and len(self.scopes) == 1))

    def do_vassign(self):
        found = self.writable(lambda v: v.shape != ())
        if not found:
            return self.do_vlocal()
        self.vector_write(self.pick(found).name, found)

    def vector_write(self, name, found):
        v = next(x for x in found if x.name == name)
        self.write_tensor(name, v.t, v.shape)

    def write_tensor(self, name, t, shape):
        how = self.r.randrange(6)
        kind = "float" if t[0] == "f" else "int"
        if how == 0:
            self.emit(f"{name} = {self.vector(2, shape)[0]}")
        elif how == 1:
            op = self.pick(["+=", "-=", "*="])
            self.emit(f"{name} {op} {self.vector(1, shape, kind)[0]}")
        elif how == 2:
            self.emit(f"{name} {self.pick(['+=', '-=', '*='])} {self.operand(1, kind)[0]}")
        elif how == 3 and len(shape) == 1:
            n = shape[0]
            word = "".join(self.r.sample("xyzw"[:n], 2))
            self.emit(
                f"{name}.{word} {self.pick(['=', '=', '+='])} {self.vector(1, (2,), kind)[0]}"
            )
        elif how == 4:
            op, e = self.aug(t)
            self.emit(f"{name}{self.component(shape)} {op} {e}")
        else:
            self.emit(f"{name}{self.component(shape)} = {self.scalar(2)[0]}")

    def do_vstore(self):
        shapes = list({d.elem for d in self.data if d.elem and d.use != "read"})
        if not shapes:
            return self.do_vassign()
        d = self.target(self.pick(sorted(shapes)))
        if d is None:
            return self.do_vassign()
        self.write_tensor(self.cell(d), d.t, d.elem)

    def do_atomic(self):
        able = [d for d in self.data if d.use == "atomic"]
        if not able or self.where == "func":
            return self.do_augment()
        d = self.pick(able)
        group = getattr(self, "atomic_group", None)
        if self.where == "serial" or group is None:
            group = self.pick(["add", "min", "max", "and", "or", "xor"])
            if self.where == "parallel":  # different operations on one cell do not commute
                self.atomic_group = group
        at = self.cell(d)
        e = self.operand(2, "int")[0]
        sign = {"add": "+=", "and": "&=", "or": "|=", "xor": "^="}.get(group)
        if sign and self.chance(0.6):
            self.emit(f"{at} {sign} {e}")
        elif self.where == "serial" and self.chance(0.6):
            name = self.fresh()
            self.emit(f"{name} = qd.atomic_{group}({at}, {e})")
            self.add(Var(name, d.t, (), top=len(self.scopes) == 1))
        else:
            self.emit(f"qd.atomic_{group}({at}, {e})")

    def do_template(self):
        """A func that writes to its argument."""
        found = self.writable(
            lambda v: v.shape == () and not v.name.startswith("a") and "." not in v.name
        )
        if not found or self.where == "func" or not self.setters:
            return self.do_augment()
        v = self.pick(found)
        self.emit(f"{self.pick(self.setters)}({v.name}, {self.operand(1, 'int')[0]})")

    def do_unpack(self):
        able = [f for f in self.funcs if f["returns"] == 2 and f not in self.busy]
        if not able:
            return self.do_local()
        f = self.pick(able)
        args = self.arguments(f, 1)
        names = [self.fresh(), self.fresh()]
        self.emit(f"{names[0]}, {names[1]} = {f['name']}({', '.join(args)})")
        for name, t in zip(names, f["out"]):
            self.add(Var(name, t, (), top=self.where == "serial" and len(self.scopes) == 1))

    def inside(self, header, body, last=None):
        self.emit(header)
        self.indent += 1
        self.nested += "qd.static" not in header
        self.scopes.append([])
        self.struct_scopes.append([])
        before, place = self.budget, len(self.lines)
        self.budget = min(before, self.r.randrange(1, 4))
        spent = self.budget
        body()
        self.statements()
        if last:
            last()
        if len(self.lines) == place:
            self.emit("pass")
        self.budget = max(0, before - spent)
        self.scopes.pop()
        self.struct_scopes.pop()
        self.nested -= "qd.static" not in header
        self.indent -= 1

    def do_if(self):
        self.inside(f"if {self.condition(2)}:", lambda: None)
        while self.chance(0.25):
            self.inside(f"elif {self.condition(1)}:", lambda: None)
        if self.chance(0.5):
            self.inside("else:", lambda: None)

    def leave(self):
        """Perhaps a break or continue under a condition."""
        if self.chance(0.4):
            self.emit(f"if {self.condition(1)}:")
            self.emit(f"    {self.pick(['break', 'continue'])}")

    def do_for(self):
        # A loop at the top of a func is the kernel's own, parallel one where the call is at the top.
        if self.loops >= 2 or self.where != "parallel" and self.nested == 0:
            return self.do_if() if self.loops >= 2 else self.do_while()
        self.loops += 1
        v = self.fresh("i")
        which = self.r.randrange(4)
        limit = self.r.randrange(1, 5)

        def body():
            x = self.add(Var(v, "i32", (), mutable=False))
            if which < 2:
                x.below = limit
            self.leave()

        if which == 0:
            self.inside(f"for {v} in range({limit}):", body)
        elif which == 1:
            self.inside(f"for {v} in range({self.r.randrange(0, limit + 1)}, {limit}):", body)
        elif which == 2 and not self.plain:
            e, _ = self.scalar(1, "int")
            self.inside(f"for {v} in range(qd.cast({e} & 3, qd.i32)):", body)
        else:
            w = self.fresh("j")

            def both():
                body()
                self.add(Var(w, "i32", (), mutable=False)).below = 2

            if self.plain:
                self.inside(f"for {v} in range({limit}):", body)
            else:
                self.inside(f"for {v}, {w} in qd.ndrange({limit}, 2):", both)
        self.loops -= 1

    def do_while(self):
        if self.loops >= 2:
            return self.do_augment()
        self.loops += 1
        c = self.fresh("c")
        self.emit(f"{c} = 0")
        self.add(Var(c, self.ip, (), mutable=False))
        limit = self.r.randrange(1, 5)
        test = f"{c} < {limit}"
        if self.chance(0.4):
            test += f" and {self.condition(1)}"

        def body():
            self.emit(f"{c} += 1")
            self.leave()

        self.inside(f"while {test}:", body)
        self.loops -= 1

    def do_static(self):
        v = self.fresh("q")
        count = self.r.randrange(1, 4)

        def body():
            self.add(Var(v, self.ip, (), mutable=False, literal=True)).below = count

        if self.plain:
            self.inside(f"for {v} in qd.static(range({count})):", body)
        elif self.chance(0.7):
            self.inside(f"for {v} in qd.static(range({count})):", body)
        else:
            w = self.fresh("q")

            def both():
                body()
                self.add(Var(w, self.ip, (), mutable=False, literal=True)).below = 2

            self.inside(f"for {v}, {w} in qd.static(qd.ndrange({count}, 2)):", both)

    # -- the kernel

    def parallel_loop(self):
        """A top-level loop. Iterations write their own cells, or integers atomically."""
        self.where = "parallel"
        self.atomic_group = None
        shapes = sorted({d.shape for d in self.data if d.use == "own"})
        shape = self.pick(shapes)
        i, j = self.fresh("i"), self.fresh("i")
        looped = [d for d in self.data if d.shape == shape and d.use == "own"]
        how = self.r.randrange(3) if not self.plain else 0
        names = [i] if len(shape) == 1 else [i, j]
        own = ", ".join(names)
        grouped = False
        if how == 0:
            if len(shape) == 1:
                extent = self.pick([str(shape[0]), f"{root(looped[0])}.shape[0]", f"0, {shape[0]}"])
                if self.plain:
                    extent = str(shape[0])
                header = f"for {i} in range({extent}):"
            elif self.plain:
                header = None
            else:
                header = f"for {i}, {j} in qd.ndrange({shape[0]}, {shape[1]}):"
        elif how == 1:
            header = f"for {own} in {root(self.pick(looped))}:"
        else:
            grouped = True
            header = f"for {i} in qd.grouped({root(self.pick(looped))}):"
            own = i
        if header is None:
            self.where = "serial"
            return
        tops = self.vars(
            lambda v: v.top and v.mutable and v.t[0] in ("i", "u", "f") and v.t not in ("f16",)
        )
        self.reducing = {v.name for v in tops if self.chance(0.3)}
        self.reorders |= any(v.t[0] == "f" for v in tops if v.name in self.reducing)
        self.frozen_top = True
        self.emit_config()
        self.own = (own, shape)
        self.budget = self.r.randrange(2, 6)

        def body():
            if grouped:
                self.add(Var(i, "i32", (len(shape),), mutable=False))
            else:
                for name, n in zip(names, shape):
                    self.add(Var(name, "i32", (), mutable=False)).below = n
            if self.chance(0.15):
                self.emit(f"if {self.condition(1)}:")
                self.emit("    continue")
            for v in tops:
                if v.name in self.reducing:
                    kind = "float" if v.t[0] == "f" else "int"
                    e = self.vector(1, v.shape, kind)[0] if v.shape else self.scalar(2, kind)[0]
                    self.emit(f"{v.name} {self.pick(['+=', '+=', '-='])} {e}")

        self.inside(header, body, self.keep)
        self.own, self.where, self.frozen_top = None, "serial", False
        self.reducing = set()

    def keep(self):
        """Stores some of what an iteration computed."""
        d = self.target()
        if d is None:
            return self.do_vstore()
        found = [v for v in self.scopes[-1] if v.shape == () and v.mutable] or self.vars(
            lambda v: v.shape == () and not v.top and v.mutable
        )
        if self.plain:
            found = [v for v in found if v.t[0] == d.t[0]]
        if found and self.chance(0.7):
            self.emit(f"{self.cell(d)} = {found[-1].name}")
        else:
            self.do_store()

    def emit_config(self):
        if not self.plain and self.chance(0.1):
            self.emit(
                "qd.loop_config(serialize=True)"
                if self.chance(0.5)
                else "qd.loop_config(block_dim=64)"
            )

    def program(self):
        r = self.r
        self.busy, self.setters, self.reducing, self.reorders = [], [], set(), False
        self.struct_types()
        if not self.plain and self.chance(0.3):
            s = f"{self.name}_s"
            t = self.a_type("int")
            self.lines += [
                "@qd.func",
                f"def {s}(r: qd.template(), a0: qd.{t}):",
                f"    r {self.pick(['+=', '-=', '*='])} a0",
            ]
            self.setters.append(s)
        for _ in range(r.choice([0, 0, 1, 1, 2, 3])):
            self.func()
        self.indent = 0
        # data
        n, m = self.n, self.m
        for k in range(r.randrange(1, 4)):
            shape = (n,) if self.chance(0.8) else (n, m)
            elem = () if self.plain or self.chance(0.75) else self.a_shape()
            kind = "array" if self.plain or self.chance(0.6) else "field"
            self.data.append(
                Data(f"{self.name}_x{k}", kind, self.a_type(), shape, elem, "read", self.layout())
            )
        for k in range(r.randrange(2, 4)):
            shape = (n,) if k == 0 or self.chance(0.7) else (n, m)
            elem = () if self.plain or k == 0 or self.chance(0.7) else self.a_shape()
            kind = "array" if self.plain or self.chance(0.6) else "field"
            self.data.append(
                Data(f"{self.name}_y{k}", kind, self.a_type(), shape, elem, "own", self.layout())
            )
        if not self.plain and self.chance(0.5):
            t = r.choice(["i32", "u32", "i64", "u64"])
            self.data.append(
                Data(
                    f"{self.name}_z",
                    "array" if self.chance(0.5) else "field",
                    t,
                    (3,),
                    (),
                    "atomic",
                )
            )
        self.struct_data(
            lambda name, t, shape, elem: self.data.append(
                Data(name, "field", t, shape, elem, "own")
            )
        )
        self.scopes, self.struct_scopes = [[]], [[]]
        scalars = []
        for k in range(r.randrange(0, 3)):
            t = self.a_type()
            x = values(np.random.default_rng(self.seed * 7 + k), t, (1,), self.profile)[0]
            x = float(x) if t[0] == "f" else int(x)
            scalars.append((f"s{k}", t, x))
            self.add(Var(f"s{k}", t, (), mutable=False))
        head, self.lines = self.lines, []
        self.indent = 1
        for _ in range(r.choice([1, 1, 1, 2, 2, 3])):
            if self.chance(0.45):
                self.budget = r.randrange(1, 4)
                self.statements()
            self.parallel_loop()
        if self.chance(0.3):
            self.budget = r.randrange(1, 4)
            self.statements()
        tops = self.vars(lambda v: v.top and v.shape == ())
        y = next(d for d in self.data if d.use == "own")
        for k, v in enumerate(tops[:n]):
            if self.plain and v.t[0] != y.t[0]:
                continue
            self.emit(f"{y.name}[{k}] = {v.name}")
        result = None
        if self.chance(0.4):
            e, _ = self.scalar(2)
            result = self.a_type() if not self.plain else _
            self.emit(f"return {e}")
        if not self.lines:
            self.emit("pass")
        params = []
        for d in self.data:
            if d.kind != "array":
                continue
            if not d.elem:
                note = (
                    f"qd.types.ndarray(qd.{d.t}, ndim={len(d.shape)})"
                    if self.chance(0.5)
                    else "qd.types.ndarray()"
                )
            elif len(d.elem) == 1:
                note = f"qd.types.ndarray(dtype=qd.types.vector({d.elem[0]}, qd.{d.t}), ndim={len(d.shape)})"
            else:
                note = f"qd.types.ndarray(dtype=qd.types.matrix({d.elem[0]}, {d.elem[1]}, qd.{d.t}), ndim={len(d.shape)})"
            params.append(f"{d.name}: {note}")
        params += [f"{name}: qd.{t}" for name, t, _ in scalars]
        arrow = f" -> qd.{result}" if result else ""
        lines = [*head, "@qd.kernel", f"def {self.name}({', '.join(params)}){arrow}:", *self.lines]
        return Program(
            self.seed,
            self.name,
            "\n".join(lines) + "\n",
            self.data,
            scalars,
            self.profile,
            result,
            self.reorders,
            self.types,
            self.struct_fields,
        )

    def layout(self):
        return "SOA" if self.chance(0.2) else "AOS"


def root(d):
    return d.name.partition(".")[0]


def program(seed, profile="full", ip="i32", fp="f32"):
    return Generator(seed, profile, ip, fp).program()


def module(programs):
    """The text of a module with several programs; `declare` makes their fields."""
    lines = ["import quadrants as qd", ""]
    for p in programs:
        lines += p.declarations()
    return "\n".join(lines + [""]) + "\n\n".join(p.source for p in programs)


if __name__ == "__main__":
    import sys

    for s in sys.argv[1:]:
        p = program(int(s), "plain" if s.startswith("-") else "full")
        print("\n".join(p.declarations()))
        print(p.source)
