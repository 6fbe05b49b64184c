"""What `kernel._primal` shows of a kernel's inside, computed when asked for.

Specialisations live in the native kernel, most recently used first; the tables here are views.
Methods that test doubles replace on the class (`launch_kernel` and `materialize` here, two of the
program's) are called only while they are replaced: replacing one switches the native launch to
`_call_doubles`.
"""

from __future__ import annotations

import weakref
from typing import Any

from quadrants._lib import core
from quadrants.lang import _program
from quadrants.lang._program import WatchedClass

# Types of arguments that are never in the way of an entry: most calls need not ask `why_not`, whose
# module a warm start then does without.
_PLAIN = (int, float, bool, type(None))


_FIELDS = "__dataclass_fields__"
_members: dict[type, tuple[tuple[str, Any, bool], ...]] = {}  # of dataclasses, but arrays


def _members_of(cls: type) -> tuple[tuple[str, Any, bool], ...]:
    """Name and annotation of each member that may be a number, and whether its value counts."""
    found = _members.get(cls)
    if found is None:
        found = _members[cls] = tuple(
            (
                f.name,
                f.type,
                bool(f.metadata.get("add_value_to_cache_key")) or "Final[" in str(f.type),
            )
            for f in getattr(cls, _FIELDS).values()
            if type(f.type).__name__ != "NDArray"
        )
    return found


def _kind_of(annotation: Any, arg: Any) -> str:
    """What an argument's type adds to the key: of a dataclass what is declared, not its name."""
    cls = type(arg)
    if hasattr(cls, _FIELDS):
        declared = (
            annotation if isinstance(annotation, type) and hasattr(annotation, _FIELDS) else cls
        )
        return str([_member_kind(arg, *member) for member in _members_of(declared)])
    if getattr(cls, "_data_oriented", False):
        return "data-oriented"
    has_gradient = isinstance(arg, core.NdarrayBase) and arg.grad is not None
    return f"{cls.__module__}.{cls.__qualname__}" + (" with gradient" if has_gradient else "")


def _member_kind(arg: Any, name: str, annotation: Any, has_value: bool) -> tuple[str, str]:
    member = getattr(arg, name, None)
    if isinstance(member, (core.NdarrayBase, core.TensorBase)):
        return name, ""
    kind = _kind_of(annotation, member)
    return name, f"{kind}={member}" if has_value else kind


class GraphLoop:
    """A do-while loop of a graph kernel."""

    def __init__(self, cond_arg_name: str, parent_id: int, cond_cpp_arg_id: int) -> None:
        self.cond_arg_name = cond_arg_name
        self.parent_id = parent_id
        self.cond_cpp_arg_id = cond_cpp_arg_id


class _Mapper:
    """Specialisations by what their arguments are."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    @property
    def _mapping_cache(self) -> dict[Any, Any]:
        return self._kernel._identities().calls

    @property
    def _mapping_cache_tracker(self) -> dict[Any, Any]:
        return self._kernel._identities().call_tracker

    @property
    def mapping(self) -> dict[Any, int]:
        from quadrants._compat.specialisations import features

        return {features(self._kernel, s): s["number"] for s in self._kernel._in_order()}

    def lookup(self, raise_on_templated_floats: bool, args: tuple[Any, ...]) -> Any:
        from quadrants._compat.template_mapper import TemplateMapper

        if not hasattr(self, "_numbered"):
            self._numbered = TemplateMapper(self._kernel.arg_metas)
        return self._numbered.lookup(raise_on_templated_floats, args)


class _LaunchContexts:
    """Prepared launches: native here, so these are the calls that the chapter would prepare."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    @property
    def _launch_ctx_cache(self) -> dict[Any, Any]:
        return self._kernel._identities().launches

    @property
    def _launch_ctx_cache_tracker(self) -> dict[Any, Any]:
        return self._kernel._identities().launch_tracker


