"""Torch on Apple's GPUs."""

from quadrants.lang.impl import get_runtime


def mps_sync_if_metal() -> None:
    """Waits for torch's work on the GPU if kernels run there too: the queues are in no order.

    Raises:
        QuadrantsRuntimeError: `qd.init()` was not called.
    """
    if get_runtime().prog.config().arch.name != "metal":
        return
    import torch

    torch.mps.synchronize()
