"""How long do `import` (beyond NumPy) and `init` take in a process that needs nothing else?"""

import child

CONTENDERS = child.DSL
PHASES = ("cold", "warm")
TARGETS = {"warm import ms": 20, "warm init ms": 5, "cold import ms": 20, "cold init ms": 5}


def case(args):
    import numpy  # noqa: F401  (what is measured comes on top of it)

    begin = child.clock()
    qd = child.load(args.contender)
    imported = child.clock()
    qd.init(arch=qd.cpu, log_level=qd.ERROR)
    ready = child.clock()
    return {"import ms": 1e3 * (imported - begin), "init ms": 1e3 * (ready - imported)}, {}


if __name__ == "__main__":
    child.main(case)
