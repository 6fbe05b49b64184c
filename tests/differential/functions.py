"""Functions of the package in the model: a part of the machine."""

import ast
import math

import numpy as np
from arithmetic import (
    arith,
    bit_cast,
    bit_count,
    cast,
    compare,
    elementary,
    is_float,
    promote,
    rounding,
    sqrt,
    trunc_div,
    wrap,
)
from model_values import BITS, NP, PY, Undecidable, V


class Functions:
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
        return arith(ast.Div, a, b)

    def raw_mod(self, a, b):
        t = promote(a.t, b.t)
        a, b = cast(t, a), cast(t, b)
        return V(t, wrap(t, a.v - trunc_div(a.v, b.v) * b.v) if b.v else 0)
