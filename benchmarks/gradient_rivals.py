"""The programs of `cases/gradients.py` by contenders who write them in another way.

Each contender is a function of a program's name, inputs and seed. Gradients of every input are asked
for (of the p2g program: places, speeds, affine velocities, deformations). The packages and Warp clear
the seed of what a kernel overwrites, as its gradient before the kernel is zero; C++ and JAX leave it.
"""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

import child


@dataclass
class Program:
    kernel: Callable
    reverse: Callable  # reads the seed and what the kernel reads
    sync: Callable
    reset: Callable  # seed and inputs as at the start, output and gradients zero
    value: Callable
    gradients: Callable  # arrays, one for each input
    notes: list[str] = field(default_factory=list)


# --- C++ -----------------------------------------------------------------------------------------


def cpp(args, name, inputs, seed):
    lib, function = child.cpp(), name.replace("-", "_")
    count = ctypes.c_long(len(inputs[-1]))
    output = np.zeros_like(seed)
    gradients = [np.zeros_like(x) for x in inputs if x.dtype == np.float32]
    addresses = lambda arrays: [child.pointer(a) for a in arrays]
    given, back = addresses(inputs), addresses(gradients)

    def reset():
        for array in (output, *gradients):
            array.fill(0)

    return Program(
        partial(getattr(lib, function), count, *given, child.pointer(output)),
        partial(getattr(lib, f"{function}_reverse"), count, *given, child.pointer(seed), *back),
        lambda: None, reset, lambda: output, lambda: gradients,
    )  # fmt: skip


# --- Warp ----------------------------------------------------------------------------------------


