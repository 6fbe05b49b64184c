"""Builders of field trees and the moment when declarations become storage.

`qd.root` declares into the default builder, which becomes a tree at the next materialisation; a
`FieldsBuilder` becomes one when it is finalised. Native code is told whether anything is pending, so
that launches and accesses ask for a materialisation only then.

Each thread declares for itself: `qd.root` is a builder of the thread, and a launch waits for nobody's
`place` but its own thread's. What other threads have declared whole becomes storage with it. What a
thread has left half declared when it ended, or when a child was forked that does not have it, is
nobody's mistake; who has a node or field of it may go on with it.

A finaliser or signal handler may run at any step of its thread, and declare and launch. What it
declares amid a declaration goes into a tree of its own; amid a materialisation it makes storage of
what that has taken up as well, and a tree is made once.
"""

from __future__ import annotations

import os
import sys
from _thread import _local
from _weakref import ref
from collections.abc import Iterable
from itertools import compress
from typing import Any

from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang.exception import QuadrantsRuntimeError
from quadrants.lang.snode import SPARSE, SNode, amid, changes, depth_of_changes


class _Life:
    """Kept by a thread as long as it lives."""

    __slots__ = ("__weakref__",)


# Stands for a thread: one object as long as the thread lives or anything is known by it, and dead
# with the thread. (The number of a thread that has ended is given to another.)
_Thread = ref[_Life]
_own = _local()


def _this_thread() -> _Thread:
    try:
        return _own.thread
    except AttributeError:  # the first time; a handler amid this makes the same
        mine = _own.__dict__
        return mine.setdefault("thread", ref(mine.setdefault("life", _Life())))


class _State:
    """Declarations of the live runtime.

    Changed by single calls only, which no handler can cut in two, and walked as copies of `values()`
    (pairs would be allocated, where finalisers run).
    """

    def __init__(self) -> None:
        # By id:
        self.defaults: dict[int, FieldsBuilder] = {}  # behind `qd.root`
        self.making: dict[int, FieldsBuilder] = {}  # were, and become storage now
        self.open: dict[int, FieldsBuilder] = {}  # made by the user, not finalised
        self.unplaced: dict[int, Any] = {}  # fields declared without shape
        # Need a companion placed before the next launch; by its name and the field's id.
        self.wanting: dict[tuple[str, int], tuple[str, Any]] = {}
        self.roots: list[SNode] = []  # of finalised trees, by id


_state = _State()


class SNodeTree:
    """A finalised tree."""

    def __init__(self, number: int, prog: Any) -> None:
        self._number = number
        self._prog = prog
        self._destroyed = False

    @property
    def destroyed(self) -> bool:
        return self._destroyed

    @property
    def id(self) -> int:
        if self._destroyed:
            raise QuadrantsRuntimeError("SNode tree has been destroyed")
        return self._number

    def destroy(self) -> None:
        """Frees the storage. A tree of an earlier runtime is ignored."""
        if self._destroyed:
            raise QuadrantsRuntimeError("SNode tree has been destroyed")
        if self._prog is not impl.get_runtime()._prog:
            return
        core.destroy_tree(self._number)
        self._destroyed = True


