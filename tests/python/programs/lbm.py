"""Populations of nine speeds on a lattice: a channel with a round pillar, walls that send back."""

import numpy as np

import quadrants as qd

LONG, TALL, STEPS = 80, 40, 60
RATE = 1.6  # relaxation per step
INFLOW, PILLAR = 0.08, (22.0, 19.3, 5.2)

# Each speed as (x, y, share at rest); the one at 8 - k is the opposite of k.
SPEEDS = [
    (x, y, (16, 4, 1)[abs(x) + abs(y)] / 36) for x in (-1, 0, 1) for y in (-1, 0, 1)
]  # fmt: skip


@qd.data_oriented
class Channel:
    def __init__(self):
        self.moving = qd.Vector.field(9, qd.f32, shape=(LONG, TALL))
        self.met = qd.Vector.field(9, qd.f32, shape=(LONG, TALL))
        self.wall = qd.field(qd.i32, shape=(LONG, TALL))
        self.flow = qd.Vector.field(3, qd.f32, shape=(LONG, TALL))  # velocity, density

    @qd.func
    def at_rest(self, density, velocity):
        out = qd.Vector.zero(qd.f32, 9)
        for k, speed in qd.static(enumerate(SPEEDS)):
            along = qd.Vector(speed[:2]).dot(velocity)
            bend = along * along * 9 / 2 - velocity.norm_sqr() * 3 / 2
            out[k] = speed[2] * density * (1 + 3 * along + bend)
        return out

    @qd.func
    def moments(self, populations):
        density, momentum = populations.sum(), qd.Vector([0.0, 0.0])
        for k in qd.static(range(9)):
            momentum += populations[k] * qd.Vector(SPEEDS[k][:2])
        return density, momentum / density

    @qd.kernel
    def fill(self):
        for x, y in self.wall:
            inside = (x - PILLAR[0]) ** 2 + (y - PILLAR[1]) ** 2 < PILLAR[2] ** 2
            self.wall[x, y] = 1 if inside or y == 0 or y == TALL - 1 else 0
            swirl = 0.01 * qd.sin(0.3 * y) if self.wall[x, y] == 0 else 0.0
            self.moving[x, y] = self.at_rest(1.0, qd.Vector([INFLOW, swirl]))

    @qd.kernel
    def meet(self):
        for cell in qd.grouped(self.met):
            arrived = self.moving[cell]
            if self.wall[cell]:
                for k in qd.static(range(9)):
                    self.met[cell][k] = arrived[8 - k]
            else:
                density, velocity = self.moments(arrived)
                self.met[cell] = arrived + RATE * (self.at_rest(density, velocity) - arrived)

    @qd.kernel
    def move(self):
        for x, y in self.moving:
            for k in qd.static(range(9)):
                came_x = qd.math.clamp(x - SPEEDS[k][0], 0, LONG - 1)
                came_y = (y - SPEEDS[k][1] + TALL) % TALL
                self.moving[x, y][k] = self.met[came_x, came_y][k]
            if x == 0:
                self.moving[x, y] = self.at_rest(1.0, qd.Vector([INFLOW, 0.0]))

    @qd.kernel
    def look(self):
        for cell in qd.grouped(self.flow):
            density, velocity = self.moments(self.moving[cell])
            free = 1 - self.wall[cell]
            self.flow[cell] = qd.Vector([free * velocity.x, free * velocity.y, density])


def main():
    channel = Channel()
    channel.fill()
    for _ in range(STEPS):
        channel.meet()
        channel.move()
    channel.look()
    flow = channel.flow.to_numpy()
    return {
        "velocity": flow[::3, ::3, :2],
        "speed": np.hypot(flow[..., 0], flow[..., 1]).mean(0),
        "density": flow[::3, ::3, 2],
    }
