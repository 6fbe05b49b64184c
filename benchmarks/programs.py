"""Programs that several cases share, written against the public API only.

Each is a function of the package (`qd` may be this project, the established package or taichi) and
returns kernels; inputs are made with NumPy, so every contender sees the same numbers.
"""

import numpy as np


def trivial(qd, n=16):
    """Two kernels over a field of 16 elements."""
    x = qd.field(qd.f32, n)

    @qd.kernel
    def ramp():
        for i in x:
            x[i] = 2.0 * i

    @qd.kernel
    def shift():
        for i in x:
            x[i] = x[i] + 1.0

    return x, ramp, shift


def n_body(qd, n):
    """All pairs of n bodies, softened."""
    pos, acc = qd.Vector.field(3, qd.f32, n), qd.Vector.field(3, qd.f32, n)

    @qd.kernel
    def attract():
        for i in range(n):
            here = pos[i]
            pull = qd.Vector([0.0, 0.0, 0.0])
            for j in range(n):
                d = pos[j] - here
                inv = 1.0 / qd.sqrt(d.norm_sqr() + 1e-3)
                pull += d * (inv * inv * inv)
            acc[i] = pull

    return attract, pos, acc


def jacobi(qd, n):
    """A five-point stencil from one n x n field to the other and back."""
    a, b = qd.field(qd.f32, (n, n)), qd.field(qd.f32, (n, n))

    @qd.kernel
    def relax(u: qd.template(), v: qd.template()):
        for i, j in qd.ndrange((1, n - 1), (1, n - 1)):
            v[i, j] = 0.2 * (u[i, j] + u[i, j - 1] + u[i, j + 1] + u[i - 1, j] + u[i + 1, j])

    return lambda: (relax(a, b), relax(b, a)), a, b


# --- a weakly compressible fluid by the moving-least-squares material point method ---------------

GRID, DT, STIFFNESS, VISCOSITY, GRAVITY = 128, 2e-4, 60.0, 0.02, 9.8


def mpm_state(particles):
    """Positions and velocities of a falling block and a moving drop, both stirred, in the unit square."""
    i = np.arange(particles)
    u, v = (i * 0.7548776662466927) % 1.0, (i * 0.5698402909980532) % 1.0  # R2 sequence
    block = i < particles // 2
    x = np.where(block, 0.1 + 0.3 * u, 0.6 + 0.25 * u)
    y = np.where(block, 0.1 + 0.5 * v, 0.3 + 0.6 * v)
    pos = np.stack([x, y], 1).astype(np.float32)
    vel = np.where(block[:, None], [1.0, 0.0], [-1.0, -2.0]) - 0.5 * np.sin(12 * pos)
    return pos, vel.astype(np.float32)


