"""Block, subgroup and grid operations of GPUs."""

from quadrants.lang._unavailable import declare as _declare
from quadrants.lang.simt import block, grid, subgroup, warp

_declare(globals(), "", "Tile16x16 Tile32x32", prefix="qd.simt")
