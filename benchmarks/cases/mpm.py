"""How fast is a time step of a 2-D MLS-MPM fluid with 65,536 particles on a 128 x 128 grid?"""

import child
import programs

CONTENDERS = child.DSL
PHASES = ("warm",)
TOLERANCE = 1e-3
TARGETS = {"warm step ms": ("established", 2.0)}


def case(args):
    qd = child.start(args)
    load, step, changes = programs.mpm(qd, 65536)
    load()
    return child.checked(args, "step", step, qd.sync, load, changes, repeats=20)


if __name__ == "__main__":
    child.main(case)
