"""Whether an argument fits an array annotation, asked once per new specialisation.

The launcher calls `check_array` for each ndarray- or BufferView-annotated argument before it lowers
a kernel, and for each argument that no specialisation takes.
"""

from __future__ import annotations

import math
from typing import Any, Final

from quadrants._lib import core
from quadrants.lang.exception import QuadrantsRuntimeTypeError
from quadrants.lang.impl import current_cfg
from quadrants.lang.util import cook_dtype, to_quadrants_type
from quadrants.types.annotations import OptionalAnnotation
from quadrants.types.buffer_view_type import BufferViewType
from quadrants.types.ndarray_type import NDArray

_MAX_ELEMENTS = 2**31 - 1


def check_array(annotation: Any, value: Any, name: str) -> None:
    """Raises unless the value fits the annotation.

    Args:
        annotation: NDArray, BufferView or an instance of their annotations.
        value: the argument.
        name: the parameter's name, for messages.
    """
    if isinstance(annotation, OptionalAnnotation):
        annotation = annotation.inner
    if isinstance(value, core.TensorBase):
        value = value._unwrap()
    if isinstance(annotation, BufferViewType) or _is_buffer_view_class(annotation):
        _check_view(annotation, value, name)
        return
    if not isinstance(annotation, NDArray):  # the bare class, or qd.Tensor
        annotation = NDArray()
    if isinstance(value, core.NdarrayBase):
        value._prepare()
        if _checks_enabled():
            annotation.check_matched(value.get_type(), name)
    elif is_numpy(value):
        _check_numpy(annotation, value, name)
    elif is_torch(value):
        _check_torch(annotation, value, name)
    elif hasattr(type(value), "__cuda_array_interface__"):
        _check_interface(annotation, value, name)
    else:
        raise QuadrantsRuntimeTypeError(f"Invalid type for argument {name}, got {value}")


def warn_of_unwatched(value: Any) -> None:
    """Says once what the chapter on caches says of values that no weak reference can watch."""
    import weakref

    from quadrants._test_tools.warnings_helper import warn_once

    try:
        weakref.ref(value)
    except TypeError as e:
        warn_once(f"{e}. Template mapper caching disabled.")


def check_template(kernel: Any, value: Any, name: str) -> None:
    """Raises or warns where a template value has rules of its own.

    Args:
        kernel: the definition.
        value: the argument of a `qd.template()` parameter.
        name: the parameter's name, for messages.
    """
    cls = type(value)
    if hasattr(cls, "__dataclass_fields__") and not getattr(cls, "_data_oriented", False):
        hash(value)
        import warnings

        warnings.warn(
            f"Kernel {kernel.__name__!r} parameter {name!r}: a dataclasses.dataclass instance is passed to a "
            "qd.Template-annotated kernel parameter. Annotate the parameter with the dataclass itself: this will "
            "become an error.",
            DeprecationWarning,
            stacklevel=2,
        )
    if current_cfg().raise_on_templated_floats and _holds_float(value, []):
        raise ValueError(
            f"Floats are not allowed as template values: parameter {name!r} of kernel {kernel.__name__!r} "
            "(raise_on_templated_floats=True)"
        )


def _holds_float(value: Any, seen: list[Any]) -> bool:
    """Whether a template value, or a member that is compiled in, is a Python float."""
    if isinstance(value, float):
        return True
    if any(value is s for s in seen):
        return False
    seen.append(value)
    if isinstance(value, (list, tuple)):
        return any(_holds_float(v, seen) for v in value)
    cls = type(value)
    if getattr(cls, "_data_oriented", False) and getattr(cls, "_qd_template_primitives", True):
        return any(_holds_float(v, seen) for v in getattr(value, "__dict__", {}).values())
    return False


_CONSTANTS = (bool, int, float, str)


def is_final(annotation: Any) -> bool:
    """Whether a member of a dataclass is a constant of kernels, by `typing.Final`."""
    return annotation is Final or getattr(annotation, "__origin__", None) is Final


def check_final(cls: type, name: str, annotation: Any) -> None:
    """Of a member that `is_final`."""
    from enum import Enum

    (kind,) = getattr(annotation, "__args__", (None,))
    if kind in _CONSTANTS or (isinstance(kind, type) and issubclass(kind, Enum)):
        return
    shown = "Final" if kind is None else f"Final[{getattr(kind, '__name__', kind)}]"
    raise TypeError(
        f"{cls.__name__}.{name} is annotated by {shown}, which is no constant of kernels; "
        "it may be Final[bool], Final[int], Final[float], Final[str], or of an enumeration"
    )


