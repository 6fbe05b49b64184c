"""A tiny path tracer: spheres, diffuse, mirror and glass, with an integer hash for randomness."""

import quadrants as qd
from quadrants.math import normalize, reflect, refract, vec3

W, H, SAMPLES, DEPTH = 40, 30, 8, 4
INF = 1e10

Sphere = qd.types.struct(center=vec3, radius=qd.f32, colour=vec3, kind=qd.i32)
spheres = Sphere.field(shape=5)
image = qd.Vector.field(3, qd.f32, (W, H))


@qd.func
def scramble(x):
    x ^= x >> 16
    x *= qd.u32(0x7FEB352D)
    x ^= x >> 15
    x *= qd.u32(0x846CA68B)
    return x ^ (x >> 16)


@qd.func
def uniform(state: qd.template()):
    state = scramble(state + qd.u32(0x9E3779B9))
    return float(state >> 8) / 16777216.0


@qd.func
def hit(o, d):
    nearest, which = INF, -1
    for k in range(spheres.shape[0]):
        oc = o - spheres[k].center
        b = oc.dot(d)
        disc = b * b - oc.norm_sqr() + spheres[k].radius ** 2
        if disc > 0:
            root = qd.sqrt(disc)
            t = -b - root
            if t < 1e-3:
                t = -b + root
            if 1e-3 < t < nearest:
                nearest, which = t, k
    return nearest, which


@qd.func
def on_sphere(state: qd.template()):
    z = 2 * uniform(state) - 1
    a = 2 * qd.math.pi * uniform(state)
    r = qd.sqrt(qd.max(0.0, 1 - z * z))
    return vec3(r * qd.cos(a), r * qd.sin(a), z)


@qd.kernel
def render():
    for i, j in image:
        total = vec3(0.0)
        for s in range(SAMPLES):
            state = scramble(qd.u32(i * 9781 + j * 6271 + s * 26699 + 1))
            px = (i + uniform(state)) / W - 0.5
            py = (j + uniform(state)) / H - 0.5
            o, d = vec3(0.0, 0.5, 3.0), normalize(vec3(px * 1.6, py * 1.2, -1.5))
            through, light = vec3(1.0), vec3(0.0)
            for bounce in range(DEPTH):
                t, k = hit(o, d)
                if k < 0:
                    light += through * (0.4 + 0.6 * d.y) * vec3(0.7, 0.8, 1.0)
                    break
                o += t * d
                n = (o - spheres[k].center) / spheres[k].radius
                through *= spheres[k].colour
                if spheres[k].kind == 0:
                    d = normalize(n + on_sphere(state) * 0.999)
                elif spheres[k].kind == 1:
                    d = reflect(d, n)
                else:
                    inside = d.dot(n) > 0
                    facing = -n if inside else n
                    bent = refract(d, facing, 1.5 if inside else 1 / 1.5)
                    d = reflect(d, facing) if bent.norm_sqr() < 1e-6 else normalize(bent)
            total += light
        image[i, j] = qd.sqrt(total / SAMPLES)


def main():
    scene = [((0, -100.5, 0), 100, (0.6, 0.6, 0.5), 0), ((0, 0.2, 0), 0.7, (0.8, 0.3, 0.3), 0),
             ((1.5, 0.3, -0.5), 0.8, (0.9, 0.9, 0.9), 1), ((-1.4, 0.1, 0.3), 0.6, (1, 1, 1), 2),
             ((0.5, -0.3, 1.0), 0.2, (0.3, 0.8, 0.3), 0)]  # fmt: skip
    for k, (c, r, colour, kind) in enumerate(scene):
        spheres[k] = Sphere(center=c, radius=r, colour=colour, kind=kind)
    render()
    a = image.to_numpy()
    return {"mean": a.mean(axis=(0, 1)), "blocks": a.reshape(8, 5, 6, 5, 3).mean(axis=(1, 3))}
