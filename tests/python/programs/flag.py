"""A flag on its pole in gusty wind: a net of springs with pressure on its triangles, in ndarrays."""

import numpy as np

import quadrants as qd

COLUMNS, ROWS, STEPS = 22, 14, 140
GAP, TICK, MASS = 0.05, 1.5e-3, 4e-3

vec3 = qd.types.vector(3, qd.f32)
Net = qd.types.ndarray(dtype=vec3, ndim=2)

# What ties a node to others: steps along the net and newtons per metre. Longer ties resist bending.
TIES = [
    ((1, 0), 60.0),
    ((0, 1), 60.0),
    ((1, 1), 25.0),
    ((1, -1), 25.0),
    ((2, 0), 6.0),
    ((0, 2), 6.0),
]


@qd.func
def inside(node):
    return 0 <= node[0] < COLUMNS and 0 <= node[1] < ROWS


@qd.func
def tie_pull(net: Net, here, there, stiffness):
    pull = vec3(0.0)
    if inside(there):
        rest = GAP * float((there - here).cast(qd.f32).norm())
        span = net[there] - net[here]
        pull = stiffness * (1 - rest / span.norm()) * span
    return pull


@qd.func
def gust(at, time):
    return vec3(6.0, 0.4 * qd.sin(9 * at.x), 2.5 * qd.sin(3 * time + 4 * at.x + at.y))


@qd.kernel
def hang(net: Net, momentum: Net):
    for c, r in net:
        net[c, r] = [c * GAP, r * GAP, 0.004 * ((3 * c + r) % 5)]
        momentum[c, r] = [0, 0, 0]


@qd.kernel
def blow(net: Net, push: Net, time: qd.f32):
    for node in qd.grouped(push):
        push[node] = vec3(0, -9.81 * MASS, 0)
    for c, r in qd.ndrange(COLUMNS - 1, ROWS - 1):
        for upper in qd.static((False, True)):
            a = qd.Vector([c + 1, r + 1]) if qd.static(upper) else qd.Vector([c, r])
            b, d = qd.Vector([c + 1, r]), qd.Vector([c, r + 1])
            area = 0.5 * (net[b] - net[a]).cross(net[d] - net[a])  # along the normal
            middle = (net[a] + net[b] + net[d]) / 3
            weight = gust(middle, time).dot(area) / (area.norm() + 1e-9)
            force = 0.15 * abs(weight) * weight * area
            for corner in qd.static((0, 1, 2)):
                push[[a, b, d][corner]] += force / 3


@qd.kernel
def pull(net: Net, push: Net):
    for node in qd.grouped(push):
        for tie, stiffness in qd.static(TIES):
            step = qd.Vector(tie)
            push[node] += tie_pull(net, node, node + step, stiffness)
            push[node] += tie_pull(net, node, node - step, stiffness)


@qd.kernel
def go_on(net: Net, momentum: Net, push: Net):
    for node in qd.grouped(net):
        if node[0] > 0:  # the pole holds the first column
            momentum[node] = qd.exp(-1.5 * TICK) * (momentum[node] + TICK * push[node])
            net[node] += TICK / MASS * momentum[node]


def main():
    net, momentum = qd.ndarray(vec3, (COLUMNS, ROWS)), qd.Vector.ndarray(3, qd.f32, (COLUMNS, ROWS))
    push = qd.ndarray(vec3, (COLUMNS, ROWS))
    hang(net, momentum)
    for k in range(STEPS):
        blow(net, push, k * TICK)
        pull(net, push)
        go_on(net, momentum, push)
    p = net.to_numpy()
    assert np.abs(np.diff(p, axis=0)).max() < 2 * GAP
    return {"net": p[::3, ::3], "depth": np.ptp(p[..., 2], axis=1), "mean": p.mean(axis=(0, 1))}
