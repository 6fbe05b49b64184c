"""Mirror, glass and matt balls on a chequered floor: a ray tracer with soft light, as a picture."""

import numpy as np

import _common
import quadrants as qd

args = _common.options(__doc__, width=640, height=400, samples=3)
qd.init(arch=qd.cpu)

vec3 = qd.types.vector(3, qd.f32)
MATT, MIRROR, GLASS, FAR = 0, 1, 2, 1e8
LIGHT = qd.Vector([0.45, 0.8, -0.4]).normalized()


@qd.dataclass
class Ball:
    center: vec3
    radius: qd.f32
    color: vec3
    kind: qd.i32

    @qd.func
    def distance(self, origin, ray):
        m = origin - self.center
        b = m.dot(ray)
        root = qd.sqrt(qd.max(b * b - m.norm_sqr() + self.radius**2, 0.0))
        t = -b - root if -b - root > 1e-3 else -b + root
        return t if root > 0.0 and t > 1e-3 else FAR


SCENE = (
    Ball(vec3(-1.15, 0.75, 0.4), 0.75, vec3(0.95, 0.95, 0.95), MIRROR),
    Ball(vec3(0.55, 0.6, -0.35), 0.6, vec3(0.97, 0.99, 0.98), GLASS),
    Ball(vec3(1.75, 0.45, 0.9), 0.45, vec3(0.8, 0.2, 0.15), MATT),
    Ball(vec3(-0.15, 0.3, -1.05), 0.3, vec3(0.1, 0.3, 0.8), MATT),
    Ball(vec3(0.45, 0.9, 2.1), 0.9, vec3(0.95, 0.75, 0.35), MIRROR),
)
balls = Ball.field(shape=len(SCENE))
for number in range(len(SCENE)):
    balls[number] = SCENE[number]


@qd.func
def nearest(origin, ray):
    """Distance and number of what a ray meets: a ball, -1 the floor, -2 (and FAR) the sky."""
    best, which = FAR, -2
    if ray.y < -1e-5 and origin.y > 1e-3:
        best, which = -origin.y / ray.y, -1
    for k in range(balls.shape[0]):
        t = balls[k].distance(origin, ray)
        if t < best:
            best, which = t, k
    return best, which


@qd.func
def sky(ray):
    blue = qd.math.mix(vec3(0.85, 0.90, 0.95), vec3(0.25, 0.45, 0.80), qd.max(ray.y, 0.0))
    return blue + 8.0 * qd.max(ray.dot(LIGHT), 0.0) ** 2048


@qd.func
def matt(place, normal, color):
    """Direct light where no ball is in the way, plus some of the sky's."""
    t, which = nearest(place + 2e-3 * normal, LIGHT)
    sun = 0.0 if which >= 0 else qd.max(normal.dot(LIGHT), 0.0)
    return color * (0.95 * sun * vec3(1.0, 0.95, 0.85) + (0.25 + 0.15 * normal.y) * sky(normal))


@qd.func
def backdrop(place, ray, which):
    color = sky(ray)
    if which == -1:
        dark = (int(qd.floor(place.x)) + int(qd.floor(place.z))) % 2
        seen = matt(place, vec3(0.0, 1.0, 0.0), vec3(0.28 if dark else 0.75))
        color = qd.math.mix(color, seen, qd.exp(-0.006 * place.norm_sqr()))
    return color


@qd.func
def trace(origin, ray):
    light, tint = vec3(0.0), vec3(1.0)
    for _ in range(8):
        t, which = nearest(origin, ray)
        origin += t * ray
        if which < 0:
            light = tint * backdrop(origin, ray, which)
            break
        ball = balls[which]
        normal = (origin - ball.center) / ball.radius
        if ball.kind == MATT:
            light = tint * matt(origin, normal, ball.color)
            break
        ahead, side = qd.math.reflect(ray, normal), qd.math.sign(-ray.dot(normal))
        if ball.kind == GLASS:
            bent = qd.math.refract(ray, side * normal, 1.5 ** (-side))
            ahead = bent.normalized() if bent.norm_sqr() > 0.0 else ahead
        ray, tint = ahead, tint * ball.color
    return light


@qd.kernel
def render(image: qd.types.ndarray(dtype=vec3, ndim=2), samples: int):
    for i, j in image:
        total = vec3(0.0)
        for a, b in qd.ndrange(samples, samples):
            x = j + (a + 0.5) / samples - 0.5 * image.shape[1]
            y = 0.5 * image.shape[0] - i - (b + 0.5) / samples
            ray = vec3(x, y - 0.15 * image.shape[0], 1.35 * image.shape[0]).normalized()
            total += trace(vec3(0.0, 1.2, -4.6), ray)
        image[i, j] = 255.0 * qd.min(total / samples**2, 1.0) ** (1.0 / 2.2)


image = np.zeros((args.height, args.width, 3), np.float32)
times = _common.clocked(lambda: (render(image, args.samples), qd.sync()))
_common.finish(args, times, *_common.save(args, "ray_tracer", [image.astype(np.uint8)]))
