"""What does going back through a kernel cost, beside the kernel itself and beside adjoints by hand?

`ratio` rows are the median reverse time over the kernel's own.
"""

import numpy as np

import child
import gradient_rivals
from gradient_rivals import Program

CONTENDERS = (*child.DSL, "warp", "jax", *child.CPP)
PHASES = ("warm",)
TOLERANCE = 1e-3
TIMEOUT = 300
TARGETS = {
    "warm elementwise ratio": 2.5,
    "warm n-body ratio": 3,
    "warm stencil ratio": 4,
    "warm ragged ratio": 4,
    "warm p2g ratio": 3,
    "warm p2g reverse ms": ("cpp", 0.8),
}
SIZE = 1 << 22
BODIES = 2048
GRID = 2048
RAGGED = 1 << 20
PARTICLES, CELLS = 8192, 64


def inputs(name):
    """The arrays that a program starts from, and the seed: the gradient of its output."""
    data = np.random.default_rng(0)
    uniform = lambda *shape: data.random(shape, dtype=np.float32)
    if name == "elementwise":
        arrays = [uniform(SIZE)]
    elif name == "n-body":
        arrays = [uniform(BODIES, 3)]
    elif name == "stencil":
        arrays = [uniform(GRID, GRID)]
    elif name == "ragged":
        arrays = [data.integers(0, 16, RAGGED).astype(np.int32), uniform(RAGGED)]
    else:
        place = uniform(PARTICLES, 2) * np.float32(0.4) + np.float32(0.3)
        shape = np.tile(np.eye(2, dtype=np.float32), (PARTICLES, 1, 1))
        arrays = [place, np.zeros_like(place), np.zeros_like(shape), shape]
    output = (CELLS, CELLS, 2) if name == "p2g" else arrays[-1].shape
    return arrays, np.random.default_rng(1).random(output, dtype=np.float32)


# --- programs: (kernel, what it reads, what it writes) -------------------------------------------


def elementwise(qd, numbers):
    x, y = (qd.field(qd.f32, numbers.size, needs_grad=True) for _ in range(2))
    x.from_numpy(numbers)

    @qd.kernel
    def kernel():
        for i in x:
            y[i] = qd.sin(x[i]) * x[i] + x[i] * x[i]

    return kernel, (x,), y


def n_body(qd, places):
    n = len(places)
    p, a = (qd.Vector.field(3, qd.f32, n, needs_grad=True) for _ in range(2))
    p.from_numpy(places)

    @qd.kernel
    def kernel():
        for i in p:
            x = y = z = 0.0
            for j in range(n):
                dx, dy, dz = p[j][0] - p[i][0], p[j][1] - p[i][1], p[j][2] - p[i][2]
                inv = 1.0 / qd.sqrt(dx * dx + dy * dy + dz * dz + 0.01)
                pull = inv * inv * inv
                x += dx * pull
                y += dy * pull
                z += dz * pull
            a[i] = qd.Vector([x, y, z])

    return kernel, (p,), a


def stencil(qd, values):
    n = len(values)
    u, v = (qd.field(qd.f32, (n, n), needs_grad=True) for _ in range(2))
    u.from_numpy(values)

    @qd.kernel
    def kernel():
        for i, j in qd.ndrange((1, n - 1), (1, n - 1)):
            around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
            v[i, j] = 0.25 * around * u[i, j]

    return kernel, (u,), v


def ragged(qd, counts, numbers):
    trips = qd.field(qd.i32, counts.size)
    trips.from_numpy(counts)
    x, y = (qd.field(qd.f32, counts.size, needs_grad=True) for _ in range(2))
    x.from_numpy(numbers)

    @qd.kernel
    def kernel():
        for i in x:
            s = x[i]
            for _ in range(trips[i]):
                s = qd.sin(s) + 0.1
            y[i] = s

    return kernel, (x,), y


