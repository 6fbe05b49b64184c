"""The device clock."""

from typing import Any

from quadrants._lib import core
from quadrants.lang import impl


def clock_freq_hz() -> Any:
    """Ticks per second of `clock_counter`; on the host, not in kernels.

    Raises:
        NotImplementedError: the target has no such number, as the CPU.
        QuadrantsRuntimeError: before `qd.init`.
    """
    if impl.inside_kernel():
        return core.trace_op("clock_freq_hz", ())
    impl.check_initialised()
    arch: Any = impl.pyquadrants._arch
    if arch.name == "cuda":
        return 1e3 * core.cuda_clock_khz()
    raise NotImplementedError(f"clock_freq_hz not implemented for arch {arch.name}")


clock_freq_hz._qd_op = "clock_freq_hz"  # type: ignore[attr-defined]
