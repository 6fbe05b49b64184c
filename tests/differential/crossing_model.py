"""The typed model of `model.py` on crossed cases: what they leave, computed from their text.

`Crossed` adds what random programs do not have: 0-D places, objects and dataclasses as arguments,
`real_func` with references, captured Python values, `assert`, `:=`, lists. What it still lacks is
reported with the reason, never guessed.
"""

import ast
import re

import model
import model_values
import numpy as np
from arithmetic import wrap
from model import Cell, Return, Scope
from model_values import NP, Array, Mat, Struct, StructArray, V


class Unmodelled(Exception):
    """The case has a construct that the model does not know."""


class StructType:
    """A struct type as the model sees it; `method_source` gives its one func."""

    def __init__(self, name, members):
        self.name, self.members = name, members

    def method_source(self):
        return ["def grow(self, by):", "    self.a += by"]


class Object:
    """A Python object whose attributes the model reads."""

    def __init__(self, **members):
        self.members = members


def plain_ints(x):
    if isinstance(x, list):
        return [plain_ints(e) for e in x]
    return int(x) if isinstance(x, bool) else x


class Crossed(model.Machine):
    def __init__(self, tree, **kw):
        super().__init__(tree, "i32", "f32", **kw)
        self.captured = {}
        self.printed = False

    def ev_Name(self, n, s):
        if s.find(n.id) is None and n.id in self.captured:
            return self.captured[n.id]
        return super().ev_Name(n, s)

    def ev_Attribute(self, n, s):
        x = self.ev(n.value, s)
        if isinstance(x, Object):
            if n.attr not in x.members:
                raise Unmodelled(f"attribute {n.attr}")
            return x.members[n.attr]
        return super().ev_Attribute(n, s)

    def index(self, node, s):
        if isinstance(node, ast.Constant) and node.value is None:
            return []
        return super().index(node, s)

    def ev_Dict(self, n, s):
        return {self.ev(k, s): self.ev(v, s) for k, v in zip(n.keys, n.values)}

    def ev_Subscript(self, n, s):
        if isinstance(n.value, ast.Name) and isinstance(x := self.ev(n.value, s), dict):
            return x[self.ev(n.slice, s)]
        return super().ev_Subscript(n, s)

    def ev_ListComp(self, n, s):
        (loop,) = n.generators
        out = []
        items = (
            self.ev(loop.iter, s)
            if not isinstance(loop.iter, ast.Call)
            else self.items(loop.iter, s)
        )
        for item in items:
            inner = Scope(s)
            inner.names[loop.target.id] = Cell(item)
            if all(self.ev(test, inner) for test in loop.ifs):
                out.append(self.ev(n.elt, inner))
        return out

    def items(self, call, s):
        """What `range(n)` yields, under qd.static or not."""
        while ast.unparse(call.func) == "qd.static":
            call = call.args[0]
        return range(*(self.ev(a, s) for a in call.args))

    def ev_NamedExpr(self, n, s):
        v = self.ev(n.value, s)
        self.assign(n.target, v, s)
        return v

    def assign(self, target, v, s):
        if isinstance(target, ast.Name) and isinstance(
            v, (Array, StructArray, Object, dict)
        ):  # an alias
            s.names[target.id] = Cell(v)
            return
        super().assign(target, v, s)

    def atomic(self, name, target, value, s):
        if name != "exchange":
            return super().atomic(name, target, value, s)
        old = self.ev(target, s)
        self.assign(target, value, s)
        return old

    def compare_and_swap(self, n, s):
        old = self.ev(n.args[0], s)
        expected, desired = (self.typed(self.ev(a, s)) for a in n.args[1:])
        if old.v == self.convert(old.t, expected).v:
            self.assign(n.args[0], desired, s)
        return old

    def annotated(self, note, value):
        """A value as its annotation has it; structs stay what they are."""
        t = re.fullmatch(r"qd\.types\.(?:vector|matrix)\(.*, qd\.(\w+)\)|qd\.(\w+)", note)
        if not t or not isinstance(value, (V, Mat)):
            return value
        return self.each(lambda x: self.convert(t[1] or t[2], x), value)

    def result(self, note, value):
        """A func's results as its annotation has them."""
        if isinstance(note, ast.Tuple):
            return tuple(self.result(t, v) for t, v in zip(note.elts, value, strict=True))
        return self.annotated(ast.unparse(note), value)

    def builtin(self, name, args):
        if name in ("Vector", "Matrix"):  # Python's bools are ints among components
            args = [plain_ints(args[0]), *args[1:]]
        return super().builtin(name, args)

    def st_Assert(self, n, s):
        self.ev(n.test, s)

    def ev_Call(self, n, s):
        if isinstance(n.func, ast.Name) and n.func.id == "print":
            return None
        path = ast.unparse(n.func)
        if path == "qd.atomic_cas":
            return self.compare_and_swap(n, s)
        if path == "qd.static_assert":
            return None
        if path == "qd.volatile_load" or path == "qd.assume_in_range":
            return self.ev(n.args[0], s)
        if path == "qd.Struct":
            return Object(**{k.arg: self.ev(k.value, s) for k in n.keywords})
        if isinstance(n.func, ast.Attribute) and ast.unparse(n.func.value) == "self":
            f = self.functions[n.func.attr]
            return self.call(f, [n.func.value, *n.args], s)
        return super().ev_Call(n, s)

    def call(self, f, nodes, s):
        """References and templates are the caller's place; anything else is converted to its annotation."""
        scope = Scope(function=f)
        if any(isinstance(node, ast.Starred) for node in nodes):
            nodes = [
                e
                for node in nodes
                for e in (node.value.elts if isinstance(node, ast.Starred) else [node])
            ]
        for p, node in zip(f.args.args, nodes, strict=True):
            note = ast.unparse(p.annotation) if p.annotation else ""
            if note == "qd.template()" or note.startswith("qd.ref"):
                cell = s.find(node.id) if isinstance(node, ast.Name) else None
                if cell is None and isinstance(node, (ast.Subscript, ast.Attribute)):
                    x = self.ev(node, s)
                    if isinstance(x, (V, Mat)):  # written back after the call
                        cell = Cell(x)
                        scope.names[p.arg] = cell
                        scope.back = (node, p.arg, x)
                        continue
                scope.names[p.arg] = cell if cell else Cell(self.ev(node, s))
                continue
            x = self.ev(node, s)
            if not isinstance(x, (Array, StructArray, Object)):
                x = self.annotated(note, self.typed(x))
            scope.names[p.arg] = Cell(x)
        result = self.body(f, scope)
        if hasattr(scope, "back"):
            node, name, before = scope.back
            if scope.names[name].v is not before:
                self.assign(node, scope.names[name].v, s)
        if f.returns is not None and result is not None:
            result = self.result(f.returns, result)
        return result

    def run(self, kernel, args):
        """Runs a kernel on values in the order of its parameters."""
        f = self.functions[kernel]
        scope = Scope(function=f)
        for p, a in zip(f.args.args, args, strict=True):
            scope.names[p.arg] = Cell(a)
        with np.errstate(all="ignore"):
            try:
                self.block(f.body, scope)
            except Return as r:
                return self.convert(self.dtype_of(ast.unparse(f.returns)), r.value)
        return None


