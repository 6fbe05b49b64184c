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

BITS = {"u1": 1}
for _k in "iu":
    for _b in (8, 16, 32, 64):
        BITS[f"{_k}{_b}"] = _b
NP = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
NP_ALL = {"u1": np.bool_, **NP}
NP_ALL.update(
    {t: np.dtype(("int" if t[0] == "i" else "uint") + t[1:]).type for t in BITS if t != "u1"}
)
EPS = {"f16": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53}
TINY = {"f16": 0.0, "f32": np.float32(2.0**-126), "f64": np.float64(2.0**-1022)}
INF = math.inf
PY = (bool, int, float)


class Undecidable(Exception):
    """The result depends on rounding that the model does not know."""


class TooLong(Exception):
    """The program takes more steps than a test should."""


class V:
    """A typed scalar: dtype name, value, bound of its error."""

    __slots__ = ("t", "v", "e")

    def __init__(self, t, v, e=0.0):
        self.t, self.v, self.e = t, v, e

    def __repr__(self):
        return f"{self.t}({self.v!r}{f' ±{self.e:.2g}' if self.e else ''})"


class Mat:
    """A tensor value: shape (n,) or (n, m) and its scalars, row-major, of one dtype."""

    __slots__ = ("shape", "items")

    def __init__(self, shape, items):
        self.shape, self.items = tuple(shape), list(items)

    @property
    def t(self):
        return self.items[0].t

    def __repr__(self):
        return f"Mat{self.shape}{self.items}"


class Struct:
    """A struct value: its type and members; never changed in place."""

    __slots__ = ("type", "members")

    def __init__(self, type, members):
        self.type, self.members = type, members


class StructArray:
    """A field of structs: an Array for each leaf, by path."""

    def __init__(self, type, shape, arrays):
        self.type, self.shape, self.arrays = type, shape, arrays

    def load(self, index):
        def value(kind, prefix):
            return Struct(
                kind,
                {
                    name: self.arrays[prefix + name].load(index)
                    if isinstance(k, tuple)
                    else value(k, f"{prefix}{name}.")
                    for name, k in kind.members
                },
            )

        return value(self.type, "")

    def store(self, index, struct, prefix=""):
        for name, x in struct.members.items():
            if isinstance(x, Struct):
                self.store(index, x, f"{prefix}{name}.")
                continue
            a = self.arrays[prefix + name]
            k = a.flat(index) * a.size
            a.cells[k : k + a.size] = x.items if isinstance(x, Mat) else [x]


class Array:
    """Storage: outer shape, element shape, dtype, cells in row-major order."""

    def __init__(self, t, shape, elem, cells):
        self.t, self.shape, self.elem, self.cells = t, tuple(shape), tuple(elem), cells
        self.size = math.prod(elem) if elem else 1

    @staticmethod
    def of(t, array, elem=()):
        outer = array.shape[: array.ndim - len(elem)]
        flat = array.reshape(-1)
        if t[0] == "f":
            cells = [V(t, flat[i]) for i in range(flat.size)]
        else:
            cells = [V(t, int(x)) for x in flat.tolist()]
        return Array(t, outer, elem, cells)

    def flat(self, index):
        at = 0
        for n, i in zip(self.shape, index, strict=True):
            if not 0 <= i < n:
                raise IndexError(f"{index} outside {self.shape}")
            at = at * n + i
        return at

    def load(self, index):
        at = self.flat(index)
        if not self.elem:
            return self.cells[at]
        return Mat(self.elem, self.cells[at * self.size : (at + 1) * self.size])

    def values(self):
        out = np.array([c.v for c in self.cells], dtype=NP_ALL[self.t])
        return out.reshape(self.shape + self.elem)

    def bounds(self):
        return np.array([c.e for c in self.cells]).reshape(self.shape + self.elem)


# --- scalars -------------------------------------------------------------------------------------


def wrap(t, v):
    b = BITS[t]
    v &= (1 << b) - 1
    if t[0] == "i" and v >> (b - 1):
        v -= 1 << b
    return v


def is_float(t):
    return t[0] == "f"


