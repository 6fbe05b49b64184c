"""Numbers for distinct tuples of argument features."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any

from quadrants._lib import core
from quadrants.lang.kernel_arguments import ArgMetadata
from quadrants.lang.util import is_data_oriented, is_qd_template


def extract_arg(raise_on_templated_floats: bool, arg: Any, annotation: Any, arg_name: str) -> Any:
    """What a specialisation depends on in one argument."""
    if isinstance(arg, core.TensorBase):
        arg = arg._unwrap()
    if is_qd_template(annotation):
        if raise_on_templated_floats and isinstance(arg, float):
            raise ValueError("Floats not allowed as templated types.")
        if (
            is_data_oriented(arg)
            or isinstance(arg, (list, dict, set))
            or type(arg).__hash__ is None
        ):
            return weakref.ref(arg) if hasattr(arg, "__weakref__") else id(arg)
        return (type(arg), arg) if isinstance(arg, (int, float)) else arg
    if isinstance(arg, core.NdarrayBase):
        return (
            arg.element_type,
            len(arg.shape),
            arg.grad is not None,
            getattr(annotation, "boundary", 0),
            getattr(arg, "layout", None),
        )
    if dataclasses.is_dataclass(annotation):
        return tuple(
            _hotpath._extract_arg(
                raise_on_templated_floats, getattr(arg, f.name), f.type, f"{arg_name}.{f.name}"
            )
            for f in dataclasses.fields(annotation)
        )
    if hasattr(arg, "dtype") and hasattr(arg, "ndim"):
        return (str(arg.dtype), arg.ndim, bool(getattr(arg, "requires_grad", False)), 0, None)
    return "#"


class TemplateMapper:
    """Gives every distinct tuple of features a number, from 0."""

    def __init__(
        self, arg_metas: Sequence[ArgMetadata], template_slot_locations: Any = None
    ) -> None:
        self.arguments = list(arg_metas)
        self.mapping: dict[Any, int] = {}
        self._mapping_cache: dict[Any, Any] = {}
        self._mapping_cache_tracker: dict[Any, Any] = {}

    def lookup(
        self, raise_on_templated_floats: bool, args: Sequence[Any]
    ) -> tuple[int, tuple[Any, ...]]:
        """The number and the features of these arguments."""
        if len(args) != len(self.arguments):
            raise TypeError(f"{len(self.arguments)} argument(s) needed but {len(args)} provided.")
        features = tuple(
            _hotpath._extract_arg(raise_on_templated_floats, arg, meta.annotation, meta.name)
            for arg, meta in zip(args, self.arguments)
        )
        return self.mapping.setdefault(features, len(self.mapping)), features


from quadrants.lang import _template_mapper_hotpath as _hotpath  # noqa: E402  patched by tests
