"""CUDA warp operations."""

from quadrants.lang._unavailable import declare

declare(
    globals(),
    "active_mask all_nonzero any_nonzero ballot match_all match_any shfl_down_f32 shfl_down_i32 shfl_sync_f32 "
    "shfl_sync_i32 shfl_up_f32 shfl_up_i32 shfl_xor_i32 sync unique",
    prefix="qd.simt.warp",
)