def promote(a, b):
    if a == b:
        return a
    if a[0] == "f" or b[0] == "f":
        fs = [t for t in (a, b) if t[0] == "f"]
        return max(fs, key=lambda t: int(t[1:]))
    if a == "u1" or b == "u1":  # an 8-bit unsigned that loses to u8 and beats i8
        o = b if a == "u1" else a
        return "u1" if o == "i8" else o
    wa, wb = BITS[a], BITS[b]
    if wa != wb:
        return a if wa > wb else b
    return a if a[0] == "u" else b


def flush(t, v):
    """Subnormal f32 and f64 become zero of their sign."""
    if t != "f16" and v != 0 and abs(v) < TINY[t]:
        return NP[t](math.copysign(0.0, v))
    return v


def fl(t, v, e=0.0):
    """A float result: rounded to `t` and flushed."""
    v = flush(t, NP[t](v))
    if e:
        e = INF if not math.isfinite(v) or e != e else e + EPS[t] * abs(float(v))
    return V(t, v, e)


def to_float(t, a):
    """Numeric conversion of a scalar to a float dtype, one rounding."""
    if is_float(a.t):
        if a.t == t:
            return a
        return fl(t, NP[t](flush(a.t, a.v)), a.e)
    v = np.uint64(a.v) if a.v >= 0 else np.int64(a.v)
    return V(t, NP[t](np.float32(v)) if t == "f16" else NP[t](v))


def saturate(t, v):
    """float -> int: truncates, saturates, NaN is 0."""
    if v != v:
        return 0
    if t[0] == "i":
        lo, hi = -(1 << (BITS[t] - 1)), (1 << (BITS[t] - 1)) - 1
    else:
        lo, hi = 0, (1 << BITS[t]) - 1
    if v <= lo:
        return lo
    if v >= hi:
        return hi
    return int(v)


def decide(a, f):
    """f of the value where its error cannot change the answer."""
    if not a.e:
        return f(float(a.v))
    if not a.e < INF or not math.isfinite(a.v):
        raise Undecidable
    lo, hi = f(float(a.v) - 2 * a.e), f(float(a.v) + 2 * a.e)
    if lo != hi:
        raise Undecidable
    return lo


def cast(t, a):
    if a.t == t:
        return a
    if is_float(t):
        return to_float(t, a)
    if is_float(a.t):
        if t == "u1":
            return V(t, compare(ast.NotEq, a, V(a.t, NP[a.t](0))))
        x = V(a.t, flush(a.t, a.v), a.e)
        return V(t, decide(x, lambda v: saturate(t, v)))
    if t == "u1":
        return V(t, int(a.v != 0))
    return V(t, wrap(t, a.v))


COMPARE = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip


def compare(op, a, b):
    """Of two values of one dtype; 0 or 1."""
    if is_float(a.t):
        x, y = flush(a.t, a.v), flush(a.t, b.v)
        if a.e or b.e:
            if not abs(float(x) - float(y)) > 2 * (a.e + b.e):
                raise Undecidable
        return int(bool(COMPARE[op](x, y)))
    return int(COMPARE[op](a.v, b.v))


def floor_div(x, y):
    return x // y if y else 0


def trunc_div(x, y):
    if not y:
        return 0
    q = abs(x) // abs(y)
    return -q if (x < 0) != (y < 0) else q


def float_div(t, x, y):
    if t == "f16":  # computed in single precision, rounded once
        return np.float16(np.float32(x) / np.float32(y))
    return x / y


def div_error(a, b):
    if not (a.e or b.e):
        return 0.0
    x, y = abs(float(a.v)), abs(float(b.v))
    if not y > 2 * b.e:
        return INF
    return (a.e + x / y * b.e) / (y - b.e)


