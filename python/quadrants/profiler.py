"""Timings of kernels and of the runtime."""

from quadrants.lang._unavailable import declare as _declare

_declare(
    globals(),
    "clear_kernel_profiler_info clear_scoped_profiler_info collect_kernel_profiler_metrics "
    "get_kernel_profiler_total_time get_predefined_cupti_metrics print_kernel_profiler_info "
    "print_memory_profiler_info print_scoped_profiler_info query_kernel_profiler_info "
    "set_kernel_profiler_metrics set_kernel_profiler_toolkit",
    "CuptiMetric",
    prefix="qd.profiler",
)
