"""Tapes, forward mode and custom gradients.

A mode gets the calls of kernels from `_recording` and launches kernels' derivatives, which are native.
Kernels have no mode of their own here: what a launch computes is the choice of who launches.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

from quadrants._lazy import LazyNumpy
from quadrants._lib import core
from quadrants._lib.core import AutodiffMode, SNodeGradType
from quadrants.ad import _loss, _recording
from quadrants.ad._fields import clear_all_gradients
from quadrants.ad._grad_check import GradChecker
from quadrants.lang import impl
from quadrants.lang._data.stored_field import ScalarField

np: Any = LazyNumpy(globals())

__all__ = ["FwdMode", "Tape", "clear_all_gradients", "grad_for", "grad_replaced", "no_grad"]


class Call(tuple[Any, ...]):
    """A recorded call: (function, positional arguments); beside them those by keyword, and which
    random numbers it drew."""

    kwargs: dict[str, Any]
    drawn: int

    @classmethod
    def of(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], drawn: int) -> Call:
        call = cls((func, args))
        call.kwargs, call.drawn = kwargs, drawn
        return call


def _in_order(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by keyword that stand next to those by position join them."""
    params = getattr(getattr(func, "_primal", None), "params", None)
    if not kwargs or params is None:
        return args, kwargs
    rest = dict(kwargs)
    for name, *_ in params[len(args) :]:
        if name not in rest:
            break
        args += (rest.pop(name),)
    return args, rest


