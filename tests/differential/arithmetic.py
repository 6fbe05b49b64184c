"""The language's arithmetic on single numbers, each with a bound of its error."""

import ast
import math
import operator

import numpy as np
from model_values import BITS, EPS, INF, NP, TINY, Undecidable, V


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


def truncate(t, v):
    """float -> int: what 32 or 64 signed bits cannot hold is their least value; narrow types keep the
    low bits, and unsigned ones reach their upper half through the lower."""
    half = 1 << (max(BITS[t], 32) - 1)
    upper = t in ("u32", "u64") and not v < half
    v -= half if upper else 0
    n = int(v) if abs(v) < half else -half
    return wrap(t, n + half if upper else n)


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
        return V(t, decide(x, lambda v: truncate(t, v)))
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
