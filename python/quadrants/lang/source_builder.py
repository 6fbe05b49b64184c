"""Foreign code in kernels."""

from __future__ import annotations

from quadrants.lang.exception import not_available


class SourceBuilder:
    """Legacy: calls into C++ or LLVM IR that is compiled by an installed compiler."""

    @classmethod
    def from_source(cls, source: str) -> SourceBuilder:
        """Would compile C++ text."""
        raise not_available("SourceBuilder")

    @classmethod
    def from_file(cls, filename: str) -> SourceBuilder:
        """Would compile or load a file."""
        raise not_available("SourceBuilder")
