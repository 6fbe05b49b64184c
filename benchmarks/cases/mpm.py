"""How fast is a time step of a 2-D MLS-MPM fluid with 65,536 particles on a 128 x 128 grid?"""

import numpy as np

import child
import programs

CONTENDERS = child.DSL + child.CPP
PHASES = ("warm",)
TOLERANCE = 1e-3
TARGETS = {"warm step ms": [("established", 2.0), ("cpp", 0.9)]}
N = 65536


def cpp():
    import ctypes

    lib, g = child.cpp(), programs.GRID
    pos, vel = programs.mpm_state(N)
    affine, dilation = np.zeros((N, 4), np.float32), np.ones(N, np.float32)
    momentum, mass = np.zeros((g, g, 2), np.float32), np.zeros((g, g), np.float32)
    arrays = [child.pointer(a) for a in (pos, vel, affine, dilation, momentum, mass)]

    def load():
        start, speed = programs.mpm_state(N)
        np.copyto(pos, start)
        np.copyto(vel, speed)
        affine.fill(0)
        dilation.fill(1)

    def changes():
        start, speed = programs.mpm_state(N)
        return {"moved": pos - start, "gained": vel - speed, "dilation": dilation - 1}

    return load, lambda: lib.mpm(ctypes.c_long(N), *arrays), changes


def case(args):
    if args.contender == "cpp":
        load, step, changes = cpp()
        sync = lambda: None
    else:
        qd = child.start(args)
        load, step, changes = programs.mpm(qd, N)
        sync = qd.sync
    load()
    return child.checked(args, "step", step, sync, load, changes, repeats=20)


if __name__ == "__main__":
    child.main(case)
