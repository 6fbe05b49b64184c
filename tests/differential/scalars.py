"""Scalar expressions of random programs, as text and dtype: a part of the generator."""

from dtypes import bits, promote


class Scalars:
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

    def chosen(self, form, depth, kind, other):
        a, ta = self.scalar(depth, kind)
        b, tb = self.operand(depth, other)
        return form.format(self.condition(depth), a, b), promote(ta, tb)

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
            return self.chosen("({1} if {0} else {2})", depth, "int", "int")
        if which == "select":
            return self.chosen("qd.select({0}, {1}, {2})", depth, "int", "int")
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
            return self.chosen("({1} if {0} else {2})", depth, "float", "float")
        if which == "select":
            return self.chosen("qd.select({0}, {1}, {2})", depth, "float", "any")
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
