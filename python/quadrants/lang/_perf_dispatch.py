"""Choice among kernels by measured time."""

from quadrants.lang._unavailable import unavailable_function

perf_dispatch = unavailable_function(__name__, "perf_dispatch", "qd.perf_dispatch")
