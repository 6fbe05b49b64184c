"""Methods of fields inside kernels, written in the language itself."""

from __future__ import annotations

import quadrants as qd
from quadrants.lang.kernel_impl import func


@func
def fill(field: qd.template(), value):
    """Sets every element of a field."""
    for index in qd.grouped(field):
        field[index] = value
