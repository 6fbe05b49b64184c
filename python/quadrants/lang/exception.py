"""Public exception classes.

Compile errors derive from `QuadrantsCompilationError` and their builtin namesake, run-time errors
from `QuadrantsRuntimeError`. Each also derives from the native twin of the same name, so one raised
class satisfies handlers of both families.
"""

from __future__ import annotations

from typing import Any

from quadrants._lib.core import _errors as _native


class QuadrantsCompilationError(Exception):
    """Base of everything that goes wrong while a kernel is compiled."""


class QuadrantsSyntaxError(QuadrantsCompilationError, _native.QuadrantsSyntaxError):
    """Code that the kernel language does not allow."""

    __str__ = Exception.__str__  # SyntaxError's own would drop everything but the first argument


class QuadrantsNameError(QuadrantsCompilationError, _native.QuadrantsNameError):
    """A name that is not defined."""


class QuadrantsTypeError(QuadrantsCompilationError, _native.QuadrantsTypeError):
    """Operands or values of types that do not fit."""


class QuadrantsIndexError(QuadrantsCompilationError, _native.QuadrantsIndexError):
    """A wrong number of indices."""


class QuadrantsRuntimeError(_native.QuadrantsRuntimeError):
    """Misuse or failure of the runtime."""


class QuadrantsRuntimeTypeError(QuadrantsRuntimeError, TypeError):
    """A kernel argument or result of the wrong type."""

    @staticmethod
    def get(pos: Any, needed: Any, provided: Any) -> QuadrantsRuntimeTypeError:
        """The error for an argument.

        Args:
            pos: its position or name.
            needed: the type that the kernel declares.
            provided: the type of what was given.
        """
        return QuadrantsRuntimeTypeError(
            f"Argument {pos} (type={provided}) cannot be converted into required type {needed}"
        )

    @staticmethod
    def get_ret(needed: Any, provided: Any) -> QuadrantsRuntimeTypeError:
        """The error for a result.

        Args:
            needed: the type that the kernel declares.
            provided: the type of what it returns.
        """
        return QuadrantsRuntimeTypeError(
            f"Return (type={provided}) cannot be converted into required type {needed}"
        )


class QuadrantsAssertionError(QuadrantsRuntimeError, _native.QuadrantsAssertionError):
    """A failed `assert` or bounds check in a kernel."""


def handle_exception_from_cpp(error: Exception) -> Exception:
    """The same as an error of the class that programs catch, if it is one of the native layer's.

    Args:
        error: any.
    """
    name = type(error).__name__
    is_native = type(error) is getattr(_native, name, None)
    return globals()[name](*error.args) if is_native else error


def not_initialised(attribute: str = "_prog") -> QuadrantsRuntimeError:
    """The error for using the runtime before `qd.init`."""
    return QuadrantsRuntimeError(
        f"{attribute} attribute not initialized. Maybe you forgot to call `qd.init()` first?"
    )


def not_available(name: str) -> QuadrantsRuntimeError:
    """The error for a public feature that this build does not have."""
    return QuadrantsRuntimeError(f"{name} is not available in this build yet")
