"""Choice among implementations of one function by measured time.

A dispatcher calls one of its registered implementations. For each geometry (a hash that the user's
callback makes of the arguments) it tries the compatible ones in turn, and then keeps the fastest
until a count of calls or a span of seconds asks for another evaluation.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Hashable
from operator import is_
from typing import Any

from quadrants.lang import impl
from quadrants.lang.exception import QuadrantsRuntimeError, QuadrantsSyntaxError

DEFAULT_REPEAT_AFTER_COUNT = 300
NUM_FIRST_WARMUP = 1
NUM_WARMUP = 0
NUM_ACTIVE = 1


def _parse_force_map(raw: str | None) -> dict[str, str]:
    """`dispatcher:implementation` pairs, separated by commas; `?` alone only lists the names."""
    forced = {}
    for pair in map(str.strip, (raw or "").split(",")):
        if pair in ("", "?"):
            continue
        dispatcher, colon, implementation = map(str.strip, pair.partition(":"))
        if not (dispatcher and colon and implementation):
            raise ValueError(
                f"Malformed QD_PERFDISPATCH_FORCE entry '{pair}'. Expected format: 'dispatcher:impl'."
            )
        forced[dispatcher] = implementation
    return forced


_FORCE_MAP = _parse_force_map(os.environ.get("QD_PERFDISPATCH_FORCE"))
_ANY_FORCE_ACTIVE = bool(os.environ.get("QD_PERFDISPATCH_FORCE", "").strip(", "))
QD_PERFDISPATCH_PRINT_DEBUG = os.environ.get("QD_PERFDISPATCH_PRINT_DEBUG", "0") == "1"


def _parameter_names(fn: Any) -> list[str]:
    while (inner := getattr(fn, "__wrapped__", None)) is not None:
        fn = inner
    code = getattr(fn, "__code__", None)
    if code is None:
        raise TypeError(f"perf_dispatch takes functions and kernels, not {fn!r}")
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)  # *args, **kwargs
    return list(code.co_varnames[:count])


class Implementation:
    """A registered implementation: calling it calls the function."""

    def __init__(self, fn: Callable[..., Any], is_compatible: Callable[..., bool] | None) -> None:
        self.is_compatible = is_compatible
        self.__wrapped__ = fn
        self.__name__ = getattr(fn, "__name__", repr(fn))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)


class _Choice:
    """A geometry's winner, and what may end its time."""

    __slots__ = ("winner", "calls", "made")

    def __init__(self, winner: Implementation) -> None:
        self.winner, self.calls, self.made = winner, 0, time.perf_counter()

    def is_due(self, limit: int | None, seconds: float | None) -> bool:
        """Whether this call restarts the evaluation; counts it."""
        self.calls += 1
        if limit is not None and 0 < limit <= self.calls:
            return True
        return seconds is not None and seconds > 0 and time.perf_counter() - self.made >= seconds