def mpm(qd, particles):
    """One time step in one kernel of four parallel loops: clear, scatter, forces, gather."""
    h = 1.0 / GRID
    volume = 0.3 / particles
    pos, vel = qd.Vector.field(2, qd.f32, particles), qd.Vector.field(2, qd.f32, particles)
    affine = qd.Matrix.field(2, 2, qd.f32, particles)
    dilation = qd.field(qd.f32, particles)
    momentum = qd.Vector.field(2, qd.f32, (GRID, GRID))
    mass = qd.field(qd.f32, (GRID, GRID))

    @qd.func
    def stencil(p):
        """Nearest node, offset from it in cells, and quadratic spline weights per axis."""
        cell = qd.cast(qd.floor(p / h + 0.5), qd.i32)
        d = p / h - qd.cast(cell, qd.f32)
        w = qd.Matrix.rows([0.5 * (0.5 - d) ** 2, 0.75 - d**2, 0.5 * (0.5 + d) ** 2])
        return cell, d, w

    @qd.kernel
    def step():
        for i, j in mass:
            mass[i, j] = 0.0
            momentum[i, j] = [0.0, 0.0]
        for p in pos:
            cell, d, w = stencil(pos[p])
            rate = affine[p]
            pressure = STIFFNESS * (1.0 - dilation[p])
            stress = VISCOSITY * (rate + rate.transpose())
            stress[0, 0] -= pressure
            stress[1, 1] -= pressure
            spread = volume * rate - (4.0 * DT * volume * dilation[p] / (h * h)) * stress
            for a, b in qd.static(qd.ndrange(3, 3)):
                node = cell + qd.Vector([a - 1, b - 1])
                arm = (qd.Vector([a - 1.0, b - 1.0]) - d) * h
                weight = w[a, 0] * w[b, 1]
                momentum[node] += weight * (volume * vel[p] + spread @ arm)
                mass[node] += weight * volume
        for i, j in mass:
            if mass[i, j] > 0.0:
                v = momentum[i, j] / mass[i, j]
                v[1] -= DT * GRAVITY
                if (i < 3 and v[0] < 0.0) or (i > GRID - 4 and v[0] > 0.0):
                    v[0] = 0.0
                if (j < 3 and v[1] < 0.0) or (j > GRID - 4 and v[1] > 0.0):
                    v[1] = 0.0
                momentum[i, j] = v
        for p in pos:
            cell, d, w = stencil(pos[p])
            moved = qd.Vector([0.0, 0.0])
            rate = qd.Matrix([[0.0, 0.0], [0.0, 0.0]])
            for a, b in qd.static(qd.ndrange(3, 3)):
                v = momentum[cell + qd.Vector([a - 1, b - 1])]
                arm = (qd.Vector([a - 1.0, b - 1.0]) - d) * h
                weight = w[a, 0] * w[b, 1]
                moved += weight * v
                rate += (4.0 * weight / (h * h)) * v.outer_product(arm)
            vel[p] = moved
            affine[p] = rate
            pos[p] += DT * moved
            dilation[p] = qd.max(0.6, dilation[p] * (1.0 + DT * rate.trace()))

    def load():
        start, speed = mpm_state(particles)
        pos.from_numpy(start)
        vel.from_numpy(speed)
        affine.fill(0)
        dilation.fill(1)

    def changes():
        start, speed = mpm_state(particles)
        moved, gained = pos.to_numpy() - start, vel.to_numpy() - speed
        return {"moved": moved, "gained": gained, "dilation": dilation.to_numpy() - 1}

    return load, step, changes


# --- a 12x12 Cholesky solve, unrolled at compile time and used eight times -----------------------


def cholesky_input(count=4, n=12):
    rng = np.random.default_rng(1)
    m = rng.standard_normal((count, n, n))
    spd = (m @ m.transpose(0, 2, 1) + n * np.eye(n)).astype(np.float32)
    return spd, rng.standard_normal((count, n)).astype(np.float32), np.zeros((count, n), np.float32)


def cholesky(qd, n=12, uses=8):
    @qd.func
    def solve(a, b):
        low = a
        x = b
        for j in qd.static(range(n)):
            for k in qd.static(range(j)):
                for i in qd.static(range(j, n)):
                    low[i, j] -= low[i, k] * low[j, k]
            low[j, j] = qd.sqrt(low[j, j])
            for i in qd.static(range(j + 1, n)):
                low[i, j] /= low[j, j]
        for i in qd.static(range(n)):
            for k in qd.static(range(i)):
                x[i] -= low[i, k] * x[k]
            x[i] /= low[i, i]
        for r in qd.static(range(n)):
            i = qd.static(n - 1 - r)
            for k in qd.static(range(i + 1, n)):
                x[i] -= low[k, i] * x[k]
            x[i] /= low[i, i]
        return x

    @qd.kernel
    def solve_all(a: qd.types.ndarray(), b: qd.types.ndarray(), out: qd.types.ndarray()):
        for e in range(a.shape[0]):
            m = qd.Matrix([[a[e, i, j] for j in range(n)] for i in range(n)])
            x = qd.Vector([b[e, i] for i in range(n)])
            for _ in qd.static(range(uses)):
                x = solve(m, x) * 10.0
            for i in qd.static(range(n)):
                out[e, i] = x[i]

    return solve_all


