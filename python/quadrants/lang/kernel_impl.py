"""The decorators: `kernel`, `func`, `real_func`, `pyfunc`, `pure`, `data_oriented`.

Decorating checks the signature and makes a definition; source is read at the first call. Native
code reads the attributes of definitions: `fn`, `params` (name, annotation, default), `returns`,
`is_method` and the flags. A decorated object shows its definition as `_qd_kernel` or `_qd_func`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from quadrants._compat.kernel_face import KernelFace
from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang._signature import Param, is_class_member, plain_function, read_parameters
from quadrants.lang.exception import QuadrantsSyntaxError
from quadrants.lang.kernel_arguments import ArgMetadata

_warned: set[str] = set()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        import warnings

        warnings.warn(text, stacklevel=3)


class Definition:
    """What kernels and funcs have in common: the Python function and its signature."""

    fn: Any  # a FunctionType; declared as one it would be a method of its definition
    params: tuple[Param, ...]
    returns: Any
    is_method: bool

    def __init__(self, fn: FunctionType, kind: str) -> None:
        self.fn = self.__wrapped__ = fn
        self.is_method = is_class_member(fn)
        self.params, self.returns = read_parameters(fn, kind, self.is_method)
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__doc__ = fn.__doc__
        self.__module__ = fn.__module__
        self.__annotations__ = fn.__annotations__
        self._attr_name = fn.__name__

    def __set_name__(self, owner: type, name: str) -> None:
        self._attr_name = name

    @property
    def func(self) -> FunctionType:
        return self.fn

    @property
    def arg_metas(self) -> list[ArgMetadata]:
        return [ArgMetadata(annotation, name, default) for name, annotation, default in self.params]

    def __reduce__(self) -> str:  # as for functions: a copy is the same, a pickle names it
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__qualname__}>"


class KernelDef(Definition, KernelFace):
    """A kernel: calling it binds arguments, finds or makes the specialisation and launches it."""

    derivative = 0  # 1: in reverse mode, 2: in forward mode, 3: with checks of what is overwritten

    def __init__(self, fn: FunctionType, fastcache: bool, graph: bool, checkpoints: bool) -> None:
        super().__init__(fn, "kernel")
        self.is_pure = fastcache
        self.graph = graph
        self.checkpoints = checkpoints
        self._qd_kernel = self._primal = self
        # Made when they are asked for, by what `derivative` says.
        self._derivatives: dict[int, Any] = {}
        self._definitions: dict[int, KernelDef] = {}
        impl.pyquadrants.add_kernel(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._native()(*args, **kwargs)

    def run_as_python(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the Python function itself; what a call does on the Python backend."""
        from quadrants.lang._python_backend import run_kernel

        return run_kernel(self, args, kwargs)

    @property
    def _adjoint(self) -> KernelDef:
        self._derived(1)
        return self._definitions[1]

    @property
    def grad(self) -> Any:
        """The reverse-mode version: a kernel that takes the same arguments. Itself it has none: None."""
        return None if self.derivative else self._derivatives.get(1) or self._derived(1)

    @property
    def _forward(self) -> Any:
        """The forward-mode version: the kernel's effects, and tangents into duals."""
        return self._derivatives.get(2) or self._derived(2)

    def _validate(self, *args: Any, **kwargs: Any) -> Any:
        """Launches the kernel with checks of the global data access rule (debug=True)."""
        from quadrants.ad._fields import make_checkbits

        make_checkbits()
        return self._derived(3)(*args, **kwargs)

    def _derived(self, derivative: int) -> Any:
        """The native kernel that is this one's reverse (1) or forward mode (2), or checks it (3)."""
        made = self._derivatives.get(derivative)
        if made is None:
            definition = KernelDef(self.fn, False, False, False)
            definition.derivative = derivative
            definition._primal = self
            definition._attr_name = self._attr_name
            self._definitions[derivative] = definition
            made = self._derivatives[derivative] = definition._made(core.Kernel(definition))
        return made

    def _raise_opt_level(self) -> None:
        """What native code does before it makes a derivative while opt_level is 0."""
        from quadrants import _logging

        name = self.__name__
        _logging.warn(f"opt_level=0 is raised to 1: the derivative of kernel {name} is wanted")
        impl.current_cfg().opt_level = 1

    def resume(self, *args: Any, from_checkpoint: Any, **kwargs: Any) -> Any:
        """Launches a `checkpoints=True` kernel from a checkpoint on.

        Args:
            from_checkpoint: label of the checkpoint; those before it are skipped.

        Raises:
            RuntimeError: the label is not an int, or none of the kernel's.
            QuadrantsSyntaxError: a kernel without `checkpoints=True`.
        """
        return core.launch_resume(self._native(), args, kwargs, from_checkpoint)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundKernel(self, instance)


