"""Lattice Boltzmann (D2Q9) flow past a cylinder."""

import numpy as np

import quadrants as qd

NX, NY, STEPS = 80, 40, 60
TAU = 0.6

dirs = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
weights = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4


@qd.data_oriented
class Flow:
    def __init__(self):
        self.f = qd.Vector.field(9, qd.f32, shape=(NX, NY))
        self.g = qd.Vector.field(9, qd.f32, shape=(NX, NY))
        self.rho = qd.field(qd.f32, shape=(NX, NY))
        self.u = qd.Vector.field(2, qd.f32, shape=(NX, NY))
        self.solid = qd.field(qd.i32, shape=(NX, NY))

    @qd.func
    def equilibrium(self, rho, u):
        e = qd.Vector.zero(qd.f32, 9)
        for k in qd.static(range(9)):
            eu = dirs[k][0] * u[0] + dirs[k][1] * u[1]
            e[k] = weights[k] * rho * (1 + 3 * eu + 4.5 * eu * eu - 1.5 * u.dot(u))
        return e

    @qd.kernel
    def setup(self):
        for i, j in self.rho:
            self.rho[i, j] = 1.0
            self.u[i, j] = [0.08, 0.005 * qd.sin(j * 0.3)]
            self.solid[i, j] = 0
            if (i - NX // 4) ** 2 + (j - NY // 2) ** 2 < 25:
                self.solid[i, j] = 1
                self.u[i, j] = [0.0, 0.0]
            self.f[i, j] = self.equilibrium(self.rho[i, j], self.u[i, j])

    @qd.kernel
    def collide_and_stream(self):
        for i, j in self.f:
            for k in qd.static(range(9)):
                si = (i - dirs[k][0] + NX) % NX
                sj = (j - dirs[k][1] + NY) % NY
                e = self.equilibrium(self.rho[si, sj], self.u[si, sj])
                self.g[i, j][k] = self.f[si, sj][k] + (e[k] - self.f[si, sj][k]) / TAU

    @qd.kernel
    def macroscopic(self):
        for i, j in self.f:
            self.f[i, j] = self.g[i, j]
            r = self.f[i, j].sum()
            u = qd.Vector([0.0, 0.0])
            for k in qd.static(range(9)):
                u += self.f[i, j][k] * qd.Vector([dirs[k][0], dirs[k][1]])
            self.rho[i, j] = r
            self.u[i, j] = u / r
        for i, j in self.f:
            if self.solid[i, j]:
                self.u[i, j] = [0.0, 0.0]
            if i == 0:
                self.u[i, j] = [0.08, 0.0]
                self.rho[i, j] = self.rho[1, j]


def main():
    flow = Flow()
    flow.setup()
    for _ in range(STEPS):
        flow.collide_and_stream()
        flow.macroscopic()
    u = flow.u.to_numpy()
    return {
        "u": u[::3, ::3],
        "speed": np.sqrt((u**2).sum(-1)).mean(0),
        "rho": flow.rho.to_numpy()[::3, ::3],
    }
