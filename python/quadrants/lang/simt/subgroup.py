"""Operations of a subgroup."""

from quadrants.lang._unavailable import declare

_TILED = (
    "all_equal all_true any_true bitonic_sort_kv "
    + " ".join(
        f"{kind}clusive_{op}"
        for kind in ("in", "ex")
        for op in "add and max min mul or xor".split()
    )
    + " "
    + " ".join(
        f"{kind}_{op}"
        for kind in ("reduce", "reduce_all", "segmented_reduce")
        for op in ("add", "max", "min")
    )
)
declare(
    globals(),
    _TILED
    + " "
    + " ".join(f"{name}_tiled" for name in _TILED.split())
    + " ballot ballot_first_n ballot_full_subgroup barrier broadcast broadcast_first elect group_size invocation_id "
    "lanemask_eq lanemask_ge lanemask_gt lanemask_le lanemask_lt log2_group_size mem_fence memory_barrier shuffle "
    "shuffle_down shuffle_up shuffle_xor sync",
    prefix="qd.simt.subgroup",
)
