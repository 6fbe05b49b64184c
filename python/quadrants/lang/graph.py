"""Graphs of tasks: constructs inside `@qd.kernel(graph=True)`.

In kernels the front end recognises these functions and never calls them; here is what they do in
plain Python, so that a function runs outside of kernels too.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


class _Block:
    """A context manager without effect: one thread runs its block as it stands."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        return None


def graph_do_while(condition: object) -> bool:
    """`while qd.graph.do_while(flag):` runs its body, then again while the flag is not 0.

    Args:
        condition: a 0-d i32 array that is a parameter of the kernel, or a member of one.
    """
    return bool(condition)


def graph_parallel_context() -> _Block:
    """A region whose sections are independent; what follows waits for all of them."""
    return _Block()


def graph_parallel() -> _Block:
    """A section of a `qd.graph.parallel_context()` region."""
    return _Block()


def checkpoint(cp_id: object, yield_on: object) -> _Block:
    """A place where a `checkpoints=True` kernel may stop and later resume.

    Args:
        cp_id: label, an int or a member of an IntEnum.
        yield_on: a 0-d i32 array: not 0 behind the block stops the launch.
    """
    return _Block()


def _resolve_label(definition: Any, text: str) -> Any:
    """The value of a checkpoint's label: a number, or a name with attributes as the kernel sees it."""
    if text.isdigit():
        return int(text)
    name, *members = text.split(".")
    fn = definition.fn
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
    value = cells[name].cell_contents if name in cells else fn.__globals__[name]
    for member in members:
        value = getattr(value, member)
    return value


do_while = graph_do_while
parallel = graph_parallel
parallel_context = graph_parallel_context

for _function in (graph_do_while, graph_parallel, graph_parallel_context, checkpoint):
    setattr(_function, "_qd_op", _function.__name__)


class GraphStatus:
    """Result of a checkpointed graph launch.

    Args:
        yielded: whether it stopped at a checkpoint.
        checkpoint: that checkpoint's label.
    """

    __slots__ = ("yielded", "checkpoint")

    def __init__(self, yielded: bool, checkpoint: object = None) -> None:
        self.yielded = yielded
        self.checkpoint = checkpoint

    def __repr__(self) -> str:
        if not self.yielded:
            return "GraphStatus(yielded=False)"
        return f"GraphStatus(yielded=True, checkpoint={self.checkpoint!r})"


def __dir__() -> list[str]:
    return [
        "do_while",
        "parallel",
        "parallel_context",
        *(n for n in [*globals()] if n.startswith("_")),
    ]
