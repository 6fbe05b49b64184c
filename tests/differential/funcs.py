"""Funcs of random programs and calls of them: a part of the generator."""

from program import Var


class Funcs:
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
