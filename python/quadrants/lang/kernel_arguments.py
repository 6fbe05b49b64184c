"""What a parameter of a kernel or func is: annotation, name and default."""

from __future__ import annotations

from typing import Any


class empty:
    """Stands for "no annotation" and "no default"."""


class ArgMetadata:
    """One parameter."""

    __slots__ = ("annotation", "name", "default")

    def __init__(self, annotation: Any, name: str, default: Any = empty) -> None:
        self.annotation = annotation
        self.name = name
        self.default = default

    def __repr__(self) -> str:
        return (
            f"ArgMetadata(annotation={self.annotation}, name={self.name!r}, default={self.default})"
        )
