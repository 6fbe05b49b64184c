"""Random programs of the kernel language, from a seed.

`program(seed)` gives a `Program`: the source of one kernel and its funcs, the arrays and fields it
works on, and its arguments. It is typed while it is generated, so that it compiles; it is meant to
be well defined (indices in range, no races, loops that end), not to make sense. Two profiles:
`full` uses the whole type system, `plain` only what means the same when Python itself runs it (64-bit
types, no wrapping, no re-typing).
"""

import random

import numpy as np
from dtypes import ALL, FLOATS, INTS, WEIGHTS
from funcs import Funcs
from program import Data, Program, Var, values
from scalars import Scalars
from statements import Statements
from structs import Structs
from tensors import Tensors


class Generator(Structs, Scalars, Tensors, Funcs, Statements):
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
