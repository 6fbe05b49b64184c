"""Re-exports of `quadrants.profiler`."""

from quadrants.profiler import clear_scoped_profiler_info, print_scoped_profiler_info

__all__ = ["clear_scoped_profiler_info", "print_scoped_profiler_info"]
