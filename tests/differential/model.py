"""Executes the kernel language from its source text, one scalar at a time, without the compiler.

A tree walk over Python's `ast` with typed values: integers are Python ints wrapped to their width,
floats are NumPy scalars, promotion and casts follow the language's rules as written in the
specification. It shares no code with the native side, so agreement means something.

A value carries a bound of its error. Plain arithmetic is exact (bound 0) and compared bit for bit;
elementary functions and re-ordered sums have a bound, which arithmetic propagates. Where a decision
(a comparison, a floor, a cast to an integer) depends on digits below the bound, `Undecidable` is
raised: the program then says nothing about the model.
"""

import ast
import math
import operator

import numpy as np
from arithmetic import arith, cast, flush, is_float, minmax, promote, wrap
from functions import Functions
from matrices import Matrices
from model_values import BITS, EPS, INF, NP, PY, Array, Mat, Struct, StructArray, TooLong, V


class Break(Exception):
    pass


class Continue(Exception):
    pass


class Return(Exception):
    def __init__(self, value):
        self.value = value


class Cell:
    """A variable. `mutable` is False for kernel parameters and loop variables."""

    __slots__ = ("v", "top")

    def __init__(self, v, top=False):
        self.v, self.top = v, top


class Scope:
    def __init__(self, parent=None, function=None):
        self.names, self.parent = {}, parent
        self.function = function or (parent.function if parent else None)

    def find(self, name):
        s = self
        while s:
            if name in s.names:
                return s.names[name]
            s = s.parent
        return None


class Name:
    """A name of the package, such as qd.math.clamp, not called yet."""

    def __init__(self, path):
        self.path = path


class Method:
    def __init__(self, owner, name):
        self.owner, self.name = owner, name


DTYPES = set(BITS) | set(NP)
SWIZZLE = [dict(zip(a, range(4))) for a in ("xyzw", "rgba", "stpq")]


def to_int(x):
    """A Python int out of an index or count."""
    return x.v if isinstance(x, V) else int(x)


def truth(x):
    if isinstance(x, V):
        return x.v != 0
    return bool(x)