class BoundKernel:
    """A kernel as a method of an object."""

    def __init__(self, kernel: KernelDef, instance: Any) -> None:
        self.kernel = kernel
        self.instance = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        check_owner(self.instance)
        return self.kernel(self.instance, *args, **kwargs)

    def grad(self, *args: Any, **kwargs: Any) -> Any:
        """Launches the reverse-mode version."""
        check_owner(self.instance)
        return self.kernel.grad(self.instance, *args, **kwargs)

    def _forward(self, *args: Any, **kwargs: Any) -> Any:
        check_owner(self.instance)
        return self.kernel._forward(self.instance, *args, **kwargs)

    def _validate(self, *args: Any, **kwargs: Any) -> Any:
        check_owner(self.instance)
        return self.kernel._validate(self.instance, *args, **kwargs)

    def resume(self, *args: Any, from_checkpoint: Any, **kwargs: Any) -> Any:
        """Continues a checkpointed graph kernel."""
        return self.kernel.resume(self.instance, *args, from_checkpoint=from_checkpoint, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kernel, name)


def check_owner(instance: Any) -> None:
    """Raises unless a kernel may be a method of this object."""
    cls = instance if isinstance(instance, type) else type(instance)
    if not getattr(cls, "_data_oriented", False):
        raise QuadrantsSyntaxError(f"Please decorate class {cls.__name__} with @qd.data_oriented")


class _CalledFromPython(QuadrantsSyntaxError, AssertionError):
    """A func that was called outside kernels: programs expect either class. Shown as the former."""

    def __init__(
        self, text: str = "Quadrants functions cannot be called from Python-scope."
    ) -> None:
        super().__init__(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _called_from_python, self.args


_CalledFromPython.__name__ = _CalledFromPython.__qualname__ = QuadrantsSyntaxError.__name__
_CalledFromPython.__module__ = QuadrantsSyntaxError.__module__


def _called_from_python(text: str) -> _CalledFromPython:  # what is pickled: the class has no name
    return _CalledFromPython(text)


class FuncDef(Definition):
    """A function that kernels call."""

    grad = None
    is_pure = False

    def __init__(
        self, fn: FunctionType, is_real: bool, requires_top_level: bool, runs_on_host: bool
    ) -> None:
        super().__init__(fn, "real" if is_real else "func")
        self._is_real = is_real
        self._qd_requires_top_level = requires_top_level
        self._runs_on_host = runs_on_host
        self._qd_func = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if impl.inside_kernel():
            return core.trace_call(self, args, kwargs)
        if impl.is_python_backend():
            from quadrants.lang._python_backend import run_func

            return run_func(self, args, kwargs)
        if self._runs_on_host:
            return self.fn(*args, **kwargs)
        raise _CalledFromPython

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)


Kernel = KernelFace  # what `k._primal` and `k._adjoint` are
Func = FuncDef


def _make_kernel(definition: KernelDef) -> Any:
    """The object that users call: native where the native module has a kernel type."""
    native = getattr(core, "Kernel", None)
    return definition if native is None else definition._made(native(definition))


