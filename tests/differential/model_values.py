"""Values of the model: typed scalars, tensors, structs, and arrays of them."""

import math

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

    @classmethod
    def of(cls, t, array, elem=()):
        outer = array.shape[: array.ndim - len(elem)]
        flat = array.reshape(-1)
        if t[0] == "f":
            cells = [V(t, flat[i]) for i in range(flat.size)]
        else:
            cells = [V(t, int(x)) for x in flat.tolist()]
        return cls(t, outer, elem, cells)

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
