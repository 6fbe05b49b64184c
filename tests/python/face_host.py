"""Runs funcs of the package as plain Python on NumPy scalars and host matrices.

This checks the mathematics of library code without a compiler: the body of each func is given a
module `qd` whose operations compute at once in the wanted dtype.
"""

from types import FunctionType, SimpleNamespace

import numpy as np

import quadrants as qd
from quadrants.lang.kernel_impl import FuncDef
from quadrants.lang.matrix import Matrix

F = {qd.f32: np.float32, qd.f64: np.float64, float: np.float32, int: np.int32}
F |= {qd.i32: np.int32, qd.u32: np.uint32, qd.i64: np.int64}


def cast(x, dt):
    return Matrix(x.entries.astype(F[dt])) if isinstance(x, Matrix) else F.get(dt, dt)(x)


def like(value):
    def fn(x):
        return Matrix(np.full_like(x.entries, value)) if isinstance(x, Matrix) else type(x)(value)

    return fn


class HostMatrix(Matrix):
    @staticmethod
    def identity(dt, n):
        return Matrix(np.eye(n, dtype=F[dt]))


def bit_cast(x, dt):
    return np.asarray(x).view(F.get(dt, dt))[()]


def host_qd(rng):
    names = "sin cos exp log sqrt atan2 max min floor select static static_assert ndrange Vector"
    host = SimpleNamespace(**{n: getattr(qd, n) for n in names.split()})
    host.Matrix, host.cast, host.zero, host.one, host.bit_cast = (
        HostMatrix,
        cast,
        like(0),
        like(1),
        bit_cast,
    )
    host.random = lambda dt: F[dt](rng.random(dtype=F[dt]))
    for dt in (qd.i32, qd.u32, qd.i64):
        setattr(host, dt.name, F[dt])
    host.f16, host.f32, host.f64 = qd.f16, qd.f32, qd.f64
    return host


def as_python(module, seed=0):
    """The module's funcs as plain functions."""
    spaces = {}
    host = host_qd(np.random.default_rng(seed))

    def convert(definition):
        fn = definition.fn
        space = spaces.get(id(fn.__globals__))
        if space is None:
            space = spaces[id(fn.__globals__)] = dict(fn.__globals__, qd=host)
            for name, value in fn.__globals__.items():
                if isinstance(value, FuncDef):
                    space[name] = convert(value)
        return FunctionType(fn.__code__, space, fn.__name__, fn.__defaults__)

    found = {n: v for n, v in vars(module).items() if isinstance(v, FuncDef)}
    return SimpleNamespace(**{n: convert(v) for n, v in found.items()})
