"""Re-exports of the compatibility room."""

from typing import Any

from quadrants._compat.dataclass_trees import FuncBase, _get_frozen_dc_plan

__all__ = ["FuncBase", "_get_frozen_dc_plan"]


def __getattr__(name: str) -> Any:
    if name == "_frozen_dc_plans":
        from quadrants._compat.dataclass_trees import frozen_plans

        return frozen_plans()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
