"""Runs a script and keeps the module of each kernel that it compiles: `FOLDER SCRIPT ARGUMENT...`.

With a script of `differential:BATCH` it is a batch of random programs.
"""

import os
import pathlib
import runpy
import sys

os.environ["QD_DUMP_CFG"] = "1"  # asks for the look at each module that is taken over here
os.environ["QD_OFFLINE_CACHE"] = "0"

from quadrants.lang._inspect import inspection

folder = pathlib.Path(sys.argv[1])


def keep(definition, kernel, module):
    (folder / f"{kernel}.bin").write_bytes(module)


inspection.show = keep
script = sys.argv[2]
sys.argv = sys.argv[2:]
if script.startswith("differential:"):
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "differential"))
    import run

    batch = int(script.split(":")[1])
    options = run.options_of(batch)
    run.start(("", "0", 1), options)
    seeds = range(batch * run.BATCH, (batch + 1) * run.BATCH)
    programs = run.programs_of(batch, seeds)
    module = run.load(programs, folder)
    for program in programs:
        run.execute(module, program)
else:
    sys.path.insert(0, str(pathlib.Path(script).parent))
    runpy.run_path(script, run_name="__main__")
