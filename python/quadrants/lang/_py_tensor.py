"""`PyTensor`: the data of the Python backend, a torch tensor that behaves like kernel values.

Containers (fields, ndarrays) and values (vectors, matrices, element reads) are of this one class. It
differs from its base class in four ways:

- `.shape` is the shape of the batch axes; the axes of a vector or matrix element come after them and
  show in `.size()` only.
- Reading an element gives a copy that knows where it came from: it keeps its value when storage
  changes later, as a variable in a kernel does, and writing to it (`f[i][0] = 1`, `f[i].x = 1`,
  atomics) reaches storage. Unlike in kernels, `a = v[i]; a[0] = 1` reaches it too.
- Operators promote as kernels do: number literals take the default types, integers divide to the
  default float, `+=` keeps the dtype and makes a new value.
- The methods of vectors and matrices and the swizzles.

Importing this module imports torch; only `qd.init(qd.python)` and its users do.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
from torch._tensor import _convert
from torch.overrides import get_default_nowrap_functions

from quadrants.lang import impl
from quadrants.lang._values.swizzle import ALPHABETS
from quadrants.lang.exception import (
    QuadrantsRuntimeError,
    QuadrantsSyntaxError,
    QuadrantsTypeError,
)
from quadrants.lang.util import cook_dtype
from quadrants.types.primitive_types import f32, f64, i8, i16, i32, i64, u1

_TORCH = {
    i8: torch.int8,
    i16: torch.int16,
    i32: torch.int32,
    i64: torch.int64,
    f32: torch.float32,
    f64: torch.float64,
    u1: torch.bool,
}
_SHORT = {t: d.name for d, t in _TORCH.items()}
_NO_OVERRIDES = torch._C.DisableTorchFunctionSubclass
_INTS = (int, np.integer)
_REALS = (float, np.floating)
_BOOLS = (bool, np.bool_)

running = 0  # kernels on the stack: looping over a container gives indices there, else elements


def torch_dtype(dt: Any) -> torch.dtype:
    """The torch dtype of a dtype; raises for those that this backend does not have."""
    if isinstance(dt, torch.dtype):
        return dt
    found = _TORCH.get(cook_dtype(dt))
    if found is None:
        raise QuadrantsRuntimeError(
            f"{dt} is not supported on the Python backend, which has i8, i16, i32, i64, f32, f64 and u1"
        )
    return found


def default_fp() -> torch.dtype:
    return torch_dtype(impl.pyquadrants.default_fp)


def default_ip() -> torch.dtype:
    return torch_dtype(impl.pyquadrants.default_ip)


def plain(t: torch.Tensor) -> torch.Tensor:
    """The same storage as an ordinary tensor; other subclasses are left alone."""
    return t.as_subclass(torch.Tensor) if type(t) is PyTensor else t


def wrapped(t: torch.Tensor, rank: int | None = None) -> PyTensor:
    """The same storage as a PyTensor with that many batch axes (None: all)."""
    made = torch.Tensor.as_subclass(t, PyTensor)
    if rank is not None:
        made._rank = rank
    return made


def literal_dtype(x: Any) -> torch.dtype | None:
    """What a Python number means in an expression."""
    if isinstance(x, _BOOLS):
        return torch.bool
    if isinstance(x, _INTS):
        fits = -(2**31) <= x < 2**31
        return default_ip() if fits else torch.int64
    return default_fp() if isinstance(x, _REALS) else None


def tensor_of(data: Any) -> torch.Tensor:
    """An ordinary tensor of a number, nested sequences of numbers and tensors, or an array."""
    if isinstance(data, torch.Tensor):
        return plain(data)
    if isinstance(data, np.ndarray):
        return torch.from_numpy(np.array(data))
    if isinstance(data, (list, tuple)):
        if not data:
            return torch.zeros(0, dtype=default_ip())
        parts = [tensor_of(x) for x in data]
        dtype = functools.reduce(torch.promote_types, (p.dtype for p in parts))
        return torch.stack([p.to(dtype) for p in parts])
    entries = getattr(data, "entries", None)
    if isinstance(entries, np.ndarray):  # a host matrix made before this backend started
        return tensor_of(entries.tolist())
    dtype = literal_dtype(data)
    if dtype is None:
        raise QuadrantsTypeError(f"Invalid constant scalar data type: {type(data)}")
    return torch.tensor(data, dtype=dtype)


def operands(*args: Any) -> tuple[list[Any], torch.dtype] | None:
    """The arguments converted to the dtype they promote to; numbers stay Python numbers.

    None if one of them is nothing to compute with.
    """
    values: list[Any] = []
    dtypes = []
    for x in args:
        if isinstance(x, torch.Tensor):
            x = plain(x)
            dtypes.append(x.dtype)
        elif (dtype := literal_dtype(x)) is not None:
            dtypes.append(dtype)
            x = (
                bool(x)
                if dtype is torch.bool
                else int(x)
                if not dtype.is_floating_point
                else float(x)
            )
        else:
            try:
                x = tensor_of(x)
            except (QuadrantsTypeError, RuntimeError, ValueError, TypeError):
                return None
            dtypes.append(x.dtype)
        values.append(x)
    dtype = functools.reduce(torch.promote_types, dtypes)
    return [x.to(dtype) if isinstance(x, torch.Tensor) else x for x in values], dtype


def _foreign(x: Any) -> bool:
    """Whether x is a tensor of somebody else's class, which decides about results."""
    return isinstance(x, torch.Tensor) and type(x) not in (PyTensor, torch.Tensor)


