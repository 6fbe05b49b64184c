"""Operators and methods of vectors and matrices in the model: a part of the machine."""

import ast
import math

import numpy as np
from arithmetic import (
    COMPARE,
    PY_BIN,
    arith,
    cast,
    compare,
    flush,
    is_float,
    minmax,
    power,
    promote,
    tolerance,
    wrap,
)
from model_values import EPS, INF, NP, PY, Mat, Struct, V


class Matrices:
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
