"""Who records calls of kernels: at most one mode (a `Tape` or `FwdMode`) in each thread.

While any thread records, native code hands every call of a kernel to `_on_call`. Calls of threads that
record nothing run as ever, and so do those amid `aside`: kernels in functions with gradients of their
own, and what runs while gradients are evaluated.
"""

from __future__ import annotations

import os
import weakref
from _thread import RLock, _local
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from quadrants._lib import core
from quadrants.lang import impl


class Mode:
    """What calls go to between `_start` and `_stop`."""

    entered: bool
    _asides: int  # of its thread when it began

    def _start(self, attribute: str) -> None:
        """Calls of this thread go to `_call` from now on; the runtime shows the mode as `attribute`.

        If a signal handler raises amid this, `_stop` is due, since there will be no exit.
        """
        runtime = impl.get_runtime()
        with changing:
            self._asides = _thread.asides
            _thread.mode = weakref.ref(self, _died)
            _alive.add(_thread.mode)
            self.entered = True
            setattr(runtime, attribute, self)
            core.set_call_recorder(_on_call)

    def _stop(self, attribute: str) -> bool:
        """Ends that. Whether the runtime is still the one in which it began."""
        runtime = impl.get_runtime()
        with changing:
            mine = [ref for ref in _alive if ref() is self]
            for ref in mine:
                _forget_one(ref)
            if getattr(runtime, attribute) is self:
                setattr(runtime, attribute, None)
        return bool(mine)

    def _call(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


# Of modes that record. Weak: one that an interrupt kept from its exit ends with its `with` block,
# and one whose thread has ended with that thread's frames.
_alive: set[weakref.ref[Mode]] = set()
changing = RLock()  # who adds a mode or removes one


class _Thread(_local):
    asides = 0
    mode: weakref.ref[Mode] | None = None


_thread = _Thread()


def _forget_one(ref: weakref.ref[Mode]) -> None:
    _alive.discard(ref)
    if _thread.mode is ref:
        _thread.mode = None
    if not _alive:
        core.set_call_recorder(None)


def _died(ref: weakref.ref[Mode]) -> None:
    with changing:
        _forget_one(ref)


def _on_call(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    mode = recording()
    return run(kernel, args, kwargs) if mode is None else mode._call(kernel, args, kwargs)


def recording() -> Mode | None:
    """The mode that this thread's calls go to."""
    mode = _mine()
    return mode if mode is not None and mode._asides == _thread.asides else None


def _mine() -> Mode | None:
    ref = _thread.mode
    return ref() if ref is not None and ref in _alive else None


def run(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a kernel past the recorder."""
    return kernel(*args, **kwargs)  # which native code launches, amid `_on_call`


@contextmanager
def drawing_again(number: int) -> Iterator[None]:
    """Kernels draw the random numbers of an earlier launch, `core.last_drawn()`; 0: none did."""
    core.draw_again(number)
    try:
        yield
    finally:
        core.draw_again(0)


def check_not_nested(name: str) -> None:
    """Raises if this thread records already."""
    outer = _mine()
    if outer is not None:
        raise RuntimeError(
            f"`{name}` cannot be entered inside of a `{type(outer).__name__}`: derivatives are of first "
            "order only"
        )


@contextmanager
def aside() -> Iterator[None]:
    """Nothing that this thread calls meanwhile is recorded, but by a mode that begins meanwhile."""
    _thread.asides += 1
    try:
        yield
    finally:
        _thread.asides -= 1


@impl.on_reset
def _forget() -> None:
    with changing:
        _alive.clear()
        core.set_call_recorder(None)


def _forget_other_threads() -> None:
    global changing
    changing = RLock()
    _alive.intersection_update({_thread.mode} if _thread.mode is not None else ())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)