# --- operators ---


def _modulo_2(compute: Callable[..., Any], a: Any, b: Any) -> torch.Tensor:
    """Arithmetic of u1."""
    return (
        compute(*(x.int() if isinstance(x, torch.Tensor) else int(x) for x in (a, b))) & 1
    ).bool()


def negative(t: torch.Tensor) -> torch.Tensor:
    return t.clone() if t.dtype is torch.bool else -t


def magnitude(t: torch.Tensor) -> torch.Tensor:
    return t.clone() if t.dtype is torch.bool else t.abs()


def arithmetic(compute: Callable[..., Any], a: Any, b: Any) -> Any:
    """A binary operation in the promoted type; NotImplemented for other operands."""
    found = operands(a, b)
    if found is None:
        return NotImplemented
    (a, b), dtype = found
    return wrapped(_modulo_2(compute, a, b) if dtype is torch.bool else compute(a, b))


def division(compute: Callable[..., Any], a: Any, b: Any) -> Any:
    """The same, integers made the default float first."""
    found = operands(a, b)
    if found is None:
        return NotImplemented
    (a, b), dtype = found
    if not dtype.is_floating_point:
        a, b = (x.to(default_fp()) if isinstance(x, torch.Tensor) else x for x in (a, b))
    return wrapped(compute(a, b))


def comparison(compute: Callable[..., Any], a: Any, b: Any) -> Any:
    """A binary operation with a u1 result, or one on bits."""
    found = operands(a, b)
    return NotImplemented if found is None else wrapped(compute(*found[0]))


def left_typed(compute: Callable[..., Any], a: Any, b: Any) -> Any:
    """Shifts, and powers with an integer exponent: the result has the type of the left operand."""
    found = operands(a, b)
    if found is None:
        return NotImplemented
    result = compute(*found[0])
    dtype = a.dtype if isinstance(a, torch.Tensor) else literal_dtype(a)
    return wrapped(result if dtype is None else result.to(dtype))


def power(compute: Callable[..., Any], a: Any, b: Any) -> Any:
    dtype = b.dtype if isinstance(b, torch.Tensor) else literal_dtype(b)
    if dtype is not None and not dtype.is_floating_point:
        return left_typed(compute, a, b)
    return arithmetic(compute, a, b)


OPERATORS = {
    "add": (arithmetic, operator.add),
    "sub": (arithmetic, operator.sub),
    "mul": (arithmetic, operator.mul),
    "floordiv": (arithmetic, operator.floordiv),
    "mod": (arithmetic, operator.mod),
    "truediv": (division, operator.truediv),
    "pow": (power, operator.pow),
    "and": (comparison, operator.and_),
    "or": (comparison, operator.or_),
    "xor": (comparison, operator.xor),
    "lshift": (left_typed, operator.lshift),
    "rshift": (left_typed, operator.rshift),
}