def kernel(
    _fn: Callable[..., Any] | None = None,
    *,
    pure: bool | None = None,
    fastcache: bool = False,
    graph: bool = False,
    checkpoints: bool = False,
) -> Any:
    """Makes a Python function a kernel: compiled at the first call, its outermost loops parallel.

    Parameters are annotated: numbers, `qd.types.ndarray()`, `qd.template()`, structs and so on. A
    class with `@qd.data_oriented` may have kernels as methods.

    Args:
        _fn: the function, if the decorator is used without arguments.
        pure: deprecated spelling of `fastcache`.
        fastcache: the kernel depends on its arguments only.
        graph: launch the tasks as one device graph.
        checkpoints: let the graph stop and resume at `qd.checkpoint`.

    Raises:
        QuadrantsSyntaxError: an annotation is missing or unknown, or the options contradict each other.
    """
    if pure is not None:
        _warn_once(
            "@qd.kernel parameter `pure` is deprecated. Please use parameter `fastcache`. "
            "`pure` parameter is intended to be removed in 4.0.0"
        )

    def decorate(fn: Callable[..., Any]) -> Any:
        plain = plain_function(fn, "kernel")
        if plain.__name__ == "<lambda>":
            raise QuadrantsSyntaxError(
                "A lambda cannot be a kernel; use a function defined with def"
            )
        if checkpoints and not graph:
            raise QuadrantsSyntaxError(
                f"@qd.kernel({plain.__name__!r}, checkpoints=True) requires graph=True; the checkpoint resume "
                "model is only meaningful for graph kernels."
            )
        return _make_kernel(KernelDef(plain, bool(pure) or fastcache, graph, checkpoints))

    return decorate if _fn is None else decorate(_fn)


def func(
    fn: Callable[..., Any] | None = None,
    *,
    is_real_function: bool = False,
    requires_top_level: bool = False,
) -> Any:
    """Makes a Python function callable from kernels.

    Annotations are optional; without one an argument keeps its type. Values are copies, except that
    `qd.template()` parameters are the caller's own variables.

    Args:
        fn: the function, if the decorator is used without arguments.
        is_real_function: see `real_func`.
        requires_top_level: the function may not be called inside run-time control flow.

    Raises:
        QuadrantsSyntaxError: an annotation is unknown.
    """

    def decorate(f: Callable[..., Any]) -> FuncDef:
        return FuncDef(plain_function(f, "func"), is_real_function, requires_top_level, False)

    return decorate if fn is None else decorate(fn)


def real_func(fn: Callable[..., Any]) -> Any:
    """A func that is compiled as a function of its own: it may recurse and return anywhere.

    Args:
        fn: function whose parameters and result are annotated; `qd.ref(dtype)` passes by reference.

    Raises:
        QuadrantsSyntaxError: an annotation is missing or unknown.
    """
    return FuncDef(plain_function(fn, "real_func"), True, False, False)


def pyfunc(fn: Callable[..., Any]) -> Any:
    """A func that the host may call too; there its body runs as plain Python.

    Args:
        fn: the function.
    """
    return FuncDef(plain_function(fn, "pyfunc"), False, False, True)


def pure(fn: Any) -> Any:
    """Deprecated: the same as `@qd.kernel(fastcache=True)`.

    Args:
        fn: kernel.
    """
    _warn_once(
        "Use of @qd.pure is deprecated. Please use @qd.kernel(fastcache=True). "
        "@qd.pure is intended to be removed in v4.0.0"
    )
    fn.is_pure = True
    return fn


def data_oriented(
    cls: type | None = None, *, template_primitives: bool = True, stable_members: bool = False
) -> Any:
    """Lets a class have kernels as methods.

    Args:
        cls: the class, if the decorator is used without arguments.
        template_primitives: int, float and bool members are compile-time constants.
        stable_members: array members are never rebound; nothing is to be gained by saying so.

    Raises:
        TypeError: what it decorates is no class.
    """

    def decorate(owner: type) -> type:
        if not isinstance(owner, type):
            raise TypeError(f"@qd.data_oriented decorates a class, got {owner!r}")
        owner._data_oriented = True  # type: ignore[attr-defined]
        owner._qd_template_primitives = template_primitives  # type: ignore[attr-defined]
        return owner

    return decorate if cls is None else decorate(cls)