class FieldsBuilder:
    """Builds one field tree.

    Its methods are those of `qd.root`; `finalize` makes it storage.
    """

    def __init__(self, *, _is_default: bool = False) -> None:
        state = _state  # before it is asked: another thread may reset the runtime
        impl.check_initialised()
        self._thread = _this_thread()
        self._depth = depth_of_changes()
        self._finalized = False
        self._claim = {"": True}  # emptied by who makes the tree
        self._tree: SNodeTree | None = None
        self._root = SNode(self, "root", None)
        if not _is_default:
            state.open[id(self)] = self
            core.set_fields_pending(True)

    @classmethod
    def _finalized_roots(cls) -> list[SNode]:
        """Root nodes in tree order."""
        return list(_state.roots)

    def _touch(self) -> None:
        core.set_fields_pending(True)

    def _open(self) -> SNode:
        self._root._open()
        return self._root

    def dense(self, indices: Any, dimensions: Any) -> SNode:
        """Adds a fixed array; see `SNode.dense`."""
        return self._open().dense(indices, dimensions)

    def pointer(self, indices: Any, dimensions: Any) -> SNode:
        """Adds pointers; see `SNode.pointer`."""
        return self._open().pointer(indices, dimensions)

    def bitmasked(self, indices: Any, dimensions: Any) -> SNode:
        """Adds a masked array; see `SNode.bitmasked`."""
        return self._open().bitmasked(indices, dimensions)

    def dynamic(self, index: Any, dimension: Any, chunk_size: Any = None) -> SNode:
        """Adds a growable list; see `SNode.dynamic`."""
        return self._open().dynamic(index, dimension, chunk_size)

    def quant_array(self, indices: Any, dimensions: Any, max_num_bits: int) -> SNode:
        """Adds a packed array; see `SNode.quant_array`."""
        return self._open().quant_array(indices, dimensions, max_num_bits)

    def place(self, *args: Any, offset: Any = None) -> FieldsBuilder:
        """Puts fields, 0-dimensional here, beside the containers."""
        self._open().place(*args, offset=offset)
        return self

    def lazy_grad(self) -> None:
        """Places the adjoint of every real field beside its primal."""
        self._open().lazy_grad()

    def lazy_dual(self) -> None:
        """Places the dual of every real field beside its primal."""
        self._open().lazy_dual()

    def deactivate_all(self) -> None:
        """Deactivates the cells of sparse nodes."""
        if not self._finalized:
            self._open()
        self._root.deactivate_all()

    def finalize(self, raise_warning: bool = True) -> SNodeTree:
        """Makes the declared fields storage.

        Args:
            raise_warning: warn if nothing was declared.
        """
        self._open()
        if not self._root._children and raise_warning:
            import warnings

            warnings.warn("Finalizing an empty FieldsBuilder!", stacklevel=2)
        return self._finalize_aside()

    @changes
    def _finalize_aside(self) -> Any:
        self._open()
        return self._finalize()

    def _finalize(self) -> SNodeTree | None:
        try:
            return self._make_tree()
        except RuntimeError:
            # It cannot be made as it is, or there is no memory: nobody else has to wait for it.
            if not self._finalized:
                _state.open.pop(id(self), None)
            raise

    def _make_tree(self) -> SNodeTree | None:
        """Makes the tree, unless a handler amid this has.

        A signal handler may raise anywhere: nothing is changed before the tree is made, by one call
        from which handlers are kept out, and what is changed then is changed again.
        """
        nodes = list(self._root._walk())
        numbers = {id(node): n for n, node in enumerate(nodes)}
        rows: list[tuple[Any, ...]] = []
        fields: dict[int, Any] = {}
        for node in nodes:
            up = -1 if node._up is None else numbers[id(node._up)]
            if node._kind == "place":
                field = node._field
                fields[id(field)] = field
                dtype = field._dtype.id
                rows.append((up, -2 - dtype if node._is_packed else dtype, (), ()))
                continue
            if not node._children and node._kind != "root":
                raise RuntimeError(
                    f"{node._kind} node must have at least one child. Place a field under the one of "
                    f"dimensions {node._dims}, or do not make it"
                )
            rows.append((up, -1, node._axes, node._dims))
        whole = [f for f in fields.values() if f._is_placed()]
        if any(node._word_bits for node in nodes):
            from quadrants.lang._data.packing import add_words

            add_words(self, nodes, rows, whole)
            numbers = {id(node): n for n, node in enumerate(nodes)}
        sparse = any(node._kind in SPARSE for node in nodes)
        activities: list[Any] = []
        if sparse:
            from quadrants.lang._data.activity import add_hidden

            activities = add_hidden(self, nodes, rows, whole)
            numbers = {id(node): n for n, node in enumerate(nodes)}
        for field in whole:
            if any(id(node) not in numbers for node in field._places):
                raise QuadrantsRuntimeError(
                    f"The components of field {field._name} are placed in different trees"
                )
        claimed = compress([(rows, sparse)], map(self._claim.pop, [""], [False]))
        making = map(core.make_tree, claimed, [[f._description(numbers, sparse) for f in whole]])
        made: list[Any] = []
        try:
            made.extend(making)
            return self._note_made(made, nodes, whole, activities) if made else self._tree
        except BaseException:
            if made:
                self._note_made(made, nodes, whole, activities)
            elif not self._finalized:
                self._claim[""] = True
            raise

    def _note_made(
        self, made: list[Any], nodes: list[SNode], whole: list[Any], activities: list[Any]
    ) -> SNodeTree:
        number, sizes = made[0]
        for activity in activities:
            activity.node._activity_here = activity
        for node, size in zip(nodes, sizes):
            node._sizes = size
        self._finalized = True
        self._tree = SNodeTree(number, impl.get_runtime()._prog)
        _state.roots[number : number + 1] = [self._root]  # a destroyed tree's number comes again
        if impl.current_cfg().print_struct_llvm_ir or os.environ.get("QD_DUMP_IR"):
            from quadrants.lang._inspect import inspection

            inspection.show_tree(self._root)
        _state.open.pop(id(self), None)
        for field in whole:
            field._bind_components()
        return self._tree


