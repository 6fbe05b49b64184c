"""Runs kernels as plain Python: calls, containers and operations of `qd.init(qd.python)`.

The decorated function itself runs, so a debugger steps through it. Arguments are converted as their
annotations say, arrays become `PyTensor`s that share their memory, and a func gets copies of the
vectors and structs it is given. Everything is sequential; nothing checks preconditions of kernels.

Imported by the first `qd.init(qd.python)` and by hooks that ask `impl.is_python_backend()` first.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from quadrants.lang import _py_tensor, impl
from quadrants.lang._py_tensor import (
    OPERATORS,
    PyTensor,
    arithmetic,
    comparison,
    create_tensor,
    default_fp,
    indices,
    literal_dtype,
    operands,
    plain,
    tensor_of,
    torch_dtype,
    wrapped,
)
from quadrants.lang.exception import (
    QuadrantsRuntimeError,
    QuadrantsRuntimeTypeError,
    QuadrantsSyntaxError,
)
from quadrants.lang.kernel_arguments import empty
from quadrants.lang.matrix import MatrixType
from quadrants.lang.struct import LiveScalar, Struct, StructType, _made
from quadrants.lang.util import cook_dtype
from quadrants.types.annotations import OptionalAnnotation, Template
from quadrants.types.ndarray_type import NDArray
from quadrants.types.primitive_types import DataType, f32, u1


def unavailable(name: str) -> QuadrantsRuntimeError:
    """The error for a feature that this backend does not have."""
    return QuadrantsRuntimeError(f"{name} is not available on the Python backend")


# --- kernels and funcs ---


def run_kernel(definition: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a kernel's Python function."""
    if _py_tensor.running:
        raise QuadrantsSyntaxError(
            "Kernels cannot call other kernels. I.e., nested kernels are not allowed. Please check if you have "
            "direct/indirect invocation of kernels within kernels."
        )
    stream = kwargs.pop("qd_stream", None)
    if stream is not None:
        _ = stream.handle  # the error for a value that is no stream
    params = definition.params
    if kwargs or len(args) != len(params):
        args = _bound(params, args, kwargs)
    given = [_argument(p[1], value, n, p[0]) for n, (p, value) in enumerate(zip(params, args))]
    _py_tensor.running += 1
    try:
        result = definition.fn(*given)
    finally:
        _py_tensor.running -= 1
    return _returned(definition.returns, result)


def _bound(params: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments in the order of the parameters."""
    names = [p[0] for p in params]
    if len(args) > len(names):
        raise QuadrantsSyntaxError(
            f"Too many arguments. Expected ({', '.join(names)}), got ({', '.join(map(str, args))})."
        )
    values = dict(zip(names, args))
    for name, value in kwargs.items():
        if name not in names:
            raise QuadrantsSyntaxError(f"Unexpected argument '{name}'.")
        if name in values:
            raise QuadrantsSyntaxError(f"Multiple values for argument '{name}'.")
        values[name] = value
    for name, _, default in params:
        if name not in values:
            if default is empty:
                raise QuadrantsSyntaxError(f"Missing argument '{name}'.")
            values[name] = default
    return tuple(values[name] for name in names)


def _is_scalar_type(annotation: Any) -> bool:
    return isinstance(annotation, DataType) or annotation in (int, float, bool)


def _argument(annotation: Any, value: Any, place: int, name: str) -> Any:
    """What a kernel sees of an argument."""
    if isinstance(annotation, OptionalAnnotation):
        if value is None:
            return None
        annotation = annotation.inner
    if _is_scalar_type(annotation):
        return _scalar_argument(cook_dtype(annotation), value, place)
    if isinstance(annotation, NDArray) or annotation is NDArray:
        return _array(getattr(annotation, "dtype", None), value, name)
    if isinstance(annotation, MatrixType):
        return typed(annotation, (value,))
    if isinstance(annotation, type) and hasattr(annotation, "__dataclass_fields__"):
        return _with_arrays(annotation, value)
    return value


def _with_arrays(annotation: Any, value: Any) -> Any:
    """A dataclass argument whose foreign arrays are containers; the same object if it has none."""
    changed = {}
    for name, field in annotation.__dataclass_fields__.items():
        member = getattr(value, name)
        if isinstance(member, np.ndarray) or type(member) is torch.Tensor:
            changed[name] = _array(getattr(field.type, "dtype", None), member, name)
        elif isinstance(field.type, type) and hasattr(field.type, "__dataclass_fields__"):
            nested = _with_arrays(field.type, member)
            if nested is not member:
                changed[name] = nested
    if not changed:
        return value
    made = copy.copy(value)
    for name, member in changed.items():
        object.__setattr__(made, name, member)
    return made


def _scalar_argument(dtype: DataType, value: Any, place: int) -> Any:
    if isinstance(value, torch.Tensor) and value.dim() == 0:
        value = value.item()
    known = literal_dtype(value)
    if known is None or known.is_floating_point and not dtype.is_real:
        raise QuadrantsRuntimeTypeError(
            f"Argument ({place},) (type={type(value)}) cannot be converted into required type {dtype}"
        )
    return convert_number(dtype, value)


def convert_number(dtype: DataType, value: Any) -> Any:
    """A Python number as one of that dtype holds it."""
    if dtype.is_real:
        value = float(value)
        return float(np.float32(value)) if dtype is f32 and math.isfinite(value) else value
    if dtype is u1:
        return bool(value)
    value = int(value) & (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def _array(element: Any, value: Any, name: str) -> Any:
    """An array argument as a container over the same memory."""
    if isinstance(value, np.ndarray):
        t = torch.from_numpy(value)
    elif isinstance(value, torch.Tensor):
        t = plain(value)
    else:
        raise QuadrantsRuntimeTypeError(f"Invalid type for argument {name}, got {value}")
    rank = getattr(value, "_rank", None)
    if rank is None and isinstance(element, MatrixType):
        rank = t.dim() - element.ndim
    made = wrapped(t, rank)
    made._container = True
    return made


def _returned(annotation: Any, value: Any) -> Any:
    if isinstance(annotation, tuple):
        return tuple(_returned(a, v) for a, v in zip(annotation, value))
    if annotation is not None and _is_scalar_type(annotation):
        dtype = cook_dtype(annotation)
        number = value.item() if isinstance(value, torch.Tensor) else value
        return convert_number(dtype, number)
    if isinstance(annotation, MatrixType):
        return typed(annotation, (value,))
    return _copied(value)


def run_func(definition: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a func's Python function; what it would get by value is copied."""
    special = _OVERRIDES.get((definition.__module__, definition.__name__))
    if special is not None:
        return special(*args)
    params = definition.params
    if kwargs or len(args) != len(params):
        args = _bound(params, args, kwargs)
    by_reference = definition.is_method
    given = []
    for (_, annotation, _), value in zip(params, args):
        if by_reference or annotation is Template or isinstance(annotation, Template):
            given.append(value)
            by_reference = False
        elif _is_scalar_type(annotation):
            given.append(cast(value, annotation))
        else:
            given.append(_copied(value))
    result = definition.fn(*given)
    returns = definition.returns
    if (
        returns is None
        or result is None
        or isinstance(returns, tuple)
        or not _is_scalar_type(returns)
    ):
        return result
    return cast(result, returns)


def _copied(value: Any) -> Any:
    """A value without ties to where it came from; containers are themselves."""
    if type(value) is PyTensor:
        return (
            value if value._container or value._rank is not None else wrapped(plain(value).clone())
        )
    if isinstance(value, Struct):
        cls: Any = type(value)
        members = {k: _copied(Struct.__getitem__(value, k)) for k in value._entries}
        return _made(members, cls._methods, cls._groups)
    return value


# --- containers ---


def _extents(shape: Any) -> tuple[int, ...]:
    if shape is None:
        return ()
    return tuple(map(operator.index, shape if isinstance(shape, (tuple, list)) else (shape,)))


def create_array(dtype: Any, element_shape: tuple[int, ...], shape: Any) -> PyTensor:
    """A field or ndarray; without a shape it has no axes."""
    batch = _extents(shape)
    rank = len(batch) if element_shape else None
    return create_tensor((*batch, *element_shape), torch_dtype(dtype), rank)


def create_member(kind: Any, shape: Any) -> Any:
    """The container of a struct member."""
    if isinstance(kind, StructType):
        return create_struct(kind.members, kind.methods, kind._unpacked_groups, shape)
    if isinstance(kind, MatrixType):
        return create_array(kind.dtype, kind.get_shape(), shape)
    return create_array(kind, (), shape)


def create_struct(members: Any, methods: Any, groups: Any, shape: Any) -> PyStructField:
    """A field of structs."""
    made = {name: create_member(kind, shape) for name, kind in members.items()}
    return PyStructField(made, methods, groups, _extents(shape))


class SingleIndex(int):
    """What a loop over a one-dimensional ndrange gets: the index, and a tuple of it."""

    def __iter__(self) -> Iterator[int]:
        return iter((int(self),))

    def __getitem__(self, place: int) -> int:
        return (int(self),)[place]

    def __len__(self) -> int:
        return 1


def single_indices(begin: int, end: int) -> Iterator[Any]:
    """The indices of a one-dimensional ndrange: on the host 1-tuples, in kernels numbers too."""
    if _py_tensor.running:
        return map(SingleIndex, range(begin, end))
    return ((i,) for i in range(begin, end))


class PyStructField:
    """A field of structs: a container per member.

    Args:
        field_dict: the containers by member name.
        methods: functions by name.
        groups: unpacked vectors.
        shape: extents.
    """

    def __init__(self, field_dict: Any, methods: Any, groups: Any, shape: tuple[int, ...]) -> None:
        self.field_dict = field_dict
        self.struct_methods = methods or {}
        self._groups = groups or {}
        self._batch_shape = shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self._batch_shape

    @property
    def keys(self) -> list[str]:
        return list(self.field_dict)

    def get_member_field(self, name: str) -> Any:
        """The container of a member."""
        return self.field_dict[name]

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__.get("field_dict", {}).get(name)
        if found is None:
            raise AttributeError(f"'PyStructField' object has no attribute {name!r}")
        return found

    def __getitem__(self, index: Any) -> Any:
        entries = {name: _live(part[index]) for name, part in self.field_dict.items()}
        return _made(entries, self.struct_methods, self._groups)

    def __setitem__(self, index: Any, value: Any) -> None:
        for name, part in self.field_dict.items():
            part[index] = _member_of(value, name)

    def __iter__(self) -> Iterator[Any]:
        if _py_tensor.running:
            return indices(self._batch_shape)
        return iter([self[i] for i in range(self._batch_shape[0])])

    def __len__(self) -> int:
        return self._batch_shape[0]

    def fill(self, value: Any) -> None:
        """Sets every member of every element to a number."""
        for part in self.field_dict.values():
            part.fill(value)

    def to_numpy(self, dtype: Any = None, copy: Any = None) -> dict[str, Any]:
        """NumPy copies of the members by name."""
        return {name: part.to_numpy(dtype) for name, part in self.field_dict.items()}

    def to_torch(self, device: Any = None, copy: Any = None) -> dict[str, Any]:
        """Copies of the members by name."""
        return {name: part.to_torch(device) for name, part in self.field_dict.items()}

    def from_numpy(self, arrays: dict[str, Any]) -> None:
        """Copies arrays by member name."""
        for name, part in self.field_dict.items():
            part.from_numpy(arrays[name])

    def from_torch(self, arrays: dict[str, Any]) -> None:
        """Copies tensors by member name."""
        for name, part in self.field_dict.items():
            part.from_torch(arrays[name])

    def copy_from(self, other: Any) -> None:
        """Copies a struct field with the same members."""
        for name, part in self.field_dict.items():
            part.copy_from(other.field_dict[name])


def _member_of(value: Any, name: str) -> Any:
    return Struct.__getitem__(value, name) if isinstance(value, Struct) else value[name]


def _live(element: Any) -> Any:
    """A member of an element: reading it copies, writing it reaches storage."""
    if isinstance(element, Struct):
        return element
    if not isinstance(element, PyTensor):  # one element without axes, read as a number
        element = wrapped(torch.tensor(element))

    def read() -> Any:
        value = wrapped(plain(element).clone())
        value._homes = (plain(element), *element._homes)
        return value

    def write(value: Any) -> None:
        element[...] = value

    return LiveScalar(read, write)


def set_member(entries: dict[str, Any], key: str, value: Any) -> None:
    """`struct.key = value`; the member keeps its type."""
    old = entries[key]
    if type(old) is LiveScalar:
        old.set(value)
    elif isinstance(old, PyTensor):
        fresh = wrapped(plain(old).clone())
        fresh[...] = value
        entries[key] = fresh
    elif isinstance(value, (Struct, str, dict, list, tuple)) or not hasattr(value, "__float__"):
        raise TypeError("A number is expected when assigning struct members")
    else:
        entries[key] = type(old)(value) if type(old) in (int, float, bool) else value


# --- vectors and matrices ---


def _holds_literals(arr: Any) -> bool:
    """Whether some element is a Python number: then u1 counts as the default integer type."""
    if isinstance(arr, (list, tuple)):
        return any(map(_holds_literals, arr))
    return not isinstance(arr, torch.Tensor)


def matrix(arr: Any, dt: Any = None) -> PyTensor:
    """`qd.Vector(arr, dt)` and `qd.Matrix(arr, dt)`."""
    t = tensor_of(arr)
    if dt is not None:
        t = t.to(torch_dtype(dt))
    elif t.dtype is torch.bool and _holds_literals(arr):
        t = t.to(torch_dtype(int))
    return wrapped(t.clone() if t is arr or isinstance(arr, torch.Tensor) else t)


def typed(kind: MatrixType, args: tuple[Any, ...]) -> PyTensor:
    """A call of a vector or matrix type."""
    shape = kind.get_shape()
    count = math.prod(shape)
    parts = [tensor_of(a).reshape(-1) for a in args]
    if len(parts) == 1 and parts[0].numel() == 1:
        parts = parts * count
    have = sum(p.numel() for p in parts)
    if have < count:
        raise IndexError(f"{kind.to_string()} needs {count} components, got {have}")
    dtype = torch_dtype(float if kind._declared is None and kind.dtype is None else kind.dtype)
    return wrapped(torch.cat([p.to(dtype) for p in parts])[:count].reshape(shape).clone())


def _filled(value: Any) -> Callable[..., PyTensor]:
    def make(dt: Any, n: int, m: int | None = None) -> PyTensor:
        return wrapped(torch.full((n,) if m is None else (n, m), value, dtype=torch_dtype(dt)))

    return make


def _unit(n: int, i: int, dt: Any = None) -> PyTensor:
    made = torch.zeros(n, dtype=torch_dtype(int if dt is None else dt))
    made[i] = 1
    return wrapped(made)


def _diag(dim: int, val: Any) -> PyTensor:
    return wrapped(torch.diag(tensor_of(val).expand(dim)))


_FACTORIES: dict[str, Callable[..., PyTensor]] = {
    "zero": _filled(0),
    "one": _filled(1),
    "identity": lambda dt, n: wrapped(torch.eye(n, dtype=torch_dtype(dt))),
    "unit": _unit,
    "diag": _diag,
    "rows": lambda parts: wrapped(tensor_of(list(parts))),
    "cols": lambda parts: wrapped(tensor_of(list(parts)).transpose(0, 1).contiguous()),
}


def factory(name: str, *args: Any, **kwargs: Any) -> PyTensor:
    """A static method of `qd.Matrix`."""
    return _FACTORIES[name](*args, **kwargs)


# --- operations ---


def _is_number(x: Any) -> bool:
    return literal_dtype(x) is not None


def _half_away(t: torch.Tensor) -> torch.Tensor:
    whole = torch.trunc(t)
    return whole + torch.sign(t) * ((t - whole).abs() >= 0.5)


def _real(compute: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    return lambda t: compute(t if t.dtype.is_floating_point else t.to(default_fp()))


_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "round": _real(_half_away),
    "neg": _py_tensor.negative,
    "abs": _py_tensor.magnitude,
    "bit_not": torch.bitwise_not,
    "logical_not": torch.logical_not,
}


def _unary(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return _UNARY.get(name) or _real(getattr(torch, name))


def _raw_div(a: Any, b: Any) -> Any:
    both = torch.as_tensor(a), torch.as_tensor(b)
    whole = not (both[0].dtype.is_floating_point or both[1].dtype.is_floating_point)
    return torch.div(*both, rounding_mode="trunc" if whole else None)


def _of_tensors(
    on_floats: Callable[..., Any], on_ints: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """A torch function for operands of which one may be a number."""

    def compute(a: Any, b: Any) -> Any:
        dtype = next(x.dtype for x in (a, b) if isinstance(x, torch.Tensor))
        a, b = (x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=dtype) for x in (a, b))
        return (on_floats if dtype.is_floating_point or on_ints is None else on_ints)(a, b)

    return compute


def _logical_shift(a: Any, b: Any) -> Any:
    width = 8 * a.element_size()
    mask = torch.where(b > 0, (1 << (width - b).clamp(max=width - 1).to(torch.int64)) - 1, -1)
    return ((a >> b) & mask).to(a.dtype)


def _in_left_type(compute: Callable[..., Any], a: Any, b: Any) -> Any:
    a = tensor_of(a)
    return wrapped(compute(a, tensor_of(b).to(a.dtype)))


_BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    **{n: OPERATORS[n] for n in "add sub mul truediv floordiv mod pow".split()},
    **{f"bit_{n}": OPERATORS[n] for n in ("and", "or", "xor")},
    **{f"cmp_{n}": (comparison, getattr(operator, n)) for n in "lt le gt ge eq ne".split()},
    "bit_shl": OPERATORS["lshift"],
    "bit_sar": OPERATORS["rshift"],
    "bit_shr": (_in_left_type, _logical_shift),
    "raw_div": (arithmetic, _raw_div),
    "raw_mod": (arithmetic, _of_tensors(torch.fmod)),
    "max": (arithmetic, _of_tensors(torch.fmax, torch.maximum)),
    "min": (arithmetic, _of_tensors(torch.fmin, torch.minimum)),
    "logical_and": (comparison, _of_tensors(torch.logical_and)),
    "logical_or": (comparison, _of_tensors(torch.logical_or)),
}


def _binary(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return _BINARY.get(name) or (_py_tensor.division, _of_tensors(getattr(torch, name)))


def _exact(x: Any) -> PyTensor:
    """A Python number with all its digits."""
    return wrapped(torch.tensor(x, dtype=torch.float64 if isinstance(x, float) else None))


def apply(name: str, args: tuple[Any, ...]) -> Any:
    """An element-wise operation; Python numbers in, a Python number out."""
    numbers = all(_is_number(a) for a in args)
    if numbers:
        if len(args) == 2 and (name == "truediv" or name not in _BINARY):
            args = tuple(map(float, args))
        args = tuple(_exact(a.item() if isinstance(a, np.generic) else a) for a in args)
    if len(args) == 1:
        t = tensor_of(args[0])
        if numbers and not t.dtype.is_floating_point and name not in _KEEPS_INTEGERS:
            t = t.to(torch.float64)
        result: Any = wrapped(_unary(name)(t))
    else:
        rule, compute = _binary(name)
        first = args[0] if isinstance(args[0], torch.Tensor) else wrapped(tensor_of(args[0]))
        result = rule(compute, first, args[1])
    return result.item() if numbers else result


_KEEPS_INTEGERS = ("neg", "abs", "bit_not", "logical_not")


def rounding(name: str, x: Any, dtype: Any) -> Any:
    """floor, ceil and round."""
    result = apply(name, (x,))
    return result if dtype is None else cast(result, dtype)


def select(cond: Any, a: Any, b: Any) -> Any:
    """a where cond is not zero, else b."""
    if all(map(_is_number, (cond, a, b))):
        return a if cond else b
    values = operands(a, b)
    if values is None:
        raise TypeError("select takes numbers, vectors and matrices")
    (a, b), dtype = values
    where = tensor_of(cond) != 0
    a, b = (x if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=dtype) for x in (a, b))
    return wrapped(torch.where(where, a, b))


def cast(x: Any, dtype: Any) -> Any:
    """x converted; a Python number stays one."""
    if isinstance(dtype, torch.dtype):
        return tensor_of(x).to(dtype).item() if _is_number(x) else wrapped(tensor_of(x).to(dtype))
    dtype = cook_dtype(dtype)
    if _is_number(x):
        return convert_number(dtype, x)
    return wrapped(tensor_of(x).to(torch_dtype(dtype)))


def bit_cast(x: Any, dtype: Any) -> Any:
    """The bits of x read as dtype."""
    t = tensor_of(x).view(torch_dtype(dtype))
    return t.item() if _is_number(x) else wrapped(t)


def call_dtype(dtype: DataType, *args: Any, **kwargs: Any) -> Any:
    """`qd.f32(x)`: a Python number."""
    if len(args) != 1 or kwargs:
        raise QuadrantsSyntaxError("A primitive type can only decorate a single expression.")
    x = args[0]
    if isinstance(x, torch.Tensor) and x.numel() == 1:
        x = x.item()
    if not _is_number(x):
        raise QuadrantsSyntaxError(
            "A primitive type cannot decorate an expression with a compound type."
        )
    if dtype.is_real:
        return float(x)
    return convert_number(dtype, x)


def frexp(x: Any) -> Any:
    """Fraction and exponent."""
    if _is_number(x):
        return math.frexp(x)
    fraction, exponent = torch.frexp(tensor_of(x))
    return wrapped(fraction), wrapped(exponent)


def like(x: Any, value: int) -> Any:
    """A value of the type of x, filled with a number."""
    return type(x)(value) if _is_number(x) else wrapped(torch.full_like(tensor_of(x), value))


def atomic(name: str, stored: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Stores the result in x and returns the old value: a Python number, or a vector."""
    x, *values = args
    if not isinstance(x, torch.Tensor):
        raise QuadrantsSyntaxError(
            f"cannot use a non-writable target as the first operand of '{name}'"
        )
    before = wrapped(plain(x).clone())
    x[...] = stored(before, *values)
    return before.item() if before.dim() == 0 else before


def _assume_in_range(val: Any, base: Any, low: Any, high: Any) -> Any:
    return val


def _volatile_load(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        raise QuadrantsSyntaxError("volatile_load requires an lvalue")
    return x.item() if x.dim() == 0 else _copied(x)


_HINTS: dict[str, Callable[..., Any]] = {
    "block_local": lambda *fields: None,
    "cache_read_only": lambda *fields: None,
    "no_activate": lambda *nodes: None,
    "mesh_local": lambda *fields: None,
    "assume_in_range": _assume_in_range,
    "stop_grad": lambda x: x,
    "global_thread_idx": lambda: 0,
    "volatile_load": _volatile_load,
}


def kernel_only(name: str, args: tuple[Any, ...]) -> Any:
    """Hints do nothing; the rest of what only kernels have is missing."""
    hint = _HINTS.get(name)
    if hint is None:
        raise unavailable(f"qd.{name}")
    return hint(*args)


def _classified(on_tensor: Callable[..., Any], on_number: Callable[[Any], bool]) -> Any:
    def ask(x: Any) -> Any:
        if _is_number(x):
            return on_number(float(x))
        found = on_tensor(tensor_of(x))
        return bool(found) if found.dim() == 0 else wrapped(found)

    return ask


def _eye(n: int) -> PyTensor:
    return factory("identity", impl.pyquadrants.default_fp, n)


# Funcs of the library whose Python body relies on types that Python numbers do not have.
_OVERRIDES: dict[tuple[str, str], Callable[..., Any]] = {
    ("quadrants.math", "isnan"): _classified(torch.isnan, math.isnan),
    ("quadrants.math", "isinf"): _classified(torch.isinf, math.isinf),
    ("quadrants.math", "eye"): _eye,
}


def install() -> None:
    """What `init` does once per process: dtypes can be called from now on."""
    from quadrants.lang import misc

    misc._dtype_call_installed = True
