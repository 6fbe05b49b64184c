"""Re-exports of `quadrants._library`."""

from quadrants._library import eig, make_spd, polar_decompose, randn, solve, svd, sym_eig

__all__ = ["eig", "make_spd", "polar_decompose", "randn", "solve", "svd", "sym_eig"]