class Machine(Matrices, Functions):
    """Runs the functions of one parsed module. `globals_` maps field names to Array."""

    def __init__(
        self, tree, default_ip="i32", default_fp="f32", globals_=None, limit=400_000, structs=()
    ):
        self.functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        self.ip, self.fp = default_ip, default_fp
        self.globals = globals_ or {}
        self.structs = {t.name: t for t in structs}
        self.steps, self.limit = 0, limit
        self.parallel = 0
        self.calls = 0
        self.next_serial = False

    # -- expressions

    def ev(self, n, s):
        self.steps += 1
        if self.steps > self.limit:
            raise TooLong
        return getattr(self, "ev_" + type(n).__name__)(n, s)

    def ev_Constant(self, n, s):
        return n.value

    def ev_Name(self, n, s):
        c = s.find(n.id)
        if c is not None:
            return c.v
        if n.id in self.globals:
            return self.globals[n.id]
        if (
            n.id in self.functions
            or n.id in self.structs
            or n.id
            in (
                "qd",
                "abs",
                "min",
                "max",
                "int",
                "float",
                "bool",
                "pow",
                "range",
                "any",
                "all",
                "len",
                "round",
            )
        ):
            return Name((n.id,))
        raise NameError(n.id)

    def ev_BinOp(self, n, s):
        return self.binary(type(n.op), self.ev(n.left, s), self.ev(n.right, s))

    def ev_UnaryOp(self, n, s):
        x = self.ev(n.operand, s)
        op = type(n.op)
        if isinstance(x, PY):
            return {
                ast.USub: operator.neg,
                ast.UAdd: operator.pos,
                ast.Not: operator.not_,
                ast.Invert: operator.invert,
            }[op](x)
        if op is ast.USub:
            return self.each(
                lambda a: V(a.t, -a.v, a.e) if is_float(a.t) else V(a.t, wrap(a.t, -a.v)), x
            )
        if op is ast.Not:
            return self.each(lambda a: V("u1", int(a.v == 0)), x)
        if op is ast.Invert:
            return self.each(lambda a: V(a.t, wrap(a.t, ~a.v)), x)
        return x

    def ev_Compare(self, n, s):
        left, out = self.ev(n.left, s), None
        for op, right in zip(n.ops, n.comparators):
            right = self.ev(right, s)
            r = self.compare2(type(op), left, right)
            out = r if out is None else self.binary(ast.BitAnd, out, r)
            left = right
        return out

    def ev_BoolOp(self, n, s):
        values = [self.ev(v, s) for v in n.values]
        if all(isinstance(v, PY) for v in values):
            f = (lambda a, b: a and b) if isinstance(n.op, ast.And) else (lambda a, b: a or b)
            return self.fold(f, values)
        is_and = isinstance(n.op, ast.And)

        def two(a, b):
            t = promote(a.t, b.t)
            return cast(t, b if (a.v != 0) == is_and else a)

        out = self.typed(values[-1])  # types promote pairwise from the right
        for v in reversed(values[:-1]):
            v = self.typed(v)
            if isinstance(v, Mat) or isinstance(out, Mat):
                f = (
                    (lambda a, b: V("u1", int(a.v != 0 and b.v != 0)))
                    if is_and
                    else (lambda a, b: V("u1", int(a.v != 0 or b.v != 0)))
                )
                out = self.each(f, v, out)
            else:
                out = two(v, out)
        return out

    def ev_IfExp(self, n, s):
        c = self.ev(n.test, s)
        a, b = self.ev(n.body, s), self.ev(n.orelse, s)
        if isinstance(c, PY):
            return a if c else b
        return self.select(c, a, b)

    def ev_List(self, n, s):
        return [self.ev(e, s) for e in n.elts]

    def ev_Tuple(self, n, s):
        return tuple(self.ev(e, s) for e in n.elts)

    def ev_Attribute(self, n, s):
        x = self.ev(n.value, s)
        if isinstance(x, Name):
            return Name((*x.path, n.attr))
        if isinstance(x, Mat):
            if n.attr == "n":
                return x.shape[0]
            if n.attr == "m":
                return x.shape[1]
            for a in SWIZZLE:
                if all(c in a for c in n.attr):
                    picked = [x.items[a[c]] for c in n.attr]
                    return picked[0] if len(picked) == 1 else Mat((len(picked),), picked)
            return Method(x, n.attr)
        if isinstance(x, Struct):
            return x.members[n.attr] if n.attr in x.members else Method(x, n.attr)
        if isinstance(x, (Array, StructArray)):
            if n.attr == "shape":
                return tuple(V("i32", d) for d in x.shape)
            return Method(x, n.attr)
        raise TypeError(f"attribute {n.attr} of {x!r}")

    def index(self, node, s):
        """Flattened Python indices of a subscript."""
        out = []
        for e in node.elts if isinstance(node, ast.Tuple) else [node]:
            if isinstance(e, ast.Slice):
                part = [
                    self.ev(p, s) if p is not None else None for p in (e.lower, e.upper, e.step)
                ]
                out.append(slice(*part))
                continue
            x = self.ev(e, s)
            if isinstance(x, Mat):
                out += [i.v for i in x.items]
            else:
                out.append(to_int(x))
        return out

    def pick(self, shape, index):
        """Flat positions that an index of a tensor selects, and the shape of the selection."""
        if len(shape) == 1:
            r = np.arange(shape[0])[index[0]]
        else:
            r = np.arange(shape[0] * shape[1]).reshape(shape)[tuple(index)]
        for i, n in zip(index, shape):
            if not isinstance(i, slice) and not 0 <= i < n:
                raise IndexError(f"{index} of {shape}")
        return r

    def ev_Subscript(self, n, s):
        x = self.ev(n.value, s)
        if isinstance(x, (tuple, list)):
            return x[to_int(self.ev(n.slice, s))]
        index = self.index(n.slice, s)
        if isinstance(x, (Array, StructArray)):
            return x.load(index)
        at = self.pick(x.shape, index)
        if at.ndim == 0:
            return x.items[int(at)]
        return Mat(at.shape, [x.items[int(k)] for k in at.reshape(-1)])

    # -- calls

    def ev_Call(self, n, s):
        f = self.ev(n.func, s)
        if isinstance(f, Name) and f.path[0] in self.functions and len(f.path) == 1:
            return self.call(self.functions[f.path[0]], n.args, s)
        if isinstance(f, Name) and f.path[0] in self.structs:
            return self.struct(self.structs[f.path[0]], {k.arg: k.value for k in n.keywords}, s)
        if isinstance(f, Method) and isinstance(f.owner, Struct):  # its `self` is a reference
            source = ast.parse("\n".join(f.owner.type.method_source())).body[0]
            scope = Scope(function=source)
            scope.names["self"] = Cell(f.owner)
            scope.names["by"] = Cell(self.typed(self.ev(n.args[0], s)))
            result = self.body(source, scope)
            self.assign(n.func.value, scope.names["self"].v, s)
            return result
        args = []
        for a in n.args:
            if isinstance(a, ast.Starred):
                x = self.ev(a.value, s)
                args += x.items if isinstance(x, Mat) else list(x)
            elif (
                isinstance(f, Name)
                and len(f.path) == 2
                and f.path[1].startswith("atomic_")
                and not args
            ):
                args.append(a)
            else:
                args.append(self.ev(a, s))
        args += [self.ev(k.value, s) for k in n.keywords]  # `dt=` of the constructors
        if isinstance(f, Method):
            return self.method(f.owner, f.name, args, s)
        name = f.path[-1]
        if len(f.path) == 1:
            if name in ("abs", "min", "max", "pow", "round", "any", "all"):
                return self.builtin(name, args)
            if name in ("int", "float", "bool"):
                if isinstance(args[0], PY):
                    return {"int": int, "float": float, "bool": bool}[name](args[0])
                return self.convert({"int": self.ip, "float": self.fp, "bool": "u1"}[name], args[0])
            if name == "len":
                return args[0].shape[0]
        if name in DTYPES:
            x = args[0]
            if isinstance(x, PY):
                return cast(
                    name,
                    V(name, wrap(name, x))
                    if not is_float(name)
                    else V(name, flush(name, NP[name](x))),
                )
            return cast(name, x)
        if name.startswith("atomic_"):
            return self.atomic(name[7:], args[0], args[1], s)
        return self.builtin(name, args)

    def call(self, f, nodes, s):
        scope = Scope(function=f)
        for p, node in zip(f.args.args, nodes, strict=True):
            note = ast.unparse(p.annotation) if p.annotation else ""
            if note == "qd.template()":
                cell = s.find(node.id) if isinstance(node, ast.Name) else None
                scope.names[p.arg] = cell if cell else Cell(self.ev(node, s))
                continue
            x = self.ev(node, s)
            if not isinstance(x, Array):
                x = self.typed(x)
                if note:
                    x = self.convert(self.dtype_of(note), x)
            scope.names[p.arg] = Cell(x)
        return self.body(f, scope)

    def struct(self, kind, values, s):
        """A constructor's call: missing members are zero, a scalar fills a vector."""
        members = {}
        for name, k in kind.members:
            given = self.ev(values[name], s) if name in values else None
            if not isinstance(k, tuple):
                members[name] = given if given is not None else self.struct(k, {}, s)
                continue
            t, shape = k
            zero = V(t, NP[t](0) if is_float(t) else 0)
            old = Mat(shape, [zero] * math.prod(shape)) if shape else zero
            members[name] = old if given is None else self.fit(old, given)
        return Struct(kind, members)

    def body(self, f, scope):
        self.calls += 1
        try:
            self.block(f.body, scope)
        except Return as r:
            return r.value
        finally:
            self.calls -= 1
        return None

    def atomic(self, name, target, value, s):
        old = self.ev(target, s)
        new = {
            "add": lambda a, b: arith(ast.Add, a, b),
            "sub": lambda a, b: arith(ast.Sub, a, b),
            "mul": lambda a, b: arith(ast.Mult, a, b),
            "min": lambda a, b: minmax(False, a, b),
            "max": lambda a, b: minmax(True, a, b),
            "and": lambda a, b: arith(ast.BitAnd, a, b),
            "or": lambda a, b: arith(ast.BitOr, a, b),
            "xor": lambda a, b: arith(ast.BitXor, a, b),
        }[name]
        t = old.t
        self.assign(target, self.each(lambda a, b: new(a, cast(t, b)), old, value), s)
        return old

    # -- statements

    def block(self, body, s):
        for st in body:
            self.steps += 1
            getattr(self, "st_" + type(st).__name__)(st, s)

    def st_Expr(self, n, s):
        if isinstance(n.value, ast.Call) and ast.unparse(n.value.func) == "qd.loop_config":
            return
        self.ev(n.value, s)

    def st_Pass(self, n, s):
        pass

    def st_Break(self, n, s):
        raise Break

    def st_Continue(self, n, s):
        raise Continue

    def st_Return(self, n, s):
        v = self.ev(n.value, s) if n.value else None
        if isinstance(v, PY):
            v = self.typed(v)
        raise Return(v)

    def st_Assign(self, n, s):
        v = self.ev(n.value, s)
        for t in n.targets:
            self.assign(t, v, s)

    def st_AnnAssign(self, n, s):
        v = self.convert(self.dtype_of(ast.unparse(n.annotation)), self.ev(n.value, s))
        s.names[n.target.id] = Cell(v, top=s.parent is None and not self.calls)

    def fit(self, old, v):
        """`v` as a value of `old`'s type and shape."""
        v = self.typed(v)
        if isinstance(old, Struct):
            return Struct(old.type, {k: self.fit(x, v.members[k]) for k, x in old.members.items()})
        if isinstance(old, V):
            return cast(old.t, v)
        if isinstance(v, V):
            v = Mat(old.shape, [v] * len(old.items))
        if v.shape != old.shape:
            raise TypeError("shapes differ")
        return Mat(old.shape, [cast(old.t, x) for x in v.items])

    def assign(self, target, v, s):
        if isinstance(target, ast.Tuple):
            if isinstance(v, Mat):
                v = v.items
            for t, x in zip(target.elts, list(v), strict=True):
                self.assign(t, x, s)
            return
        if isinstance(target, ast.Name):
            c = s.find(target.id)
            if c is None:
                v = tuple(self.typed(x) for x in v) if isinstance(v, tuple) else self.typed(v)
                s.names[target.id] = Cell(v, top=s.parent is None and not self.calls)
            else:
                c.v = self.fit(c.v, v)
            return
        if isinstance(target, ast.Attribute):
            whole = self.ev(target.value, s)
            if isinstance(whole, Struct):
                new = {**whole.members, target.attr: self.fit(whole.members[target.attr], v)}
                return self.assign(target.value, Struct(whole.type, new), s)
            for a in SWIZZLE:
                if all(c in a for c in target.attr):
                    at = [a[c] for c in target.attr]
                    break
            self.put(target.value, whole, np.array(at[0] if len(at) == 1 else at), v, s)
            return
        whole = self.ev(target.value, s)
        index = self.index(target.slice, s)
        if isinstance(whole, StructArray):
            return whole.store(index, self.fit(whole.load(index), v))
        if isinstance(whole, Array):
            k = whole.flat(index)
            if whole.elem:
                new = self.fit(whole.load(index), v)
                whole.cells[k * whole.size : (k + 1) * whole.size] = new.items
            else:
                whole.cells[k] = cast(whole.t, self.typed(v))
            return
        self.put(target.value, whole, self.pick(whole.shape, index), v, s)

    def put(self, node, whole, at, v, s):
        """Components `at` of the tensor that `node` denotes become v."""
        items = list(whole.items)
        if at.ndim == 0:
            items[int(at)] = cast(whole.t, self.typed(v))
        else:
            new = self.fit(Mat(at.shape, [items[int(k)] for k in at.reshape(-1)]), v)
            for k, x in zip(at.reshape(-1), new.items):
                items[int(k)] = x
        self.assign(node, Mat(whole.shape, items), s)

    def st_AugAssign(self, n, s):
        op = type(n.op)
        old = self.ev(n.target, s)
        value = self.ev(n.value, s)
        if op in (
            ast.Add,
            ast.Sub,
            ast.BitAnd,
            ast.BitOr,
            ast.BitXor,
        ):  # the operand becomes the target's type first
            value = self.fit(old, value)
        new = self.binary(op, old, value)
        if self.parallel and isinstance(n.target, (ast.Name, ast.Subscript, ast.Attribute)):
            root = n.target
            while not isinstance(root, ast.Name):
                root = root.value
            c = s.find(root.id)
            if c is not None and c.top and op in (ast.Add, ast.Sub):  # a sum in another order

                def loosen(a, b, r):
                    if not is_float(r.t):
                        return r
                    size = abs(float(a.v)) + abs(float(b.v)) + abs(float(r.v))
                    return V(r.t, r.v, r.e + 4 * EPS[r.t] * size if math.isfinite(size) else INF)

                new = self.each(loosen, old, value, new)
        self.assign(n.target, new, s)

    def st_If(self, n, s):
        c = self.ev(n.test, s)
        if not isinstance(n.test, ast.Call) and isinstance(c, V) and is_float(c.t):
            raise TypeError("float condition")
        self.block(n.body if truth(c) else n.orelse, Scope(s))

    def st_While(self, n, s):
        while truth(self.ev(n.test, s)):
            self.steps += 1
            if self.steps > self.limit:
                raise TooLong
            try:
                self.block(n.body, Scope(s))
            except Continue:
                continue
            except Break:
                break

    def bounds(self, a, s):
        x = a if isinstance(a, (tuple, list)) else (0, a)
        lo, hi = (cast("i32", self.typed(v)).v if isinstance(v, V) else int(v) for v in x)
        return range(lo, hi)

    def st_For(self, n, s):
        it = n.iter
        static = grouped = False
        while isinstance(it, ast.Call) and ast.unparse(it.func) in ("qd.static", "qd.grouped"):
            static |= ast.unparse(it.func) == "qd.static"
            grouped |= ast.unparse(it.func) == "qd.grouped"
            it = it.args[0]
        rows = []
        if isinstance(it, ast.Call):
            name = ast.unparse(it.func)
            args = [self.ev(a, s) for a in it.args]
            if name == "range":
                rows = [(i,) for i in self.bounds(args[0] if len(args) == 1 else tuple(args), s)]
            else:
                rows = [()]
                for r in [self.bounds(a, s) for a in args]:
                    rows = [(*p, i) for p in rows for i in r]
        else:
            x = self.ev(it, s)
            if isinstance(x, (Array, StructArray)):
                rows = list(np.ndindex(*x.shape))
            else:
                rows = [(v,) for v in x]
        top = (
            s.parent is None
            and not static
            and not self.calls
            and s.function is not None
            and self.parallel == 0
        )
        self.parallel += top
        try:
            for row in rows:
                self.steps += 1
                if self.steps > self.limit:
                    raise TooLong
                inner = Scope(s)
                values = list(row) if static else [V("i32", int(i)) for i in row]
                if grouped:
                    inner.names[n.target.id] = Cell(
                        Mat((len(values),), [self.typed(v) for v in values])
                    )
                elif isinstance(n.target, ast.Tuple):
                    for t, v in zip(n.target.elts, values, strict=True):
                        inner.names[t.id] = Cell(v)
                else:
                    inner.names[n.target.id] = Cell(values[0])
                try:
                    self.block(n.body, inner)
                except Continue:
                    continue
                except Break:
                    break
        finally:
            self.parallel -= top

    def run(self, kernel, args):
        """Runs a kernel on Arrays and typed scalars; returns its result converted."""
        f = self.functions[kernel]
        scope = Scope(function=f)
        for p, a in zip(f.args.args, args, strict=True):
            scope.names[p.arg] = Cell(a)
        with np.errstate(all="ignore"):
            try:
                self.block(f.body, scope)
            except Return as r:
                if f.returns is None or r.value is None:
                    return None
                if isinstance(r.value, tuple):
                    notes = f.returns.elts
                    return tuple(
                        self.convert(self.dtype_of(ast.unparse(t)), v)
                        for t, v in zip(notes, r.value, strict=True)
                    )
                return self.convert(self.dtype_of(ast.unparse(f.returns)), r.value)
        return None
