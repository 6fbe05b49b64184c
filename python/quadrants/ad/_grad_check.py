"""`Tape(grad_check=[...])`: gradients against differences of the loss.

The checker notes what the tape's body does: its calls of kernels, and what it writes into fields. It
then does the same again from the same state, with one field moved a little along a random direction,
and compares how much the loss changes with what the gradient says.
"""

from __future__ import annotations

import math
from _thread import get_ident
from collections.abc import Callable
from functools import partial, wraps
from operator import setitem
from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants.ad import _fields, _loss, _recording
from quadrants.lang import impl
from quadrants.lang._data.stored_field import Field, MatrixField, ScalarField
from quadrants.lang._data.struct_field import StructField

np: Any = LazyNumpy(globals())

_TOLERANCE = 0.01


class GradChecker:
    """Checks the gradients that a tape has computed.

    Args:
        loss: the tape's loss, of f64.
        to_check: list of fields that have gradients.

    Raises:
        AssertionError: the loss has another dtype, or it is no list of fields.
    """

    def __init__(self, loss: Any, to_check: list[Any]) -> None:
        assert isinstance(to_check, list) and all(
            isinstance(_loss.bare(field), Field) for field in to_check
        ), "grad_check should be a list of fields that need to check gradients."
        self.to_check = [_loss.bare(field) for field in to_check]
        self.loss = loss
        assert _loss.is_f64(loss), "Only f64 is supported when checking grad."
        self.eps_range = 2.0 ** np.arange(-3, -30, -2)
        self.result: list[Any] = [None] * len(to_check)
        self.all_fields: list[Any] = []
        self.backups: list[Any] = []
        self.calls: list[Callable[[], Any]] = []

    # --- while the tape records ---

    def start(self) -> None:
        """Saves all fields, and notes what this thread writes into fields from now on."""
        leaves = [_leaves(field) for field in self.to_check]
        if not all(leaf.has_grad() for group in leaves for leaf in group):
            raise RuntimeError(
                "Gradients of the fields in grad_check are not allocated, please use "
                "qd.field(..., needs_grad=True) for them."
            )
        self.all_fields = _fields.stored_fields()
        self.backups = _fields.save(self.all_fields)
        self._origins = [_fields.save(group) for group in leaves]
        self._guarded = {id(_whole(leaf)) for group in leaves for leaf in group}
        self._amid = False
        _watch(self)

    def stop(self) -> None:
        """Ends that."""
        _unwatch(self)

    def add_call(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], drawn: int
    ) -> None:
        """Notes a call, to be made again with the same random numbers (`core.last_drawn()`)."""

        def again() -> None:
            with _recording.drawing_again(drawn):
                func(*args, **kwargs)

        self.calls.append(again)

    def _written(self, again: Any, method: Any, field: Any, args: Any, kwargs: Any) -> None:
        if self._amid or _recording.recording() is None or field._companion_of is not None:
            method(field, *args, **kwargs)
            return
        if id(_whole(field)) in self._guarded:
            raise AssertionError("Overwritten is prohibitive when doing grad check.")
        self._amid = True
        try:
            method(field, *args, **kwargs)
            self.calls.append(again(field, *args, **kwargs))
        finally:
            self._amid = False

    # --- afterwards ---

    def check_grad(self) -> None:
        """Compares, prints what comes out for each field, and leaves the state of the body's end.

        Raises:
            AssertionError: a gradient is wrong.
        """
        gradients = [_fields.save([leaf.grad for leaf in _leaves(f)]) for f in self.to_check]
        random = np.random.default_rng(0)
        try:
            for number, field in enumerate(self.to_check):
                self.result[number] = field is self.loss
                if not self.result[number]:
                    self.result[number] = self._passes(number, gradients[number], random)
        finally:
            self._run_again()
        assert all(self.result), "Grad check failed: Not all variables pass grad check"

    def _passes(self, number: int, gradients: list[Any], random: Any) -> bool:
        leaves, origins = _leaves(self.to_check[number]), self._origins[number]
        tangents = [random.standard_normal(origin.shape) for origin in origins]
        expected = sum(float(np.vdot(g, t)) for g, t in zip(gradients, tangents))
        least = math.inf
        for eps in self.eps_range:
            losses = []
            for step in (-eps, eps):
                self._run_again(leaves, [o + step * t for o, t in zip(origins, tangents)])
                losses.append(_loss.value(self.loss))
            error = abs((losses[1] - losses[0]) / (2 * eps) - expected)
            if error <= _TOLERANCE * abs(expected):
                print(f"variable {number} passes grad check")
                return True
            least = min(least, error / abs(expected) if expected else math.inf)
        print(
            f"variable {number} has relative error {least} , expected relative error {_TOLERANCE}"
        )
        return False

    def _run_again(self, moved: Any = (), arrays: Any = ()) -> None:
        """Does what the body did, from the same state but for the moved fields."""
        _fields.restore(self.all_fields, self.backups)
        _loss.clear(self.loss)
        _fields.restore(moved, arrays)
        for call in self.calls:
            call()


# --- what is written ---


_checkers: dict[int, GradChecker] = {}  # by thread
_replaced: list[tuple[type, str, Any]] = []  # methods of fields, while there is any checker


def _watch(checker: GradChecker) -> None:
    """Tells the checker of what its thread writes into fields."""
    with _recording.changing:
        _checkers[get_ident()] = checker
        if not _replaced:
            _replace(ScalarField, "__setitem__", _element_written)
            for kind in (ScalarField, MatrixField):
                _replace(kind, "_store", _component_written)
                for name in ("fill", "copy_from", "from_numpy", "from_torch"):
                    _replace(kind, name, _all_written)


def _unwatch(checker: GradChecker) -> None:
    with _recording.changing:
        for thread in [thread for thread, c in _checkers.items() if c is checker]:
            del _checkers[thread]
        while _replaced and not _checkers:
            kind, name, own = _replaced[-1]
            if own is not None:
                setattr(kind, name, own)
            elif name in vars(kind):
                delattr(kind, name)
            _replaced.pop()


def _replace(kind: type, name: str, again: Callable[..., Callable[[], Any]]) -> None:
    method = getattr(kind, name)

    @wraps(method)
    def watched(field: Any, *args: Any, **kwargs: Any) -> None:
        checker = _checkers.get(get_ident())
        if checker is None or impl.inside_kernel():
            method(field, *args, **kwargs)
        else:
            checker._written(again, method, field, args, kwargs)

    _replaced.append((kind, name, vars(kind).get(name)))
    setattr(kind, name, watched)


def _leaves(field: Any) -> list[Any]:
    return list(field._leaves()) if isinstance(field, StructField) else [field]


def _whole(field: Any) -> Any:
    return field if field._component_of is None else field._component_of[0]


def _element_written(field: Any, key: Any, value: Any) -> Callable[[], Any]:
    return partial(setitem, field, _kept(key), field[key])


def _component_written(field: Any, key: Any, component: int, value: Any) -> Callable[[], Any]:
    number = field._load(key, component)
    return partial(core.FieldBase._store, field, _kept(key), component, number)


def _all_written(field: Any, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    return partial(_fields.restore, [field], _fields.save([field]))


def _kept(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
