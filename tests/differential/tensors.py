"""Vectors and matrices in random programs, as text, dtype and shape: a part of the generator."""

from dtypes import promote


class Tensors:
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