def default_builder() -> FieldsBuilder:
    """The builder behind `qd.root`."""
    if impl.get_runtime()._prog is None:
        if impl.is_python_backend():
            raise QuadrantsRuntimeError("field trees are not available on the Python backend")
        raise QuadrantsRuntimeError("Please call init() first")
    me, depth = _this_thread(), depth_of_changes()
    for builder in list(_state.defaults.values()):
        if builder._thread is me and builder._depth == depth:
            return builder
        if builder._thread() is None and not builder._root._children:
            _state.defaults.pop(id(builder), None)
    builder = FieldsBuilder(_is_default=True)
    _state.defaults[id(builder)] = builder
    return builder


def adopt(part: FieldsBuilder) -> None:
    """Adds what was declared apart to `qd.root`."""
    nodes = list(part._root._walk())[1:]
    children = part._root._children
    while children:
        builder = default_builder()
        for node in nodes:
            node._builder = builder
        for child in children:
            child._up = builder._root
        builder._root._children.extend(children)
        builder._touch()
        if not builder._finalized or children[0]._sizes:
            return
        del builder._root._children[-len(children) :]  # a handler made storage of it before


def declare_unplaced(field: Any) -> None:
    """Remembers a field that must be placed before the next materialisation."""
    field._declared_in = _this_thread()
    _state.unplaced[id(field)] = field
    core.set_fields_pending(True)


def declare_wanting(which: str, field: Any) -> None:
    """Remembers that the field's `grad` or `dual` must be placed."""
    _state.wanting[which, id(field)] = which, field


def note_placed(field: Any) -> None:
    """The field has all its places."""
    _state.unplaced.pop(id(field), None)


def forget_unplaced(args: Iterable[Any]) -> None:
    """Placing these fields, or lists of fields, failed, which was told: others do not wait for them."""
    for arg in args:
        for field in arg if isinstance(arg, list) else (arg,):
            _state.unplaced.pop(id(field), None)


def _open_of(thread: _Thread) -> list[FieldsBuilder]:
    return [builder for builder in list(_state.open.values()) if builder._thread is thread]


def _unplaced_of(thread: _Thread) -> list[Any]:
    return [field for field in list(_state.unplaced.values()) if field._declared_in is thread]


def _wanting_of(thread: _Thread) -> list[tuple[str, Any]]:
    """Companions that have no place."""
    return [
        (which, field)
        for which, field in list(_state.wanting.values())
        if field._declared_in is thread and not getattr(field, which)._is_placed()
    ]


