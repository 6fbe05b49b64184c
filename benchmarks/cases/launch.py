"""What does a launch cost when the kernel has next to nothing to do?

A kernel over a 16-element field; six ndarrays and a scalar; scalars in and a scalar out; and what
simulators do: a method of a data-oriented object that takes a frozen dataclass of 117 arrays (of
which the kernel reads six) and a scalar.
"""

import dataclasses

import numpy as np

import child

CONTENDERS = child.DSL
PHASES = ("warm",)
TARGETS = {
    "warm field us": 0.4,
    "warm ndarrays us": 1.0,
    "warm scalar us": 0.6,
    "warm dataclass us": 1.5,
}
ARRAYS = 117


def ramp():
    return np.arange(16, dtype=np.float32)


def field(qd):
    x = qd.field(qd.f32, 16)

    @qd.kernel
    def bump():
        for i in x:
            x[i] = x[i] * 0.5 + 1.0

    return bump, lambda: x.from_numpy(ramp()), lambda: x.to_numpy().tolist()


def ndarrays(qd):
    array = qd.types.ndarray(dtype=qd.f32, ndim=1)

    @qd.kernel
    def mix(a: array, b: array, c: array, d: array, e: array, f: array, s: qd.f32):
        for i in a:
            f[i] = s * (a[i] + b[i] + c[i] + d[i] + e[i]) + 0.5 * f[i]

    arrays = [qd.ndarray(qd.f32, 16) for _ in range(6)]

    def reset():
        for k, a in enumerate(arrays):
            a.from_numpy(ramp() + k)

    return lambda: mix(*arrays, 0.5), reset, lambda: arrays[5].to_numpy().tolist()


def scalar(qd):
    @qd.kernel
    def poly(a: qd.f32, b: qd.f32, n: qd.i32) -> qd.f32:
        return a * b + n

    return lambda: poly(1.5, 2.0, 3), lambda: None, lambda: poly(1.5, 2.0, 3)


def dataclass(qd):
    array = qd.types.ndarray(dtype=qd.f32, ndim=1)
    names = [f"a{k}" for k in range(ARRAYS)]
    State = dataclasses.make_dataclass("State", [(n, array) for n in names], frozen=True)
    state = State(*(qd.ndarray(qd.f32, 16) for _ in names))

    def reset():
        for k, n in enumerate(names):
            getattr(state, n).from_numpy(ramp() + k)

    @qd.data_oriented
    class Solver:
        def __init__(self):
            self.gain = 0.5

        @qd.kernel
        def advance(self, s: State, dt: qd.f32):
            for i in s.a0:
                total = s.a20[i] + s.a40[i] + s.a60[i] + s.a80[i] + s.a116[i]
                s.a0[i] = self.gain * s.a0[i] + dt * total

    solver = Solver()
    return lambda: solver.advance(state, 0.1), reset, lambda: state.a0.to_numpy().tolist()


def case(args):
    qd = child.start(args)
    numbers, result = {}, {}
    for build in (field, ndarrays, scalar, dataclass):
        if build is dataclass and args.contender == "taichi":
            continue  # it has no dataclass arguments
        call, reset, digest = build(qd)
        reset()
        median, best = child.steady(args, call, qd.sync, warm=1.0, measure=1.0)
        reset()
        call()
        call()
        result[build.__name__] = digest()  # by the code that was timed
        numbers |= {f"{build.__name__} us": 1e3 * median, f"{build.__name__} best us": 1e3 * best}
    return numbers, result


if __name__ == "__main__":
    child.main(case)
