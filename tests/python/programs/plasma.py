"""A magnetised plasma in a periodic box: charges on a grid, and how hot it is along which axis.

Particles leave their charge on the nine nodes around them; a relaxation that starts from the last
potential gives the new one; the electric field pushes and the magnetic one turns them. At the end
coarse cells take the tensor of pressure and its principal values.
"""

import math

import numpy as np

import quadrants as qd

SIDE, PAIRS, STEPS, ROUNDS = 24, 500, 50, 20
COARSE = 4
DT, FIELD, CHARGE = 0.08, 1.5, 0.5
ELECTRON, ION, DUST = 0, 1, 2
MASSES, CHARGES = (0.25, 1.0, 4.0), (-CHARGE, CHARGE, 0.0)

place = qd.Vector.field(2, float, 2 * PAIRS)
speed = qd.Vector.field(2, float, 2 * PAIRS)
kind = qd.field(int, 2 * PAIRS)
density = qd.field(float, (SIDE, SIDE))
potential = qd.field(float, (2, SIDE, SIDE))  # of this round and of the last
force = qd.Vector.field(2, float, (SIDE, SIDE))
drift = qd.Vector.field(2, float, (COARSE, COARSE))
weight = qd.field(float, (COARSE, COARSE))
pressure = qd.Matrix.field(2, 2, dtype=float, shape=(COARSE, COARSE))
heat = qd.Vector.field(2, float, (COARSE, COARSE))


@qd.func
def mass_and_charge(which):
    m, q = MASSES[ION], CHARGES[ION]
    if which == ELECTRON:
        m, q = MASSES[ELECTRON], CHARGES[ELECTRON]
    elif which == DUST:
        m, q = MASSES[DUST], CHARGES[DUST]
    return m, q


@qd.func
def cloud(at):
    """The nearest node, and the share of a particle that it and its neighbours get per axis."""
    node = qd.floor(at + 0.5).cast(int)
    off = at - node.cast(float)
    return node, qd.Matrix.cols([0.5 * (0.5 - off) ** 2, 0.75 - off * off, 0.5 * (0.5 + off) ** 2])


@qd.func
def wrapped(node):
    return qd.Vector([node[0] % SIDE, node[1] % SIDE])


@qd.kernel
def deposit():
    for I in qd.grouped(density):
        density[I] = 0
    for p in place:
        node, share = cloud(place[p])
        _, q = mass_and_charge(kind[p])
        for step in qd.static(qd.grouped(qd.ndrange((-1, 2), (-1, 2)))):
            density[wrapped(node + step)] += q * share[0, step[0] + 1] * share[1, step[1] + 1]


@qd.kernel
def relax(new: int):
    for i, j in density:
        around = 0.0
        for axis in qd.static(range(2)):
            for way in qd.static((1, -1)):
                beside = wrapped(qd.Vector([i, j]) + way * qd.Vector.unit(2, axis, int))
                around += potential[1 - new, beside]
        potential[new, i, j] = 0.25 * (around + density[i, j])


@qd.kernel
def slope(now: int):
    for I in qd.grouped(force):
        east, north = wrapped(I + [1, 0]), wrapped(I + [0, 1])
        west, south = wrapped(I - qd.Vector([1, 0])), wrapped(I - qd.Vector([0, 1]))
        force[I] = [
            (potential[now, west] - potential[now, east]) / 2,
            (potential[now, south] - potential[now, north]) / 2,
        ]


@qd.kernel
def push():
    for p in place:
        node, share = cloud(place[p])
        pull = qd.Vector.zero(float, 2)
        for a, b in qd.static(qd.ndrange(3, 3)):
            pull += share[0, a] * share[1, b] * force[wrapped(node + qd.Vector([a - 1, b - 1]))]
        m, q = mass_and_charge(kind[p])
        kick = 0.5 * DT * q / m * pull
        half = 0.5 * DT * q * FIELD / m
        cosine, sine = (1 - half**2) / (1 + half**2), 2 * half / (1 + half**2)
        turn = qd.Matrix([[cosine, sine], [-sine, cosine]])
        after = turn @ (speed[p] + kick) + kick
        moved = place[p] + DT * after
        speed[p], place[p] = after, moved - SIDE * qd.floor(moved / SIDE)


@qd.func
def coarse(p):
    return qd.min((place[p] * (COARSE / SIDE)).cast(int), COARSE - 1)


@qd.kernel
def measure():
    for p in place:
        m, _ = mass_and_charge(kind[p])
        drift[coarse(p)] += m * speed[p]
        weight[coarse(p)] += m
    for i, j in weight:
        if weight[i, j] > 0:
            drift[i, j] = (1 / weight[i, j]) * drift[i, j]
    for p in place:
        own = speed[p] - drift[coarse(p)]
        m, _ = mass_and_charge(kind[p])
        pressure[coarse(p)] += m * own.outer_product(own)
    for I in qd.grouped(heat):
        tensor = pressure[I]
        U, principal, V = qd.svd(tensor)
        left = tensor - U @ principal @ V.transpose()
        trace = (tensor @ qd.Matrix.identity(float, 2)).trace()
        for axis in qd.static(range(2)):
            heat[I][axis] = principal[axis, axis] / trace + left.norm_sqr()


def main():
    rng = np.random.default_rng(5)
    electrons = np.arange(2 * PAIRS) < PAIRS
    at = rng.random((2 * PAIRS, 2)) * SIDE
    at[electrons, 0] += np.sin(2 * math.pi * at[electrons, 0] / SIDE)  # a wave of density
    place.from_numpy((at % SIDE).astype(np.float32))
    speed.from_numpy(rng.normal(0, [0.6, 0.2], (2 * PAIRS, 2)).astype(np.float32))
    kind.from_numpy(np.where(electrons, ELECTRON, np.where(rng.random(2 * PAIRS) < 0.9, ION, DUST)))
    for field in (potential, drift, weight):
        field.fill(0)
    pressure.fill([[0, 0], [0, 0]])
    for _ in range(STEPS):
        deposit()
        for k in range(ROUNDS):
            relax(k % 2)
        slope(1)
        push()
    measure()
    return {
        "density": density.to_numpy(),
        "potential": potential.to_numpy()[1] - potential.to_numpy()[1].mean(),
        "speed": speed.to_numpy(),
        "heat": np.sort(heat.to_numpy(), axis=-1),
    }
