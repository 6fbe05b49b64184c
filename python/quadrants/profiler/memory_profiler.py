"""Re-exports of `quadrants.profiler`."""

from quadrants.profiler import print_memory_profiler_info

__all__ = ["print_memory_profiler_info"]
