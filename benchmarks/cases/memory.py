"""How much memory does a process that runs one trivial kernel need at its peak (VmHWM)?"""

import child
import programs

CONTENDERS = child.DSL
PHASES = ("cold", "warm")
TARGETS = {"cold peak MB": 80, "warm peak MB": 45}


def case(args):
    qd = child.start(args)
    x, ramp, _ = programs.trivial(qd)
    ramp()
    qd.sync()
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    return {"peak MB": peak / 1024}, {"x": x.to_numpy().tolist()}


if __name__ == "__main__":
    child.main(case)
