"""Krylov solvers for linear operators that are kernels, on fields of any backend."""

from __future__ import annotations

from math import sqrt
from numbers import Real
from typing import Any

import quadrants as qd
from quadrants.lang.exception import QuadrantsRuntimeError, QuadrantsTypeError
from quadrants.lang.kernel_impl import kernel


class LinearOperator:
    """A linear map given by a kernel.

    Args:
        matvec_kernel: `kernel(x, Ax)`, of two fields as templates, which stores A @ x in the second.

    Raises:
        QuadrantsTypeError: it can't be called.
    """

    def __init__(self, matvec_kernel: Any) -> None:
        if not callable(matvec_kernel):
            raise QuadrantsTypeError(f"a LinearOperator takes a kernel, not {matvec_kernel!r}")
        self._matvec = matvec_kernel

    def matvec(self, x: Any, Ax: Any) -> None:
        """Stores A @ x in the field Ax.

        Raises:
            QuadrantsTypeError: not two fields.
            QuadrantsRuntimeError: the fields have different shapes.
        """
        if not all(isinstance(v, (qd.Field, qd.Tensor)) for v in (x, Ax)):
            raise QuadrantsTypeError(
                f"matvec takes two fields, not {type(x).__name__} and {type(Ax).__name__}"
            )
        if x.shape != Ax.shape:
            raise QuadrantsRuntimeError(
                f"Dimension mismatch x.shape{x.shape} != Ax.shape{Ax.shape}."
            )
        self._matvec(x, Ax)


@kernel
def _subtract(a: qd.template(), b: qd.template(), out: qd.template()):
    for at in qd.grouped(a):
        out[at] = a[at] - b[at]


@kernel
def _copy(a: qd.template(), out: qd.template()):
    for at in qd.grouped(a):
        out[at] = a[at]


@kernel
def _dot(a: qd.template(), b: qd.template(), out: qd.template()):
    out[None] = 0
    for at in qd.grouped(a):
        out[None] += a[at] * b[at]


@kernel
def _add_scaled(out: qd.template(), factor: qd.template(), a: qd.template()):
    """out += factor * a"""
    for at in qd.grouped(out):
        out[at] += factor[None] * a[at]


@kernel
def _scale_and_add(out: qd.template(), factor: qd.template(), a: qd.template()):
    """out = a + factor * out"""
    for at in qd.grouped(out):
        out[at] = a[at] + factor[None] * out[at]


class _Work:
    """Temporary fields beside the system's, and numbers among them."""

    def __init__(
        self, solver: str, A: Any, b: Any, x: Any, tol: Any, maxiter: Any, vectors: str
    ) -> None:
        if not isinstance(tol, Real) or not isinstance(maxiter, Real):
            raise QuadrantsTypeError(
                f"{solver} takes numbers for tol and maxiter, not {tol!r} and {maxiter!r}"
            )
        if not isinstance(A, LinearOperator):
            raise QuadrantsTypeError(f"{solver} takes a LinearOperator, not {type(A).__name__}")
        b, x = (v._unwrap() if isinstance(v, qd.Tensor) else v for v in (b, x))
        if not isinstance(b, qd.ScalarField) or not isinstance(x, qd.ScalarField):
            raise QuadrantsTypeError(
                f"{solver} takes fields of numbers, not {type(b).__name__} and {type(x).__name__}"
            )
        if b.dtype != x.dtype:
            raise QuadrantsTypeError(f"Dtype mismatch b.dtype({b.dtype}) != x.dtype({x.dtype}).")
        if b.dtype not in (qd.f32, qd.f64):
            raise QuadrantsTypeError(f"Not supported dtype: {b.dtype}")
        if b.shape != x.shape:
            raise QuadrantsRuntimeError(f"Dimension mismatch b.shape{b.shape} != x.shape{x.shape}.")
        if b._index_offset != x._index_offset:
            raise QuadrantsRuntimeError(
                f"b and x have different offsets: {b._index_offset} and {x._index_offset}"
            )
        if len(b.shape) not in (1, 2, 3):
            raise QuadrantsRuntimeError(
                f"{solver} only support 1D, 2D, 3D inputs; your inputs is {len(b.shape)}-D."
            )
        self.A, self.b, self.x = A, b, x
        builder = qd.FieldsBuilder()
        axes = [qd.i, qd.ij, qd.ijk][len(b.shape) - 1]
        for name in vectors.split():
            field = qd.field(b.dtype)
            builder.dense(axes, b.shape).place(field, offset=b._index_offset or None)
            setattr(self, name, field)
        for name in ("sum", "factor"):
            field = qd.field(b.dtype)
            builder.place(field)
            setattr(self, name, field)
        self.tree = builder.finalize()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def dot(self, a: Any, b: Any) -> float:
        _dot(a, b, self.sum)
        return self.sum[None]

    def add(self, out: Any, factor: float, a: Any) -> None:
        self.factor[None] = factor
        _add_scaled(out, self.factor, a)

    def scale(self, out: Any, factor: float, a: Any) -> None:
        self.factor[None] = factor
        _scale_and_add(out, self.factor, a)

    def measured(self, count: int, quiet: bool) -> float:
        """The square of the residual's norm after so many iterations."""
        square = self.dot(self.r, self.r)
        if not quiet and count == 0:
            print(f">>> Initial residual = {square:e}")
        elif not quiet:
            print(f">>> Iter = {count:4}, Residual = {sqrt(square):e}")
        return square

    def residual(self, out: Any) -> None:
        self.A.matvec(self.x, out)
        _subtract(self.b, out, out)


