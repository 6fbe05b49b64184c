"""Public names whose feature this build does not have: they exist, and using them raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quadrants.lang.exception import not_available


def unavailable_function(module: str, name: str, shown: str | None = None) -> Callable[..., Any]:
    """A function of that name that raises when called."""
    text = shown or f"{module}.{name}"

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise not_available(text)

    missing.__name__ = missing.__qualname__ = name
    missing.__module__ = module
    missing.__doc__ = "Not available in this build."
    missing._qd_unavailable = True  # type: ignore[attr-defined]
    return missing


def unavailable_class(module: str, name: str, shown: str | None = None) -> type:
    """A class of that name, usable with isinstance, that raises when instantiated."""
    text = shown or f"{module}.{name}"

    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise not_available(text)

    return type(
        name,
        (),
        {"__new__": __new__, "__module__": module, "__doc__": "Not available in this build."},
    )


def declare_methods(cls: type, names: str) -> None:
    """Static methods of a class that is not available."""
    for name in names.split():
        shown = f"qd.{cls.__name__}.{name}"
        setattr(cls, name, staticmethod(unavailable_function(cls.__module__, name, shown)))


def declare(
    namespace: dict[str, Any], functions: str = "", classes: str = "", prefix: str = "qd"
) -> None:
    """Puts functions and classes that are not available into a module's globals."""
    module = namespace["__name__"]
    for name in functions.split():
        namespace[name] = unavailable_function(module, name, f"{prefix}.{name}")
    for name in classes.split():
        namespace[name] = unavailable_class(module, name, f"{prefix}.{name}")
