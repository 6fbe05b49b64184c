"""Cells of sparse trees in kernels: activity, lists of active cells, growable lists.

The records are those of `lang/_data/activity.py`: `a` stands for the activity of a sparse node,
`cell` for the indices of one of its cells, one per axis of the node; `c` tells how elements lie in
such cells. Writes to elements here activate nothing.

A cell's bit is set after those of the cells above it, so who finds it set need not look further.
"""

import quadrants as qd
from quadrants.lang._ops.kernel_ops import index_vector, struct_leaf
from quadrants.lang.kernel_impl import func, kernel
from quadrants.lang.snode import activity_for


@func
def number(a: qd.template(), cell):
    n = qd.cast(0, qd.i64 if qd.static(a.is_wide) else qd.i32)
    for k in qd.static(range(a.rank)):
        n = n * a.grid[k] + cell[k]
    return n


@func
def owner_number(a: qd.template(), cell):
    """Of the list that a cell of a dynamic node is in."""
    n = 0
    for k in qd.static(range(a.rank)):
        if qd.static(k != a.axis):
            n = n * a.grid[k] + cell[k]
        elif qd.static(a.is_divided):
            n = n * (a.grid[k] // a.dim) + cell[k] // a.dim
    return n


@func
def list_number(a: qd.template(), owner):
    n = 0
    for k in qd.static(range(a.owner_rank)):
        n = n * a.owner_grid[k] + owner[k]
    return n


@func
def is_set(a: qd.template(), cell):
    found = False
    if qd.static(a.is_list):
        found = cell[a.axis] % a.dim < a.length[owner_number(a, cell)]
    else:
        n = number(a, cell)
        found = (a.mask[n >> 5] >> qd.cast(n & 31, qd.u32)) & qd.u32(1) != 0
    return found


@func
def set_active(a: qd.template(), cell):
    """Those above it are active."""
    if qd.static(a.is_list):
        at = owner_number(a, cell)
        needed = cell[a.axis] % a.dim + 1
        if a.length[at] < needed:
            more = chunks(a, needed) - chunks(a, qd.atomic_max(a.length[at], needed))
            if more > 0:
                count_more(a, more)
    else:
        n = number(a, cell)
        word = n >> 5
        bit = qd.u32(1) << qd.cast(n & 31, qd.u32)
        if a.mask[word] & bit == 0:
            before = qd.atomic_or(a.mask[word], bit)
            if before & bit == 0:
                if before == 0:
                    mark_above(a, 1, word)
                count_more(a, 1)
                qd.atomic_add(a.state[2], 1)


@func
def count_more(a: qd.template(), more):
    """Cells that become active, or chunks that lists begin."""
    qd.atomic_max(a.state[1], qd.atomic_add(a.state[0], more) + more)


@func
def chunks(a: qd.template(), length):
    """How many a list of this length lies in."""
    return (length - 1) // a.chunk + 1


@func
def mark_above(a: qd.template(), level: qd.template(), n):
    """A word of the level below is no longer 0."""
    if qd.static(level < len(a.levels)):
        word = n >> 5
        before = qd.atomic_or(a.levels[level][word], qd.u32(1) << qd.cast(n & 31, qd.u32))
        if before == 0:
            mark_above(a, level + 1, word)


@func
def cell_of(c: qd.template(), level: qd.template(), at):
    """The cell of a sparse node that an element lies in."""
    return qd.Vector([at[axis] // per for axis, per in qd.static(c.steps[level])], qd.i32)


@func
def without_offset(c: qd.template(), index):
    at = index
    if qd.static(c.has_offset):
        at = index - qd.Vector(c.offset, qd.i32)
    return at


@func
def activate_path(c: qd.template(), at):
    for level in qd.static(range(len(c.path))):
        set_active(c.path[level], cell_of(c, level, at))


@func
def touch(c: qd.template(), index, checked: qd.template()):
    """An element is about to be written."""
    at = without_offset(c, index)
    inside = True
    if qd.static(checked):  # what is outside is reported by the write
        for k in qd.static(range(c.rank)):
            inside = inside and 0 <= at[k] and at[k] < c.shape[k]
    if inside:
        if not is_set(c.last, cell_of(c, len(c.path) - 1, at)):
            activate_path(c, at)


@func
def is_there(c: qd.template(), index):
    """Whether an element's cell is active."""
    return is_set(c.last, cell_of(c, len(c.path) - 1, without_offset(c, index)))


# --- clearing ---


@func
def inside_box(b: qd.template(), cell, t):
    """The t-th of what lies in a cell."""
    return qd.Vector(
        [
            t // b.inner[k] % b.extents[k]
            + (cell[b.at[k]] * b.extents[k] if qd.static(b.at[k] >= 0) else 0)
            + b.offset[k]
            for k in qd.static(range(b.rank))
        ],
        qd.i32,
    )


@func
def unset(a: qd.template(), cell):
    """True if it was active."""
    n = number(a, cell)
    bit = qd.u32(1) << qd.cast(n & 31, qd.u32)
    was = qd.atomic_and(a.mask[n >> 5], ~bit) & bit != 0
    if was:
        qd.atomic_sub(a.state[0], 1)
        qd.atomic_add(a.state[2], 1)
    return was


@func
def clear(a: qd.template(), cell):
    for k in qd.static(range(len(a.data))):
        for t in range(a.data[k].size):
            a.data[k].target[inside_box(a.data[k], cell, t)] = 0
    for k in qd.static(range(len(a.masks))):
        for t in range(a.masks[k].size):
            below = inside_box(a.masks[k], cell, t)
            if is_set(a.masks[k].target, below):
                if unset(a.masks[k].target, below):
                    clear(a.masks[k].target, below)
    for k in qd.static(range(len(a.lengths))):
        for t in range(a.lengths[k].size):
            clear_list(a.lengths[k].target, inside_box(a.lengths[k], cell, t))


@func
def clear_list(a: qd.template(), owner):
    count = qd.min(qd.atomic_min(a.length[list_number(a, owner)], 0), a.dim)
    qd.atomic_sub(a.state[0], chunks(a, count))
    for i in range(count):
        clear(a, in_list(a, owner, i))


@func
def in_list(a: qd.template(), owner, i):
    """The i-th cell of a list."""
    return qd.Vector(
        [
            (owner[k] * a.dim + i if qd.static(a.is_divided) else i)
            if qd.static(k == a.axis)
            else owner[qd.static(k if a.is_divided or k < a.axis else k - 1)]
            for k in qd.static(range(a.rank))
        ],
        qd.i32,
    )


# --- lists of active cells ---


@func
def put(a: qd.template(), at, cell):
    for k in qd.static(range(a.rank)):
        a.lists[k][at] = cell[k]


@func
def cell_with_number(a: qd.template(), n):
    cell = qd.Vector.zero(qd.i32, a.rank)
    rest = n
    for k in qd.static(range(a.rank - 1, -1, -1)):
        cell[k] = qd.cast(rest % a.grid[k], qd.i32)
        rest = rest // a.grid[k]
    return cell


@func
def list_masked(a: qd.template()):
    """Lists the cells in the order of their numbers, unless none has changed since."""
    if a.state[2] != a.state[3]:
        a.state[3] = a.state[2]
        top = qd.cast(0, qd.i64 if qd.static(a.is_wide) else qd.i32)
        a.state[4] = list_below(a, len(a.levels) - 1, top, 0)


@func
def list_below(a: qd.template(), level: qd.template(), word, count):
    """Lists what a word of a level stands for; how many cells are listed then."""
    found = count
    bits = a.levels[level][word]
    while bits != 0:
        low = bits & (~bits + qd.u32(1))
        bits = bits ^ low
        n = word * 32 + qd.cast(
            qd.math.popcnt(low - qd.u32(1)), qd.i64 if qd.static(a.is_wide) else qd.i32
        )
        if qd.static(level == 0):
            put(a, found, cell_with_number(a, n))
            found += 1
        else:
            if a.levels[level - 1][n] == 0:  # all has been deactivated since
                a.levels[level][word] = a.levels[level][word] ^ low
            else:
                found = list_below(a, level - 1, n, found)
    return found


@func
def list_one(a: qd.template(), owner, found):
    n = found
    for i in range(a.length[list_number(a, owner)]):
        put(a, n, in_list(a, owner, i))
        n += 1
    return n


@func
def list_grown(a: qd.template()):
    if a.state[5] == 0:  # always: in one thread
        found = 0
        if qd.static(a.is_owned):
            owners = collect(a.owner.last)
            for e in range(owners):
                for t in range(a.owner.size):
                    found = list_one(a, in_listed(a.owner, e, t), found)
        else:
            for n in range(a.length.shape[0]):
                found = list_one(a, owner_with_number(a, n), found)
        a.state[4] = found


@func
def in_listed(c: qd.template(), e, t):
    """The t-th element of the e-th listed cell."""
    return qd.Vector(
        [
            t // c.inner[k] % c.ratio[k]
            + (c.last.lists[c.at[k]][e] * c.ratio[k] if qd.static(c.at[k] >= 0) else 0)
            for k in qd.static(range(c.rank))
        ],
        qd.i32,
    )


@func
def collect(a: qd.template()):
    """Lists the active cells; how many there are."""
    if qd.static(a.is_list):
        list_grown(a)
    else:
        list_masked(a)
    return a.state[4]


# On a GPU, whose one thread would take long: tasks over words and lists, which take places for their
# cells as they come.


@func
def list_masked_in_parallel(a: qd.template()):
    words = 0
    if a.state[2] != a.state[3]:
        a.state[3] = a.state[2]
        a.state[4] = 0
        words = a.levels[a.level_of_tasks].shape[0]
    for w in range(words):
        list_word(a, a.level_of_tasks, qd.cast(w, qd.i64 if qd.static(a.is_wide) else qd.i32))


@func
def list_word(a: qd.template(), level: qd.template(), word):
    """Lists what a word of a level stands for, where there is room."""
    bits = a.levels[level][word]
    at = 0
    if qd.static(level == 0):
        if bits != 0:
            at = qd.atomic_add(a.state[4], qd.cast(qd.math.popcnt(bits), qd.i32))
    while bits != 0:
        low = bits & (~bits + qd.u32(1))
        bits = bits ^ low
        n = word * 32 + qd.cast(
            qd.math.popcnt(low - qd.u32(1)), qd.i64 if qd.static(a.is_wide) else qd.i32
        )
        if qd.static(level == 0):
            put(a, at, cell_with_number(a, n))
            at += 1
        else:
            if a.levels[level - 1][n] == 0:  # all has been deactivated since
                a.levels[level][word] = a.levels[level][word] ^ low
            else:
                list_word(a, level - 1, n)


@func
def take_places(a: qd.template(), owner):
    count = a.length[list_number(a, owner)]
    if count > 0:
        at = qd.atomic_add(a.state[4], count)
        for i in range(count):
            put(a, at + i, in_list(a, owner, i))


@func
def list_grown_in_parallel(a: qd.template()):
    if qd.static(a.is_owned):
        owners = collect_in_parallel(a.owner.last)
        a.state[4] = 0
        for e, t in qd.ndrange(owners, qd.static(a.owner.size)):
            take_places(a, in_listed(a.owner, e, t))
    elif qd.static(a.length.shape[0] == 1):
        a.state[4] = a.length[0]
        for i in range(a.length[0]):
            put(a, i, in_list(a, qd.Vector.zero(qd.i32, max(a.owner_rank, 1)), i))
    else:
        a.state[4] = 0
        for n in range(qd.static(a.length.shape[0])):
            take_places(a, owner_with_number(a, n))


@func
def owner_with_number(a: qd.template(), n):
    owner = qd.Vector.zero(qd.i32, max(a.owner_rank, 1))
    rest = n
    for k in qd.static(range(a.owner_rank - 1, -1, -1)):
        owner[k] = rest % a.owner_grid[k]
        rest = rest // a.owner_grid[k]
    return owner


@func
def collect_in_parallel(a: qd.template()):
    """As `collect`, at the top level of a kernel."""
    if qd.static(a.is_list):
        list_grown_in_parallel(a)
    else:
        list_masked_in_parallel(a)
    return a.state[4]


# --- operations of users ---


@func
def check_cell(a: qd.template(), at):
    for k in qd.static(range(a.rank)):
        assert 0 <= at[k] and at[k] < a.grid[k], a.outside


@func
def check_owner(a: qd.template(), at):
    for k in qd.static(range(a.owner_rank)):
        assert 0 <= at[k] and at[k] < a.owner_grid[k], a.outside


@func
def is_active(node: qd.template(), indices):
    """Whether a cell of a pointer or bitmasked node is active.

    Args:
        node: sparse node.
        indices: int, list of integers or integer vector: which cell of the node.

    Raises:
        QuadrantsTypeError: the node is not of these kinds.
    """
    a = qd.static(activity_for("is_active", node))
    at = index_vector(indices, a.rank, a.name)
    check_cell(a, at)
    return is_set(a, at)


@func
def activate(node: qd.template(), indices):
    """Activates a cell of a sparse node, and those above it; new cells are zero.

    Args:
        node: pointer, bitmasked or dynamic node; of a dense one nothing happens.
        indices: int, list of integers or integer vector: which cell; of a dynamic node, which list.

    Raises:
        QuadrantsRuntimeError: a field is given.
        QuadrantsTypeError: the node is not of these kinds.
    """
    a = qd.static(activity_for("activate", node))
    if qd.static(not a):
        index_vector(indices, qd.static(len(node.shape)), node._name)
    elif qd.static(a.is_list):
        owner = index_vector(indices, a.owner_rank, a.name)
        check_owner(a, owner)
        activate_path(node._cells, in_list(a, owner, 0))
    else:
        at = index_vector(indices, a.rank, a.name)
        check_cell(a, at)
        activate_path(node._cells, at)


@func
def deactivate(node: qd.template(), indices):
    """Deactivates a cell of a sparse node and clears what lies below it.

    Args:
        node: pointer, bitmasked or dynamic node; of a dense one nothing happens.
        indices: int, list of integers or integer vector: which cell; of a dynamic node, which list.

    Raises:
        QuadrantsRuntimeError: a field is given.
        QuadrantsTypeError: the node is not of these kinds.
    """
    a = qd.static(activity_for("deactivate", node))
    if qd.static(not a):
        index_vector(indices, qd.static(len(node.shape)), node._name)
    elif qd.static(a.is_list):
        owner = index_vector(indices, a.owner_rank, a.name)
        check_owner(a, owner)
        if a.length[list_number(a, owner)] > 0:
            clear_list(a, owner)
    else:
        at = index_vector(indices, a.rank, a.name)
        check_cell(a, at)
        if unset(a, at):
            clear(a, at)


@func
def append(node: qd.template(), indices, val):
    """Appends a value to a list of a dynamic node.

    Args:
        node: dynamic node.
        indices: which list: list of integers or integer vector.
        val: value or struct, cast to the types of the fields.

    Returns:
        The slot that was taken, an i32; the list's capacity or more if it is full.

    Raises:
        QuadrantsTypeError: the node is not dynamic.
    """
    a = qd.static(activity_for("append", node))
    at = index_vector(indices, a.owner_rank, a.name)
    check_owner(a, at)
    slot = qd.atomic_add(a.length[list_number(a, at)], 1)
    if slot < a.dim:
        if slot % a.chunk == 0:
            count_more(a, 1)
        cell = in_list(a, at, slot)
        for level in qd.static(range(len(a.path) - 1)):
            set_active(a.path[level], cell_of(node._cells, level, cell))
        for k in qd.static(range(len(a.elements))):
            if qd.static(len(a.elements) == 1):
                a.elements[k][cell] = val
            else:
                a.elements[k][cell] = struct_leaf(val, k)
    else:
        qd.atomic_min(a.length[list_number(a, at)], a.dim)  # which may be emptied meanwhile
    return slot


@func
def length(node: qd.template(), indices):
    """Number of elements in a list of a dynamic node, an i32.

    Args:
        node: dynamic node.
        indices: which list: list of integers or integer vector.

    Raises:
        QuadrantsRuntimeError: a field is given.
        QuadrantsTypeError: the node is not dynamic.
    """
    a = qd.static(activity_for("length", node))
    at = index_vector(indices, a.owner_rank, a.name)
    check_owner(a, at)
    return a.length[list_number(a, at)]


@kernel
def deactivate_cells(node: qd.template()):
    for cell in qd.grouped(node):
        if qd.static(node._activity_here.is_list):
            deactivate_list(node._activity_here, cell)
        else:
            deactivate(node, cell)


@func
def deactivate_list(a: qd.template(), cell):
    """Of which a cell is visited: each list once, at its first."""
    if cell[a.axis] % a.dim == 0:
        n = owner_number(a, cell)
        count = qd.min(a.length[n], a.dim)
        a.length[n] = 0
        qd.atomic_sub(a.state[0], chunks(a, count))
        for i in range(count):
            at = cell
            at[a.axis] = cell[a.axis] + i
            clear(a, at)


@kernel
def fill_real(x: qd.template(), value: qd.f64):
    for at in qd.grouped(x):
        x[at] = qd.cast(value, x.dtype)


@kernel
def fill_integer(x: qd.template(), value: qd.i64):
    for at in qd.grouped(x):
        x[at] = qd.cast(value, x.dtype)


@func
def moved(at, source: qd.template(), target: qd.template()):
    """An index of one field as the other has it, which may have another offset."""
    found = at
    for k in qd.static(range(len(source.shape))):
        if qd.static(source.snode._index_offset):
            found[k] -= source.snode._index_offset[k]
        if qd.static(target.snode._index_offset):
            found[k] += target.snode._index_offset[k]
    return found


@kernel
def copy_cells(source: qd.template(), target: qd.template()):
    """What is active in the source becomes so in the target."""
    for at in qd.grouped(target):
        target[at] = qd.cast(source[moved(at, target, source)], target.dtype)
    for at in qd.grouped(source):
        store_active(target, moved(at, source, target), source[at])


@func
def store_active(target: qd.template(), at, value):
    for k in qd.static(range(len(target._cells))):
        activate_path(target._cells[k], without_offset(target._cells[k], at))
    target[at] = qd.cast(value, target.dtype)