def _report(name: str, count: int, maxiter: int, square: float, tol: float, quiet: bool) -> bool:
    succeeded = square < tol
    if not quiet and succeeded:
        print(f">>> {name} method converged at #iterations {count}")
    elif not quiet:
        print(
            f">>> {name} method failed to converge in {maxiter} iterations: Residual = {sqrt(square):e}"
        )
    return succeeded


def MatrixFreeCG(
    A: LinearOperator, b: Any, x: Any, tol: float = 1e-6, maxiter: int = 5000, quiet: bool = True
) -> bool:
    """Solves A @ x = b for a symmetric positive definite operator, from x as it is, in place.

    By the method of conjugate gradients (Hestenes and Stiefel, 1952).

    Args:
        A: the operator.
        b: right side, a field of f32 or f64 of one to three axes.
        x: field of the same type and shape.
        tol: stops when the norm of the residual is smaller.
        maxiter: most iterations.
        quiet: print nothing.

    Returns:
        Whether the square of the residual's norm is smaller than tol.

    Raises:
        QuadrantsTypeError: other types.
        QuadrantsRuntimeError: other shapes or offsets.
    """
    w = _Work("MatrixFreeCG", A, b, x, tol, maxiter, "p r Ap")
    try:
        w.residual(w.r)
        _copy(w.r, w.p)
        square = w.measured(0, quiet)
        count = 0
        while count < maxiter and sqrt(square) >= tol:
            A.matvec(w.p, w.Ap)
            curvature = w.dot(w.p, w.Ap)
            if curvature == 0:
                break
            alpha = square / curvature
            w.add(x, alpha, w.p)
            w.add(w.r, -alpha, w.Ap)
            count += 1
            before, square = square, w.measured(count, quiet)
            w.scale(w.p, square / before, w.r)
        return _report("Conjugate Gradient", count, maxiter, square, tol, quiet)
    finally:
        w.tree.destroy()


def MatrixFreeBICGSTAB(
    A: LinearOperator, b: Any, x: Any, tol: float = 1e-6, maxiter: int = 5000, quiet: bool = True
) -> bool:
    """Solves A @ x = b for any regular operator, from x as it is, in place.

    By the stabilised method of biconjugate gradients (van der Vorst, 1992).

    Args:
        A: the operator.
        b: right side, a field of f32 or f64 of one to three axes.
        x: field of the same type and shape.
        tol: stops when the norm of the residual is smaller.
        maxiter: most iterations.
        quiet: print nothing.

    Returns:
        Whether the square of the residual's norm is smaller than tol.

    Raises:
        QuadrantsTypeError: other types.
        QuadrantsRuntimeError: other shapes or offsets.
    """
    w = _Work("MatrixFreeBICGSTAB", A, b, x, tol, maxiter, "p r first v t")
    try:
        w.residual(w.r)
        _copy(w.r, w.first)
        _copy(w.r, w.p)
        square = w.measured(0, quiet)
        rho, count = square, 0
        while count < maxiter and sqrt(square) >= tol:
            A.matvec(w.p, w.v)
            along = w.dot(w.first, w.v)
            if along == 0:
                break
            alpha = rho / along
            w.add(w.r, -alpha, w.v)
            A.matvec(w.r, w.t)
            length = w.dot(w.t, w.t)
            omega = w.dot(w.t, w.r) / length if length else 0.0
            w.add(x, alpha, w.p)
            w.add(x, omega, w.r)
            w.add(w.r, -omega, w.t)
            count += 1
            square = w.measured(count, quiet)
            before, rho = rho, w.dot(w.first, w.r)
            if omega == 0 or before == 0:
                break
            w.add(w.p, -omega, w.v)
            w.scale(w.p, rho / before * alpha / omega, w.r)
        return _report("BICGSTAB", count, maxiter, square, tol, quiet)
    finally:
        w.tree.destroy()
