"""Streams and events."""

from quadrants.lang._unavailable import declare as _declare
from quadrants.lang.graph import _Block

_declare(globals(), "create_event create_stream", "Event Stream")


def stream_parallel() -> _Block:
    """A block of a kernel that may run beside other such blocks; here they run one by one."""
    return _Block()


stream_parallel._qd_op = "stream_parallel"  # type: ignore[attr-defined]
