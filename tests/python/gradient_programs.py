"""Random programs that have gradients: a kernel with its functions, fields and arrays.

A program is smooth where it matters: values are held near one, quotients and roots away from zero.
No cell with a gradient is overwritten once it was read. How they are checked: gradient_checks.py.
"""

import collections
import dataclasses
import random
import re

import numpy as np


@dataclasses.dataclass
class Data:
    """A field or array of a program. `use` says how kernels touch it."""

    name: str
    t: str  # "f64" | "i32"
    shape: tuple
    elem: tuple = ()
    use: str = "read"  # "own": a loop's iterations write a cell each; "sum"; "count"; "time"
    grad: bool = True
    array: bool = False
    loop: int = 0  # the top-level loop that writes it; read behind it only
    values: tuple = (-1.3, 1.3)

    def declaration(self, as_field):
        grad = ", needs_grad=True" if self.grad else ""
        kind = "field" if as_field else "ndarray"
        if as_field and self.grad:
            grad += ", needs_dual=True"
        if not self.elem:
            return f"{self.name} = qd.{kind}(qd.{self.t}, {self.shape}{grad})"
        word = "Vector" if len(self.elem) == 1 else "Matrix"
        n = ", ".join(map(str, self.elem))
        return f"{self.name} = qd.{word}.{kind}({n}, qd.{self.t}, {self.shape}{grad})"


@dataclasses.dataclass
class Program:
    seed: int
    general: bool  # has while, break, continue or an early return
    source: str
    data: list
    arguments: list  # (name, type, value)
    exact: bool = True  # nothing goes through f32, whose steps are no derivative

    def module(self, as_fields=False):
        """Source of the module, arrays as arguments or as fields."""
        lines = ["import quadrants as qd", ""]
        lines += [d.declaration(as_fields or not d.array) for d in self.data]
        parameters = [] if as_fields else [f"{d.name}: qd.types.ndarray()" for d in self.arrays()]
        parameters += [f"{name}: qd.{t}" for name, t, _ in self.arguments]
        names = {d.name: f"host_{d.name}" for d in ([] if as_fields else self.arrays())}
        for k, line in enumerate(lines):
            name = line.split(" ")[0]
            if name in names:  # a parameter hides it: the host has another name for it
                lines[k] = names[name] + line[len(name) :]
        text = "\n".join(lines)
        return f"{text}\n\n\n" + self.source.replace("PARAMETERS", ", ".join(parameters))

    def arrays(self):
        return [d for d in self.data if d.array]

    def inputs(self, salt=0):
        """Values of all data by name."""
        rng = np.random.default_rng([self.seed, salt])
        out = {}
        for d in self.data:
            low, high = d.values if not salt else (-1, 1)
            shape = d.shape + d.elem
            if d.t == "i32":
                out[d.name] = rng.integers(low, high, shape, endpoint=True, dtype=np.int32)
            else:
                unit = rng.integers(-64, 64, shape) / 64 + rng.random(shape) / 64
                out[d.name] = np.asarray(unit * (high - low) / 2 + (high + low) / 2)
        return out


@dataclasses.dataclass
class Var:
    name: str
    kind: str  # "f" float, "i" integer, "v" vector of three, "m" matrix 2x2
    below: int = 0  # of an integer: 0 <= value < below
    fixed: bool = False
    around: tuple = (0, 0)  # of a loop's index: what may be added to it and stay below


@dataclasses.dataclass
class Function:
    name: str
    parameters: str  # kinds, as in Var
    result: str
    real: bool
    loops: bool  # a loop at its top would be one of the kernel