def flattened(tree):
    """The module's functions with those of its classes, as one list."""
    body = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    for c in tree.body:
        if isinstance(c, ast.ClassDef) and c.name[0] == "C":
            body += [n for n in c.body if isinstance(n, ast.FunctionDef)]
    return ast.Module(body, [])


class Clamped(Array):
    """An array whose indices are brought into range."""

    def load(self, index):
        return super().load([min(max(i, 0), n - 1) for i, n in zip(index, self.shape)])


class Nested(Array):
    """A field of structs of which only `s.a` is read."""

    def __init__(self, array):
        self.array = array

    def load(self, index):
        return Object(s=Object(a=self.array.load(index)))


class Shifted(Array):
    """An array that begins at an index other than 0."""

    def load(self, index):
        return super().load([i - self.first for i in index])


VECTORS = {"vs": (3,), "ms": (2, 2), "vo": (2,), "va2": (2,), "vsoa": (3,)}
INTEGERS = {"ss.b", "so.b", "perm", "count", "num", "b", "out6"}


def scalar(t, x):
    return V(t, NP[t](x) if t[0] == "f" else wrap(t, int(x)))


def machine_for(tree, t, data):
    def array(name):
        kind = "i32" if name in INTEGERS else "f64" if name == "wide" else t
        return Array.of(kind, np.array(data[name]), VECTORS.get(name, ()))

    arrays = {n: array(n) for n in data}
    kind = StructType("S", [("a", (t, ())), ("b", ("i32", ()))])
    scope = {
        n: a
        for n, a in arrays.items()
        if "." not in n and n not in ("out", "a", "a0", "b", "out6", "nd")
    }
    for name, n in (("ss", 12), ("so", 16)):
        scope[name] = StructArray(kind, (n,), {m: arrays[f"{name}.{m}"] for m in ("a", "b")})
    scope["xo"] = Shifted.of(t, np.array(data["xo"]))
    scope["xo"].first = -4
    scope["sn"] = Nested(arrays["sn.s.a"])
    m = Crossed(tree, globals_=scope, structs=[kind])
    half = 0.5 if t[0] == "f" else 0
    number = True if t == "u1" else 2.5 if half else 3
    m.captured = {
        "G": number,
        "GV": [1.5, 2.5, 0.5] if half else [1, 3, 2],
        "E": Object(two=2),
    }
    given = True if t == "u1" else 2 + half
    o = Object(k=number, f=arrays["x"], nd=arrays["nd"])
    va = [1, given, 3] if t != "u1" else [1, 1, 0]
    m.arguments = {
        "ac": Clamped.of(t, np.array(data["ac"])), "tt": arrays["tt"], "a3": arrays["a3"], "bv": Shifted.of(t, np.array(data["a"])),
        "out": arrays["out"], "a": arrays["a"], "a0": arrays["a0"], "b": arrays["b"], "out6": arrays["out6"],
        "n": V("i32", 6), "s": scalar(t, given), "va": Mat((3,), [scalar(t, x) for x in va]),
        "sa": Struct(kind, {"a": scalar(t, given), "b": V("i32", 4)}), "tn": number, "tf": arrays["z"],
        "o": o, "self": o, "d": Object(k=scalar(t, given), arr=arrays["a"]),
    }  # fmt: skip
    m.arguments["bv"].first = -1  # a view that leaves the first element out
    m.arrays = arrays
    return m