def arith(op, a, b):
    """`op` (an ast operator class) on two values of one dtype."""
    t = a.t
    if not is_float(t):
        x, y, w = a.v, b.v, BITS[t]
        if op is ast.Add:
            r = x + y
        elif op is ast.Sub:
            r = x - y
        elif op is ast.Mult:
            r = x * y
        elif op is ast.FloorDiv:
            r = floor_div(x, y)
        elif op is ast.Mod:
            r = x - floor_div(x, y) * y if y else 0
        elif op is ast.BitAnd:
            r = x & y
        elif op is ast.BitOr:
            r = x | y
        elif op is ast.BitXor:
            r = x ^ y
        elif op is ast.LShift:
            r = x << (y & (w - 1))
        elif op is ast.RShift:
            r = x >> (y & (w - 1))
        else:
            raise NotImplementedError(op)
        return V(t, wrap(t, r))
    x, y = flush(t, a.v), flush(t, b.v)
    ea, eb = a.e, b.e
    if op is ast.Add or op is ast.Sub:
        return fl(t, x + y if op is ast.Add else x - y, ea + eb)
    if op is ast.Mult:
        e = abs(float(x)) * eb + abs(float(y)) * ea + ea * eb if ea or eb else 0.0
        return fl(t, x * y, e)
    if op is ast.Div:
        return fl(t, float_div(t, x, y), div_error(a, b))
    if op is ast.FloorDiv or op is ast.Mod:
        u = "f32" if t == "f16" else t  # f16 works in single precision and rounds once
        U = NP[u]
        q = flush(u, U(x) / U(y))
        if ea or eb:
            decide(V(u, q, div_error(a, b) + EPS[t] * abs(float(q))), math.floor)
        q = np.floor(q)
        if op is ast.FloorDiv:
            return V(t, flush(t, NP[t](q)))
        r = flush(u, U(x) - flush(u, q * U(y)))
        return fl(t, r, ea + abs(float(q)) * eb if ea or eb else 0.0)
    raise NotImplementedError(op)


def minmax(largest, a, b):
    t = a.t
    if not is_float(t):
        return V(t, max(a.v, b.v) if largest else min(a.v, b.v))
    x, y = flush(t, a.v), flush(t, b.v)
    e = max(a.e, b.e)
    if e and not (math.isfinite(x) and math.isfinite(y)):
        raise Undecidable
    if y != y:
        return a
    if x != x:
        return b
    if x == y:
        if np.signbit(x) == np.signbit(y):
            return V(t, a.v, e)
        return V(t, (a if np.signbit(x) != largest else b).v, e)
    r = a if (x > y) == largest else b
    return V(t, r.v, e)


def tolerance(t, v, ulp):
    return ulp * 2 * EPS[t] * abs(float(v)) + (1e-30 if t != "f64" else 1e-300)


def elementary(name, t, xs):
    """A function by the host's mathematics in double precision, with a bound of the error."""
    if any(x.e for x in xs):
        slope = {"sin": 1, "cos": 1, "tanh": 1}.get(name)
        extra = xs[0].e if slope else INF
    else:
        extra = 0.0
    args = [np.float64(flush(x.t, x.v)) for x in xs]
    f = {
        "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
        "tanh": np.tanh, "exp": np.exp, "log": np.log, "atan2": np.arctan2,
        "pow": np.power, "rsqrt": lambda v: 1 / np.sqrt(v),
    }[name]  # fmt: skip
    v = f(*args)
    if not np.isfinite(v) or not np.isfinite(NP[t](v)):
        return V(t, NP[t](v), INF if extra else 0.0)
    r = NP[t](v)
    e = extra + tolerance(t, v, 8)
    if name in ("sin", "cos", "tan"):
        e += (16 * EPS[t] if t != "f16" else EPS[t]) * (1 + abs(float(args[0])) * 2**-3)
        if abs(float(args[0])) > 1e4:
            e = INF
    if name == "pow":
        e += tolerance(t, v, 64)
    if t != "f16" and abs(float(r)) < 1e3 * float(TINY[t]):
        e = INF
    return V(t, flush(t, r), e)


def sqrt(a):
    t = a.t
    x = flush(t, a.v)
    r = np.float16(np.sqrt(np.float32(x))) if t == "f16" else np.sqrt(x)
    e = 0.0
    if a.e:
        if not float(x) > 4 * a.e:
            e = INF
        else:
            e = a.e / float(r)
    return fl(t, r, e)