def p2g(qd, places, speeds, affines, shapes):
    """Particles of an elastic body hand mass and momentum to a grid."""
    step, width = 1e-4, 1 / CELLS
    n = len(places)
    place, speed = (qd.Vector.field(2, qd.f32, n, needs_grad=True) for _ in range(2))
    affine, shape = (qd.Matrix.field(2, 2, qd.f32, n, needs_grad=True) for _ in range(2))
    momentum = qd.Vector.field(2, qd.f32, (CELLS, CELLS), needs_grad=True)
    given = place, speed, affine, shape
    for field, start in zip(given, (places, speeds, affines, shapes)):
        field.from_numpy(start)

    @qd.kernel
    def kernel():
        for p in place:
            base = qd.cast(place[p] * CELLS - 0.5, qd.i32)
            inside = place[p] * CELLS - qd.cast(base, qd.f32)
            w = [0.5 * (1.5 - inside) ** 2, 0.75 - (inside - 1.0) ** 2, 0.5 * (inside - 0.5) ** 2]
            F = (qd.Matrix.identity(qd.f32, 2) + step * affine[p]) @ shape[p]
            J = F.determinant()
            push = F @ F.transpose() * 10 + qd.Matrix.identity(qd.f32, 2) * (10 * J * (J - 1))
            both = -step * 4 * CELLS * CELLS * 1e-4 * push + 1e-4 * affine[p]
            for i, j in qd.static(qd.ndrange(3, 3)):
                to = (qd.Vector([i, j]).cast(qd.f32) - inside) * width
                weight = w[i][0] * w[j][1]
                momentum[base + qd.Vector([i, j])] += weight * (1e-4 * speed[p] + both @ to)

    return kernel, given, momentum


PROGRAMS = {
    "elementwise": elementwise,
    "n-body": n_body,
    "stencil": stencil,
    "ragged": ragged,
    "p2g": p2g,
}
PARTS = tuple(PROGRAMS)  # Taichi 1.7.4 crashes in one of them


def differentiable(qd, name):
    """A program with its gradient; `reset` makes the output a thing that no call leaves there."""
    arrays, seed = inputs(name)
    kernel, given, target = PROGRAMS[name](qd, *arrays)

    def reset():
        target.fill(0)
        target.grad.from_numpy(seed)
        for field in given:
            field.grad.fill(0)

    return Program(
        kernel, kernel.grad, qd.sync, reset, target.to_numpy,
        lambda: [field.grad.to_numpy() for field in given],
    )  # fmt: skip


# --- contenders ----------------------------------------------------------------------------------


def dsl(args, name):
    qd = child.load(args.contender)
    loops = {} if args.contender == "taichi" else {"ad_stack_experimental_enabled": True}
    qd.init(arch=qd.cpu, cpu_max_num_threads=args.threads, log_level=qd.ERROR, **loops)
    return differentiable(qd, name)


def case(args):
    numbers, result, notes = {}, {}, []
    rival = gradient_rivals.RIVALS.get(args.contender)
    for name in [args.part] if args.part else PROGRAMS:
        program = rival(args, name, *inputs(name)) if rival else dsl(args, name)
        try:
            program.kernel()
            program.reverse()
        except RuntimeError as e:
            notes.append(f"{name}: {str(e).splitlines()[0][:80]}")
            continue
        notes += [f"{name}: {note}" for note in program.notes]
        forward, values = child.checked(
            args, name, program.kernel, program.sync, program.reset,
            lambda: {"value": program.value()},
        )  # fmt: skip
        back, gradients = child.checked(
            args, f"{name} reverse", program.reverse, program.sync, program.reset,
            lambda: {f"gradient {k}": g for k, g in enumerate(program.gradients())},
        )  # fmt: skip
        numbers |= forward | back
        if not args.prime:
            numbers[f"{name} ratio"] = back[f"{name} reverse ms"] / forward[f"{name} ms"]
        result |= values | gradients
    return numbers, result, *notes


if __name__ == "__main__":
    child.main(case)
