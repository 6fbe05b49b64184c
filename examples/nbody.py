"""Two disc galaxies pass each other: gravity among all pairs of bodies, as an animation.

Leapfrog steps with softened forces; bodies glow additively, coloured by the galaxy they come from.
"""

import time

import numpy as np

import _common
import quadrants as qd

args = _common.options(__doc__, bodies=4000, frames=80, substeps=4)
qd.init(arch=qd.cpu)

N, SIZE = args.bodies, 420
DT, SOFT, VIEW = 0.006, 0.05, 3.0
vec3 = qd.types.vector(3, qd.f32)

pos = vec3.field(shape=N)
vel = vec3.field(shape=N)
mass = qd.field(qd.f32, N)
glow = qd.Vector.field(3, qd.f32, (SIZE, SIZE))


@qd.func
def pull(here):
    """Acceleration that all bodies together cause at a place."""
    total = vec3(0.0)
    for j in range(N):
        d = pos[j] - here
        inv = qd.rsqrt(d.norm_sqr() + SOFT * SOFT)
        total += mass[j] * inv**3 * d
    return total


@qd.kernel
def kick(dt: float):
    for i in vel:
        vel[i] += dt * pull(pos[i])


@qd.kernel
def drift(dt: float):
    for i in pos:
        pos[i] += dt * vel[i]


@qd.kernel
def energy() -> qd.f64:
    total = qd.f64(0.0)
    for i in pos:
        potential = 0.0
        for j in range(N):
            if i != j:
                potential -= mass[j] * qd.rsqrt((pos[j] - pos[i]).norm_sqr() + SOFT * SOFT)
        total += mass[i] * (0.5 * vel[i].norm_sqr() + 0.5 * potential)
    return total


@qd.kernel
def paint(image: qd.types.ndarray(dtype=qd.f32, ndim=3)):
    for i, j in glow:
        glow[i, j] = [0.0, 0.0, 0.0]
    for k in pos:
        near = 1.0 / (1.0 + qd.exp(-1.5 * pos[k].z))
        x = (pos[k].xy / VIEW + 0.5) * SIZE
        c = qd.cast(qd.floor(x), qd.i32)
        tint = vec3(0.30, 0.55, 1.0) if k % 2 == 0 else vec3(1.0, 0.62, 0.28)
        for a, b in qd.ndrange((-2, 3), (-2, 3)):
            p = c + qd.Vector([a, b])
            if 0 <= p.x < SIZE and 0 <= p.y < SIZE:
                r2 = (qd.cast(p, qd.f32) + 0.5 - x).norm_sqr()
                glow[p] += (0.2 + near) * qd.exp(-0.7 * r2) * tint
    for i, j in glow:
        light = 1.0 - qd.exp(-0.9 * glow[j, SIZE - 1 - i])
        for c in qd.static(range(3)):
            image[i, j, c] = 255.0 * light[c] + 8.0


def galaxies():
    """Even bodies make one disc, odd ones the other; circular speeds around heavy cores."""
    rng = np.random.default_rng(7)
    first = np.arange(N)[:, None] % 2 == 0
    weight = np.full(N, 0.1 / N, np.float32)
    weight[:2] = 1.0
    radius, angle = 0.1 + 0.5 * np.sqrt(rng.random(N)), 2 * np.pi * rng.random(N)
    speed = radius * (radius**2 + SOFT**2) ** -0.75
    c, s, zero = np.cos(angle), np.sin(angle), np.zeros(N)
    x = np.stack([radius * c, radius * s, 0.02 * rng.normal(size=N)], 1)
    v = np.stack([-speed * s, speed * c, zero], 1)
    x[:2] = v[:2] = 0.0
    lean = np.array([[0.8, 0.0, 0.6], [0.3, 0.866, -0.4], [-0.52, 0.5, 0.693]])
    x, v = np.where(first, x, x @ lean.T), np.where(first, v, v @ lean.T)
    x += np.where(first, 1, -1) * [0.85, 0.35, 0.0]
    v += np.where(first, 1, -1) * [-0.55, 0.05, 0.0]
    return x.astype(np.float32), v.astype(np.float32), weight


for field, values in zip((pos, vel, mass), galaxies()):
    field.from_numpy(values)
image, frames, stepping, times = np.zeros((SIZE, SIZE, 3), np.float32), [], [], {}
before = energy()
for _ in range(args.frames):
    paint(image)
    frames.append(image.clip(0, 255).astype(np.uint8))
    times.setdefault("start to frame 1, ms", _common.since_start())
    begin = time.perf_counter()
    for _ in range(args.substeps):
        kick(DT / 2)
        drift(DT)
        kick(DT / 2)
    qd.sync()
    stepping.append(1e3 * (time.perf_counter() - begin) / args.substeps)
times["steady step, ms"] = float(np.median(stepping))
times["energy drift, percent"] = 100 * abs(energy() / before - 1)
_common.finish(args, times, *_common.save(args, "nbody", frames, still=len(frames) * 7 // 10))