def product_of(a: Any, b: Any) -> Any:
    """`a @ b`, the dtypes promoted."""
    found = operands(a, b)
    return NotImplemented if found is None else wrapped(torch.matmul(*found[0]))


def _method(rule: Callable[..., Any], compute: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if _foreign(other):
            return compute(plain(self), other)
        return rule(compute, self, other)

    return method


def _reflected(rule: Callable[..., Any], compute: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if _foreign(other):
            return compute(other, plain(self))
        return rule(compute, other, self)

    return method


def _augmented(forward: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        result = forward(self, other)
        if result is NotImplemented or type(result) is not PyTensor:
            return result
        if self._container:
            plain(self).copy_(plain(result))
            return self
        return wrapped(plain(result).to(self.dtype), self._rank)

    return method


# --- indices ---


def _index(index: Any) -> tuple[tuple[Any, ...], bool]:
    """The index flattened, and whether all of it are integers."""
    flat: list[Any] = []
    exact = _flatten(index if type(index) is tuple else (index,), flat)
    return tuple(flat), exact


def _flatten(parts: Any, flat: list[Any]) -> bool:
    exact = True
    for part in parts:
        if isinstance(part, (int, np.integer)):
            flat.append(int(part))
        elif isinstance(part, torch.Tensor):
            exact &= _flatten_tensor(plain(part), flat)
        elif isinstance(part, (list, tuple)):
            exact &= _flatten(part, flat)
        elif isinstance(part, _REALS):
            raise _not_an_integer("f64" if default_fp() is torch.float64 else "f32", len(flat))
        elif isinstance(getattr(part, "entries", None), np.ndarray):
            exact &= _flatten(part.to_list(), flat)
        else:  # slices and what else torch knows
            flat.append(part)
            exact = False
    return exact


def _flatten_tensor(part: torch.Tensor, flat: list[Any]) -> bool:
    if part.dtype is torch.bool and part.dim() > 0:
        flat.append(part)
        return False
    if part.dtype.is_floating_point and part.numel():
        raise _not_an_integer(_SHORT.get(part.dtype, str(part.dtype)), len(flat))
    if part.dim() > 1:
        flat.append(part)
        return False
    flat.extend([int(part)] if part.dim() == 0 else part.tolist())
    return True


def _not_an_integer(kind: str, place: int) -> QuadrantsTypeError:
    return QuadrantsTypeError(
        f"indices must be integers, however '{kind}' is provided as index {place}"
    )


def _stored(value: Any, dtype: torch.dtype) -> Any:
    """What torch assigns to storage of this dtype."""
    if isinstance(value, torch.Tensor):
        return plain(value)
    if isinstance(value, _INTS) and not dtype.is_floating_point and dtype is not torch.bool:
        half = 1 << (torch.iinfo(dtype).bits - 1)
        return (int(value) + half) % (2 * half) - half
    if isinstance(value, (int, float)):
        return value
    return tensor_of(value)


def _places(name: str) -> tuple[int, ...] | None:
    """Components that a swizzle names."""
    if len(name) <= 4:
        for letters in ALPHABETS:
            if all(c in letters for c in name):
                return tuple(map(letters.index, name))
    return None


class PyTensor(torch.Tensor):
    """A container or value of the Python backend.

    Args:
        data: a tensor, whose storage is shared, or nested lists of numbers.
    """

    _rank: int | None = None  # number of batch axes; None: all axes
    _homes: tuple[torch.Tensor, ...] = ()  # where the element that this is a copy of is stored
    _container = False

    @staticmethod
    def __new__(cls: Any, data: Any) -> Any:
        t = plain(data) if isinstance(data, torch.Tensor) else torch.as_tensor(data)
        return torch.Tensor.as_subclass(t, cls)

    def __init__(self, data: Any) -> None:
        pass

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(t is not torch.Tensor and not issubclass(t, PyTensor) for t in types):
            args = torch.utils._pytree.tree_map(_unwrapped, args)
            return func(*args, **torch.utils._pytree.tree_map(_unwrapped, kwargs))
        with _NO_OVERRIDES():
            result = func(*args, **kwargs)
        return result if func in get_default_nowrap_functions() else _convert(result, PyTensor)

    # --- shape ---

    @property
    def _batch_shape(self) -> torch.Size:
        with _NO_OVERRIDES():
            full = self.size()
        return full if self._rank is None else torch.Size(tuple(full)[: self._rank])

    shape = _batch_shape

    def get_shape(self) -> torch.Size:
        """Extents of a vector or matrix."""
        return self._element_shape

    @property
    def _element_shape(self) -> torch.Size:
        """Extents of the elements; of the value itself if it is no container."""
        full = plain(self).size()
        return full if self._rank is None else torch.Size(tuple(full)[self._rank :])

    @property
    def n(self) -> int:
        """Rows of the element."""
        shape = self._element_shape
        return shape[0] if shape else 1

    @property
    def m(self) -> int:
        """Columns of the element, 1 for vectors."""
        shape = self._element_shape
        return shape[1] if len(shape) > 1 else 1

    # --- other views of the storage ---

    @property
    def _tc(self) -> PyTensor:
        return self

    @property
    def _T_tc(self) -> PyTensor:
        if len(self._batch_shape) < 2:
            return self
        swapped = wrapped(plain(self).transpose(0, 1), self._rank)
        swapped._container = self._container
        return swapped

    @property
    def _np(self) -> Any:
        return plain(self).numpy()

    @property
    def _T_np(self) -> Any:
        return plain(self._T_tc).numpy()

    # --- elements ---

    def __getitem__(self, index: Any) -> Any:
        t = plain(self)
        if index is None and not self._batch_shape:
            index = ()
        where, exact = _index(index)
        if not exact:
            view = wrapped(t[where])
            view._homes = tuple(h[where] for h in self._homes)
            return view
        if t.dim() == 0 and where == (0,):
            return t.item()
        stored = t[where]
        rank = t.dim() if self._rank is None else self._rank
        if len(where) < rank:
            view = wrapped(stored, None if self._rank is None else rank - len(where))
            if self._homes:
                view._homes = tuple(h[where] for h in self._homes)
            return view
        element = wrapped(stored.clone())
        element._homes = (stored, *(h[where] for h in self._homes))
        return element

    def __setitem__(self, index: Any, value: Any) -> None:
        t = plain(self)
        if index is None and not self._batch_shape:
            index = ()
        where, exact = _index(index)
        if exact and t.dim() == 0 and where == (0,):
            where = ()
        value = _stored(value, t.dtype)
        for target in (t, *self._homes):
            target[where] = value

    def __iter__(self) -> Iterator[Any]:
        if self._container and running:
            return indices(self._batch_shape)
        t = plain(self)
        if t.dim() == 0:
            raise TypeError("iteration over a 0-d tensor")
        if t.dim() == 1:
            return iter(t.tolist())
        return iter([self[i] for i in range(t.size(0))])

    def __getattr__(self, name: str) -> Any:
        places = _places(name)
        if places is None:
            raise AttributeError(f"'PyTensor' object has no attribute {name!r}")
        self._check_word(name, places)
        if len(places) > 1:
            return wrapped(plain(self)[..., list(places)], self._rank)
        if self._rank is None:
            return self[places[0]]
        component = wrapped(plain(self)[..., places[0]], self._rank)
        component._container = self._container
        return component

    def __setattr__(self, name: str, value: Any) -> None:
        places = _places(name)
        if places is None:
            object.__setattr__(self, name, value)
            return
        self._check_word(name, places)
        if len(places) == 1:
            self[..., places[0]] = value
            return
        values = list(value)
        if len(values) != len(places):
            raise QuadrantsRuntimeError(f"value len does not match the swizzle pattern={name}")
        for place, v in zip(places, values):
            self[..., place] = v

    def _check_word(self, name: str, places: tuple[int, ...]) -> None:
        shape = self._element_shape
        if len(shape) != 1:
            raise AttributeError(f"'PyTensor' object has no attribute {name!r}")
        if max(places) >= shape[0]:
            letters = next(a for a in ALPHABETS if name[0] in a)
            raise QuadrantsSyntaxError(
                f"vec{shape[0]} only has attributes={tuple(letters[: shape[0]])}, got={tuple(name)}"
            )

    # --- operators ---

    __eq__ = _method(comparison, operator.eq)
    __ne__ = _method(comparison, operator.ne)
    __lt__, __le__ = _method(comparison, operator.lt), _method(comparison, operator.le)
    __gt__, __ge__ = _method(comparison, operator.gt), _method(comparison, operator.ge)
    __hash__ = torch.Tensor.__hash__

    def __neg__(self) -> Any:
        return wrapped(negative(plain(self)))

    def __pos__(self) -> Any:
        return wrapped(plain(self).clone())

    def __abs__(self) -> Any:
        return wrapped(magnitude(plain(self)))

    def __matmul__(self, other: Any) -> Any:
        return plain(self) @ other if _foreign(other) else product_of(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return other @ plain(self) if _foreign(other) else product_of(other, self)

    # --- methods of containers ---

    def fill(self, value: Any) -> None:
        """Sets every element; a list or vector is one element."""
        self[...] = value

    def to_numpy(self, dtype: Any = None, copy: Any = None) -> Any:
        """A NumPy copy."""
        array = plain(self).numpy()
        return np.array(array, dtype=array.dtype if dtype is None else dtype)

    def from_numpy(self, arr: Any) -> None:
        """Copies an array of the full size."""
        plain(self).copy_(_checked(tensor_of(np.asarray(arr)), self))

    def to_torch(self, device: Any = None, copy: Any = None) -> Any:
        """A copy as an ordinary tensor."""
        return plain(self).clone().to(device)

    def from_torch(self, arr: torch.Tensor) -> None:
        """Copies a tensor of the full size."""
        plain(self).copy_(_checked(plain(arr), self))

    def copy_from(self, other: Any) -> None:
        """Copies a container of the same size."""
        plain(self).copy_(_checked(plain(other), self))

    # --- methods of vectors and matrices ---

    def _real(self) -> torch.Tensor:
        t = plain(self)
        return t if t.dtype.is_floating_point else t.to(default_fp())

    def to_list(self) -> Any:
        """The elements, nested for matrices."""
        return plain(self).tolist()

    def cast(self, dtype: Any) -> PyTensor:
        """Element-wise conversion."""
        return wrapped(plain(self).to(torch_dtype(dtype)))

    def norm_sqr(self) -> PyTensor:
        """Sum of the squares."""
        t = plain(self)
        return wrapped((t * t).sum(dtype=t.dtype))

    def norm(self, eps: Any = 0, *args: Any, **kwargs: Any) -> PyTensor:
        """sqrt(sum of squares + eps); with torch's arguments, torch's norm."""
        if args or kwargs or isinstance(eps, str):
            return wrapped(plain(self).norm(eps, *args, **kwargs))
        t = self._real()
        return wrapped(torch.sqrt((t * t).sum() + _number(eps)))

    def norm_inv(self, eps: Any = 0) -> PyTensor:
        """1 / norm(eps)."""
        return wrapped(1 / plain(self.norm(eps)))

    def normalized(self, eps: Any = 0) -> PyTensor:
        """The vector divided by norm() + eps."""
        return wrapped(self._real() / (plain(self.norm()) + _number(eps)))

    def dot(self, other: Any) -> PyTensor:
        """Scalar product."""
        t = plain(arithmetic(operator.mul, self, other))
        return wrapped(t.sum(dtype=t.dtype))

    frobenius_inner = dot

    def cross(self, other: Any, *args: Any, **kwargs: Any) -> PyTensor:
        """Vector product in 3-D, its third component in 2-D."""
        if args or kwargs:
            return wrapped(plain(self).cross(plain(other), *args, **kwargs))
        (a, b), _ = operands(self, other)  # type: ignore[misc]
        if a.size(-1) == 2:
            return wrapped(a[0] * b[1] - a[1] * b[0])
        return wrapped(torch.linalg.cross(a, b))

    def outer_product(self, other: Any) -> PyTensor:
        """The matrix of all products."""
        (a, b), _ = operands(self, other)  # type: ignore[misc]
        return wrapped(torch.outer(a, b))

    def transpose(self, *args: Any) -> PyTensor:
        """The last two axes swapped; with torch's arguments, torch's transpose."""
        assert args or self.dim() > 1, "transpose() with no args requires a 2D tensor, got 1D"
        return wrapped(plain(self).transpose(*(args or (-1, -2))))

    def trace(self) -> PyTensor:
        """Sum of the diagonal."""
        t = plain(self)
        return wrapped(t.trace().to(t.dtype))

    def determinant(self) -> PyTensor:
        """The determinant."""
        return wrapped(torch.linalg.det(self._real()))

    def inverse(self) -> PyTensor:
        """The inverse; of a singular matrix, infinities."""
        t = self._real()
        inverse, info = torch.linalg.inv_ex(t)
        return wrapped(inverse if not info.any() else torch.full_like(t, float("inf")))

    def any(self, *args: Any, **kwargs: Any) -> PyTensor:
        """Whether an element is not zero."""
        return wrapped(plain(self).any(*args, **kwargs))

    def all(self, *args: Any, **kwargs: Any) -> PyTensor:
        """Whether no element is zero."""
        return wrapped(plain(self).all(*args, **kwargs))

    def sum(self, *args: Any, **kwargs: Any) -> PyTensor:
        """Sum of all elements, in their dtype."""
        t = plain(self)
        return wrapped(t.sum(*args, **kwargs) if args or kwargs else t.sum(dtype=t.dtype))

    # --- text and copies ---

    def __repr__(self, *args: Any, **kwargs: Any) -> str:
        return repr(plain(self)).replace("tensor(", "PyTensor(", 1)

    def __str__(self) -> str:
        t = plain(self)
        return str(t.item()) if t.dim() == 0 else repr(self)

    def __format__(self, spec: str) -> str:
        t = plain(self)
        if t.dim() == 0:
            return format(t.item(), spec)
        return _formatted(t.tolist(), spec) if spec else str(self)

    def __deepcopy__(self, memo: Any) -> PyTensor:
        made = wrapped(plain(self).clone(), self._rank)
        made._container = self._container
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restored, (plain(self), self._rank, self._container)


for _name, (_rule, _compute) in OPERATORS.items():
    _forward = _method(_rule, _compute)
    setattr(PyTensor, f"__{_name}__", _forward)
    setattr(PyTensor, f"__r{_name}__", _reflected(_rule, _compute))
    setattr(PyTensor, f"__i{_name}__", _augmented(_forward))


def _unwrapped(x: Any) -> Any:
    return plain(x) if isinstance(x, PyTensor) else x


def _number(x: Any) -> Any:
    return plain(x) if isinstance(x, torch.Tensor) else x


def _formatted(values: Any, spec: str) -> str:
    if isinstance(values, list):
        return "[" + ", ".join(_formatted(v, spec) for v in values) + "]"
    return format(values, spec)


def _checked(source: torch.Tensor, target: PyTensor) -> torch.Tensor:
    if source.size() != plain(target).size():
        raise ValueError(
            f"a shape of {tuple(plain(target).size())} is needed, got {tuple(source.size())}"
        )
    return source


def _restored(t: torch.Tensor, rank: int | None, container: bool) -> PyTensor:
    made = wrapped(t, rank)
    made._container = container
    return made


def indices(shape: Any) -> Iterator[Any]:
    """The indices of a container: integers for one axis, else tuples."""
    if len(shape) == 1:
        return iter(range(shape[0]))
    return iter(product(*(range(extent) for extent in shape)))


def create_tensor(shape: Any, dtype: torch.dtype, batch_ndim: int | None = None) -> PyTensor:
    """A zeroed container.

    Args:
        shape: full size, the axes of elements last.
        dtype: a torch dtype.
        batch_ndim: number of batch axes; None for all.
    """
    made = wrapped(torch.zeros(tuple(shape), dtype=dtype), batch_ndim)
    made._container = True
    return made