class PerformanceDispatcher:
    """What `qd.perf_dispatch` returns. Not thread-safe."""

    def __init__(
        self,
        get_geometry_hash: Callable[..., Hashable],
        fn: Callable[..., Any],
        first_warmup: int = NUM_FIRST_WARMUP,
        warmup: int = NUM_WARMUP,
        active: int = NUM_ACTIVE,
        repeat_after_count: int | None = None,
        repeat_after_seconds: float | None = None,
    ) -> None:
        if repeat_after_count is None and repeat_after_seconds is None:
            repeat_after_count = DEFAULT_REPEAT_AFTER_COUNT
        self._name = getattr(fn, "__name__", repr(fn))
        self._untimed_at_first, self._untimed, self._timed = first_warmup, warmup, active
        self.repeat_after_count = repeat_after_count
        self.repeat_after_seconds = repeat_after_seconds
        self._parameters = _parameter_names(fn)
        self._geometry_of = get_geometry_hash
        self._implementations: list[Implementation] = []
        self._listed = False  # the names, under QD_PERFDISPATCH_FORCE
        # By geometry:
        self._trial_count_by_dispatch_impl_by_geometry_hash: dict[
            Hashable, dict[Implementation, int]
        ] = {}
        self._fastest_dispatch_impl_by_geometry_hash: dict[Hashable, Implementation] = {}
        self._first_eval_completed: set[Hashable] = set()
        self._seconds: dict[Hashable, dict[Implementation, float]] = {}
        self._choices: dict[Hashable, _Choice] = {}
        self._forget_arguments()
        impl.on_reset(self._forget_arguments)

    def _forget_arguments(self) -> None:
        self._last_args: tuple[Any, ...] | None = None
        self._last_kwargs: dict[str, Any] = {}
        self._last_geometry: Hashable = None
        self._last_choice: _Choice | None = None

    def register(
        self,
        implementation: Callable[..., Any] | None = None,
        *,
        is_compatible: Callable[..., bool] | None = None,
    ) -> Any:
        """Adds an implementation: a kernel, or a plain function that launches kernels.

        Args:
            implementation: has the parameter names of the prototype.
            is_compatible: called with the arguments of a call; false keeps it out of it.

        Raises:
            QuadrantsSyntaxError: other parameters than the prototype's.
        """
        if implementation is None:
            return lambda f: self.register(f, is_compatible=is_compatible)
        names, wanted = _parameter_names(implementation), self._parameters
        code = "(error code: PERFDISPATCH_ANNOTATION_SEQUENCE_MISMATCH)"
        if len(names) != len(wanted):
            raise QuadrantsSyntaxError(
                f"Number of function parameters {len(names)} doesn't match number of parameters in "
                f"perf_dispatch function prototype {len(wanted)} {code}."
            )
        if set(names) != set(wanted):
            raise QuadrantsSyntaxError(
                f"Function parameters {names} don't match those of the perf_dispatch function "
                f"prototype, {wanted} {code}."
            )
        made = Implementation(implementation, is_compatible)
        self._implementations.append(made)
        self._listed = False
        if QD_PERFDISPATCH_PRINT_DEBUG or _ANY_FORCE_ACTIVE:
            print(f"perf_dispatch '{self._name}': registered '{made.__name__}'")
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _ANY_FORCE_ACTIVE and (forced := self._forced()) is not None:
            return forced.__wrapped__(*args, **kwargs)
        last = self._last_args
        if (
            last is not None
            and len(args) == len(last)
            and all(map(is_, args, last))
            and kwargs.keys() == self._last_kwargs.keys()
            and all(kwargs[k] is v for k, v in self._last_kwargs.items())
        ):
            # Hashing the geometry may take longer than the call: it is not looked up again.
            geometry, choice = self._last_geometry, self._last_choice
        else:
            geometry = self._geometry_of(*args, **kwargs)
            choice = self._choices.get(geometry)
        if choice is not None and not choice.is_due(
            self.repeat_after_count, self.repeat_after_seconds
        ):
            return choice.winner.__wrapped__(*args, **kwargs)
        return self._evaluate(geometry, args, kwargs)

    def _forced(self) -> Implementation | None:
        """The implementation that QD_PERFDISPATCH_FORCE asks for, if it exists."""
        wanted = _FORCE_MAP.get(self._name)
        names = [i.__name__ for i in self._implementations]
        if not self._listed:
            self._listed = True
            print(f"perf_dispatch '{self._name}': available implementations: {names}")
            if wanted in names:
                print(
                    f"perf_dispatch '{self._name}': forced to '{wanted}' via QD_PERFDISPATCH_FORCE"
                )
            elif wanted is not None:
                print(
                    f"[perf_dispatch] WARNING: QD_PERFDISPATCH_FORCE requested '{wanted}' for "
                    f"'{self._name}', but no such implementation found. Available: {names}. "
                    "Falling back to normal benchmarking."
                )
        return self._implementations[names.index(wanted)] if wanted in names else None

    def _choose(self, geometry: Hashable, winner: Implementation) -> None:
        self._fastest_dispatch_impl_by_geometry_hash[geometry] = winner
        self._choices[geometry] = _Choice(winner)

    def _evaluate(self, geometry: Hashable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._choices.pop(geometry, None) is not None:
            self._fastest_dispatch_impl_by_geometry_hash.pop(geometry, None)
            self._trial_count_by_dispatch_impl_by_geometry_hash.pop(geometry, None)
            self._seconds.pop(geometry, None)
            self._forget_arguments()
        candidates = [
            i
            for i in self._implementations
            if i.is_compatible is None or i.is_compatible(*args, **kwargs)
        ]
        if not candidates:
            raise QuadrantsRuntimeError("No suitable functions were found.")
        if len(candidates) == 1:
            self._choose(geometry, candidates[0])
            self._last_args, self._last_kwargs = args, dict(kwargs)
            self._last_geometry, self._last_choice = geometry, self._choices[geometry]
            return candidates[0].__wrapped__(*args, **kwargs)

        counts = self._trial_count_by_dispatch_impl_by_geometry_hash.setdefault(geometry, {})
        seconds = self._seconds.setdefault(geometry, {})
        for i in candidates:
            counts.setdefault(i, 0)
            seconds.setdefault(i, 0.0)
        tried = min(candidates, key=counts.__getitem__)
        first = geometry not in self._first_eval_completed
        warmup = self._untimed_at_first if first else self._untimed
        counts[tried] += 1
        try:
            if counts[tried] <= warmup:
                result = tried.__wrapped__(*args, **kwargs)
            else:
                runtime = impl.get_runtime()
                runtime.sync()
                start = time.perf_counter()
                result = tried.__wrapped__(*args, **kwargs)
                runtime.sync()
                seconds[tried] += time.perf_counter() - start
        except Exception:  # what fails soon is not fast
            seconds[tried] = math.inf
            raise
        if all(counts[i] >= warmup + self._timed for i in candidates):
            winner = min(candidates, key=seconds.__getitem__)
            self._first_eval_completed.add(geometry)
            self._choose(geometry, winner)
            if QD_PERFDISPATCH_PRINT_DEBUG:
                print(
                    f"perf_dispatch '{self._name}': chose '{winner.__name__}' out of "
                    f"{len(self._implementations)} registered functions."
                )
        return result


def perf_dispatch(
    *,
    get_geometry_hash: Callable[..., Hashable],
    first_warmup: int = NUM_FIRST_WARMUP,
    warmup: int = NUM_WARMUP,
    active: int = NUM_ACTIVE,
    repeat_after_count: int | None = None,
    repeat_after_seconds: float | None = None,
) -> Callable[[Callable[..., Any]], PerformanceDispatcher]:
    """Makes an empty prototype a dispatcher among implementations registered with it.

    Args:
        get_geometry_hash: called with a call's arguments; calls of one hash share a choice.
        first_warmup: untimed calls of each candidate in a geometry's first evaluation.
        warmup: the same in later evaluations.
        active: timed calls of each candidate; the lowest mean wins.
        repeat_after_count: calls after which a choice is forgotten; 0 or less: never.
        repeat_after_seconds: seconds after which it is. None for both: 300 calls.

    Raises:
        QuadrantsRuntimeError: at a call, if no implementation is compatible.
    """

    def decorate(fn: Callable[..., Any]) -> PerformanceDispatcher:
        return PerformanceDispatcher(
            get_geometry_hash,
            fn,
            first_warmup,
            warmup,
            active,
            repeat_after_count,
            repeat_after_seconds,
        )

    return decorate
