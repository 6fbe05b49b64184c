"""Adding to sparse matrix builders in kernels."""

import quadrants as qd
from quadrants.lang.kernel_impl import func


@func
def number_of(index):
    """An index as it is kept; -1, which `build` refuses, if no matrix has it."""
    number = qd.cast(index, qd.i32)
    return number if number == index else -1


@func
def insert(A: qd.template(), row, column, value, negated: qd.template()):
    """What has no room is counted, and reported by `build`."""
    at = qd.atomic_add(A.count[0], 1)
    if at < A.values.shape[0]:
        A.rows[at] = number_of(row)
        A.columns[at] = number_of(column)
        v = qd.cast(value, A.values.dtype)
        A.values[at] = -v if qd.static(negated) else v
