"""What an edit of one function costs: the largest kernel of Genesis' Franka scene, in ms.

    genesis_edit.py GENESIS          the folder of the installed package `genesis`

Runs the scene on a copy of it: cold, warm, and after an edit of a function that the kernel calls, each time in a
process of its own with one cache folder. Tells the stages of the kernel's first call, and what optimising
it took. Ours only: wall times, so on a quiet machine.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

KERNEL = "kernel_detection"
# File below genesis, what stands there, what takes its place: no name, type or argument changes.
EDITS = {
    "a leaf (mpr_portal_dir)": (
        "engine/solvers/rigid/collider/mpr.py",
        "direction = v2v1.cross(v3v1).normalized()",
        "direction = (v2v1 * {factor}).cross(v3v1).normalized()",
    ),
    "in the middle (func_safe_epa)": (
        "engine/solvers/rigid/collider/epa.py",
        "upper2 = collider_info.gjk.FLOAT_MAX_SQ[None]\n    lower",
        "upper2 = collider_info.gjk.FLOAT_MAX_SQ[None] / {factor}\n    lower",
    ),
}
SCENE = """
import genesis as gs
gs.init(backend=gs.cpu, logging_level="error")
scene = gs.Scene(show_viewer=False)
scene.add_entity(gs.morphs.Plane())
scene.add_entity(gs.morphs.MJCF(file="xml/franka_emika_panda/panda.xml"))
scene.build()
for _ in range(5):
    scene.step()
from quadrants._lib import core
core.finish_optimisations()
"""
NUMBER = r"([\d.]+)"
FIRST = re.compile(
    rf"\[compile\] {KERNEL}_\S+: (cold|stored code) {NUMBER} ms \(look-up {NUMBER}, front end {NUMBER}, passes {NUMBER}, "
    rf"code generation {NUMBER} of tier 0(?: \((\d+) of (\d+) parts reused\))?.*?other {NUMBER}\)"
)
WARM = re.compile(rf"\[compile\] {KERNEL}_\S+: from cache {NUMBER} ms")
OPTIMISED = re.compile(rf"\[compile\] {KERNEL}_\S+: optimised {NUMBER} ms")


def run(folder, title):
    env = dict(os.environ, HOME=str(folder), QD_COMPILE_REPORT="1")
    package = pathlib.Path(__file__).resolve().parent.parent / "python"
    env["PYTHONPATH"] = os.pathsep.join(map(str, [folder / "copy", package]))
    done = subprocess.run(
        [sys.executable, "-c", SCENE], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    optimised = OPTIMISED.search(done.stderr)
    later = float(optimised[1]) if optimised else 0
    if m := FIRST.search(done.stderr):
        total, _, front, passes, code, other = map(float, m.group(2, 3, 4, 5, 6, 9))
        parts = f"{m[7]} of {m[8]}" if m[8] else ""
        row = (
            f"{total:9.1f}{front:11.1f}{passes:8.1f}{code:9.1f}{other:7.1f}{parts:>9}{later:11.1f}"
        )
    else:
        m = WARM.search(done.stderr)
        assert m, done.stderr[-2000:]
        row = f"{float(m[1]):9.1f}"
    print(f"{title:40}{row}", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("genesis", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{KERNEL:40}    total  front end  passes   quick  other   reused  optimised")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copytree(args.genesis, folder / "copy" / "genesis")
        for k in range(args.rounds):
            shutil.rmtree(folder / ".cache" / "quadrants", ignore_errors=True)
            run(folder, f"cold {k + 1}")
        run(folder, "warm")
        for title, (file, old, new) in EDITS.items():
            path = folder / "copy" / "genesis" / file
            usual = path.read_text()
            assert old in usual, f"{file} has no line `{old}`"
            for k in range(args.rounds):
                path.write_text(usual.replace(old, new.format(factor=1.5 + k)))
                run(folder, f"{title} {k + 1}")
            path.write_text(usual)


if __name__ == "__main__":
    main()
