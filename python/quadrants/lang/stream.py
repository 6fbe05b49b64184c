"""Streams and events."""

from quadrants.lang._unavailable import declare as _declare

_declare(globals(), "create_event create_stream stream_parallel", "Event Stream")
