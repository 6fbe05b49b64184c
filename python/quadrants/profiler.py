"""Timings of kernels and of the runtime.

Kernel timings need `qd.init(kernel_profiler=True)`; without it each function logs how to turn them
on and returns nothing. This build measures nothing yet: with it they raise.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from quadrants import _logging
from quadrants.lang._unavailable import declare as _declare
from quadrants.lang.exception import not_available as _not_available

_METRICS = "global_access shared_access atomic_access cache_hit_rate device_utilization".split()


class CuptiMetric:
    """A hardware counter: its name, column header, format and scale."""

    def __init__(
        self,
        name: str = "",
        header: str = "unnamed_header",
        val_format: str = "     {:8.0f} ",
        scale: float = 1.0,
    ) -> None:
        self.name = name
        self.header = header
        self.val_format = val_format
        self.scale = scale


def _is_on(feature: str) -> bool:
    import quadrants as qd

    if qd.cfg is not None and qd.cfg.kernel_profiler:
        raise _not_available(f"qd.profiler.{feature}")
    _logging.warn("use 'qd.init(kernel_profiler = True)' to turn on KernelProfiler.")
    return False


def _reporting(name: str, doc: str, otherwise: Any = None) -> Callable[..., Any]:
    def fn(*args: Any, **kwargs: Any) -> Any:
        _is_on(name)
        return otherwise

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = doc
    return fn


def print_kernel_profiler_info(mode: str = "count") -> None:
    """Prints timings, summed ("count") or launch by launch ("trace")."""
    if mode not in ("count", "trace"):
        raise ValueError("Argument `mode` (str) must be 'count' or 'trace'.")
    _is_on("print_kernel_profiler_info")


query_kernel_profiler_info = _reporting(
    "query_kernel_profiler_info", "Timings of one kernel in ms."
)
clear_kernel_profiler_info = _reporting("clear_kernel_profiler_info", "Forgets all timings.")
get_kernel_profiler_total_time = _reporting(
    "get_kernel_profiler_total_time", "Time of all kernels in seconds.", 0.0
)
set_kernel_profiler_toolkit = _reporting(
    "set_kernel_profiler_toolkit", 'Chooses "default" or "cupti"; whether that worked.', False
)
set_kernel_profiler_metrics = _reporting(
    "set_kernel_profiler_metrics", "Chooses hardware counters."
)


@contextmanager
def collect_kernel_profiler_metrics(metric_list: list[CuptiMetric]) -> Iterator[None]:
    """Collects hardware counters inside the block."""
    _is_on("collect_kernel_profiler_metrics")
    yield


def get_predefined_cupti_metrics(name: str = "") -> list[CuptiMetric] | None:
    """A named set of hardware counters; logs the names and returns None for an unknown one."""
    if name in _METRICS:
        raise _not_available(f"qd.profiler.get_predefined_cupti_metrics({name!r})")
    _logging.warn("Valid Quadrants predefined metrics list (str): " + ", ".join(_METRICS))
    return None


_declare(
    globals(),
    "clear_scoped_profiler_info print_memory_profiler_info print_scoped_profiler_info",
    prefix="qd.profiler",
)