# --- generated sources ---------------------------------------------------------------------------


def deep_calls(package, tops=30, mids=24, leaves=24, sites=60):
    """Source of a kernel with several hundred call sites of small funcs nested three deep."""
    lines = [f"import {package} as qd"]
    for i in range(leaves):
        lines += [
            "@qd.func",
            f"def leaf{i}(x, y):",
            f"    z = x * {1 + i / 100} + y",
            "    if z > 2.0:",
            f"        z = z * 0.25 - {i / 50}",
            "    return z",
        ]
    for level, count, below, under in (("mid", mids, "leaf", leaves), ("top", tops, "mid", mids)):
        for i in range(count):
            one, two = (3 * i) % under, (5 * i + 1) % under
            lines += [
                "@qd.func",
                f"def {level}{i}(x, y):",
                f"    a = {below}{one}(x, y * 0.5)",
                f"    return a - {below}{two}(a, x) * {0.1 + i / 1000}",
            ]
    lines += ["@qd.kernel", "def deep(x: qd.types.ndarray()):", "    for i in range(x.shape[0]):"]
    lines += ["        u = x[i]", "        v = u"]
    lines += [f"        v = 0.5 * v + top{(7 * s) % tops}(u, {s / sites})" for s in range(sites)]
    return "\n".join([*lines, "        x[i] = v", ""])


def guarded_funcs(package, count=300):
    """Source of a kernel that calls `count` funcs, each of which reads a global of its own."""
    lines = [f"import {package} as qd"]
    for i in range(count):
        lines += [f"C{i} = {i / count}", "@qd.func", f"def f{i}(x):", f"    return x * 0.99 + C{i}"]
    lines += [
        "@qd.kernel",
        "def guarded(x: qd.types.ndarray()):",
        "    for i in range(x.shape[0]):",
    ]
    lines += ["        v = x[i]", *(f"        v = f{i}(v)" for i in range(count))]
    return "\n".join([*lines, "        x[i] = v", ""])


def straight_lines(first, count, indent=""):
    return [
        f"{indent}{'abcd'[s % 4]} = {'bcda'[s % 4]} * {0.25 + (s % 977) / 2000:.6f}"
        f" + {'cdab'[s % 4]} * {0.75 - (s % 977) / 2000:.6f} + {(s % 7919) / 1e6:.6f}"
        for s in range(first, first + count)
    ]


def straight_line_result(x, statements):
    """What `straight_line` leaves in an array, by NumPy."""
    values = {"a": x, "b": x + 1, "c": x * 0.5, "d": 1 - x}
    exec("\n".join(straight_lines(0, statements)), values)
    return sum(values[name] for name in "abcd")


def straight_line(package, statements, per_func=0):
    """Source of a kernel of `statements` distinct statements, in one body or spread over funcs."""

    lines, calls = [f"import {package} as qd"], []
    if per_func:
        for f, first in enumerate(range(0, statements, per_func)):
            lines += ["@qd.func", f"def part{f}(a, b, c, d):"]
            lines += straight_lines(first, min(per_func, statements - first), "    ")
            lines += ["    return a, b, c, d"]
            calls += [f"        a, b, c, d = part{f}(a, b, c, d)"]
    lines += ["@qd.kernel", "def ladder(x: qd.types.ndarray()):", "    for i in range(x.shape[0]):"]
    lines += [
        "        a = x[i]",
        "        b = a + 1.0",
        "        c = a * 0.5",
        "        d = 1.0 - a",
    ]
    lines += calls or straight_lines(0, statements, "        ")
    return "\n".join([*lines, "        x[i] = a + b + c + d", ""])
