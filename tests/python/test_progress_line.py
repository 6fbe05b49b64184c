"""The line that a terminal shows while a compilation takes long: only there, and gone at its end."""

import os
import pty
import re
import subprocess
import sys
import termios

import pytest

PROGRAM = """
import os, sys, time
import numpy as np
import quadrants as qd
qd.init(arch=qd.cpu, offline_cache=False, log_level=qd.ERROR)
def pause(seconds):
    time.sleep(seconds)
    {inside}
    return 1
@qd.kernel
def k(x: qd.types.ndarray()):
    for i in x:
        x[i] += qd.static(pause({seconds}))
{before}
k(np.zeros(8, np.int32))
print("end", file=sys.stderr, flush=True)
"""


def program(tmp_path, *, seconds=1.5, inside="pass", before=""):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(seconds=seconds, inside=inside, before=before))
    return [sys.executable, str(file)]


def in_terminal(command, *, out=True, **env):
    """What a terminal gets that is stderr, and stdout too with `out`."""
    ours, theirs = pty.openpty()
    mode = termios.tcgetattr(theirs)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    env = {**os.environ, "TERM": "xterm", **env}
    stdout = theirs if out else subprocess.DEVNULL
    child = subprocess.Popen(command, env=env, stdout=stdout, stderr=theirs, start_new_session=True)
    os.close(theirs)
    text = b""
    while True:
        try:
            got = os.read(ours, 4096)
        except OSError:
            break
        if not got:
            break
        text += got
    os.close(ours)
    child.wait()
    return text.decode()


def screen(text):
    """The rows that a terminal of 80 columns shows in the end."""
    rows, row, column, kept = [""], 0, 0, (0, 0)
    for code in re.findall(r"\x1b\[\?7[hl]|\x1b\[K|\x1b[78]|[^\x1b]", text):
        if code == "\x1b[K":
            rows[row] = rows[row][:column]
        elif code == "\x1b7":
            kept = row, column
        elif code == "\x1b8":
            row, column = kept
        elif code == "\n":
            row, column = row + 1, 0
            rows += [""] * (row + 1 - len(rows))
        elif code == "\r":
            column = 0
        elif len(code) == 1:
            rows[row] = rows[row][:column].ljust(column) + code + rows[row][column + 1 :]
            column += 1
    return rows


SHOWN = r"compiling k_c0_0: front end, 1\.\d s"


def test_a_long_compilation_shows_and_leaves_nothing(tmp_path):
    text = in_terminal(program(tmp_path), out=False)
    assert len(re.findall(SHOWN, text)) >= 2
    assert screen(text) == ["end", ""]


def test_a_short_one_shows_nothing(tmp_path):
    assert in_terminal(program(tmp_path, seconds=0.1), out=False) == "end\n"


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": ""}, {"QD_COMPILE_PROGRESS": "0"}])
def test_switched_off(tmp_path, env):
    assert in_terminal(program(tmp_path), out=False, **env) == "end\n"


def test_no_terminal(tmp_path):
    env = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(program(tmp_path), env=env, capture_output=True, text=True)
    assert done.stderr == "end\n"


def test_a_notebook_is_no_terminal(tmp_path):
    """There sys.stderr is an object of its own, and the file descriptor somebody else's terminal."""
    before = "import io; sys.stderr = io.StringIO()"
    assert in_terminal(program(tmp_path, before=before), out=False) == ""


def test_what_others_write_is_never_erased(tmp_path):
    """Text of the same row too: the line stands behind the cursor."""
    before = "os.write(2, b'begun ')"
    text = in_terminal(
        program(tmp_path, inside="os.write(2, b'and done ')", before=before), out=False
    )
    assert re.search(SHOWN, text)
    assert screen(text) == ["begun and done end", ""]


def test_a_traceback_stands_alone(tmp_path):
    text = in_terminal(program(tmp_path, inside="raise ValueError('mine')"), out=False)
    assert re.search(SHOWN, text)
    rows = screen(text)
    assert rows[0].startswith("Traceback") and not any("compiling" in r for r in rows)
    assert any("mine" in r for r in rows)


def test_kernels_of_other_threads_print_over_it(tmp_path):
    before = """
import threading
@qd.kernel
def shout():
    print("hello")
shout()
def later():
    time.sleep(1.3)
    shout()
t = threading.Thread(target=later)
t.start()
"""
    text = in_terminal(program(tmp_path, seconds=1.8, before=before))
    assert re.search(r"compiling k_c1_0", text)
    rows = screen(text)
    assert [r for r in rows if r and "[Quadrants]" not in r] == ["hello", "hello", "end"], rows


def test_a_child_shows_its_own(tmp_path):
    before = """
@qd.kernel
def first(x: qd.types.ndarray()):
    for i in x: x[i] += qd.static(pause(1.3))
first(np.zeros(8, np.int32))
import warnings
warnings.simplefilter("ignore")  # Python 3.12 advises against fork beside threads
if pid := os.fork():
    assert os.waitpid(pid, 0)[1] == 0
    print("end", file=sys.stderr)
    sys.exit()
"""
    text = in_terminal(program(tmp_path, before=before), out=False)
    assert "compiling first_c0_0" in text and "compiling k_c1_0" in text
    assert screen(text) == ["end", "end", ""]
