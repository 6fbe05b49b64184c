"""Where a function's source ends (strings, comments and continued lines within it are no code), and its encoding."""

import importlib
import linecache
import os
import subprocess
import sys
import time
import warnings

import pytest

from helpers import module_at

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
    program = module_at(path, "program")
    assert program.Outer.Inner.k() == 1


@pytest.mark.parametrize(
    "encoding", ["latin-1", "koi8-r", "gbk", "iso2022_jp", "utf8", "utf-8-sig"]
)
@pytest.mark.parametrize("first", ["", "#!/usr/bin/env python\n"])
def test_text_means_what_its_encoding_says(backend, tmp_path, encoding, first):
    """The bytes are valid UTF-8 whatever the encoding that the file names: they stand for other characters there."""
    path = tmp_path / "program.py"
    letter = b'\x1b$B$"\x1b(B' if encoding == "iso2022_jp" else "é".encode()
    text = f"""{first}# -*- coding: {encoding} -*-
import quadrants as qd

SAID = "@@"
SIZE = len(SAID)

@qd.kernel
def k() -> qd.i32:
    return qd.static(len("@@") * 10 + ("@@" == SAID))
"""
    path.write_bytes(text.encode().replace(b"@@", letter))
    program = module_at(path, "program")
    assert program.k() == 10 * program.SIZE + 1


def test_edited_file_in_another_encoding(backend, tmp_path, monkeypatch):
    """An edit that linecache does not see: of the same size, at the same time."""
    path = tmp_path / "latin_program.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    text = """# coding: latin-1
import quadrants as qd

@qd.kernel
def k() -> qd.i32:
    return qd.static(len("é")) + 7
"""
    path.write_bytes(text.encode("latin-1"))
    times = path.stat()
    monkeypatch.delitem(sys.modules, "latin_program", raising=False)
    program = importlib.import_module("latin_program")
    assert program.k() == 8
    linecache.getlines(str(path))
    path.write_bytes(text.replace("7", "8").encode("latin-1"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert importlib.reload(program).k() == 9


RELATIVE = """
import os
import quadrants as qd

qd.init(arch=qd.cpu, offline_cache=False, log_level=qd.ERROR)
kernels = []
for folder in ("three", "five"):
    os.chdir(folder)
    program = {}
    exec(compile(open("model.py").read(), "model.py", "exec"), program)
    kernels.append(program["k"])
    os.chdir("..")

for folder in ("five", "three"):
    os.chdir(folder)
    for kernel in kernels:
        try:
            print(kernel())
        except qd.QuadrantsRuntimeError as e:
            print("changed on disk" in str(e))
    os.chdir("..")
"""


def test_relative_name_of_another_folder(tmp_path):
    """A name relative to the working directory, which changes before the first call."""
    for folder, number in (("three", 3), ("five", 5)):
        (tmp_path / folder).mkdir()
        text = f"import quadrants as qd\n@qd.kernel\ndef k() -> qd.i32:\n    return {number}\n"
        (tmp_path / folder / "model.py").write_text(text)
    time.sleep(0.2)  # files that are as old as the process may have changed since: these are older
    run = subprocess.run(
        [sys.executable, "-c", RELATIVE], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.stdout.split("\n")[-5:] == ["True", "5", "3", "5", ""], run.stdout + run.stderr


def test_warnings_about_a_new_file_are_not_its_text(backend, tmp_path, recwarn):
    """Who imported it was told of the escape, or chose not to be; the function has none."""
    path = tmp_path / "program.py"
    path.write_text("""
import quadrants as qd

PATTERN = "\\d"

@qd.kernel
def k() -> qd.i32:
    return 7
""")
    program = module_at(path, "program")
    recwarn.clear()
    warnings.simplefilter("error")
    filters = list(warnings.filters)
    assert program.k() == 7
    assert warnings.filters == filters and not recwarn.list


RELEASES = """
import os, sys, time
import quadrants as qd

sys.path.insert(0, "current")
sys.path[0] = os.path.abspath(sys.path[0])
sys.dont_write_bytecode = True
import model

qd.init(arch=qd.cpu, log_level=qd.ERROR)
early = sys.argv[1] == "early" and model.k(1)
if sys.argv[2] == "link":
    os.symlink("2", "new")
    os.replace("new", "current")
else:
    os.rename("current", "before")
    os.rename("2", "current")
for kernel in (model.k, model.other):
    try:
        print(kernel(1))
    except qd.QuadrantsRuntimeError as e:
        print("changed on disk" in str(e))
"""


@pytest.mark.parametrize("how", ["link", "folder"])
def test_a_release_put_in_place_while_the_program_runs(tmp_path, how):
    """Files as old as those that were imported stand behind the path then."""
    expected = {"early": ["101", "2"], "late": ["True", "True"]}
    for when, results in expected.items():
        for process in range(2):
            root = tmp_path / f"{when}{process}"
            for release in (1, 2):
                (root / str(release)).mkdir(parents=True)
                (root / str(release) / "model.py").write_text(
                    f"import quadrants as qd\nN = {release}\n"
                    f"@qd.kernel\ndef k(x: qd.i32) -> qd.i32:\n    return x + {release}00 * N\n"
                    f"@qd.kernel\ndef other(x: qd.i32) -> qd.i32:\n    return x + {release}\n"
                )
            if how == "link":
                (root / "current").symlink_to("1")
            else:
                (root / "1").rename(root / "current")
            time.sleep(0.2)
            run = subprocess.run(
                [sys.executable, "-c", RELEASES, when, how],
                cwd=root,
                env={**os.environ, "QD_OFFLINE_CACHE_FILE_PATH": str(tmp_path / "cache")},
                capture_output=True,
                text=True,
            )
            assert run.stdout.split("\n")[-3:] == [*results, ""], run.stdout + run.stderr


FORKED = """
import os, sys, time
import quadrants as qd

sys.path.insert(0, os.getcwd())
sys.dont_write_bytecode = True
import model

time.sleep(0.1)
text = open("model.py").read()
open("model.py", "w").write(text.replace("3", "4"))
time.sleep(0.2)
if os.fork() == 0:
    qd.init(arch=qd.cpu, log_level=qd.ERROR, offline_cache=False)
    try:
        print(model.k())
    except qd.QuadrantsRuntimeError as e:
        print("changed on disk" in str(e), flush=True)
    os._exit(0)
os.wait()
"""


def test_a_child_has_what_its_parent_imported(tmp_path):
    """A server that imports, and forks a worker after the file was edited."""
    text = "import quadrants as qd\n@qd.kernel\ndef k() -> qd.i32:\n    return 3\n"
    (tmp_path / "model.py").write_text(text)
    run = subprocess.run(
        [sys.executable, "-c", FORKED], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.stdout.split("\n")[-2:] == ["True", ""], run.stdout + run.stderr
