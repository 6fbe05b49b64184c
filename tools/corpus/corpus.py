#!/usr/bin/env python3
"""Which machine code did a change to the compiler change? Digests of a corpus of kernels, before and after.

    corpus.py collect FOLDER [--genesis VENV]   modules as text: examples, benchmarks, random programs, a Franka scene
    corpus.py digest FOLDER > DIGESTS           code of both tiers for five CPUs, by the compiler of this checkout
    corpus.py compare BEFORE AFTER              functions whose code differs; exit status 1 if there are any

A refactoring says in its commit: "corpus: N modules, 0 functions changed". `digest` needs `make build`. Where the
front end changes what it emits, collect again and compare by kernel.
"""

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"
COLLECT = ROOT / "tests" / "python" / "collect_modules.py"
USER_PROGRAM = """
import sys
sys.path.insert(0, {benchmarks!r})
import quadrants as qd, user_programs
qd.init(arch=qd.cpu)
step, reset, results = user_programs.PROGRAMS[{program!r}](qd)
step(), reset(), results()
"""
FRANKA = """
import sys
import genesis as gs
sys.path.insert(0, {benchmarks!r})
import genesis_scenes
gs.init(backend=gs.cpu, logging_level="error")
for environments in (0, 64):
    scene = gs.Scene(show_viewer=False)
    genesis_scenes._franka(gs, scene, environments)
    scene.build(n_envs=environments)
    scene.step()
"""
TO_TEXT = """
import pathlib, sys
from quadrants._lib import core
for path in pathlib.Path(sys.argv[1]).rglob("*.bin"):
    path.with_suffix(".qir").write_text(core._compiler_text(path.read_bytes(), "input"))
    path.unlink()
"""


def sources(scratch):
    """Name and command line for collect_modules.py of what this checkout has itself."""
    for example in ("mpm_fluid", "nbody", "photo_filters", "ray_tracer"):
        yield example, [ROOT / "examples" / f"{example}.py"]
    yield "bits", [ROOT / "tests" / "python" / "bits_program.py", scratch, "1", "float-atomics"]
    sys.path.insert(0, str(BENCHMARKS))
    import user_programs

    for program in user_programs.PROGRAMS:
        yield f"user_{program}", [written(scratch / f"{program}.py", USER_PROGRAM, program=program)]
    for batch in range(0, 20, 2):
        yield f"differential{batch}", [f"differential:{batch}"]


def written(path, template, **values):
    path.write_text(template.format(benchmarks=str(BENCHMARKS), **values))
    return path


def collect(folder, genesis):
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        runs = [(sys.executable, *source) for source in sources(scratch)]
        if genesis:
            env["PYTHONPATH"] = str(ROOT / "python")
            runs.append((genesis / "bin" / "python", "franka", [written(scratch / "f.py", FRANKA)]))
        for python, name, script in runs:
            target = folder.resolve() / name
            target.mkdir(parents=True, exist_ok=True)
            done = subprocess.run([python, COLLECT, target, *script], cwd=scratch, env=env,
                                  stdout=subprocess.DEVNULL, check=False)  # fmt: skip
            count = len(list(target.glob("*.bin")))
            if done.returncode or not count:
                sys.exit(f"{name}: exit status {done.returncode}, {count} modules")
            print(f"{name}: {count} modules")
    subprocess.run([sys.executable, "-c", TO_TEXT, folder], check=True)


def digest(folder):
    subprocess.run(["cmake", "--build", ROOT / "build", "--target", "qd_code_digest"],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.qir"))
    return subprocess.run([ROOT / "build" / "qd_code_digest", *files], cwd=folder).returncode


def read(path):
    """(kernel, CPU, tier, function) -> (bytes, digest)"""
    codes = {}
    for line in path.read_text().splitlines():
        words = line.split(" ")
        if len(words) != 6:
            sys.exit(f"{path}: {line}")
        codes[tuple(words[:4])] = (int(words[4]), words[5])
    return codes


def compare(before, after):
    old, new = read(before), read(after)
    changed = [k for k in sorted(old.keys() | new.keys()) if old.get(k) != new.get(k)]
    nothing = (0, "")
    per_kernel = collections.defaultdict(lambda: [0, 0, 0])
    for key in changed:
        row = per_kernel[key[0]]
        row[0] += 1
        row[1] += old.get(key, nothing)[0]
        row[2] += new.get(key, nothing)[0]
    for kernel, (count, was, now) in per_kernel.items():
        print(f"{kernel}: {count} functions, {was} -> {now} bytes")
    modules = {k[0] for k in new}
    print(f"corpus: {len(modules)} modules, {len(new)} functions of code, {len(changed)} changed")
    return 1 if changed else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("collect")
    command.add_argument("folder", type=pathlib.Path)
    command.add_argument(
        "--genesis", type=pathlib.Path, help="a virtual environment with genesis-world"
    )
    commands.add_parser("digest").add_argument("folder", type=pathlib.Path)
    command = commands.add_parser("compare")
    command.add_argument("before", type=pathlib.Path)
    command.add_argument("after", type=pathlib.Path)
    args = parser.parse_args()
    if args.command == "collect":
        collect(args.folder, args.genesis)
    elif args.command == "digest":
        sys.exit(digest(args.folder))
    else:
        sys.exit(compare(args.before, args.after))


if __name__ == "__main__":
    main()
