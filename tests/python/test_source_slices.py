"""Where a function's source ends: strings, comments and continued lines within it are no code."""

import importlib.util

import pytest

# Bodies whose text, taken for code, would go on behind the function. The lines that follow are
# indented less: a slice that takes them along is no Python. `...` stands for the indentation.
BODIES = {
    "bracket": 'return len("(")',
    "brackets": "return len('([{') - 2",
    "escaped quote": 'return len("\\"(") - 1',
    "escaped backslash": 'return len("(\\\\") - 1',
    "hash": 'return (len("#)("),\n 1)[1]',
    "other quote": "return len('\"(') - 1",
    "triple": 'return len("""(\n""") - 1',
    "escaped quote in a triple": 'return len("""\\"""(\n""") - 4',
    "escaped backslash in a triple": 'return len("""\\\\""")',
    "quotes in a triple": "return len('''\"(\"\"\n''') - 4",
    "docstring": '"""Says ("""\n...return 1',
    "comment": "return 1  # (",
    "continued line": "return \\\n1",
    "string over lines": 'return len("(\\\n(") - 1',
}


@pytest.mark.parametrize("name", BODIES)
def test_function_ends_where_it_ends(backend, tmp_path, name):
    path = tmp_path / "program.py"
    body = BODIES[name].replace("...", " " * 12)
    path.write_text(f"""
import quadrants as qd

class Outer:
    class Inner:
        @qd.kernel
        def k() -> qd.i32:
            {body}

    x = 1
""")
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    assert program.Outer.Inner.k() == 1
