"""Statements of random programs: a part of the generator."""

from dtypes import bits
from program import Var


class Statements:
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
