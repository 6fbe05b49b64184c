"""Operations of a thread block."""

from quadrants.lang._unavailable import declare
from quadrants.lang.ops import global_thread_idx  # noqa: F401

declare(
    globals(),
    "exclusive_add exclusive_max exclusive_min exclusive_scan inclusive_add inclusive_max inclusive_min "
    "inclusive_scan mem_fence mem_sync radix_rank_match_atomic_or reduce reduce_add reduce_all reduce_all_add "
    "reduce_all_max reduce_all_min reduce_max reduce_min sync sync_all_nonzero sync_any_nonzero "
    "sync_count_nonzero thread_idx",
    "SharedArray",
    prefix="qd.simt.block",
)