def warp_elementwise(wp):
    @wp.kernel
    def elementwise(x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        y[i] = wp.sin(x[i]) * x[i] + x[i] * x[i]

    return elementwise


def warp_n_body(wp):
    @wp.kernel
    def n_body(p: wp.array(dtype=wp.vec3), a: wp.array(dtype=wp.vec3)):
        i = wp.tid()
        here = p[i]
        pull = wp.vec3(0.0, 0.0, 0.0)
        for j in range(p.shape[0]):
            d = p[j] - here
            inv = 1.0 / wp.sqrt(wp.length_sq(d) + 0.01)
            pull += d * (inv * inv * inv)
        a[i] = pull

    return n_body


def warp_stencil(wp):
    @wp.kernel
    def stencil(u: wp.array2d(dtype=float), v: wp.array2d(dtype=float)):
        i, j = wp.tid()
        if i > 0 and i < u.shape[0] - 1 and j > 0 and j < u.shape[1] - 1:
            around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            v[i, j] = 0.25 * around * u[i, j]

    return stencil


def warp_ragged(wp):
    @wp.kernel
    def ragged(trips: wp.array(dtype=wp.int32), x: wp.array(dtype=float), y: wp.array(dtype=float)):
        i = wp.tid()
        s = x[i]
        for k in range(15):
            if k < trips[i]:
                s = wp.sin(s) + 0.1
        y[i] = s

    return ragged


def warp_p2g(wp):
    @wp.kernel
    def p2g(
        place: wp.array(dtype=wp.vec2),
        speed: wp.array(dtype=wp.vec2),
        affine: wp.array(dtype=wp.mat22),
        shape: wp.array(dtype=wp.mat22),
        momentum: wp.array2d(dtype=wp.vec2),
    ):
        p = wp.tid()
        cells = float(momentum.shape[0])
        at = place[p] * cells
        i0 = int(at[0] - 0.5)
        j0 = int(at[1] - 0.5)
        inside = at - wp.vec2(float(i0), float(j0))
        far = wp.vec2(1.5, 1.5) - inside
        mid = inside - wp.vec2(1.0, 1.0)
        near = inside - wp.vec2(0.5, 0.5)
        w = wp.matrix_from_rows(
            0.5 * wp.cw_mul(far, far),
            wp.vec2(0.75, 0.75) - wp.cw_mul(mid, mid),
            0.5 * wp.cw_mul(near, near),
        )
        one = wp.identity(n=2, dtype=float)
        F = (one + 1.0e-4 * affine[p]) * shape[p]
        J = wp.determinant(F)
        push = 10.0 * F * wp.transpose(F) + (10.0 * J * (J - 1.0)) * one
        both = (-1.0e-4 * 4.0 * cells * cells * 1.0e-4) * push + 1.0e-4 * affine[p]
        for i in range(3):
            for j in range(3):
                to = (wp.vec2(float(i), float(j)) - inside) / cells
                part = w[i, 0] * w[j, 1] * (1.0e-4 * speed[p] + both * to)
                wp.atomic_add(momentum, i0 + i, j0 + j, part)

    return p2g


WARP_PROGRAMS = {
    "elementwise": (warp_elementwise, [float]),
    "n-body": (warp_n_body, ["vec3"]),
    "stencil": (warp_stencil, [float]),
    "ragged": (warp_ragged, [int, float]),
    "p2g": (warp_p2g, ["vec2", "vec2", "mat22", "mat22"]),
}


def warp(args, name, inputs, seed):
    import warp as wp

    wp.config.quiet = True
    make, types = WARP_PROGRAMS[name]
    types = [getattr(wp, t) if isinstance(t, str) else t for t in types]
    kernel = make(wp)
    kept = dict(device="cpu", requires_grad=True)
    given = [wp.array(x, dtype=t, **kept) for x, t in zip(inputs, types)]
    output = wp.array(np.zeros_like(seed), dtype=types[-1] if name != "p2g" else wp.vec2, **kept)
    launch = partial(wp.launch, kernel, dim=output.shape if name == "stencil" else len(inputs[-1]))
    launch = partial(launch, inputs=given, outputs=[output], device="cpu")
    real = [x for x, start in zip(given, inputs) if start.dtype == np.float32]

    def reset():
        output.zero_()
        output.grad.assign(seed)
        for x in real:
            x.grad.zero_()

    return Program(
        launch,
        partial(launch, adj_inputs=[x.grad for x in given], adj_outputs=[output.grad], adjoint=True),
        wp.synchronize, reset, output.numpy, lambda: [x.grad.numpy() for x in real],
        ["15 masked trips: what a loop of a variable number of trips computes is not kept"]
        if name == "ragged" else [],
    )  # fmt: skip


# --- JAX: functions of arrays, which return new ones ---------------------------------------------


def jax_functions(jnp, lax, checkpoint):
    def elementwise(x):
        return jnp.sin(x) * x + x * x

    def n_body(p):
        def pull(here):
            x, y, z = (row - at for row, at in zip(p.T, here))
            inv = lax.rsqrt(x * x + y * y + z * z + 0.01)
            return jnp.stack([(c * (inv * inv * inv)).sum() for c in (x, y, z)])

        return lax.map(checkpoint(pull), p)  # all pairs in one array take six times as long

    def stencil(u):
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return jnp.pad(0.25 * around * u[1:-1, 1:-1], 1)

    def ragged(trips, x):
        trip = lambda s, k: (jnp.where(k < trips, jnp.sin(s) + 0.1, s), None)
        return lax.scan(trip, x, jnp.arange(15), unroll=15)[0]

    def p2g(place, speed, affine, shape):
        cells, step = 64, 1e-4
        base = (place * cells - 0.5).astype(jnp.int32)
        inside = place * cells - base
        w = jnp.stack(
            [0.5 * (1.5 - inside) ** 2, 0.75 - (inside - 1) ** 2, 0.5 * (inside - 0.5) ** 2]
        )
        F = (jnp.eye(2) + step * affine) @ shape
        J = jnp.linalg.det(F)[:, None, None]
        push = 10 * F @ F.mT + 10 * J * (J - 1) * jnp.eye(2)
        both = -step * 4 * cells * cells * 1e-4 * push + 1e-4 * affine
        momentum = jnp.zeros((cells, cells, 2))
        for i in range(3):
            for j in range(3):
                to = (jnp.array([i, j]) - inside) / cells
                weight = (w[i, :, 0] * w[j, :, 1])[:, None]
                part = weight * (1e-4 * speed + (both @ to[..., None])[..., 0])
                momentum = momentum.at[base[:, 0] + i, base[:, 1] + j].add(part)
        return momentum

    return {
        "elementwise": elementwise,
        "n-body": n_body,
        "stencil": stencil,
        "ragged": ragged,
        "p2g": p2g,
    }


def jax(args, name, inputs, seed):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[: args.threads])  # what its thread pool is sized by
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    function = jax_functions(jax.numpy, jax.lax, jax.checkpoint)[name]
    fixed = [jax.numpy.asarray(x) for x in inputs if x.dtype != np.float32]
    given = [jax.numpy.asarray(x) for x in inputs if x.dtype == np.float32]
    seed = jax.numpy.asarray(seed)
    kernel = jax.jit(lambda fixed, given: function(*fixed, *given))
    reverse = jax.jit(lambda fixed, given, g: jax.vjp(partial(function, *fixed), *given)[1](g))
    state = {}

    def reset():
        state.update(value=jax.numpy.zeros_like(seed))
        state.update(gradients=[jax.numpy.zeros_like(x) for x in given])

    reset()
    return Program(
        lambda: state.update(value=kernel(fixed, given)),
        lambda: state.update(gradients=reverse(fixed, given, seed)),
        lambda: jax.block_until_ready(state),
        reset, lambda: np.asarray(state["value"]), lambda: state["gradients"],
        ["15 masked trips: a loop of a variable number of trips has no reverse"]
        if name == "ragged" else [],
    )  # fmt: skip


RIVALS = {"cpp": cpp, "warp": warp, "jax": jax}
