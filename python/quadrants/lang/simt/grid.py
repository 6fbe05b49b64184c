"""Operations of the whole grid."""

from quadrants.lang.simt._target import deprecated, emit, needs, no_blocks


@needs(no_blocks, "qd.simt.grid", anywhere=True)
def mem_fence() -> None:
    """Orders a thread's memory accesses for all threads of the device; nobody waits."""
    emit("fence", "device")


def memfence() -> None:
    """`mem_fence` under its old name."""
    deprecated("grid", "memfence", "mem_fence")
    mem_fence()
