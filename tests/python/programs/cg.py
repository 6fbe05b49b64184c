"""Matrix-free conjugate gradients for a Poisson problem, with a data-oriented solver."""

import quadrants as qd


@qd.data_oriented
class Poisson:
    def __init__(self, n, dtype):
        self.n = n
        self.x, self.r, self.p, self.ap, self.b = (qd.field(dtype, (n, n)) for _ in range(5))
        self.alpha, self.beta = qd.field(dtype, ()), qd.field(dtype, ())

    @qd.func
    def at(self, f: qd.template(), i, j):
        result = f[i, j] * 0
        if 0 <= i < self.n and 0 <= j < self.n:
            result = f[i, j]
        return result

    @qd.kernel
    def setup(self):
        for i, j in self.b:
            u, v = (i + 1) / (self.n + 1), (j + 1) / (self.n + 1)
            self.b[i, j] = qd.sin(3.1 * u) * qd.cos(2.3 * v) + (1 if i == j else 0)
            self.x[i, j] = 0
            self.r[i, j] = self.b[i, j]
            self.p[i, j] = self.r[i, j]

    @qd.kernel
    def multiply(self):
        for i, j in self.ap:
            q = 4 * self.p[i, j]
            for di, dj in qd.static(((1, 0), (-1, 0), (0, 1), (0, -1))):
                k, l = i + di, j + dj
                if k >= 0 and k < self.n and l >= 0 and l < self.n:
                    q -= self.p[k, l]
            self.ap[i, j] = q + 0.1 * self.p[i, j]

    @qd.kernel
    def dot(self, a: qd.template(), b: qd.template()) -> qd.f64:
        s = qd.f64(0.0)
        for I in qd.grouped(a):
            s += a[I] * b[I]
        return s

    @qd.kernel
    def advance(self):
        for I in qd.grouped(self.x):
            self.x[I] += self.alpha[None] * self.p[I]
            self.r[I] -= self.alpha[None] * self.ap[I]

    @qd.kernel
    def direct(self):
        for I in qd.grouped(self.p):
            self.p[I] = self.r[I] + self.beta[None] * self.p[I]

    def solve(self, tolerance):
        self.setup()
        rr = self.dot(self.r, self.r)
        steps = 0
        while rr > tolerance**2 and steps < 500:
            self.multiply()
            self.alpha[None] = rr / self.dot(self.p, self.ap)
            self.advance()
            new = self.dot(self.r, self.r)
            self.beta[None] = new / rr
            self.direct()
            rr, steps = new, steps + 1
        return steps


def main():
    fine = Poisson(40, qd.f64)
    steps = fine.solve(1e-9)
    coarse = Poisson(20, qd.f32)
    coarse.solve(1e-4)
    assert 20 < steps < 200
    return {"fine": fine.x.to_numpy()[::2, ::2], "coarse": coarse.x.to_numpy()}
