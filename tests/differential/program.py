"""A random program: its source, the arrays and fields it works on, and its arguments."""

from dataclasses import dataclass, field

import numpy as np
from dtypes import NP


@dataclass
class Data:
    """An array. `kind`: ndarray argument or field; `use`: how kernels may touch it."""

    name: str
    kind: str  # "array" | "field"
    t: str
    shape: tuple
    elem: tuple = ()
    use: str = "read"  # "read" | "own" (each iteration its own cell) | "atomic"
    layout: str = "AOS"


@dataclass
class Program:
    seed: int
    name: str
    source: str
    data: list
    scalars: list  # (name, dtype, value), the kernel's arguments after its arrays
    profile: str = "full"
    result: str | None = None
    reorders: bool = (
        False  # sums floats over a parallel loop: the interpreter adds in another order
    )
    types: list = field(default_factory=list)
    struct_fields: list = field(default_factory=list)  # name, StructType, shape

    def declarations(self):
        """Statements that create types and fields, to run after `init`."""
        out = [line for t in self.types for line in t.declaration()]
        out += [f"{name} = {t.name}.field(shape={shape})" for name, t, shape in self.struct_fields]
        for d in self.data:
            if d.kind != "field" or "." in d.name:
                continue
            shape = repr(d.shape)
            layout = f", layout=qd.Layout.{d.layout}" if d.layout != "AOS" else ""
            if not d.elem:
                out.append(f"{d.name} = qd.field(qd.{d.t}, shape={shape})")
            elif len(d.elem) == 1:
                out.append(
                    f"{d.name} = qd.Vector.field({d.elem[0]}, qd.{d.t}, shape={shape}{layout})"
                )
            else:
                n, m = d.elem
                out.append(f"{d.name} = qd.Matrix.field({n}, {m}, qd.{d.t}, shape={shape}{layout})")
        return out

    def inputs(self):
        """Fresh values of all arrays, by name."""
        rng = np.random.default_rng(self.seed ^ 0x5EED)
        return {d.name: values(rng, d.t, d.shape + d.elem, self.profile) for d in self.data}


def values(rng, t, shape, profile="full"):
    n = int(np.prod(shape))
    if t == "u1":
        return rng.integers(0, 2, n).astype(bool).reshape(shape)
    if t[0] == "f":
        a = np.where(rng.random(n) < 0.5, rng.integers(-8, 9, n) / 2, rng.normal(0, 4, n))
        a = a.astype(NP[t])
        if profile == "full":
            odd = rng.random(n) < 0.06
            special = [
                np.inf,
                -np.inf,
                np.nan,
                -0.0,
                1e30 if t != "f16" else 6e4,
                1e-30 if t != "f16" else 6e-8,
            ]
            special += [1e-40, 1e5, -3e9] if t != "f16" else [0.1, -2049]
            with np.errstate(all="ignore"):
                a = np.where(odd, rng.choice(np.array(special), n).astype(NP[t]), a)
        else:
            a = np.where(a == 0, NP[t](1.5), a)
        return a.astype(NP[t]).reshape(shape)
    if profile == "plain":
        return rng.integers(-50, 50, n).astype(NP[t]).reshape(shape)
    info = np.iinfo(NP[t])
    small = rng.integers(0 if info.min == 0 else -9, 10, n).astype(NP[t])
    wide = rng.integers(info.min, info.max, n, dtype=NP[t], endpoint=True)
    edge = rng.choice(np.array([info.min, info.max, 0, 1, info.max // 2], dtype=NP[t]), n)
    return np.select([rng.random(n) < 0.55, rng.random(n) < 0.7], [small, wide], edge).reshape(
        shape
    )


class Var:
    def __init__(self, name, t, shape=(), mutable=True, literal=False, top=False, tuple_of=None):
        self.name, self.t, self.shape = name, t, shape
        self.mutable, self.literal, self.top = mutable, literal, top