def rounding(name, a):
    t = a.t
    if not is_float(t):
        return a
    x = flush(t, a.v)

    def half_away(v):
        if not math.isfinite(v) or abs(v) >= 2.0**52:
            return v
        w = math.floor(abs(v))
        return math.copysign(w + (abs(v) - w >= 0.5), v)

    f = {"floor": np.floor, "ceil": np.ceil, "round": half_away, "trunc": np.trunc}[name]
    if a.e:
        return V(t, NP[t](decide(V(t, x, a.e), lambda v: float(f(v)))))
    return V(t, NP[t](f(x) if name != "round" else f(float(x))))


def power(a, b):
    """`a ** b`: an integer exponent keeps the base's type."""
    if is_float(a.t) or is_float(b.t):
        if not is_float(b.t):
            x = flush(a.t, a.v)
            n = b.v
            if n == 0:
                return V(a.t, NP[a.t](1))
            if n == 1:
                return V(a.t, x, a.e)
            if n == 2 and not a.e:
                return fl(a.t, x * x)
            if not math.isfinite(x) or a.e:
                return V(a.t, NP[a.t](x) ** n, INF)
            v = np.float64(x) ** np.float64(n)
            r = NP[a.t](v)
            if (
                not np.isfinite(r)
                or abs(float(r)) < 1e3 * float(TINY[a.t])
                or abs(float(r)) > 1e4
                and a.t == "f16"
            ):
                return V(a.t, flush(a.t, r), INF)
            return V(a.t, r, tolerance(a.t, r, 8 + abs(n)))
        t = promote(a.t, b.t)
        a, b = cast(t, a), cast(t, b)
        return elementary("pow", t, [a, b])
    if b.v <= 0:
        return V(a.t, wrap(a.t, 1))
    return V(a.t, wrap(a.t, pow(a.v, b.v, 1 << 64)))


# --- the walk ------------------------------------------------------------------------------------


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


