"""Streams and events.

On an NVIDIA GPU they are the driver's. On the CPU kernels run in the order of their calls, and a call
returns when its work is done: there is nothing to wait for, and the native handle of what the program
makes is 0.
"""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import Any

from quadrants._lib import core
from quadrants.lang.graph import _Block


class _Handle:
    """A native object of a program, or a foreign one that is only pointed at.

    Args:
        handle: native pointer as an integer.
        prog: the program that owns it; None for a foreign one, which `destroy` leaves alone.
    """

    def __init__(self, handle: int, prog: Any = None) -> None:
        self._handle = handle
        self._owner = None if prog is None else weakref.ref(prog)

    @property
    def handle(self) -> int:
        """The native handle; 0 on devices without streams and after `destroy()`."""
        return self._handle

    def _require_prog(self) -> Any:
        """The program whose queue is meant; `RuntimeError` if it owned this object and is gone."""
        from quadrants.lang.impl import get_runtime

        if self._owner is None:
            return get_runtime().prog
        prog = self._owner()
        if prog is None or get_runtime()._prog is not prog:
            raise RuntimeError(
                f"{type(self).__name__}'s owning Program has been destroyed (e.g. after qd.reset())"
            )
        return prog

    def synchronize(self) -> None:
        """Blocks until the work in front is done.

        Raises:
            RuntimeError: the program that made this object is gone, or the device failed.
        """
        prog = self._require_prog()
        getattr(prog, f"{self._kind}_synchronize")(self._handle)

    def destroy(self) -> None:
        """Waits for work in flight and frees the handle; harmless when repeated."""
        if self._owner is not None and self._handle:
            handle, self._handle = self._handle, 0
            owner: Any = self._owner() or core  # which may be gone before
            getattr(owner, f"{self._kind}_destroy")(handle)

    def __del__(self) -> None:
        if getattr(self, "_owner", None) is not None:
            self.destroy()

    _kind: str  # "stream" or "event": what the program's functions for it begin with

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.destroy()


class Stream(_Handle):
    """A queue of kernels: `kernel(..., qd_stream=stream)` runs in it, in order.

    Args:
        handle: native handle of a foreign stream, 0 for one without.
        prog: program that owns it, None for a foreign stream.
    """

    _kind = "stream"


class Event(_Handle):
    """A mark in a stream.

    Args:
        handle: native handle of a foreign event, 0 for one without.
        prog: program that owns it, None for a foreign event.
    """

    _kind = "event"

    def record(self, qd_stream: Stream | None = None) -> None:
        """Marks the current end of a stream.

        Args:
            qd_stream: the stream, the default one if None.

        Raises:
            AttributeError: `qd_stream` is not a stream.
            RuntimeError: the program that made this event is gone.
        """
        prog, stream = self._of(qd_stream)
        if self._handle:
            prog.event_record(self._handle, stream)

    def wait(self, qd_stream: Stream | None = None) -> None:
        """Lets later work of a stream wait for the mark; the host goes on.

        Args:
            qd_stream: the stream, the default one if None.

        Raises:
            AttributeError: `qd_stream` is not a stream.
            RuntimeError: the program that made this event is gone.
        """
        prog, stream = self._of(qd_stream)
        if self._handle:
            prog.stream_wait_event(stream, self._handle)

    def _of(self, stream: Stream | None) -> tuple[Any, int]:
        return self._require_prog(), 0 if stream is None else stream.handle


def create_stream() -> Stream:
    """A new stream of the running program; `QuadrantsRuntimeError` before `qd.init`."""
    program = _running_program()
    return Stream(program.stream_create(), program)


def create_event() -> Event:
    """A new event of the running program; `QuadrantsRuntimeError` before `qd.init`."""
    program = _running_program()
    return Event(program.event_create(), program)


def _running_program() -> Any:
    from quadrants.lang.impl import get_runtime

    return get_runtime().prog


def stream_parallel() -> _Block:
    """A block of a kernel that may run beside other such blocks: on a GPU they do, from the second launch on."""
    return _Block()


stream_parallel._qd_op = "stream_parallel"  # type: ignore[attr-defined]
