"""How operations on blocks and subgroups reach the compiler, and what targets without them say."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang._ops.operation import bound, python_scope_error
from quadrants.lang.exception import QuadrantsCompilationError

F = TypeVar("F", bound=Callable[..., Any])


def has_blocks() -> bool:
    """Whether threads of the initialised target work in blocks and subgroups."""
    return not impl.is_python_backend() and impl.pyquadrants.prog.subgroup_size() > 0


def no_blocks(shown: str) -> ValueError:
    """The error for an operation on blocks or the grid."""
    return ValueError(f"{shown} is not supported for arch {impl.pyquadrants._arch}")


def no_subgroups(shown: str) -> QuadrantsCompilationError:
    """The error for an operation on subgroups."""
    return QuadrantsCompilationError(
        f"{shown} is not supported for arch {impl.pyquadrants._arch}, which has no subgroups"
    )


def emit(operation: str, *operands: Any) -> Any:
    """Traces an operation of builtins_simt.cpp."""
    return core.trace_op(f"simt.{operation}", operands)


def needs(error: Callable[[str], Exception], room: str, anywhere: bool = False) -> Callable[[F], F]:
    """Makes a function that traces an operation one that says where there is none.

    Args:
        error: makes the exception of the operation's name, for targets without blocks.
        room: what the name stands behind.
        anywhere: on those, outside kernels it is that exception, too, not one about the scope.
    """

    def decorate(traced: F) -> F:
        @wraps(traced)
        def operation(*args: Any, **kwargs: Any) -> Any:
            args = bound(traced, args, kwargs)
            impl.check_initialised()
            if has_blocks():
                if impl.inside_kernel():
                    return traced(*args)
            elif anywhere or impl.inside_kernel():
                raise error(f"{room}.{traced.__name__}")
            raise python_scope_error(traced.__name__)

        return operation  # type: ignore[return-value]

    return decorate


def deprecated(room: str, old: str, new: str, why: str = "") -> None:
    """Warns that an operation has another name."""
    warnings.warn(
        f"qd.simt.{room}.{old}() is deprecated; use qd.simt.{room}.{new}() instead{why}.",
        DeprecationWarning,
        stacklevel=3,
    )