class Tape(_recording.Mode):
    """Records the kernels that are called in a `with` block, and runs them in reverse at its end.

    At the block's end the loss's gradient is set to 1 and `kernel.grad(...)` is called for the recorded
    calls, last first; gradients then are in the `.grad` of fields, ndarrays and torch tensors. That also
    happens if the block raises an `Exception`. Calls by other threads are not recorded, nor are
    accesses from Python such as `x[i] = 1` and `x.fill(1)`.

    Args:
        loss: a field of shape (), or an ndarray or torch tensor of one element, with a gradient. It is
            set to 0 when the block begins.
        clear_gradients: set the gradients of all fields to 0 first. Those of ndarrays and torch tensors
            are never cleared.
        validation: raise where a kernel overwrites a value that was read before, which the reverse pass
            would need; with `qd.init(debug=True)` only.
        grad_check: fields whose gradients are compared with differences of the loss.

    Raises:
        RuntimeError: on entry, if the loss has another shape or no gradient, or if this thread is in
            a `Tape` or `FwdMode` already; at the end, if a kernel cannot be differentiated.
        AttributeError: on entry, if the loss is something else.
        AssertionError: it is entered again; `grad_check` is no list of fields, the loss is not of f64
            with it, or a gradient fails it.
        QuadrantsRuntimeError: there is no runtime that has gradients.
    """

    def __init__(
        self,
        loss: Any = None,
        clear_gradients: bool = True,
        validation: bool = False,
        grad_check: list[Any] | None = None,
    ) -> None:
        impl.check_initialised()
        self.calls: list[Any] = []
        self.modes: list[Any] = []
        self.entered = False
        self.gradient_evaluated = False
        self.clear_gradients = clear_gradients
        self.validation = validation
        self.runtime = impl.get_runtime()
        self.eval_on_exit = True
        self.loss = _loss.bare(loss)
        self.grad_checker = None
        self._validates = validation and impl.current_cfg().debug
        if validation and not self._validates:
            warnings.warn(
                "Debug mode is disabled, autodiff valid check will not work. "
                "Please specify `qd.init(debug=True)` to enable the check.",
                Warning,
                stacklevel=2,
            )
        if grad_check is not None and grad_check != []:
            self.grad_checker = GradChecker(self.loss, grad_check)

    def __enter__(self) -> Tape:
        assert not self.entered, "Tape can be entered only once."
        _recording.check_not_nested("Tape")
        _loss.check(self.loss)
        if self.clear_gradients and _loss.is_field(self.loss):
            clear_all_gradients()
        if self._validates:
            clear_all_gradients(SNodeGradType.ADJOINT_CHECKBIT)
        _loss.clear(self.loss)
        try:
            if self.grad_checker is not None:
                self.grad_checker.start()
            self._start("target_tape")
        except BaseException:  # of a signal handler: there will be no exit
            self._stop("target_tape")
            raise
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        assert self.entered, "Before evaluating gradients tape must be entered."
        is_alive = self._stop("target_tape")
        if not self.eval_on_exit:
            return
        if kind is None:
            if not is_alive:
                raise RuntimeError(
                    "The runtime was reset inside of a `Tape`: there is nothing left to differentiate"
                )
            self.grad()
        elif is_alive and issubclass(kind, Exception) and not self.gradient_evaluated:
            self._evaluate()

    def _stop(self, attribute: str) -> bool:
        try:
            return super()._stop(attribute)
        finally:
            if self.grad_checker is not None:
                self.grad_checker.stop()

    def _call(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.pop("qd_stream", None) is not None:
            raise RuntimeError(
                "qd_stream is not compatible with autograd Tape. Launch the kernel outside the Tape "
                "context, or omit qd_stream."
            )
        if self._validates:
            result = kernel._validate(*args, **kwargs)
        else:
            result = _recording.run(kernel, args, kwargs)
        self._record(kernel, args, kwargs, core.last_drawn())
        return result

    def insert(self, func: Any, args: Any, kwargs: dict[str, Any] | None = None) -> None:
        """Records a call as if it had been made here.

        Args:
            func: a kernel, or a function that has a `grad`.
            args: its positional arguments.
            kwargs: its arguments by keyword.

        Raises:
            AssertionError: it is a derivative.
        """
        self._record(func, args, kwargs or {}, 0)

    def _record(self, func: Any, args: Any, kwargs: dict[str, Any], drawn: int) -> None:
        mode = getattr(func, "autodiff_mode", AutodiffMode.NONE)
        assert mode in (AutodiffMode.NONE, AutodiffMode.VALIDATION), (
            "Inserted funcs should be forward kernels."
        )
        args, kwargs = _in_order(func, tuple(args), kwargs)
        call = Call.of(func, args, kwargs, drawn)
        self.calls.append(call)
        self.modes.append(mode)
        if self.grad_checker is not None:
            self.grad_checker.add_call(func, call[1], call.kwargs, drawn)

    def grad(self) -> None:
        """Evaluates the gradients, which else happens at the end of the block.

        Raises:
            AssertionError: the tape was not entered yet, or they were evaluated already; with
                `grad_check`, a gradient is wrong.
            RuntimeError: a kernel cannot be differentiated.
        """
        assert self.entered, "Before evaluating gradients tape must be entered."
        assert not self.gradient_evaluated, "Gradients of grad can be evaluated only once."
        self._evaluate()
        if self.grad_checker is not None:
            with _recording.aside():
                self.grad_checker.check_grad()

    def _evaluate(self) -> None:
        with _recording.aside():
            _loss.seed(self.loss)
            for call in reversed(self.calls):
                func, args = call
                with _recording.drawing_again(getattr(call, "drawn", 0)):
                    func.grad(*args, **getattr(call, "kwargs", {}))
        self.gradient_evaluated = True


class FwdMode(_recording.Mode):
    """Computes derivatives along with the kernels that are called in a `with` block.

    Each kernel does what it always does, and computes in the `.dual` of every field that has one how its
    values change when `param` moves along the seed. Only fields have duals.

    Args:
        loss: a scalar field or a list of such: whose `.dual` is wanted.
        param: the scalar field to differentiate by; it must have a dual.
        seed: how `param` moves, one number per element in row-major order; `[1.0]` if not given for
            one element.
        clear_gradients: set the duals of all fields to 0 first.

    Raises:
        AssertionError: on entry, if loss or param are something else, if the seed has another length,
            or if it is entered again.
        RuntimeError: on entry, without a seed for several elements, or in a `Tape` or `FwdMode`; when a
            kernel is called that has no forward derivative or takes an ndarray.
        QuadrantsRuntimeError: there is no runtime that has gradients, or `param` has no dual.
    """

    def __init__(
        self, loss: Any, param: Any, seed: Any = None, clear_gradients: bool = True
    ) -> None:
        impl.check_initialised()
        self.calls: list[Any] = []
        self.modes: list[Any] = []
        self.entered = False
        self.kernels_recovered = False
        self.runtime = impl.get_runtime()
        self.loss = loss
        self.param = _loss.bare(param)
        self.seed = seed
        self.clear_gradients = clear_gradients

    def __enter__(self) -> FwdMode:
        assert not self.entered, "Forward mode manager can be entered only once."
        _recording.check_not_nested("FwdMode")
        losses = self.loss if isinstance(self.loss, list) else [self.loss]
        self.loss = [_loss.bare(loss) for loss in losses]
        assert all(isinstance(loss, ScalarField) for loss in self.loss), (
            "The loss of `FwdMode` must be a scalar field or a list of scalar fields"
        )
        param = self.param
        assert isinstance(param, ScalarField) and param.dtype.is_real, (
            "The param of `FwdMode` must be a scalar field of floats"
        )
        self.runtime.materialize()
        count = math.prod(param.shape)
        if self.seed is None:
            if count != 1:
                raise RuntimeError(
                    "`seed` is not set for non 0-D field, please specify. `seed` is a list with one number "
                    "for each element of the parameter, in row-major order: how much it changes. E.g. for "
                    "`x = qd.field(float, shape=3)`, [0, 0, 1] differentiates by its third element, and "
                    "[1, 1, 1] gives the sum of the derivatives by all three."
                )
            self.seed = [1.0]
        assert len(self.seed) == count, (
            f"The seed has {len(self.seed)} entries, the parameter {count} elements"
        )
        # Several pass through f32, as the chapter has it.
        seed = np.asarray(self.seed, np.float64 if count == 1 else np.float32).reshape(param.shape)
        if self.clear_gradients:
            clear_all_gradients(SNodeGradType.DUAL)
        param.dual.from_numpy(seed)  # type: ignore[attr-defined]
        try:
            self._start("fwd_mode_manager")
        except BaseException:
            self._stop("fwd_mode_manager")
            raise
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            if self._stop("fwd_mode_manager"):
                self.clear_seed()
        finally:
            self.recover_kernels()

    def _call(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.pop("qd_stream", None) is not None:
            raise RuntimeError(
                "qd_stream is not compatible with autodiff kernels. Streams cannot be used with "
                "reverse-mode or forward-mode differentiation."
            )
        result = kernel._forward(*args, **kwargs)
        self.insert(kernel)
        return result

    def insert(self, func: Any) -> None:
        """Notes a kernel that was called.

        Args:
            func: the kernel.
        """
        self.calls.append(func)
        self.modes.append(getattr(func, "autodiff_mode", AutodiffMode.NONE))

    def clear_seed(self) -> None:
        """Sets the parameter's dual to zero."""
        self.param.dual.fill(0)

    def recover_kernels(self) -> None:
        """Notes that kernels are as before; they were never changed."""
        self.kernels_recovered = True


# --- custom gradients ---


def grad_replaced(func: Callable[..., Any]) -> Any:
    """Makes a Python function one step of a tape, whose gradient `grad_for` defines.

    In a `Tape` the call itself is recorded, and kernels that the function calls are not; in `FwdMode`
    they run without derivatives. The decorated function returns None. It may be a method of a class
    with `@qd.data_oriented`.

    Args:
        func: the function.
    """

    @functools.wraps(func, updated=())
    def step(*args: Any, **kwargs: Any) -> None:
        runtime = impl.get_runtime()
        mode, before = _recording.recording(), runtime.grad_replaced
        with _recording.aside():
            try:
                runtime.grad_replaced = True
                func(*args, **kwargs)
            finally:
                runtime.grad_replaced = before
        if isinstance(mode, Tape):
            mode.insert(step, args, kwargs)

    step.grad = None  # type: ignore[attr-defined]
    step.autodiff_mode = AutodiffMode.NONE  # type: ignore[attr-defined]
    return step


def grad_for(primal: Any) -> Callable[[Callable[..., Any]], Any]:
    """Makes a Python function the gradient of one that is decorated with `grad_replaced`.

    At the end of a `Tape` it is called with the arguments of the recorded call; `primal.grad(...)` calls
    it as well. The decorated function returns None.

    Args:
        primal: the function whose gradient it is.

    Raises:
        RuntimeError: `primal` is a kernel, not decorated with `grad_replaced`, or has a gradient.
    """

    def decorate(func: Callable[..., Any]) -> Any:
        target = getattr(primal, "__func__", primal)  # of a method
        if not hasattr(target, "grad"):
            name = getattr(target, "__name__", repr(target))
            raise RuntimeError(f"Primal function `{name}` must be decorated by qd.ad.grad_replaced")
        if target.grad is not None:
            raise RuntimeError(
                "Primal function must be a **python** function instead of a quadrants kernel. Please wrap "
                "the quadrants kernel in a @qd.ad.grad_replaced decorated python function instead."
            )

        @functools.wraps(func, updated=())
        def backward(*args: Any, **kwargs: Any) -> None:
            func(*args, **kwargs)

        target.grad = backward
        return backward

    return decorate


def no_grad(func: Callable[..., Any]) -> Any:
    """Makes a Python function one through which no gradient flows: kernels that it calls are constants.

    The decorated function returns None. It may be a method of a class with `@qd.data_oriented`.

    Args:
        func: the function.
    """
    step = grad_replaced(func)

    @grad_for(step)
    def nothing(*args: Any, **kwargs: Any) -> None:
        pass

    return step
