"""Helpers for test suites."""

from typing import Any


def qd_init_same_arch(**options: Any) -> None:
    """Initialises again on the current architecture."""
    import quadrants as qd

    qd.init(arch=qd.cfg.arch, **options)
