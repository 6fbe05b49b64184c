"""What else outside code asks of `get_runtime().prog`: each function here is a method of it."""

from __future__ import annotations

from typing import Any, NamedTuple

from quadrants import profiler
from quadrants._lib import core
from quadrants.lang import impl, misc

__all__ = [
    "clear_kernel_profiler",
    "fill_float",
    "fill_int",
    "fill_uint",
    "get_kernel_profiler_records",
    "get_ndarray_data_ptr_as_int",
    "get_snode_num_dynamically_allocated",
    "kernel_profiler_total_time",
    "materialize_runtime",
    "print_memory_profiler_info",
    "query_kernel_profile_info",
    "set_kernel_profiler_toolkit",
    "sync_kernel_profiler",
    "timeline_clear",
    "timeline_save",
    "update_kernel_profiler",
]


def materialize_runtime(prog: Any) -> None:
    """Makes storage of all fields declared so far."""
    impl.get_runtime().materialize()


def fill_int(prog: Any, arr: Any, value: Any) -> None:
    """Sets all numbers of an ndarray, given as `ndarray.arr`."""
    arr._array().fill(value)


fill_uint = fill_float = fill_int


def get_ndarray_data_ptr_as_int(prog: Any, arr: Any) -> int:
    """Where the memory of an ndarray, given as `ndarray.arr`, begins."""
    return arr.device_allocation_ptr()


def get_snode_num_dynamically_allocated(prog: Any, pointer: Any) -> int:
    """Cells that a sparse node, given as `snode.ptr`, has had at a time."""
    return pointer._node._num_dynamically_allocated


def print_memory_profiler_info(prog: Any) -> None:
    profiler.print_memory_profiler_info()


# --- timings of kernels: empty without `kernel_profiler=True` ---


class KernelProfileTracedRecord(NamedTuple):
    """One run of a task.

    Args:
        name: of the task.
        kernel_time: its time in ms.
    """

    name: str
    kernel_time: float


def sync_kernel_profiler(prog: Any) -> None:
    """Waits for the runs of which there is no time yet."""
    prog.synchronize()


update_kernel_profiler = sync_kernel_profiler


def get_kernel_profiler_records(prog: Any) -> list[KernelProfileTracedRecord]:
    """All runs, in their order."""
    return [KernelProfileTracedRecord(*record) for record in core.profile_records()]


def kernel_profiler_total_time(prog: Any) -> float:
    """Time of all runs in seconds."""
    return sum(ms for _, ms in core.profile_records()) / 1e3


def query_kernel_profile_info(prog: Any, name: str) -> profiler.KernelProfilerQueryResult:
    """Timings of the tasks of which the name begins so."""
    return profiler._query(name)


def clear_kernel_profiler(prog: Any) -> None:
    core.profile_clear()


def set_kernel_profiler_toolkit(prog: Any, name: str) -> bool:
    """Whether kernels are timed by it from now on: there is one way, so no."""
    return False


def timeline_clear(prog: Any) -> None:
    misc.timeline_clear()


def timeline_save(prog: Any, path: str) -> None:
    misc.timeline_save(path)
