"""Former experimental names."""

from collections.abc import Callable
from typing import Any


def real_func(func: Callable[..., Any]) -> Any:
    """Deprecated: `qd.real_func`.

    Args:
        func: the function.
    """
    import warnings

    from quadrants.lang.kernel_impl import real_func as current

    warnings.warn(
        "qd.experimental.real_func is deprecated because it is no longer experimental. "
        "Use qd.real_func instead.",
        DeprecationWarning,
        stacklevel=2,
    )
    return current(func)