class Writer:
    """Writes one program."""

    def __init__(self, seed, general=True, arrays=True):
        self.r = random.Random(seed)
        self.seed, self.general, self.with_arrays = seed, general, arrays
        self.lines, self.indent = [], 0
        self.scopes = [[]]
        self.names = collections.Counter()
        self.data, self.funcs, self.busy = [], [], 0
        self.arguments = []
        self.where = "kernel"
        self.loop = 0  # the top-level loop that is written now
        self.depth = 0  # loops around this place, within an iteration
        self.trips = 1
        self.frozen = set()
        self.own = None  # how an iteration's own cells are written
        self.used_general = False
        self.draws = general and seed % 5 == 1
        self.exact = True
        self.budget = 0
        self.left = 12  # statements that blocks may hold
        self.long_loops = 1

    # --- helpers

    def chance(self, p):
        return self.r.random() < p

    def pick(self, items):
        return self.r.choice(items)

    def fresh(self, stem):
        self.names[stem] += 1
        return f"{stem}{self.names[stem]}"

    def emit(self, text):
        self.lines.append("    " * self.indent + text)

    def add(self, *args, **kw):
        v = Var(*args, **kw)
        self.scopes[-1].append(v)
        return v

    def vars(self, kind, test=lambda v: True):
        return [v for s in self.scopes for v in s if v.kind == kind and test(v)]

    # --- integers

    def index(self, n):
        """An integer in [0, n)."""
        options = [v.name for v in self.vars("i", lambda v: v.below <= n)] * 3
        options += [f"{v.name} % {n}" for v in self.vars("i")]
        options += [f"({v.name} + {self.r.randrange(1, n + 1)}) % {n}" for v in self.vars("i")]
        options += [str(self.r.randrange(n))]
        for v in self.vars("i", lambda v: v.around != (0, 0) and v.below <= n):
            low, high = v.around
            options += [f"{v.name} - 1"] * (2 * low) + [f"{v.name} + 1"] * (2 * high)
        pointers = [d for d in self.data if d.name == "p0"]
        if pointers and self.chance(0.2):
            return f"p0[{self.index_of_var(pointers[0].shape[0])}] % {n}"
        if self.chance(0.04) and self.busy < 3:
            return f"qd.cast(qd.abs({self.number(0)}) * 7.3, qd.i32) % {n}"
        return self.pick(options)

    def index_of_var(self, n):
        return self.pick(
            [v.name for v in self.vars("i", lambda v: v.below <= n)] + [str(self.r.randrange(n))]
        )

    def small(self):
        """An integer that counts something: around -1 to 5."""
        options = [str(self.r.randrange(-1, 5))]
        options += [v.name for v in self.vars("i", lambda v: v.below <= 6)] * 2
        options += [name for name, t, value in self.arguments if t == "i32" and value < 7] * (
            2 * (self.where != "func")
        )
        bounds = [d for d in self.data if d.name == "b0"]
        if bounds:
            options += [f"b0[{self.index_of_var(bounds[0].shape[0])}]"] * 2
        if self.chance(0.15) and self.busy < 3:
            return f"qd.cast(qd.abs({self.number(0)}) * 2.7, qd.i32) % 4"
        return self.pick(options)

    # --- places

    def readable(self, elem=()):
        out = []
        for d in self.data:
            if d.elem != elem or d.t != "f64" or d.use == "count":
                continue
            if d.use == "read":
                # In a function the names of arrays are not known.
                if not (d.array and self.where == "func"):
                    out.append(d)
            elif self.where == "kernel" and (d.loop < self.loop or d.name in self.frozen):
                out.append(d)
        return out

    def read(self, d):
        if d.use == "sum":  # large, and its terms come in any order
            at = f"{d.name}[{', '.join(self.index(n) for n in d.shape) or 'None'}]"
            return at if d.elem else f"(0.02 * {at})"
        if not d.shape:
            return f"{d.name}[None]"
        if d.loop == self.loop and d.name in self.frozen:
            return self.cell(d) or f"{d.name}[0]"
        if len(d.shape) == 1:
            return f"{d.name}[{self.index(d.shape[0])}]"
        return f"{d.name}[{', '.join(self.index(n) for n in d.shape)}]"

    def cell(self, d):
        """The iteration's own cell, or None."""
        if self.own is None:  # a kernel without loops: all are its own
            return f"{d.name}[{', '.join(self.index(n) for n in d.shape) or 'None'}]"
        if not d.shape or len(self.own) > len(d.shape):
            return None
        own = [o(n) for o, n in zip(self.own, d.shape)]
        if None in own:
            return None
        own += [self.index(n) for n in d.shape[len(self.own) :]]
        return f"{d.name}[{', '.join(own)}]"

    # --- expressions

    def number(self, depth=2):
        """A float, small and smooth."""
        self.busy += 1
        try:
            return self.number_of(depth)
        finally:
            self.busy -= 1

    def number_of(self, depth):
        if depth <= 0 or self.busy > 6:
            return self.leaf()
        a = self.number(depth - 1)
        k = self.r.randrange(34)
        if k < 4:
            return f"({a} {self.pick('+-')} {self.number(depth - 1)})"
        if k < 8:
            return f"0.6 * {a} * {self.number(depth - 1)}"
        if k == 8:
            b = self.number(0)
            return f"{a} / (1.5 + {b} * {b})"
        if k == 9:
            return f"{a} / (2.0 + qd.sin({self.number(depth - 1)}))"
        if k < 14:
            return f"qd.{self.pick(['sin', 'cos', 'tanh', 'sin'])}({a})"
        if k == 14:
            return f"qd.exp(0.6 * qd.sin({a}))"
        if k == 15:
            b = self.number(0)
            return f"qd.{self.pick(['sqrt', 'log'])}(1.3 + {b} * {b})"
        if k == 16:
            b = self.number(0)
            return f"qd.atan2({a}, 1.5 + {b} * {b})"
        if k == 17:
            b = self.number(0)
            power = self.pick(["0.7", "1.5", "-0.5", f"qd.sin({a})"])
            return f"(1.2 + 0.3 * {b} * {b}) ** {power}"
        if k == 18:
            return f"0.4 * qd.tanh({a}) ** {self.pick([2, 3, 4])}"
        if k < 21:
            return f"qd.{self.pick(['max', 'min'])}({a}, {self.number(depth - 1)})"
        if k == 21:
            return f"qd.abs({a})"
        if k == 22:
            return f"-{self.leaf()}"
        if k == 23:
            return f"qd.select({self.condition(0)}, {a}, {self.number(depth - 1)})"
        if k < 26:
            return f"({a} if {self.condition(1)} else {self.number(depth - 1)})"
        if k == 26 and self.chance(0.1):
            self.exact = False
            return f"qd.cast(qd.cast({a}, qd.f32), qd.f64)"
        if k < 29:
            called = self.call("f", depth - 1)
            if called:
                return called
        if k < 31 and self.vars("v"):
            v = self.pick(self.vars("v")).name
            return f"0.4 * {v}.dot({self.vector(depth - 2)})"
        if k == 31 and self.vars("m"):
            return f"0.4 * {self.pick(self.vars('m')).name}.{self.pick(['trace', 'determinant'])}()"
        if k == 32 and self.vars("v"):
            return f"qd.sqrt(1.2 + {self.pick(self.vars('v')).name}.norm_sqr())"
        return f"qd.sin({a} + {self.number(0)})"

    def leaf(self):
        options = []
        floats = self.vars("f")
        if floats:
            options += [lambda: self.pick(floats[-4:]).name] * 5
            options += [lambda: self.pick(floats).name] * 3
        if self.where != "func":
            scalars = [name for name, t, _ in self.arguments if t == "f64"]
            options += [lambda: self.pick(scalars)] * bool(scalars)
        for elem, weight in (((), 5), ((3,), 1), ((2, 2), 1)):
            able = self.readable(elem)
            if not able or self.busy > 5:
                continue
            at = {
                (): lambda able=able: self.read(self.pick(able)),
                (3,): lambda able=able: f"{self.read(self.pick(able))}[{self.index(3)}]",
                (2, 2): lambda able=able: (
                    f"{self.read(self.pick(able))}[{self.index(2)}, {self.index(2)}]"
                ),
            }[elem]
            options += [at] * weight
        if self.vars("v"):
            options += [lambda: f"{self.pick(self.vars('v')).name}[{self.index(3)}]"] * 2
        if self.vars("m"):
            options += [
                lambda: f"{self.pick(self.vars('m')).name}[{self.index(2)}, {self.index(2)}]"
            ]
        if self.vars("i"):
            options += [lambda: f"0.1 * {self.pick(self.vars('i')).name}"]
        options += [lambda: f"{self.r.uniform(-1, 1):.2f}"]
        if self.draws:
            options += [lambda: "qd.random()"] * 2
        text = self.pick(options)()
        self.used_general |= text == "qd.random()"
        return f"({text})" if text.startswith("-") else text

    def vector(self, depth=1):
        options = [lambda: f"qd.Vector([{', '.join(self.number(depth) for _ in range(3))}])"]
        vectors = self.vars("v")
        if vectors:
            v = self.pick(vectors).name
            options += [lambda: v] * 3
            if depth > 0:
                options += [
                    lambda: f"(0.6 * {v} + 0.3 * {self.vector(depth - 1)})",
                    lambda: f"(0.5 * {v} * {self.vector(depth - 1)})",
                    lambda: f"qd.{self.pick(['sin', 'tanh'])}({v})",
                    lambda: f"0.5 * {v} * {self.number(depth - 1)}",
                    lambda: f"0.4 * {v}.cross({self.vector(0)})",
                ]
        able = self.readable((3,))
        if able:
            options += [lambda: self.read(self.pick(able))] * 2
        called = self.call("v", depth - 1) if self.chance(0.2) else None
        return called or self.pick(options)()

    def matrix(self, depth=1):
        options = [
            lambda: "qd.Matrix([[{}, {}], [{}, {}]])".format(*(self.number(0) for _ in range(4)))
        ]
        matrices = self.vars("m")
        if matrices:
            m, n = (self.pick(matrices).name for _ in range(2))
            options += [
                lambda: m,
                lambda: f"{m}.transpose()",
                lambda: f"(0.4 * {m} @ {n})",
                lambda: f"(0.5 * {m} + 0.4 * {self.matrix(0)})",
                lambda: f"qd.sin({m})",
            ]
        able = self.readable((2, 2))
        if able:
            options += [lambda: self.read(self.pick(able))] * 2
        return self.pick(options)()

    def condition(self, depth=1):
        k = self.r.randrange(8 if depth > 0 else 6)
        if k < 3:
            sign = self.pick("<>")
            return f"{self.number(min(depth, 1))} {sign} {self.r.uniform(-0.7, 0.7):.3f}"
        if k < 5 or k == 5:
            integers = self.vars("i")
            if not integers:
                return f"{self.small()} > {self.r.randrange(3)}"
            v = self.pick(integers).name
            m = self.r.randrange(2, 4)
            return self.pick(
                [
                    f"{v} % {m} == {self.r.randrange(m)}",
                    f"{v} > {self.small()}",
                    f"{v} != {self.r.randrange(3)}",
                ]
            )
        if k == 6:
            return f"({self.condition(0)} {self.pick(['and', 'or'])} {self.condition(0)})"
        return f"not ({self.condition(0)})"

    def call(self, result, depth):
        able = [f for f in self.funcs if f.result == result and (self.loops_allowed or not f.loops)]
        if not able or self.busy > 5:
            return None
        f = self.pick(able)
        return f"{f.name}({', '.join(self.argument(k, depth) for k in f.parameters)})"

    def argument(self, kind, depth):
        return {
            "f": lambda: self.number(max(0, min(depth, 1))),
            "i": lambda: self.index(4),
            "v": lambda: self.vector(0),
        }[kind]()

    @property
    def loops_allowed(self):
        """Whether a loop here is not one of the kernel's own."""
        return self.where == "func" or self.own is not None or self.depth + self.nested > 0

    nested = 0

    # --- statements

    def statements(self):
        while self.budget > 0:
            self.budget -= 1
            self.statement()

    def statement(self):
        choices = ["local"] * 3 + ["assign"] * 3 + ["augment"] * 3 + ["counter"]
        choices += ["vectors"] * 4 + ["matrices"]
        if self.where == "kernel":
            choices += ["store"] * 4 + ["sum"] * 3 + ["count"] + ["time"]
            if self.nested == self.depth == 0:
                choices += ["freeze"]
        if self.indent < 6:
            choices += ["branch"] * 4 + ["for"] * 4 + ["static"] + ["while"] * (2 * self.general)
        getattr(self, "do_" + self.pick(choices))()

    def mutable(self, kind):
        return self.vars(kind, lambda v: not v.fixed)

    def do_local(self):
        e = self.number(self.r.randrange(1, 4))
        self.emit(f"{self.add(self.fresh('s'), 'f').name} = {e}")

    def do_assign(self):
        floats = self.mutable("f")
        if not floats:
            return self.do_local()
        e = self.number(self.r.randrange(1, 4))
        if self.chance(0.5):
            e = f"qd.{self.pick(['sin', 'tanh'])}({e})"
        self.emit(f"{self.pick(floats).name} = {e}")

    def augment(self, place):
        e = self.number(self.r.randrange(0, 3))
        how = self.r.randrange(4)
        if how == 0:
            self.emit(f"{place} *= 0.6 + 0.3 * qd.sin({e})")
        elif how == 1:
            self.emit(f"{place} -= 0.3 * qd.tanh({e})")
        elif how == 2 and self.chance(0.3):
            self.emit(f"{place} /= 1.5 + 0.4 * qd.cos({e})")
        else:
            self.emit(f"{place} += 0.3 * {e}")

    def do_augment(self):
        floats = self.mutable("f")
        if not floats:
            return self.do_local()
        self.augment(self.pick(floats).name)

    def do_counter(self):
        integers = self.mutable("i")
        if not integers or self.chance(0.3):
            below = self.r.randrange(2, 7)
            e = self.index(below)
            self.emit(f"{self.add(self.fresh('c'), 'i', below).name} = {e}")
            return
        c = self.pick(integers)
        step = self.pick(["1", "1", f"{self.index(4)}", f"2 * {c.name}"])
        self.emit(f"{c.name} = ({c.name} + {step}) % {c.below}")

    def do_vectors(self):
        vectors = self.mutable("v")
        k = self.r.randrange(6)
        if not vectors or k == 0:
            e = self.vector()
            self.emit(f"{self.add(self.fresh('v'), 'v').name} = {e}")
            return
        v = self.pick(vectors).name
        if k == 1:
            self.emit(f"{v} = {self.vector(2)}")
        elif k == 2:
            self.emit(f"{v} {self.pick(['+=', '-='])} 0.3 * {self.vector()}")
        elif k == 3:
            self.emit(f"{v}[{self.index(3)}] = {self.number(2)}")
        elif k == 4:
            self.augment(f"{v}[{self.index(3)}]")
        else:
            self.emit(f"{v} *= {self.number(0)}")

    def do_matrices(self):
        matrices = self.mutable("m")
        k = self.r.randrange(4)
        if not matrices or k == 0:
            e = self.matrix()
            self.emit(f"{self.add(self.fresh('m'), 'm').name} = {e}")
            return
        m = self.pick(matrices).name
        if k == 1:
            self.emit(f"{m} = {self.matrix()}")
        elif k == 2:
            self.augment(f"{m}[{self.index(2)}, {self.index(2)}]")
        elif self.vars("v"):
            v = self.pick(self.vars("v")).name
            self.emit(f"{v}.xy = 0.6 * {m} @ {v}.xy")

    def writable(self, elem):
        return [
            d
            for d in self.data
            if d.use == "own"
            and d.loop == self.loop
            and d.elem == elem
            and d.name not in self.frozen
        ]

    def do_store(self):
        elem = self.pick([(), (), (3,), (2, 2)])
        able = self.writable(elem) or self.writable(())
        if not able:
            return self.do_sum()
        d = self.pick(able)
        at = self.cell(d)
        if at is None:
            return self.do_sum()
        if d.elem == (3,):
            k = self.r.randrange(4)
            if k == 0:
                self.emit(f"{at} = {self.vector()}")
            elif k == 1:
                self.emit(f"{at} += {self.vector()}")
            elif k == 2:
                self.emit(f"{at}[{self.index(3)}] = {self.number(2)}")
            else:
                self.emit(f"{at}[{self.index(3)}] += {self.number(2)}")
        elif d.elem:
            if self.chance(0.5):
                self.emit(f"{at} {self.pick(['=', '+=', '-='])} {self.matrix()}")
            else:
                self.emit(f"{at}[{self.index(2)}, {self.index(2)}] += {self.number(2)}")
        else:
            self.emit(f"{at} {self.pick(['=', '=', '+=', '-='])} {self.number(2)}")

    def do_sum(self):
        able = [d for d in self.data if d.use == "sum" and d.loop >= self.loop]
        if not able:
            return self.do_augment()
        d = self.pick(able)
        at = f"{d.name}[{', '.join(self.index(n) for n in d.shape) or 'None'}]"
        if d.elem:
            if self.chance(0.5):
                self.emit(f"{at} += {self.vector()}")
                return
            at += f"[{self.index(3)}]"
        e = self.number(self.r.randrange(1, 3))
        if self.chance(0.2):
            self.emit(f"qd.atomic_{self.pick(['add', 'sub'])}({at}, {e})")
        else:
            self.emit(f"{at} {self.pick(['+=', '+=', '-='])} {e}")

    def do_count(self):
        able = [d for d in self.data if d.use == "count"]
        if not able:
            return self.do_counter()
        d = self.pick(able)
        at = f"{d.name}[{', '.join(self.index(n) for n in d.shape) or 'None'}]"
        self.emit(f"{at} += {self.index(3)} + 1")

    def do_freeze(self):
        able = [
            d
            for d in self.data
            if d.use == "own" and d.loop == self.loop and self.cell(d) is not None
        ]
        if able:
            self.frozen.add(self.pick(able).name)

    def do_time(self):
        """A recurrence along the last axis of the iteration's own row."""
        able = [
            d
            for d in self.data
            if d.use == "time" and d.loop == self.loop and d.name not in self.frozen
        ]
        if not able or self.own is None or self.depth or self.nested or len(self.own) != 1:
            return self.do_for() if self.indent < 6 else self.do_assign()
        d = self.pick(able)
        row = self.own[0](d.shape[0])
        if row is None:
            return self.do_for()
        t = self.fresh("t")

        def body():
            self.emit(
                f"{d.name}[{row}, {t} + 1] = 0.8 * qd.sin({d.name}[{row}, {t}] + {self.number(1)})"
            )

        steps = d.shape[1] - 1
        self.inside(f"for {t} in range({steps}):", body, loop=steps, variables=[(t, steps)])
        self.frozen.add(d.name)

    def inside(self, header, body=None, loop=0, variables=(), last=None):
        """A block; `loop` is about how many trips it makes."""
        self.emit(header)
        self.indent += 1
        self.scopes.append([Var(n, "i", below, True) for n, below in variables])
        start, before, trips = len(self.lines), self.budget, self.trips
        self.budget = min(self.left, self.r.randrange(1, 4))
        self.left -= self.budget
        if loop:
            self.depth += 1
            self.trips *= max(1, loop)
        else:
            self.nested += 1
        if body:
            body()
        self.statements()
        if last:
            last()
        if len(self.lines) == start:
            self.emit("pass")
        if loop and (self.trips > 30 or self.chance(0.5)):
            self.damp(start)
        self.budget = before
        self.trips = trips
        if loop:
            self.depth -= 1
        else:
            self.nested -= 1
        self.scopes.pop()
        self.indent -= 1

    def damp(self, start):
        """What a loop carries forgets, so that its derivative stays small."""
        local = {v.name for v in self.scopes[-1]}
        changed = set()
        for line in self.lines[start:]:
            m = re.match(r"\s*([svm]\d+)(\[.*?\]|\.xy)? [-+*/]?=", line)
            if m and m[1] not in local:
                changed.add(m[1])
        outer = {v.name for s in self.scopes[:-1] for v in s if v.kind in "fvm"}
        factor = 0.25 if self.trips > 30 else 0.7
        lines = ["    " * self.indent + f"{n} *= {factor}" for n in sorted(changed & outer)]
        self.lines[start:start] = lines

    def do_branch(self):
        self.inside(f"if {self.condition(2)}:")
        while self.chance(0.25):
            self.inside(f"elif {self.condition(1)}:")
        if self.chance(0.5):
            self.inside("else:")

    def leave(self):
        if not self.general or not self.chance(0.35):
            return
        self.used_general = True
        words = ["break", "continue"]
        if self.returns and self.chance(0.4):
            words = [f"return {self.number(1)}"]
        self.emit(f"if {self.condition(1)}:")
        self.indent += 1
        if self.chance(0.2) and self.mutable("f"):
            self.do_assign()
        self.emit(self.pick(words))
        self.indent -= 1

    returns = False

    def do_for(self):
        if not self.loops_allowed or self.depth >= 3 or self.trips > 1200:
            return self.do_branch() if self.indent < 6 else self.do_assign()
        v = self.fresh("j")
        n = self.r.randrange(1, 5)
        k = self.r.randrange(9)
        below = n
        if self.wants_long() and self.chance(0.5):
            return self.long_for(v)
        if k < 3:
            header = f"for {v} in range({n}):"
        elif k == 3:
            low = self.r.randrange(0, 5)
            header = f"for {v} in range({low}, {n}):"
        elif k < 7:
            below = 6
            header = f"for {v} in range({self.small()}):"
        elif k == 7:
            below, n = 6, 3
            header = f"for {v} in range(qd.max({self.small()}, 0), {self.small()}):"
        else:
            w = self.fresh("j")
            header = f"for {v}, {w} in qd.ndrange({n}, {self.r.randrange(1, 3)}):"
            self.inside(header, self.leave, loop=n * 2, variables=[(v, n), (w, 2)])
            return
        self.inside(header, self.leave, loop=max(1, n), variables=[(v, max(1, below))])
        if self.chance(0.2):
            self.leave_outer()

    def wants_long(self):
        return self.long_loops and self.trips <= 5 and self.where == "kernel" and self.loops_allowed

    def long_for(self, v):
        """A loop whose records may be more than a small tape holds."""
        self.long_loops -= 1
        n = self.pick([25, 60, 120, 120, 300])
        header = f"for {v} in range({n}):"
        if self.chance(0.5):
            self.arguments.append(("n9", "i32", n))
            header = f"for {v} in range(n9):"
        e = self.number(0)
        s = self.add(self.fresh("s"), "f").name
        self.emit(f"{s} = {e}")

        def body():
            self.leave()
            self.do_assign()
            if self.chance(0.6):
                self.do_for()

        self.inside(header, body, loop=n, variables=[(v, n)], last=lambda: self.carry(s))

    def carry(self, name):
        self.emit(f"{name} = qd.sin({name} * {self.number(0)} + {self.number(1)})")
        self.do_sum()

    def leave_outer(self):
        if self.depth:
            self.leave()

    def do_while(self):
        if self.depth >= 3 or self.trips > 1200:
            return self.do_branch() if self.indent < 6 else self.do_assign()
        self.used_general = True
        w = self.fresh("w")
        n = self.r.randrange(1, 6)
        if self.wants_long() and self.chance(0.3):
            self.long_loops -= 1
            n = self.pick([60, 150, 400])
        self.emit(f"{w} = 0")
        self.scopes[-1].append(Var(w, "i", n + 1, True))
        k = self.r.randrange(4)

        def body():
            self.emit(f"{w} += 1")
            if k == 0:
                self.emit(f"if {w} > {n}:")
                self.emit("    break")
            self.leave()

        if k == 0:
            header = "while True:"
            self.scopes[-1][-1].below = n + 2
        elif k == 1:
            header = f"while {w} < {n} and {self.condition(0)}:"
        else:
            header = f"while {w} < {n}:"
        self.inside(header, body, loop=n)

    def do_static(self):
        q = self.fresh("q")
        n = self.r.randrange(1, 4)
        loop = self.depth  # no break in there
        general, self.general = self.general, False
        self.inside(f"for {q} in qd.static(range({n})):", variables=[(q, n)])
        self.general = general
        self.depth = loop

    # --- functions

    def function(self):
        self.where, self.scopes = "func", [[]]
        real = self.general and self.chance(0.35)
        name = self.fresh("r" if real else "f")
        result = "v" if self.chance(0.2) and not real else "f"
        kinds = self.pick(["f", "ff", "fi", "ffi", "fv", "vi", "ffv"])
        if real:
            kinds = kinds.replace("v", "f")
        parts = []
        types = {"f": "qd.f64", "i": "qd.i32"}
        for k, kind in enumerate(kinds):
            p = f"x{k}"
            self.add(p, kind, 4 if kind == "i" else 0, fixed=True)
            parts.append(f"{p}: {types[kind]}" if real else p)
        self.emit("")
        self.emit("")
        self.emit("@qd.real_func" if real else "@qd.func")
        self.emit(f"def {name}({', '.join(parts)})" + (" -> qd.f64:" if real else ":"))
        self.indent, start = 1, len(self.lines)
        self.returns = real and self.general
        self.used_general |= real
        e = self.number(1)
        self.emit(f"{self.add(self.fresh('s'), 'f').name} = {e}")
        self.budget = self.r.randrange(1, 5)
        while self.budget > 0:
            self.budget -= 1
            self.statement()
            if self.returns and self.chance(0.3):
                self.used_general = True
                self.emit(f"if {self.condition(1)}:")
                self.emit(f"    return {self.number(1)}")
        e = self.number(2) if result == "f" else self.vector(1)
        self.emit(f"return qd.tanh({e})" if result == "f" else f"return 0.7 * {e}")
        self.returns = False
        body = self.lines[start:]
        called = {f.name for f in self.funcs if f.loops and any(f.name + "(" in l for l in body)}
        loops = any(re.match(r"\s*(for|while) ", l) for l in body) or bool(called)
        self.funcs.append(Function(name, kinds, result, real, loops))
        self.indent, self.where, self.scopes = 0, "kernel", [[]]

    # --- the kernel

    def declare(self, straight):
        r = self.r
        n, m, t = r.randrange(3, 7), r.randrange(2, 4), r.randrange(4, 7)
        self.n, self.m = n, m
        add = self.data.append
        arrays = self.with_arrays and self.chance(0.4)

        def is_array():
            return arrays and self.chance(0.6)

        add(Data("a0", "f64", (n,), array=is_array()))
        if self.chance(0.5):
            add(Data("a1", "f64", (n,), grad=self.chance(0.6), array=is_array()))
        if self.chance(0.4):
            add(Data("a2", "f64", (n, m), array=is_array()))
        if self.chance(0.3):
            add(Data("a3", "f64", ()))
        if self.chance(0.35):
            add(Data("a4", "f64", (n,), (3,), array=is_array()))
        if self.chance(0.2):
            add(Data("a5", "f64", (m,), (2, 2)))
        if self.chance(0.6):
            add(Data("b0", "i32", (n,), grad=False, values=(-1, 5)))
        if self.chance(0.3):
            add(Data("p0", "i32", (n,), grad=False, values=(0, n)))
        if self.chance(0.4):
            add(Data("k0", "i32", self.pick([(), (3,)]), use="count", grad=False))
        for k in range(self.loops):
            if self.chance(0.8) or k + 1 == self.loops:
                add(Data(f"o{k}", "f64", (n,), use="own", loop=k, array=is_array()))
            if self.chance(0.4):
                add(Data(f"g{k}", "f64", (n, m), use="own", loop=k, array=is_array()))
            if self.chance(0.25):
                add(Data(f"u{k}", "f64", (n,), (3,), use="own", loop=k, array=is_array()))
            if self.chance(0.1):
                add(Data(f"d{k}", "f64", (n,), (2, 2), use="own", loop=k))
            if self.chance(0.25) and not straight:
                add(Data(f"h{k}", "f64", (n, t), use="time", loop=k, array=is_array()))
            if self.chance(0.5):
                shape = self.pick([(), (), (m,)])
                add(
                    Data(f"e{k}", "f64", shape, use="sum", loop=k, array=shape != () and is_array())
                )
        if self.chance(0.15):
            add(Data("e9", "f64", (2,), (3,), use="sum", loop=self.loops - 1))
        if self.chance(0.4):
            self.arguments.append(("n0", "i32", r.randrange(-1, 6)))
        if self.chance(0.4):
            self.arguments.append(("z0", "f64", round(r.uniform(-1, 1), 3)))

    def top_loop(self, number):
        self.loop, self.frozen, self.trips = number, set(), 1
        i, n = self.fresh("i"), self.n
        if self.chance(0.15):
            self.emit("qd.loop_config(serialize=True)")
        k = self.r.randrange(9)
        own = lambda size: i if size == n else None
        variables = [Var(i, "i", n, True)]
        fields = [d for d in self.data if len(d.shape) == 1 and d.shape[0] == n]
        planes = [d for d in self.data if d.shape == (n, self.m)]
        if k < 3:
            header = f"for {i} in range({n}):"
            if self.chance(0.2):
                own = lambda size: f"{n - 1} - {i}" if size == n else None
        elif k < 5:
            header = f"for {i} in range(1, {n - 1}):"
            variables = [Var(i, "i", n, True, (1, 1))]
        elif k == 5 and fields:
            header = f"for {i} in {self.pick(fields).name}:"
        elif k == 6:
            size = f"{self.pick(fields).name}.shape[0]"
            header = f"for {i} in range({size}):"
        else:
            j = self.fresh("i")
            variables.append(Var(j, "i", self.m, True))
            other = lambda size: j if size == self.m else None
            header = f"for {i}, {j} in qd.ndrange({n}, {self.m}):"
            if k == 7 and planes:
                header = f"for {i}, {j} in {self.pick(planes).name}:"
            self.own = [own, other]
        if k < 7:
            self.own = [own]
        self.emit(header)
        self.indent += 1
        self.scopes = [[], variables]
        start = len(self.lines)
        if self.general and self.chance(0.1):
            self.used_general = True
            self.emit(f"if {self.condition(1)}:")
            self.emit("    continue")
        self.budget = self.r.randrange(3, 9)
        self.statements()
        if self.long_loops and self.chance(0.5):
            self.long_for(self.fresh("j"))
        self.do_store()
        if self.chance(0.5):
            self.do_sum()
        self.indent -= 1

    def straight(self):
        self.own, self.loop, self.scopes = None, 0, [[]]
        self.do_local()
        self.budget = self.r.randrange(5, 11)
        self.statements()
        self.do_store()

    def write(self):
        straight = self.chance(0.2)
        self.loops = 1 if straight else self.pick([1, 1, 1, 2, 2, 3])
        self.declare(straight)
        for _ in range(self.pick([0, 1, 1, 2, 3])):
            self.function()
        functions, self.lines = self.lines, []
        self.indent = 1
        if straight:
            self.straight()
        else:
            for k in range(self.loops):
                self.top_loop(k)
        head = ["", "", "@qd.kernel", "def k(PARAMETERS):"]
        source = "\n".join(functions + head + self.lines).strip("\n") + "\n"
        return Program(self.seed, self.used_general, source, self.data, self.arguments, self.exact)


def program(seed, general=True, arrays=True):
    return Writer(seed, general, arrays).write()
