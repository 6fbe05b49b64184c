"""What Genesis asks of the package before its first step: importing, decorating, compiling.

    genesis_compile.py import        a JSON line: seconds of `import quadrants` beyond numpy's
    genesis_compile.py decorate      a JSON line: decorations of Genesis' import and their seconds
    genesis_compile.py table TIER0 TIER1
                                     table of the ten largest kernels, from what QD_COMPILE_REPORT=2
                                     writes to stderr under QD_CPU_TIER=0 and 1

The first two run in a process of their own, with the package under test on the path.
"""

import json
import pathlib
import re
import statistics
import sys
import time


def importing():
    import numpy  # noqa: F401

    start = time.perf_counter()
    import quadrants  # noqa: F401

    seconds = time.perf_counter() - start
    return {"import s": seconds, "imports torch": "torch" in sys.modules}


def decorating():
    """CPU seconds of every `qd.kernel` and `qd.func`, with or without options.

    Ours only: the established package's decorators look at their caller's frame, which is a wrapper here.
    """
    import torch  # noqa: F401

    import quadrants as qd

    count, seconds = 0, 0.0

    def timed(decorator):
        def call(*args, **kwargs):
            nonlocal count, seconds
            start = time.thread_time()
            made = decorator(*args, **kwargs)
            seconds += time.thread_time() - start
            if args and callable(args[0]):
                count += 1
                return made
            return timed(made)  # @qd.kernel(fastcache=True)

        return call

    qd.kernel, qd.func = timed(qd.kernel), timed(qd.func)
    import genesis  # noqa: F401

    return {"decorations": count, "decorating s": seconds}


NUMBER = r"([\d.]+)"
KERNEL = re.compile(
    rf"\[compile\] (\S+): cold .* front end {NUMBER}, passes {NUMBER}, .*; (\d+) instructions -> (\d+) in "
    r"\d+ tasks; (\d+) funcs: (\d+) lowered, \d+ reused; (\d+) calls"
)
LLVM = re.compile(
    rf"llvm tier (\d) (\S+): target {NUMBER} ms, lowering {NUMBER}, passes {NUMBER}, code generation {NUMBER}"
)


def kernels(text):
    """Name -> numbers of one process."""
    found, llvm = {}, {}
    for line in text.splitlines():
        if m := KERNEL.match(line):
            found[m[1]] = llvm.pop(m[1], {}) | {
                "front": float(m[2]), "passes": float(m[3]), "before": int(m[4]), "after": int(m[5]),
                "functions": int(m[6]) + 1, "made": int(m[7]), "calls": int(m[8]),
            }  # fmt: skip
        elif m := LLVM.match(line):  # before the line of its kernel
            llvm[m[2]] = {f"tier {m[1]}": sum(map(float, m.groups()[2:]))}
    return found


def table(tier_0, tier_1):
    """Of the ten largest kernels, and of the time per instruction over all of them."""
    both = {k: v | {"tier 1": tier_1[k]["tier 1"]} for k, v in tier_0.items() if k in tier_1}
    both = {k: v for k, v in both.items() if "after" in v and "tier 0" in v}

    def per_instruction(k):
        return 1e3 * sum(k[p] for p in ("front", "passes", "tier 0", "tier 1")) / k["before"]

    ordered = sorted(both, key=lambda name: both[name]["before"], reverse=True)
    lines = [
        "Milliseconds of one thread; instructions of the IR; `made`: funcs whose bodies were walked for",
        "this kernel first, `functions`: funcs in its module, `calls`: calls of funcs walked.",
        "",
        "| kernel | instructions before | after | functions | made | calls | front end | passes | tier 0 | tier 1 | us per instruction |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in ordered[:10]:
        k = both[name]
        lines.append(
            f"| {re.sub(r'_c[0-9]+_[0-9]+$', '', name)} | {k['before']} | {k['after']} | {k['functions']} | {k['made']} | "
            f"{k['calls']} | {k['front']:.1f} | {k['passes']:.1f} | {k['tier 0']:.1f} | "
            f"{k['tier 1']:.1f} | {per_instruction(k):.1f} |"
        )
    top = [per_instruction(both[n]) for n in ordered[:10]]
    everything = [per_instruction(k) for k in both.values()]
    lines += [
        "",
        f"Time per instruction of the largest kernel over the median of the ten: {top[0] / statistics.median(top):.2f}; "
        f"over the median of all {len(both)}: {top[0] / statistics.median(everything):.2f}.",
    ]
    return "\n".join(lines)


def main():
    match sys.argv[1:]:
        case ["import"]:
            sys.path.pop(0)  # this folder, whose genesis.py is not the simulator
            print(json.dumps(importing()))
        case ["decorate"]:
            sys.path.pop(0)
            print(json.dumps(decorating()))
        case ["table", first, second]:
            print(table(*(kernels(pathlib.Path(p).read_text()) for p in (first, second))))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
