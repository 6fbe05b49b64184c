"""Re-exports of `quadrants.profiler`."""

from quadrants.profiler import (
    KernelProfiler,
    clear_kernel_profiler_info,
    collect_kernel_profiler_metrics,
    get_default_kernel_profiler,
    get_kernel_profiler_total_time,
    print_kernel_profiler_info,
    query_kernel_profiler_info,
    set_kernel_profiler_metrics,
    set_kernel_profiler_toolkit,
)

__all__ = [
    "KernelProfiler",
    "clear_kernel_profiler_info",
    "collect_kernel_profiler_metrics",
    "get_default_kernel_profiler",
    "get_kernel_profiler_total_time",
    "print_kernel_profiler_info",
    "query_kernel_profiler_info",
    "set_kernel_profiler_metrics",
    "set_kernel_profiler_toolkit",
]