LACKS = (
    KeyError,
    AttributeError,
    NameError,
    TypeError,
    NotImplementedError,
    Unmodelled,
    ValueError,
)


def expected(tree, t, data, case):
    """What the case leaves: name -> (values, bounds)."""
    m = machine_for(tree, t, data)
    f = m.functions[case["name"]]
    result = m.run(case["name"], [m.arguments[p.arg] for p in f.args.args])
    names = [leaf for n in case["touched"] for leaf in ([f"{n}.a", f"{n}.b"] if n == "so" else [n])]
    out = {n: (m.arrays[n].values(), m.arrays[n].bounds()) for n in [*names, "out"]}
    if result is not None:
        out["return"] = (np.asarray(result.v), np.asarray(result.e))
    return out


def judge(job, data, measured):
    """(case's name, verdict) of each: a difference from `measured`, or why there is no verdict."""
    import run

    with open(job["source"]) as f:
        tree = flattened(ast.parse(f.read()))
    for case in job["cases"]:
        got = measured.get(case["name"])
        if got is None or got.get("error"):
            continue
        try:
            expect = expected(tree, job["t"], data, case)
        except (model_values.Undecidable, model_values.TooLong):
            yield case["name"], dict(why="undecidable")
            continue
        except LACKS as error:
            yield (
                case["name"],
                dict(why=re.sub(" object at 0x.*", "", f"{type(error).__name__}: {error}")),
            )
            continue
        except IndexError as error:
            yield case["name"], dict(difference=f"the generator left its arrays: {error}")
            continue
        difference, _ = run.model_difference(got["values"], expect)
        yield case["name"], dict(difference=difference)
