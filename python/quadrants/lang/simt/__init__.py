"""Block, subgroup and grid operations of GPUs."""

from typing import Any as _Any

from quadrants._lazy import load as _load

_MODULES = ("block", "grid", "subgroup", "warp")
__all__ = ["Tile16x16", "Tile32x32", *_MODULES]


def __getattr__(name: str) -> _Any:
    if name in ("Tile16x16", "Tile32x32"):
        from quadrants.lang.simt import _tile

        return globals().setdefault(name, getattr(_tile, f"{name}Proxy"))
    if name in (*_MODULES, "reductions", "sorting"):
        return _load(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, *(n for n in [*globals()] if n.startswith("_"))]