def _drop_of_ended_threads(state: _State) -> None:
    """Forgets what would be reported to threads that are gone."""
    for builder in list(state.open.values()):
        if builder._thread() is None:
            state.open.pop(id(builder), None)
    for field in list(state.unplaced.values()):
        if field._declared_in() is None:
            state.unplaced.pop(id(field), None)
    for which, field in list(state.wanting.values()):
        if field._declared_in() is None:
            state.wanting.pop((which, id(field)), None)


def _check_declarations(thread: _Thread) -> None:
    if still_open := _open_of(thread):
        raise QuadrantsRuntimeError(f"Field builder {still_open[0]} is not finalized")
    if unplaced := _unplaced_of(thread):
        places = [field._declared_at for field in unplaced]
        raise QuadrantsRuntimeError(
            "These field(s) are not placed:\n" + "\n".join(places) + "\nGive them a shape, as in "
            "qd.field(qd.f32, shape=(2, 3)), or place them: qd.root.dense(qd.i, 3).place(x)"
        )
    wanting = _wanting_of(thread)
    for wanted in ("grad", "dual"):
        missing = [field for which, field in wanting if which == wanted]
        if missing:
            raise QuadrantsRuntimeError(
                f"These field(s) requrie `needs_{wanted}=True`, however their {wanted} field(s) are not placed:\n"
                + "\n".join(field._declared_at for field in missing)
            )


def _is_whole(builder: FieldsBuilder) -> bool:
    """Whether its thread seems to be done with declaring."""
    thread = builder._thread
    if thread() is not None and (_unplaced_of(thread) or _wanting_of(thread)):
        return False
    return all(
        node._field._is_placed() if node._kind == "place" else node._children or node._up is None
        for node in builder._root._walk()
    )


def _is_awaited(builder: FieldsBuilder) -> bool:
    """Whether a launch to come may make it storage without another declaration before."""
    return bool(builder._root._children) and (builder._thread() is not None or _is_whole(builder))


def _check_shapes(root: SNode) -> None:
    fields = {id(node._field): node._field for node in root._walk() if node._kind == "place"}
    for field in fields.values():
        field._check_component_shapes()


def _finish(builder: FieldsBuilder) -> None:
    """Makes the tree of a default builder, which is none from then on."""
    state, key = _state, id(builder)
    try:
        state.making[key] = builder
        state.defaults.pop(key, None)  # who declares amid this begins another
        builder._finalize()
    except (RuntimeError, MemoryError):
        raise  # it would fail again
    except BaseException:  # of a signal handler
        if not builder._finalized:
            state.defaults[key] = builder
        raise
    finally:
        state.making.pop(key, None)


_hook = impl._original_materialize.__code__


def end_declaration() -> None:
    """Makes storage at once in a handler amid the materialisation of a launch.

    Native code asks for no other meanwhile, and is in it before the first step here: the stack says.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _hook:
            return _make_storage(only_whole=True)
        frame = frame.f_back


@impl.on_materialize
def _materialise(runtime: Any, is_first: bool) -> None:
    _make_storage()


def _make_storage(only_whole: bool = False) -> None:
    """Of all that this thread has declared, which must be whole, and what is whole of others."""
    depth, state, me = depth_of_changes(), _state, _this_thread()
    with core.declaring:
        _drop_of_ended_threads(state)
        if not depth and not only_whole:  # else it is a handler, and they are of what it runs amid
            _check_declarations(me)
            for which, field in list(state.wanting.values()):
                if field._declared_in is me:
                    state.wanting.pop((which, id(field)), None)
        for builder in [*state.making.values(), *state.defaults.values()]:
            if builder._finalized or builder in amid[:depth] or not builder._root._children:
                continue
            is_own = builder._thread is me and builder._depth >= depth
            if (is_own and not only_whole) or _is_whole(builder):
                _check_shapes(builder._root)
                _finish(builder)
        try:
            core.set_fields_pending(False)
        finally:  # handlers declare, too
            left = any(map(_is_awaited, list(state.defaults.values())))
            if left or depth or state.open or state.unplaced:
                core.set_fields_pending(True)


@impl.on_reset
def _forget() -> None:
    global _state
    _state = _State()
