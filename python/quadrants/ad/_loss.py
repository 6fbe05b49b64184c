"""What tapes do with a loss, which is a field, an ndarray or a torch tensor."""

from __future__ import annotations

import math
import sys
from typing import Any

from quadrants._lib import core
from quadrants.lang._data.stored_field import Field
from quadrants.types.primitive_types import f64


def bare(container: Any) -> Any:
    """What a `qd.Tensor` holds; other things as they are."""
    return container._unwrap() if isinstance(container, core.TensorBase) else container


def is_field(loss: Any) -> bool:
    return isinstance(loss, Field)


def _is_torch(loss: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(loss, torch.Tensor)


def check(loss: Any) -> None:
    """Raises unless a tape can start from the loss."""
    if is_field(loss):
        if loss.shape:
            raise RuntimeError("The loss of `Tape` must be a 0-D field, i.e. scalar")
        allocated, how = loss.has_grad(), "use qd.field(..., needs_grad=True) for all fields"
    elif isinstance(loss, core.NdarrayBase):
        if loss.shape is None or math.prod(loss.shape) != 1:
            raise RuntimeError("The loss of `Tape` must be an ndarray with only one element")
        allocated, how = loss.grad is not None, "set needs_grad=True for all ndarrays"
    elif _is_torch(loss):
        if loss.numel() != 1:
            raise RuntimeError("The loss of `Tape` must be a tensor only contains one element")
        allocated, how = loss.requires_grad, "set requires_grad=True for all tensors"
    else:
        raise AttributeError(
            f"The loss of `Tape` must be a field, an ndarray or a tensor, got {loss!r}"
        )
    if not allocated:
        raise RuntimeError(
            f"Gradients of loss are not allocated, please {how} that are required by autodiff."
        )


def clear(loss: Any) -> None:
    """Sets the loss to 0."""
    if _is_torch(loss):
        loss.detach().zero_()
    else:
        loss.fill(0)


def seed(loss: Any) -> None:
    """Sets every component of the loss's gradient to 1."""
    if not _is_torch(loss):
        loss.grad.fill(1)
    elif loss.grad is None:
        loss.grad = loss.detach().new_ones(loss.shape)
    else:
        loss.grad.fill_(1)


def is_f64(loss: Any) -> bool:
    """Whether every component of the loss is an f64."""
    if _is_torch(loss):
        return str(loss.dtype) == "torch.float64"
    dtype = loss.dtype
    return (
        all(is_f64(f) for f in loss.field_dict.values())
        if isinstance(dtype, dict)
        else dtype is f64
    )


def value(loss: Any) -> float:
    """The sum of the loss's components: what its seed makes the tape differentiate."""
    if _is_torch(loss):
        return float(loss.detach().sum())
    numbers = loss.to_numpy()
    if isinstance(numbers, dict):
        return sum(value(f) for f in loss.field_dict.values())
    return float(numbers.sum())