def check_final_value(name: str, value: Any) -> None:
    """Of a member that `is_final`."""
    from enum import Enum

    is_numpy = type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0
    if not is_numpy and not isinstance(value, (*_CONSTANTS, Enum)):
        raise TypeError(
            f"Member {name} is Final, a constant of kernels, and got {value!r}: it may be a bool, int, float, str or "
            "member of an enumeration"
        )


def check_template_member(name: str, value: Any) -> None:
    """Of a dataclass, compiled in, under `raise_on_templated_floats`."""
    if _holds_float(value, []):
        raise ValueError(
            f"Floats are not allowed as template values: member {name!r} of a dataclass "
            "(raise_on_templated_floats=True); annotate it by a number's type"
        )


def check_frozen(cls: type) -> None:
    """Of a dataclass with such a member, itself or in a member."""
    if cls.__hash__ is None:
        raise TypeError(
            f"Dataclass {cls.__name__} has members that are Final, constants of kernels, and could be changed: declare "
            "it with @dataclasses.dataclass(frozen=True), or unsafe_hash=True"
        )


def _is_tensor_type(annotation: Any) -> bool:
    """Whether it is a vector or matrix type; there is none while their module is not imported."""
    import sys

    module = sys.modules.get("quadrants.lang.matrix")
    return module is not None and isinstance(annotation, module.MatrixType)


def is_numpy(value: Any) -> bool:
    import sys

    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_torch(value: Any) -> bool:
    import sys

    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def torch_gradient(tensor: Any) -> Any:
    """The gradient of a tensor that requires one, zero-allocated if it is missing."""
    if tensor.is_leaf or tensor.retains_grad:
        grad = tensor.grad
    else:  # torch warns those who expect `backward` to fill it
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            grad = tensor.grad
    if grad is None:
        import torch

        grad = tensor.grad = torch.zeros_like(tensor, requires_grad=False)
    if not is_torch(grad):
        raise ValueError("The gradient of a tensor must be a tensor")
    if not grad.is_contiguous():
        raise ValueError(
            "Non contiguous gradient tensors are not supported, please call "
            "tensor.grad.contiguous() before passing it into quadrants kernel."
        )
    problem = tensor_problem(grad) if grad.is_neg() or not grad.data_ptr() else None
    if problem is not None:
        raise ValueError(f"The gradient of a tensor {problem}")
    if grad.shape != tensor.shape or grad.dtype != tensor.dtype or grad.device != tensor.device:
        raise ValueError("The gradient of a tensor must have its shape, dtype and device")
    return grad


def _checks_enabled() -> bool:
    """A client switches the tests of Quadrants arrays off through this module's builtins."""
    from quadrants.lang import _template_mapper

    builtins: Any = _template_mapper.__builtins__
    return bool(builtins.get("__debug__", True))


def _is_buffer_view_class(annotation: Any) -> bool:
    return (
        isinstance(annotation, type)
        and annotation.__name__ == "BufferView"
        and annotation.__module__.startswith("quadrants")
    )


def _check_view(annotation: Any, value: Any, name: str) -> None:
    from quadrants.lang.buffer_view import BufferView

    if not isinstance(value, BufferView):
        raise QuadrantsRuntimeTypeError(f"Invalid type for argument {name}, got {value}")
    value.arr._prepare()
    if isinstance(annotation, BufferViewType) and annotation.dtype is not None:
        NDArray(annotation.dtype).check_matched(value.arr.get_type(), name)


def _invalid(name: str, required: str, provided: str) -> ValueError:
    return ValueError(
        f"Invalid value for argument {name} - required {required}, {provided} is provided"
    )


def _check_numpy(annotation: NDArray, value: Any, name: str) -> None:
    if not value.flags.c_contiguous and not value.flags.f_contiguous:
        raise ValueError(
            "Non contiguous numpy arrays are not supported, please call np.ascontiguousarray(arr) "
            f"before passing it into a Quadrants kernel (argument {name})"
        )
    if not value.dtype.isnative:
        raise QuadrantsRuntimeTypeError(
            f"Argument {name}: arrays of foreign byte order are not supported"
        )
    _check_external(annotation, value.dtype, tuple(value.shape), name)