class LaunchContext:
    """A call of a kernel: what `prog.launch_kernel` launches.

    Args:
        kernel: the native one.
        args: of the call.
        kwargs: `qd_stream`, if it was given.
    """

    def __init__(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._call = kernel, args, kwargs
        self._result: Any = None

    def _launch(self) -> None:
        self._result = core.launch_undoubled(*self._call)


class KernelFace(metaclass=WatchedClass):
    """The part of a kernel's definition that only outside code uses."""

    _DOUBLED = ("launch_kernel", "materialize")
    _native: Any = None  # weak reference to the native kernel
    _state: Any = None
    _events: tuple[Any, ...] = ()
    runtime_ops: Any = None

    # Of the definition.
    fn: Any
    params: Any
    graph: Any
    derivative: int
    checkpoints: Any

    def _made(self, native: Any) -> Any:
        self._native = weakref.ref(native)
        return native

    # --- observations ---

    def _observed(self) -> dict[str, Any]:
        """The records of the live program; a new program starts with new ones."""
        from quadrants.lang.impl import pyquadrants

        state = self._state
        if state is None or state["program"] is not pyquadrants._prog:
            from quadrants._compat import observations

            state = self._state = {
                "program": pyquadrants._prog,
                "src_ll_cache_observations": observations.SrcLlCacheObservations(),
                "fe_ll_cache_observations": observations.FeLlCacheObservations(),
                "launch_observations": observations.LaunchObservations(),
                "mapper": _Mapper(self),
                "launch_context_buffer_cache": _LaunchContexts(self),
                "identities": None,
                "built_at": -1,
            }
        events, self._events = self._events, ()
        for event in events:
            if event[0] is state["program"]:
                self._record(state, *event[1:])
        return state

    def _built(self, compiled: bool, cacheable: bool, call: Any) -> None:
        """Native code calls this for each new specialisation, whether its code was compiled for it.

        What was loaded is kept as it comes and looked at when somebody asks: a warm start should not
        pay for records. `call`, for kernels declared pure: the specialisation's number, the
        arguments, the functions that it depends on, and the specialisation.
        """
        from quadrants.lang.impl import pyquadrants

        self._compiled = compiled
        native = self._native and self._native()
        launches = native._launches if native is not None else None
        entry: Any = None
        if call is not None and pyquadrants.src_ll_cache:
            number, args, functions, described = call
            arrays = core.NdarrayBase, core.TensorBase
            if cacheable and all(
                type(a) in _PLAIN or isinstance(a, arrays) or type(a).__name__ == "ndarray"
                for a in args
            ):
                why = None
            else:
                from quadrants._compat.fast_arguments import why_not

                why = why_not(self, args, cacheable)
            if why is None:
                annotations = (row[1] for row in self.params)
                kinds = tuple(map(_kind_of, annotations, args))
                entry = number, kinds, functions, described
                if described is not None:
                    entry = self._note_entry(compiled, *entry)
        program = pyquadrants._prog
        of_this = self._events if self._events and self._events[0][0] is program else ()
        self._events = (*of_this, (program, compiled, entry, launches))

    def _note_entry(
        self, compiled: bool, number: int, kinds: tuple[str, ...], functions: Any, described: Any
    ) -> tuple[bool, bool]:
        """Whether the entry in the side cache was valid, and whether it was written."""
        from quadrants._compat import side_entries

        if described is None:
            described = next((s for s in self._specialisations() if s["number"] == number), None)
        if described is None:
            return True, False  # dropped meanwhile
        try:
            key = side_entries.key_of(self, kinds, functions, described)
        except side_entries.Gone:
            return True, False
        except Exception:  # what values do to be written: a __str__ that raises, too many digits
            return False, False
        if key is None:
            return False, False
        valid = side_entries.validate(key)
        stored = (compiled or not valid) and side_entries.store(key, functions, described)
        return valid, stored

    def _record(
        self, state: dict[str, Any], compiled: bool, entry: Any, launches: int | None
    ) -> None:
        seen = state["src_ll_cache_observations"]
        fast = False
        if entry is not None:
            valid, stored = entry if len(entry) == 2 else self._note_entry(compiled, *entry)
            fast = valid and not compiled
            seen.cache_key_generated = True
            seen.cache_validated |= valid
            seen.cache_loaded |= fast
            seen.cache_stored |= stored
        state["built_at"] = -1 if launches is None or fast else launches
        if not compiled and not fast:
            state["fe_ll_cache_observations"].cache_hit = True

    @property
    def launch_observations(self) -> Any:
        state = self._observed()
        native = self._native and self._native()
        state["launch_observations"].found_kernel_in_materialize_cache = bool(
            native is not None
            and native._launches > 0
            and native._launches not in (state["built_at"], native._refused)
        )
        return state["launch_observations"]

    def _identities(self) -> Any:
        """The tables of the live program, which note calls from now on."""
        state = self._observed()
        if state["identities"] is None:
            from quadrants._compat.identity_tables import IdentityTables

            annotations = [row[1] for row in self.params]
            state["identities"] = IdentityTables(annotations, self._in_order())
            if state["program"] is not None and core.native_loaded():
                _program.watched = state["program"]
                core.set_kernel_doubles(True)
        return state["identities"]

    @property
    def launch_stats(self) -> Any:
        from quadrants._compat.observations import counted

        made = self._specialisations()
        return counted(made[-1]["bound"] if made else ())

    # --- specialisations ---

    def _live(self) -> Any:
        native = self._native and self._native()
        return native if native is not None and core.native_loaded() else None

    def _specialisations(self) -> list[dict[str, Any]]:
        """What there is in the live runtime, numbered in order of creation, the last used last."""
        from quadrants.lang.impl import pyquadrants

        native = self._live()
        if native is None or pyquadrants._prog is None:
            return []
        made: list[dict[str, Any]] = native._specialisations[::-1]
        for s in made:
            s["key"] = (self.fn, s["number"], self.autodiff_mode)
        return made

    def _in_order(self) -> list[dict[str, Any]]:
        return sorted(self._specialisations(), key=lambda s: s["number"])

    @property
    def autodiff_mode(self) -> Any:
        names = ("NONE", "REVERSE", "FORWARD", "VALIDATION")  # as `derivative` numbers them
        return getattr(core.AutodiffMode, names[self.derivative])

    @property
    def materialized_kernels(self) -> dict[Any, Any]:
        from quadrants._compat.specialisations import MaterializedKernel

        return {s["key"]: MaterializedKernel(self, s["number"]) for s in self._in_order()}

    @property
    def compiled_kernel_data_by_key(self) -> dict[Any, Any]:
        from quadrants._compat.specialisations import data_of

        return {s["key"]: data_of(s) for s in self._in_order()}

    @property
    def _last_compiled_kernel_data(self) -> Any:
        return self.compiled_kernel_data_by_key.get(self._last_launch_key)

    @property
    def _last_launch_key(self) -> Any:
        made = self._specialisations()
        return made[-1]["key"] if made else None

    @property
    def used_py_dataclass_parameters_by_key_enforcing(self) -> dict[Any, set[str]]:
        from quadrants._compat.specialisations import used_members

        return {s["key"]: used_members(s) for s in self._in_order()}

    def reset(self) -> None:
        """Drops the specialisations."""
        if (native := self._live()) is not None:
            core.forget_kernel(native)

    # --- graphs ---

    @property
    def use_graph(self) -> bool:
        return self.graph

    @property
    def use_checkpoints(self) -> bool:
        return self.checkpoints

    def _graph_tables(self) -> tuple[list[tuple[str, int]], list[tuple[Any, str | None]]]:
        """Loops (flag, parent) and checkpoints (label, flag) of the graph launched last."""
        native = self._live()
        return ([], []) if native is None else native._graph_tables

    def _flag_ids(self) -> dict[str | None, int]:
        from quadrants._compat.side_entries import flag_ids

        return flag_ids(*self._graph_tables())

    @property
    def graph_do_while_levels(self) -> list[GraphLoop]:
        ids = self._flag_ids()
        return [GraphLoop(flag, parent, ids[flag]) for flag, parent in self._graph_tables()[0]]

    @property
    def graph_do_while_arg(self) -> str | None:
        loops = self._graph_tables()[0]
        return loops[0][0] if loops else None

    @property
    def checkpoint_yield_on_args(self) -> list[str | None]:
        return [flag for _, flag in self._graph_tables()[1]]

    @property
    def checkpoint_yield_on_cpp_arg_ids(self) -> list[int]:
        ids = self._flag_ids()
        return [ids.get(flag, -1) for _, flag in self._graph_tables()[1]]

    @property
    def checkpoint_user_labels_by_cp_id(self) -> list[Any]:
        return [label for label, _ in self._graph_tables()[1]]

    # --- launching in steps ---

    def ensure_compiled(self, *args: Any) -> Any:
        """Compiles the specialisation for these arguments; returns its key. Errors say of which kernel."""
        try:
            core.prepare_kernel(self._live(), args)
        except Exception as e:
            if "trying to ensure compiled" in str(e):
                raise
            try:
                told = type(e)(f"exception while trying to ensure compiled {self.fn}:\n{e}")
            except Exception:  # made of something else than a text
                raise e from None
            raise told from e
        return self._last_launch_key

    def materialize(
        self, key: Any = None, py_args: tuple[Any, ...] = (), arg_features: Any = None
    ) -> None:
        """Makes the specialisation for these arguments."""
        self._fresh = core.prepare_kernel(self._live(), tuple(py_args))

    def launch_kernel(
        self, key: Any, t_kernel: Any, compiled_kernel_data: Any, *args: Any, qd_stream: Any = None
    ) -> Any:
        """Launches the specialisation for these arguments."""
        from quadrants.lang.impl import get_runtime

        prog = get_runtime().prog
        if compiled_kernel_data is None:
            compiled = prog.compile_kernel(prog.config(), prog.get_device_caps(), t_kernel)
            compiled_kernel_data = compiled.compiled_kernel_data
        named = {} if qd_stream is None else {"qd_stream": qd_stream}
        context = LaunchContext(self._live(), args, named)
        prog.launch_kernel(compiled_kernel_data, context)
        return context._result

    def _call_doubles(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            rest = [name for name, _annotation, _default in self.params[len(args) :]]
            args += tuple(kwargs.pop(name) for name in rest if name in kwargs)
        if not _program.doubled:
            return self._call_noted(args, kwargs)
        from quadrants._compat.specialisations import MaterializedKernel

        self._fresh = 0
        self._compiled = False
        self.materialize(self._last_launch_key, args, None)
        loaded = self._observed()["src_ll_cache_observations"].cache_loaded
        data = None if self._fresh and not loaded else self._last_compiled_kernel_data
        key = self._last_launch_key
        kernel = MaterializedKernel(self, key[1] if key else 0, self._compiled)
        return self.launch_kernel(key, kernel, data, *args, **kwargs)

    def _call_noted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from quadrants.lang.impl import pyquadrants

        if _program.watched is not pyquadrants._prog:
            _program.watched = None
            core.set_kernel_doubles(False)
        result = core.launch_undoubled(self._live(), args, kwargs)
        tables = self._state and self._observed()["identities"]
        if tables is not None and (made := self._specialisations()):
            tables.note(args, made[-1]["number"])
        return result


def _record(name: str) -> property:
    def read(self: KernelFace) -> Any:
        return self._observed()[name]

    def write(self: KernelFace, value: Any) -> None:
        self._observed()[name] = value

    return property(read, write)


for _name in (
    "src_ll_cache_observations",
    "fe_ll_cache_observations",
    "mapper",
    "launch_context_buffer_cache",
):
    setattr(KernelFace, _name, _record(_name))