class Machine:
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

    # -- typing

    def typed(self, x):
        if isinstance(x, (V, Mat, Struct)):
            return x
        if isinstance(x, bool):
            return V("u1", int(x))
        if isinstance(x, int):
            return V(self.ip, wrap(self.ip, x))
        if isinstance(x, float):
            return V(self.fp, flush(self.fp, NP[self.fp](x)))
        if isinstance(x, (list, tuple)):
            return self.tensor(x)
        raise TypeError(f"not a value: {x!r}")

    def tensor(self, rows, t=None):
        if isinstance(rows[0], (list, tuple)):
            shape = (len(rows), len(rows[0]))
            flat = [x for r in rows for x in r]
        else:
            shape, flat = (len(rows),), rows
        flat = [self.typed(x) for x in flat]
        if t is None:
            t = flat[0].t
            for x in flat:
                t = promote(t, x.t)
        return Mat(shape, [cast(t, x) for x in flat])

    def each(self, f, *args):
        """f over scalars, or component-wise with scalars broadcast."""
        args = [self.typed(a) for a in args]
        mats = [a for a in args if isinstance(a, Mat)]
        if not mats:
            return f(*args)
        shape = mats[0].shape
        if any(m.shape != shape for m in mats):
            raise TypeError("shapes differ")
        n = len(mats[0].items)
        cols = [a.items if isinstance(a, Mat) else [a] * n for a in args]
        return Mat(shape, [f(*c) for c in zip(*cols)])

    def convert(self, t, x):
        return self.each(lambda a: cast(t, a), x)

    # -- operators

    def binary(self, op, a, b):
        if isinstance(a, PY) and isinstance(b, PY):
            return PY_BIN[op](a, b)
        if op is ast.MatMult:
            return self.matmul(self.typed(a), self.typed(b))
        return self.each(lambda x, y: self.scalar_binary(op, x, y), a, b)

    def scalar_binary(self, op, a, b):
        if op is ast.Pow:
            return power(a, b)
        if op is ast.LShift or op is ast.RShift:
            return arith(op, a, V(a.t, b.v))
        if op is ast.Div:
            if not is_float(a.t):
                a = cast(self.fp, a)
            if not is_float(b.t):
                b = cast(self.fp, b)
        t = promote(a.t, b.t)
        return arith(op, cast(t, a), cast(t, b))

    def add(self, a, b):
        return self.scalar_binary(ast.Add, a, b)

    def mul(self, a, b):
        return self.scalar_binary(ast.Mult, a, b)

    def sub(self, a, b):
        return self.scalar_binary(ast.Sub, a, b)

    def fold(self, f, items):
        r = items[0]
        for x in items[1:]:
            r = f(r, x)
        return r

    def matmul(self, a, b):
        t = promote(a.t, b.t)
        a, b = self.convert(t, a), self.convert(t, b)
        if len(a.shape) == 1 and len(b.shape) == 1:
            return self.dot(a, b)
        if len(a.shape) == 1:  # v @ M is the transpose of M times v
            n, m = b.shape
            return Mat(
                (m,),
                [
                    self.fold(
                        self.add, [self.mul(a.items[k], b.items[k * m + j]) for k in range(n)]
                    )
                    for j in range(m)
                ],
            )
        n, k = a.shape
        if len(b.shape) == 1:
            return Mat((n,), [self.dot(Mat((k,), a.items[i * k : i * k + k]), b) for i in range(n)])
        m = b.shape[1]
        return Mat(
            (n, m),
            [
                self.fold(
                    self.add, [self.mul(a.items[i * k + q], b.items[q * m + j]) for q in range(k)]
                )
                for i in range(n)
                for j in range(m)
            ],
        )

    def dot(self, a, b):
        return self.fold(self.add, [self.mul(x, y) for x, y in zip(a.items, b.items, strict=True)])

    def compare2(self, op, a, b):
        if isinstance(a, PY) and isinstance(b, PY):
            return COMPARE[op](a, b)

        def one(x, y):
            t = promote(x.t, y.t)
            return V("u1", compare(op, cast(t, x), cast(t, y)))

        return self.each(one, a, b)

    def minimum(self, largest, args):
        if len(args) == 1:
            return args[0]
        if all(isinstance(a, PY) for a in args):
            return (max if largest else min)(*args)

        def one(x, y):
            t = promote(x.t, y.t)
            return minmax(largest, cast(t, x), cast(t, y))

        return self.each(one, args[0], self.minimum(largest, args[1:]))

    def select(self, c, a, b):
        def one(c, x, y):
            t = promote(x.t, y.t)
            return cast(t, x if c.v else y)

        return self.each(one, c, a, b)

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

    def dtype_of(self, note):
        return {"int": self.ip, "float": self.fp, "bool": "u1"}.get(note, note.removeprefix("qd."))

    def real(self, x):
        """Integers become default_fp."""
        return self.each(lambda a: a if is_float(a.t) else cast(self.fp, a), x)

    def builtin(self, name, args):
        if name in ("static", "grouped"):
            return args[0]
        if name in ("Vector", "Matrix"):
            t = args[1].path[-1] if len(args) > 1 else None
            return self.tensor(args[0], t)
        if name in ("max", "min"):
            return self.minimum(name == "max", args)
        if name == "abs":
            if isinstance(args[0], PY):
                return abs(args[0])
            return self.each(
                lambda a: V(a.t, abs(a.v), a.e) if is_float(a.t) else V(a.t, wrap(a.t, abs(a.v))),
                args[0],
            )
        if name == "cast":
            return self.convert(self.dtype_of(".".join(args[1].path)), args[0])
        if name == "bit_cast":
            return self.each(lambda a: bit_cast(args[1].path[-1], a), args[0])
        if name == "select":
            return self.select(*args)
        if name == "pow":
            return self.binary(ast.Pow, args[0], args[1])
        if name in ("floor", "ceil", "round"):
            r = self.each(lambda a: rounding(name, a), args[0])
            return self.convert(self.dtype_of(".".join(args[1].path)), r) if len(args) > 1 else r
        if name == "sqrt":
            return self.each(sqrt, self.real(args[0]))
        if name in ("exp", "log"):
            return self.each(lambda a: elementary(name, a.t, [a]), self.real(args[0]))
        if name in ("sin", "cos", "tan", "asin", "acos", "tanh", "rsqrt"):
            return self.each(lambda a: elementary(name, a.t, [a]), args[0])
        if name == "atan2":
            a, b = self.real(args[0]), self.real(args[1])

            def one(x, y):
                t = promote(x.t, y.t)
                t = "f32" if t == "f16" else t
                return elementary(name, t, [cast(t, x), cast(t, y)])

            return self.each(one, a, b)
        if name == "raw_div":
            return self.each(self.raw_div, *args)
        if name == "raw_mod":
            return self.each(self.raw_mod, *args)
        if name == "bit_shr":
            return self.each(
                lambda a, b: V(
                    a.t, wrap(a.t, (a.v & ((1 << BITS[a.t]) - 1)) >> (b.v & (BITS[a.t] - 1)))
                ),
                *args,
            )
        if name in ("popcnt", "clz", "ffs"):
            return self.each(lambda a: bit_count(name, a), args[0])
        if name == "clamp":
            return self.minimum(False, [args[2], self.minimum(True, [args[1], args[0]])])
        if name == "mix":
            x, y, a = args
            return self.binary(
                ast.Add,
                self.binary(ast.Mult, x, self.binary(ast.Sub, 1, a)),
                self.binary(ast.Mult, y, a),
            )
        if name == "fract":
            return self.binary(ast.Sub, args[0], self.each(lambda a: rounding("floor", a), args[0]))
        if name == "sign":

            def sign(a):
                z = V(a.t, NP[a.t](0) if is_float(a.t) else 0)
                return V(self.fp, NP[self.fp](compare(ast.Gt, a, z) - compare(ast.Lt, a, z)))

            return self.each(sign, args[0])
        if name in ("isnan", "isinf"):

            def test(a):
                a = cast(self.fp, a)
                if a.e and not math.isfinite(a.v):
                    raise Undecidable
                return V("u1", int(bool((np.isnan if name == "isnan" else np.isinf)(a.v))))

            return self.each(test, args[0])
        if name == "dot":
            return self.dot(*args)
        if name == "cross":
            return self.method(args[0], "cross", args[1:], None)
        if name == "length":
            return self.method(args[0], "norm", [], None)
        if name == "distance":
            return self.method(self.binary(ast.Sub, *args), "norm", [], None)
        if name in ("any", "all"):
            return self.method(args[0], name, [], None)
        if name == "zero":
            return self.each(lambda a: V(a.t, NP[a.t](0) if is_float(a.t) else 0), args[0])
        if name == "one":
            return self.each(lambda a: V(a.t, NP[a.t](1) if is_float(a.t) else 1), args[0])
        raise NotImplementedError(name)

    def raw_div(self, a, b):
        t = promote(a.t, b.t)
        a, b = cast(t, a), cast(t, b)
        if not is_float(t):
            return V(t, wrap(t, trunc_div(a.v, b.v)))
        u = "f32" if t == "f16" else t
        q = flush(u, NP[u](flush(t, a.v)) / NP[u](flush(t, b.v)))
        if a.e or b.e:
            decide(V(u, q, div_error(a, b) + EPS[t] * abs(float(q))), math.trunc)
        return V(t, NP[t](np.trunc(q)))

    def raw_mod(self, a, b):
        t = promote(a.t, b.t)
        a, b = cast(t, a), cast(t, b)
        return V(t, wrap(t, a.v - trunc_div(a.v, b.v) * b.v) if b.v else 0)

    def method(self, x, name, args, s):
        it = x.items
        if name == "sum":
            return self.fold(self.add, it)
        if name in ("max", "min"):
            return self.fold(lambda a, b: minmax(name == "max", a, b), it)
        if name in ("any", "all"):
            f = any if name == "any" else all
            bits = [compare(ast.NotEq, a, V(a.t, NP[a.t](0) if is_float(a.t) else 0)) for a in it]
            return V("u1", int(f(bits)))
        if name == "norm_sqr":
            return self.dot(x, x)
        if name == "norm":
            q = self.dot(x, x)
            if args:
                q = self.binary(ast.Add, q, args[0])
            return self.builtin("sqrt", [q])
        if name == "normalized":
            n = self.method(x, "norm", [], s)
            if args:
                n = self.binary(ast.Add, n, args[0])
            r = self.binary(ast.Div, x, n)
            return Mat(
                r.shape,
                [
                    V(a.t, a.v, a.e or tolerance(a.t, a.v, 4) if np.isfinite(a.v) else INF)
                    for a in r.items
                ],
            )
        if name == "dot":
            return self.dot(x, self.typed(args[0]))
        if name == "cross":
            y = self.typed(args[0]).items
            if len(it) == 2:
                return self.sub(self.mul(it[0], y[1]), self.mul(it[1], y[0]))
            pairs = [(1, 2), (2, 0), (0, 1)]
            return Mat(
                (3,), [self.sub(self.mul(it[a], y[b]), self.mul(it[b], y[a])) for a, b in pairs]
            )
        if name == "outer_product":
            y = self.typed(args[0]).items
            return Mat((len(it), len(y)), [self.mul(a, b) for a in it for b in y])
        if name == "transpose":
            n, m = x.shape
            return Mat((m, n), [it[i * m + j] for j in range(m) for i in range(n)])
        if name == "trace":
            n = x.shape[0]
            return self.fold(self.add, [it[i * n + i] for i in range(n)])
        if name == "determinant":
            return self.determinant(x)
        if name == "inverse":
            return self.inverse(x)
        if name == "cast":
            return self.convert(self.dtype_of(".".join(args[0].path)), x)
        raise NotImplementedError(name)

    def determinant(self, x):
        n = x.shape[0]
        it = x.items
        if n == 2:
            r = self.sub(self.mul(it[0], it[3]), self.mul(it[1], it[2]))
        else:
            r = None
            for j in range(n):
                minor = Mat(
                    (n - 1, n - 1), [it[i * n + k] for i in range(1, n) for k in range(n) if k != j]
                )
                term = self.mul(it[j], self.determinant(minor))
                r = term if r is None else (self.sub if j & 1 else self.add)(r, term)
        if is_float(r.t):  # the order of the terms is not part of the contract
            big = self.fold(
                self.mul, [V("f64", np.float64(max(1.0, *(abs(float(a.v)) for a in it))))] * n
            )
            size = float(big.v) * 8 * EPS[r.t]
            r = V(
                r.t,
                r.v,
                INF
                if not math.isfinite(r.v)
                or not math.isfinite(size)
                or any(a.e for a in it)
                or r.t == "f16"
                else size,
            )
        return r

    def inverse(self, x):
        """Only roughly: how it is computed is not part of the contract."""
        a = np.array([float(flush(v.t, v.v)) for v in x.items]).reshape(x.shape)
        try:
            r = np.linalg.inv(a) if np.all(np.isfinite(a)) else np.full(x.shape, np.nan)
        except np.linalg.LinAlgError:
            r = np.full(x.shape, np.nan)
        return Mat(x.shape, [V(x.t, NP[x.t](v), INF) for v in r.reshape(-1)])

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


PY_BIN = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip


def bit_cast(t, a):
    if a.e:
        raise Undecidable
    if is_float(a.t):
        if a.v != a.v:
            raise Undecidable  # payloads are not part of the contract
        raw = int(np.array(a.v).view(f"u{int(a.t[1:]) // 8}"))
    else:
        raw = a.v & ((1 << BITS[a.t]) - 1)
    if is_float(t):
        return V(t, np.array(raw, dtype=f"u{int(t[1:]) // 8}").view(NP[t])[()])
    return V(t, wrap(t, raw))


def bit_count(name, a):
    w = BITS[a.t]
    x = a.v & ((1 << w) - 1)
    if name == "popcnt":
        return V("i32", x.bit_count())
    if name == "clz":
        return V("i32", w - x.bit_length())
    return V("i32", (x & -x).bit_length())
