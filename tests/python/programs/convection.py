"""A layer of fluid heated from below: vorticity and temperature carried by a stream function."""

import numpy as np

import quadrants as qd

WIDE, HIGH, STEPS, SWEEPS = 48, 24, 60, 40
DT, CONDUCTION, FRICTION, LIFT = 0.2, 0.06, 0.08, 0.6


class Swapped:
    """A quantity now, and room for what it becomes."""

    def __init__(self):
        self.rooms = [qd.field(float, (WIDE, HIGH)) for _ in range(2)]

    @property
    def now(self):
        return self.rooms[0]

    @property
    def later(self):
        return self.rooms[1]

    def turn(self):
        self.rooms.reverse()


heat, spin, stream = Swapped(), Swapped(), Swapped()


@qd.func
def beside(f: qd.template(), cell, step):
    """Round in the horizontal, up to the walls in the vertical."""
    there = cell + step
    return f[(there[0] + WIDE) % WIDE, qd.math.clamp(there[1], 0, HIGH - 1)]


@qd.func
def upstream(f: qd.template(), cell, flow):
    """Change of `f` by what flows in: differences against the flow, per axis."""
    change = 0.0
    for axis in qd.static(range(2)):
        forth = qd.Vector.unit(2, axis, int)
        gain = (
            f[cell] - beside(f, cell, -forth)
            if flow[axis] > 0
            else beside(f, cell, forth) - f[cell]
        )
        change -= flow[axis] * gain
    return change


@qd.func
def spread(f: qd.template(), cell):
    total = -4.0 * f[cell]
    for x, y in qd.static(((1, 0), (-1, 0), (0, 1), (0, -1))):
        total += beside(f, cell, qd.Vector([x, y]))
    return total


@qd.kernel
def begin(f: qd.template()):
    for x, y in f:
        wave = qd.sin(6.2831853 * x / WIDE) + 0.4 * qd.cos(3 * 6.2831853 * x / WIDE)
        f[x, y] = 1 - y / (HIGH - 1) + 0.05 * wave * qd.sin(3.1415927 * y / (HIGH - 1))


@qd.kernel
def sweep(old: qd.template(), new: qd.template(), source: qd.template()):
    for cell in qd.grouped(old):
        new[cell] = 0.0
        if 0 < cell[1] < HIGH - 1:
            new[cell] = old[cell] + 0.25 * (spread(old, cell) + source[cell])


@qd.kernel
def carry(
    psi: qd.template(), t: qd.template(), w: qd.template(), t2: qd.template(), w2: qd.template()
):
    for cell in qd.grouped(psi):
        t2[cell], w2[cell] = t[cell], 0.0
        if 0 < cell[1] < HIGH - 1:
            right, up = qd.Vector([1, 0]), qd.Vector([0, 1])
            flow = qd.Vector([0.0, 0.0])
            flow.x = (beside(psi, cell, up) - beside(psi, cell, -up)) / 2
            flow.y = (beside(psi, cell, -right) - beside(psi, cell, right)) / 2
            tilt = (beside(t, cell, right) - beside(t, cell, -right)) / 2
            t2[cell] += DT * (upstream(t, cell, flow) + CONDUCTION * spread(t, cell))
            w2[cell] = w[cell] + DT * (
                upstream(w, cell, flow) + FRICTION * spread(w, cell) + LIFT * tilt
            )


def main():
    begin(heat.now)
    for f in (*spin.rooms, *stream.rooms):
        f.fill(0)
    for _ in range(STEPS):
        for _ in range(SWEEPS):
            sweep(stream.now, stream.later, spin.now)
            stream.turn()
        carry(stream.now, heat.now, spin.now, heat.later, spin.later)
        heat.turn()
        spin.turn()
    t = heat.now.to_numpy()
    assert -0.1 < t.min() and t.max() < 1.1
    return {"heat": t[::2, ::2], "spin": spin.now.to_numpy()[::2, ::2],
            "strength": np.abs(stream.now.to_numpy()).max()}  # fmt: skip
