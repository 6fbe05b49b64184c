"""After an edit of one function of a large program the code of the others is not made again."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.oracle_differs("about our cache")

_FUNCTIONS = 9
# A function of a thousand instructions or so: `edit` is a number in it.
_FUNCTION = """
@qd.func
def f{k}(x):
    y = x
    for j in qd.static(range(120)):
        if y > j + {k}:
            y = y * 0.5 + qd.sin(y) + {edit}
        else:
            y = y + 0.25 * j
    return y
"""
_KERNEL = """
@qd.kernel
def large(a: qd.types.NDArray):
    for i in range(a.shape[0]):
        s = 0.0
        for f in qd.static([{names}]):
            s = s * 0.5 + f(a[i]) + f(a[i] + 1) * 2  # more than once: calls stay calls
        a[i] = s
"""
_MAIN = """
import json
a = np.linspace(0, 50, 100).astype(np.float32)
large(a)
quick = a.tobytes().hex()
core.finish_optimisations()
a = np.linspace(0, 50, 100).astype(np.float32)
large(a)
print(json.dumps(core.counters() | {"values": [quick, a.tobytes().hex()]}))
"""


def program(edits, functions=_FUNCTIONS):
    text = "import numpy as np\nimport quadrants as qd\nqd.init(arch=qd.cpu, log_level=qd.ERROR)\n"
    text += "from quadrants._lib import core\n"
    for k in range(functions):
        text += _FUNCTION.format(k=k, edit=edits.get(k, 0))
    return text + _KERNEL.format(names=", ".join(f"f{k}" for k in range(functions))) + _MAIN


def run(folder, text, **environment):
    env = dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0")
    env.pop("QD_CPU_TIER", None)
    env.setdefault("QD_OFFLINE_CACHE_FILE_PATH", str(folder / "cache"))
    env.update(environment)
    folder.mkdir(exist_ok=True)
    file = folder / "program.py"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, env=env, timeout=100
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def at(tmp_path, monkeypatch):
    monkeypatch.delenv("QD_OFFLINE_CACHE_FILE_PATH", raising=False)
    return tmp_path


def parts(folder):
    return sorted((folder / "cache" / "native" / "parts").iterdir())


def test_an_edit_makes_what_it_is_in(at):
    first = run(at, program({}))
    made = first["parts_made"]
    assert first["parts_reused"] == 0
    assert made >= 6  # of both tiers
    assert len(parts(at)) == made
    for edits in {4: 1.5}, {4: 1.5, 0: 0.125}, {_FUNCTIONS - 1: 2.0}:
        edited = run(at, program(edits))
        assert edited["lowered"] == 1
        assert 1 <= edited["parts_made"] <= 6, edits
        assert edited["parts_made"] + edited["parts_reused"] == made
        fresh = run(at, program(edits), QD_OFFLINE_CACHE="0")
        assert (fresh["parts_made"], fresh["parts_reused"]) == (0, 0)
        assert edited["values"] == fresh["values"] != first["values"]
    again = run(at, program({}))
    assert again["cache_hits"] == 1
    assert again["values"] == first["values"]


def test_what_was_there_once_serves_again(at):
    first = run(at, program({3: 1.0}))
    for folder in "kernels", "code":
        for file in (at / "cache" / "native" / folder).rglob("*"):
            if file.is_file():
                file.unlink()
    for file in (at / "cache" / "kernel_compilation_manager").iterdir():
        file.unlink()
    second = run(at, program({3: 1.0}))
    assert (second["lowered"], second["parts_made"]) == (1, 0)
    assert second["parts_reused"] == first["parts_made"]
    assert second["values"] == first["values"]


def test_kernels_share_parts(at):
    other = _KERNEL.replace("large", "other").replace("a[i] + 1)", "a[i] + 3)")
    names = ", ".join(f"f{k}" for k in range(_FUNCTIONS))
    second = other.format(names=names) + "other(a)\ncore.finish_optimisations()\n"
    text = program({})
    first, made = run(at, text), len(parts(at))
    both = run(at, text + second + "print(json.dumps(core.counters()))\n")
    assert both["compiled"] == 2
    assert both["parts_made"] + both["parts_reused"] == made == first["parts_made"]
    assert 1 <= both["parts_made"] <= 4


@pytest.mark.parametrize("damage", ["cut", "turned", "empty", "another's"])
def test_damaged_parts_are_made_again(at, damage):
    first = run(at, program({}))
    files = parts(at)
    contents = [f.read_bytes() for f in files]
    for k, file in enumerate(files):
        if damage == "cut":
            file.write_bytes(contents[k][: len(contents[k]) // 2])
        elif damage == "turned":
            middle = len(contents[k]) // 2
            file.write_bytes(contents[k][:middle] + b"\xff\x00\xff" + contents[k][middle + 3 :])
        elif damage == "empty":
            file.write_bytes(b"")
        else:
            file.write_bytes(contents[k - 1])
    edited = run(at, program({4: 1.5}))
    assert edited["parts_reused"] == 0
    assert edited["values"] == run(at, program({4: 1.5}), QD_OFFLINE_CACHE="0")["values"]
    assert edited["parts_made"] == first["parts_made"]


def test_a_folder_that_cannot_be_written(at):
    (at / "cache" / "native").mkdir(parents=True)
    (at / "cache" / "native" / "parts").write_text("in the way")
    first = run(at, program({}))
    assert first["values"] == run(at, program({}), QD_OFFLINE_CACHE="0")["values"]


def test_options_do_not_share(at):
    first = run(at, program({}))
    other = run(at, program({}), QD_FAST_MATH="0")
    assert other["parts_made"] > 0
    assert other["values"] == run(at, program({}), QD_FAST_MATH="0", QD_OFFLINE_CACHE="0")["values"]
    moved = run(at, program({}), QD_CACHE_LOOP_INVARIANT_GLOBAL_VARS="0")
    assert moved["values"] == first["values"]


def test_small_kernels_have_none(at):
    assert run(at, program({}, functions=1))["parts_made"] == 0
    assert not pathlib.Path(at / "cache" / "native" / "parts").exists()
