"""Operations of the whole grid."""

from quadrants.lang._unavailable import declare

declare(globals(), "mem_fence memfence", prefix="qd.simt.grid")
