"""Does generated code keep up on kernels such as users write, one of each kind?

The programs are in `user_programs.py`. The clock runs on optimised code, and what that makes of a
fresh start is compared.
"""

import child
import user_programs

CONTENDERS = child.DSL
PHASES = ("warm",)
TOLERANCE = 1e-3
TIMEOUT = 400
TARGETS = {f"warm {name} ms": ("established", 1.0) for name in user_programs.PROGRAMS}


def case(args):
    qd = child.start(args)
    numbers, result = {}, {}
    for name, build in user_programs.PROGRAMS.items():
        step, reset, results = build(qd)
        reset()
        times, sums = child.checked(args, name, step, qd.sync, reset, results, user_programs.STEPS)
        numbers |= times
        result |= sums
    return numbers, result


if __name__ == "__main__":
    child.main(case)
