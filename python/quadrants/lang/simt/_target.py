"""What a target without blocks and subgroups, such as a CPU, says to operations on them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from quadrants.lang import impl
from quadrants.lang._ops.operation import python_scope_error
from quadrants.lang.exception import QuadrantsCompilationError

F = TypeVar("F", bound=Callable[..., Any])


def no_blocks(shown: str) -> ValueError:
    """The error for an operation on blocks or the grid."""
    return ValueError(f"{shown} is not supported for arch {impl.pyquadrants._arch}")


def no_subgroups(shown: str) -> QuadrantsCompilationError:
    """The error for an operation on subgroups."""
    return QuadrantsCompilationError(
        f"{shown} is not supported for arch {impl.pyquadrants._arch}, which has no subgroups"
    )


def needs(error: Callable[[str], Exception], room: str, anywhere: bool = False) -> Callable[[F], F]:
    """Makes a declaration an operation that no target of this build has.

    Args:
        error: makes the exception of the operation's name.
        room: what the name stands behind.
        anywhere: outside kernels it is that exception, too, not one about the scope.
    """

    def decorate(declared: F) -> F:
        @wraps(declared)
        def operation(*args: Any, **kwargs: Any) -> Any:
            declared(*args, **kwargs)
            impl.check_initialised()
            if not anywhere and not impl.inside_kernel():
                raise python_scope_error(declared.__name__)
            raise error(f"{room}.{declared.__name__}")

        return operation  # type: ignore[return-value]

    return decorate


def deprecated(room: str, old: str, new: str, why: str = "") -> None:
    """Warns that an operation has another name."""
    warnings.warn(
        f"qd.simt.{room}.{old}() is deprecated; use qd.simt.{room}.{new}() instead{why}.",
        DeprecationWarning,
        stacklevel=3,
    )
