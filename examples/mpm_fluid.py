"""A dam breaks over a round stone: a 2-D fluid by the material point method, as an animation.

Each step scatters the particles to a grid, applies gravity and walls there, and gathers the
velocities back (moving least squares, quadratic splines).
"""

import time

import numpy as np

import _common
import quadrants as qd

args = _common.options(__doc__, frames=120, substeps=28)
qd.init(arch=qd.cpu)

CELLS, SIZE, PARTICLES = 128, 480, 24000
H, DT = 1.0 / CELLS, 2.0e-4
STIFFNESS, VISCOSITY, GRAVITY = 120.0, 0.01, 9.8
VOLUME = 0.42 * 0.66 / PARTICLES
STONE, RADIUS = qd.Vector([0.68, 0.16]), 0.09

pos = qd.Vector.field(2, qd.f32, PARTICLES)
vel = qd.Vector.field(2, qd.f32, PARTICLES)
rate = qd.Matrix.field(2, 2, qd.f32, PARTICLES)  # the velocity's gradient
swell = qd.field(qd.f32, PARTICLES)  # volume now over volume at rest
flow = qd.Vector.field(2, qd.f32, (CELLS, CELLS))  # momentum, then velocity
mass = qd.field(qd.f32, (CELLS, CELLS))
ink = qd.Vector.field(2, qd.f32, (SIZE, SIZE))  # particles near a pixel, and their speed


@qd.func
def spline(x):
    cell = qd.cast(qd.floor(x + 0.5), qd.i32)
    d = x - cell
    return cell, d, qd.Matrix.rows([0.5 * (0.5 - d) ** 2, 0.75 - d * d, 0.5 * (0.5 + d) ** 2])


@qd.kernel
def step():
    for i, j in mass:
        mass[i, j] = 0.0
        flow[i, j] = [0.0, 0.0]
    for p in pos:
        cell, d, w = spline(pos[p] / H)
        stress = VISCOSITY * (rate[p] + rate[p].transpose())
        stress -= STIFFNESS * (1.0 - swell[p]) * qd.Matrix.identity(qd.f32, 2)
        carried = VOLUME * (rate[p] - (4.0 * DT * swell[p] / (H * H)) * stress)
        for a, b in qd.static(qd.ndrange(3, 3)):
            near = qd.Vector([a - 1, b - 1])
            weight = w[a, 0] * w[b, 1]
            flow[cell + near] += weight * (VOLUME * vel[p] + carried @ ((near - d) * H))
            mass[cell + near] += weight * VOLUME
    for i, j in mass:
        if mass[i, j] > 0.0:
            v = flow[i, j] / mass[i, j] - qd.Vector([0.0, DT * GRAVITY])
            away = qd.Vector([i * H, j * H]) - STONE
            if away.norm() < RADIUS:
                v -= qd.min(v.dot(away.normalized()), 0.0) * away.normalized()
            lowest = qd.Vector([0.0 if i < 3 else -99.0, 0.0 if j < 3 else -99.0])
            highest = qd.Vector([0.0 if i > CELLS - 4 else 99.0, 0.0 if j > CELLS - 4 else 99.0])
            flow[i, j] = qd.math.clamp(v, lowest, highest)
    for p in pos:
        cell, d, w = spline(pos[p] / H)
        v = qd.Vector([0.0, 0.0])
        g = qd.Matrix.zero(qd.f32, 2, 2)
        for a, b in qd.static(qd.ndrange(3, 3)):
            near = qd.Vector([a - 1, b - 1])
            part = w[a, 0] * w[b, 1] * flow[cell + near]
            v += part
            g += (4.0 / H) * part.outer_product(near - d)
        vel[p], rate[p] = v, g
        pos[p] = qd.math.clamp(pos[p] + DT * v, 2.0 * H, 1.0 - 2.0 * H)
        swell[p] = qd.math.clamp(swell[p] * (1.0 + DT * g.trace()), 0.6, 1.02)


@qd.kernel
def paint(image: qd.types.ndarray(dtype=qd.types.vector(3, qd.f32), ndim=2)):
    for i, j in ink:
        ink[i, j] = [0.0, 0.0]
    for p in pos:
        x = pos[p] * SIZE
        c = qd.cast(x, qd.i32)
        for a, b in qd.ndrange((-5, 6), (-5, 6)):
            r2 = (c + qd.Vector([a + 0.5, b + 0.5]) - x).norm_sqr() / 22.0
            if r2 < 1.0:
                ink[c + qd.Vector([a, b])] += (1.0 - r2) ** 2 * qd.Vector([1.0, vel[p].norm()])
    for i, j in image:
        x, y = j, SIZE - 1 - i
        color = qd.math.mix(qd.Vector([0.93, 0.95, 0.97]), qd.Vector([0.6, 0.72, 0.85]), y / SIZE)
        if 1 <= x < SIZE - 1 and 1 <= y < SIZE - 1:
            here, shine = ink[x, y], ink[x, y - 1].x - ink[x, y + 1].x
            foam = qd.math.clamp(here.y / (here.x + 1e-3) / 4.5, 0.0, 1.0)
            water = qd.math.mix(qd.Vector([0.03, 0.22, 0.48]), qd.Vector([0.35, 0.78, 0.9]), foam)
            water += qd.math.clamp(0.12 * shine, 0.0, 0.4)
            color = qd.math.mix(color, water, 0.94 * qd.math.smoothstep(0.8, 1.8, here.x))
        away = qd.Vector([x + 0.5, y + 0.5]) / SIZE - STONE
        stone = (0.45 + 1.6 * (away.y - away.x)) * qd.Vector([0.62, 0.56, 0.5])
        color = qd.math.mix(color, stone, qd.math.smoothstep(RADIUS, RADIUS - 0.004, away.norm()))
        image[i, j] = 255.0 * qd.math.clamp(color, 0.0, 1.0)


dam = np.arange(PARTICLES)[:, None] * [0.7548776662466927, 0.5698402909980532] % 1
pos.from_numpy((0.025 + dam * [0.42, 0.66]).astype(np.float32))
swell.fill(1.0)
image, frames, stepping, times = np.zeros((SIZE, SIZE, 3), np.float32), [], [], {}
for f in range(args.frames):
    begin = time.perf_counter()
    for _ in range(args.substeps if f else 1):
        step()
    qd.sync()
    stepping.append(1e3 * (time.perf_counter() - begin) / args.substeps)
    paint(image)
    frames.append(image.astype(np.uint8))
    times.setdefault("start to frame 1, ms", _common.since_start())

files = _common.save(args, "mpm_fluid", frames, still=len(frames) * 2 // 5)
times["steady step, ms"] = float(np.median(stepping))
_common.finish(args, times, *files)
