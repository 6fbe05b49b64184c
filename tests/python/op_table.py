"""The op table as tests read it: rows of src/ir/ops.inc by name, and their Python functions."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).parent.parent.parent
_spec = importlib.util.spec_from_file_location("op_functions", ROOT / "cmake" / "op_functions.py")
op_functions = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(op_functions)


def rows():
    return op_functions.rows((ROOT / "src" / "ir" / "ops.inc").read_text())


def functions():
    """Python name -> row, and that of what an atomic does."""
    return op_functions.functions(rows())
