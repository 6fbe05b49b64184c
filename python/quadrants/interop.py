"""Sharing device objects with other libraries.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""


def get_mps_command_queue() -> int:
    """PyTorch's Metal command queue as an address; 0 where there is none."""
    return 0


def __dir__() -> list[str]:
    return ["get_mps_command_queue", *(n for n in [*globals()] if n.startswith("_"))]