def tensor_problem(tensor: Any) -> str | None:
    """Why a torch tensor has no memory that could be used in place; None if it has."""
    import torch

    if tensor.layout is not torch.strided:
        return f"is a tensor of layout {tensor.layout}; pass tensor.to_dense()"
    if tensor.is_nested:
        return "is a nested tensor; pass its parts, or tensor.to_padded_tensor(...)"
    if tensor.device.type == "meta":
        return "is a meta tensor: it has no memory"
    if tensor.is_neg() or tensor.is_conj():
        return (
            "is a view with another sign than its memory; pass tensor.resolve_neg().resolve_conj()"
        )
    if tensor.device.type != "cpu" or not tensor.numel():
        return None
    try:
        storage = tensor.untyped_storage()
        last = tensor.storage_offset() + sum(
            (extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride())
        )
        fits = (last + 1) * tensor.element_size() <= storage.nbytes()
        if fits and storage.device.type == "cpu" and storage.data_ptr():
            return None
    except RuntimeError:
        pass
    return "has no memory: its storage was freed, or it is a fake or wrapped tensor"


def _check_torch(annotation: NDArray, value: Any, name: str) -> None:
    problem = tensor_problem(value)
    if problem is not None:
        raise ValueError(f"Argument {name} {problem}")
    if not value.is_contiguous():
        raise ValueError(
            "Non contiguous tensors are not supported, please call tensor.contiguous() before "
            f"passing it into a Quadrants kernel (argument {name})"
        )
    _check_external(annotation, value.dtype, tuple(value.shape), name, value.requires_grad)
    if value.requires_grad:
        torch_gradient(value)


def _check_interface(annotation: NDArray, value: Any, name: str) -> None:
    """Of CuPy, JAX and others, whose arrays say where on a GPU they lie."""
    try:
        said = value.__cuda_array_interface__
    except (AttributeError, RuntimeError, TypeError, ValueError) as e:
        raise QuadrantsRuntimeTypeError(
            f"Argument {name}: a {type(value).__name__} that is not on a GPU cannot be used in place: "
            f"pass numpy.asarray(...) of it ({e})"
        ) from None
    if current_cfg().arch.name != "cuda":
        raise ValueError(
            f"Argument {name} is an array on a GPU, which arch={current_cfg().arch.name} cannot use: "
            "pass a copy on the host"
        )
    shape, strides = tuple(said["shape"]), said.get("strides")
    if said.get("mask") is not None:
        raise ValueError(f"Argument {name}: arrays with masks are not supported")
    size = int(said["typestr"][2:])
    dense = [size * math.prod(shape[k + 1 :]) for k in range(len(shape))]
    if strides is not None and any(n > 1 and s != d for n, s, d in zip(shape, strides, dense)):
        raise ValueError(
            "Non contiguous arrays are not supported, please make a contiguous copy before passing "
            f"it into a Quadrants kernel (argument {name})"
        )
    _check_external(annotation, value.dtype, shape, name, has_grad=False)


def _check_external(
    annotation: NDArray, raw: Any, shape: tuple[int, ...], name: str, has_grad: bool = True
) -> None:
    try:
        dtype = to_quadrants_type(raw)
    except TypeError:
        raise QuadrantsRuntimeTypeError(
            f"Argument {name}: an array with dtype={raw} is not supported"
        ) from None
    want = annotation.dtype
    if _is_tensor_type(want):
        _check_elements(annotation, want, shape, name)
    else:
        if annotation.ndim is not None and len(shape) != annotation.ndim:
            raise _invalid(
                name, f"array has ndim={annotation.ndim}", f"array with {len(shape)} dimensions"
            )
        if want is not None and cook_dtype(want) is not dtype:
            raise _invalid(name, f"array has dtype={cook_dtype(want)}", f"array with dtype={dtype}")
    if annotation.needs_grad and not has_grad:
        raise _invalid(name, "needs_grad=True", "an array without gradient")
    if len(shape) - (want.ndim if _is_tensor_type(want) else 0) > core.get_max_num_indices():
        raise ValueError(
            f"Argument {name}: an array with {len(shape)} dimensions is provided; at most "
            f"{core.get_max_num_indices()} are supported"
        )
    if math.prod(shape) > _MAX_ELEMENTS:
        import warnings

        warnings.warn(
            f"Argument {name} has more elements than int32 indices can address", stacklevel=3
        )


def _check_elements(annotation: NDArray, want: Any, shape: tuple[int, ...], name: str) -> None:
    """The trailing axes must be the element's; its scalar type is the array's."""
    rank = want.ndim
    ndim = annotation.ndim
    if len(shape) < rank or (ndim is not None and len(shape) - rank != ndim):
        required = (
            "array has at least" if ndim is None else f"array has ndim={ndim}"
        ) + f" element_dim={rank}"
        raise _invalid(name, required, f"array with {len(shape)} dimensions")
    element = shape[len(shape) - rank :]
    wanted = want.get_shape()
    if any(w is not None and w != e for w, e in zip(wanted, element)):
        raise _invalid(
            name,
            f"element_shape={wanted}",
            f"array with element shape of {element}",
        )
