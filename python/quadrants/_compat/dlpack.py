"""A capsule as an object, for libraries that import from objects only."""

from __future__ import annotations

from typing import Any


class DLPackV1Adapter:
    """Lets `np.from_dlpack` take a versioned capsule of host memory.

    Args:
        capsule: made by `to_dlpack(versioned=True)`; good for one import.
    """

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU
