"""Syntax trees that an earlier process kept: what was parsed is counted, and what a tree gives compared with what
parsing gives."""

import json
import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.oracle_differs("the established package has no such trees")

HEAD = """\
import json, sys
import quadrants as qd
from quadrants._lib import core

qd.init(arch=qd.cpu, offline_cache_file_path=sys.argv[1], log_level=qd.ERROR, **json.loads(sys.argv[2]))
"""
TAIL = """
qd.reset()
print("RESULT " + json.dumps([out, core.counters()["trees_parsed"], core.counters()["trees_loaded"]]))
"""


def run(folder, body, every=True, **options):
    """(what the program put into `out`, trees parsed, trees loaded)."""
    file = folder / "program.py"
    file.write_text(HEAD + body + TAIL)
    env = dict(os.environ, QD_KEEP_ALL_TREES="1" if every else "0")
    done = subprocess.run(
        [sys.executable, str(file), str(folder / "cache"), json.dumps(options)], capture_output=True, text=True, env=env
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(re.search("^RESULT (.*)$", done.stdout, re.M).group(1))


def packs(folder):
    return sorted((folder / "cache" / "native" / "trees").glob("*"))


FUNCS = """
@qd.func
def twice(x):
    return x * 2  # LEAF

@qd.func
def middle(x):
    return twice(x) + 1

@qd.kernel
def k(n: qd.i32) -> qd.i32:
    s = 0
    for i in range(n):
        s += middle(i)
    return s

out = [k(4)]
"""


def test_only_what_was_edited_is_parsed(tmp_path):
    assert run(tmp_path, FUNCS) == [[16], 3, 0]
    assert run(tmp_path, FUNCS) == [[16], 0, 0]  # warm: nobody asks for a tree
    edited = FUNCS.replace("x * 2", "x * 3")
    assert run(tmp_path, edited) == [[22], 1, 2]
    assert run(tmp_path, edited.replace("s = 0", "s = 100")) == [[122], 1, 2]
    assert run(tmp_path, FUNCS.replace("s = 0", "s = 7")) == [
        [23],
        1,
        2,
    ]  # the leaf as it was first


def test_a_function_may_move(tmp_path):
    run(tmp_path, FUNCS)
    assert run(tmp_path, "\n\n# moved\n" + FUNCS.replace("s = 0", "s = 1")) == [[17], 1, 2]


def test_small_programs_keep_none(tmp_path):
    run(tmp_path, FUNCS, every=False)
    assert not packs(tmp_path)


def test_large_programs_keep_theirs(tmp_path):
    funcs = "".join(
        f"@qd.func\ndef f{n}(x):\n" + "    x = x + 1\n" * 100 + "    return x\n" for n in range(12)
    )
    body = funcs + "@qd.kernel\ndef k() -> qd.i32:\n    s = 0\n"
    body += "".join(f"    s += f{n}(s)\n" for n in range(12)) + "    return s\nout = k()\n"
    cold = run(tmp_path, body, every=False)
    edited = run(tmp_path, body.replace("return s", "return s + 0"), every=False)
    assert cold[1:] == [13, 0] and edited[1:] == [1, 12] and edited[0] == cold[0]


def test_folders_that_are_not_to_be_used(tmp_path):
    assert run(tmp_path, FUNCS, offline_cache=False) == [[16], 3, 0]
    assert not packs(tmp_path)


# Every kind of node, names and constants of every kind.
EVERYTHING = """
import math
pi2 = 2 * math.pi
f = qd.field(qd.f32, (8, 8))
V = qd.types.vector(3, qd.f32)

@qd.func
def g(x, scale: qd.template() = 2.5):
    \"\"\"Text that nobody reads, with \u00e4\u00f6\u00fc \u2192 \U0001f600.\"\"\"
    return x * scale if x > 0 else -x

class Holder:
    def __init__(self):
        self.w = {"a": 3, "b": (1, 2)}

holder = Holder()

@qd.kernel
def k(n: qd.i32) -> qd.f32:
    s: qd.f32 = 0.0
    a, b, c = 1, 2.5, -0.0
    big = 1 << 20 | 0x0F ^ 3 & ~1
    for i, j in qd.ndrange(4, (1, 3)):
        f[i, j] = g(i - j, scale=pi2) + (i // 2) % 3 ** 2
    for q in qd.static(range(3)):
        if qd.static(q == 1):
            continue
        s += q * holder.w["b"][1]
    t = n
    while True:
        t -= 1
        if t < 2 or not (0 <= t < 100 and t != 7):
            break
        if t % 2 == 0:
            continue
        s += t * 1 if qd.static(False) else t
    v = V(1.0, 2.0, 3.0)
    v[0], v[1] = v[1], v[0]
    v += [x * 1e-3 for x in (1, 2, 3)]
    if qd.static("a" in holder.w and "zz" not in holder.w):
        pass
    table = {name: len(name) for name in ["x", "yy"]}
    s += table["yy"] + sum([*(1, 2), 3]) + max(*[4, 5]) + v.sum() + a + b + c + big
    assert s > -1e30, "never"
    print(f"{s:.3f} and {n}", end="!\\n")
    return s + qd.select(n > 2, True, 1_000) + f[1, 2] / 2 - (lambda_ := 3)

out = [k(5), core._lower_to_text(k, 5)]
"""


@pytest.mark.parametrize("options", [{}, {"debug": True}])
def test_a_tree_gives_what_parsing_gives(tmp_path, options):
    cold = run(tmp_path, EVERYTHING, **options)
    assert cold[1] == 2 and cold[2] == 0
    # A global that the kernel reads: its recipe does not hold, its text is as it was.
    other = EVERYTHING.replace("pi2 = 2 *", "pi2 = 3 *")
    warm = run(tmp_path, other, **options)
    assert warm[1:] == [0, 2]
    (tmp_path / "other").mkdir()
    fresh = run(tmp_path / "other", other, **options)
    assert fresh[0][0] == warm[0][0] and fresh[0][1].replace("/other", "") == warm[0][1]
    assert warm[0] != cold[0]


MISTAKES = {
    "type": ("    y = [1, 2]\n    z = (y[0] +\n         qd.floor(x))\n    return x + 'text'\n", {}),
    "name": ("    for j in range(3):\n        x += unknown_name(x, j)\n    return x\n", {}),
    "statement": ("    \u00e4 = 1; del \u00e4\n    return x\n", {}),
    "expression": ("    return (lambda: x)()\n", {}),
    "template": ("    qd.static_assert(x == 0, 'no')\n    return x\n", {}),
    "assignment": ("    3 .real = x\n    return x\n", {}),
    "warning": ("    return x + len(str(helper(3)))\n", {}),
    "bounds": ("    return x + f[\n        x + 100,\n        0]\n", {"debug": True}),
    "overflow": ("    return (x + 2**31 - 1) * (x + 2)\n", {"debug": True}),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes_are_shown_where_they_are(tmp_path, kind):
    text, options = MISTAKES[kind]
    body = f"""
import warnings
f = qd.field(qd.i32, (8, 8))
X = 1

def helper(x):
    return X

@qd.func
def g(x):
{text}
class Holder:
    if True:
        @qd.kernel
        def k(n: qd.i32) -> qd.i32:
            m = n + X
            return g(m)

out = []
with warnings.catch_warnings(record=True) as given:
    warnings.simplefilter("always")
    try:
        Holder.k(3)
    except Exception as e:
        out.append(type(e).__name__ + str(e))
out += [f"{{w.category}} {{w.lineno}} {{w.message}}" for w in given]
"""

    def plain(result):
        return [re.sub(r"_c\d+_\d+|0x[0-9a-f]+", "", line) for line in result[0]]

    cold = run(tmp_path, body, **options)
    assert cold[0] and cold[1] >= 2 and cold[2] == 0
    moved = "\n" + body.replace("X = 1", "X = 2")  # else a recipe may hold
    warm = run(tmp_path, moved, **options)
    assert warm[1:] == [0, cold[1]]
    (tmp_path / "other").mkdir()
    fresh = run(tmp_path / "other", moved, **options)
    assert fresh[1:] == [cold[1], 0]
    assert [line.replace("/other", "") for line in plain(fresh)] == plain(warm)


def test_damaged_packs_are_misses(tmp_path):
    run(tmp_path, FUNCS)
    (pack,) = packs(tmp_path)
    whole = pack.read_bytes()
    edits = iter(range(1000))

    def edited():
        return run(tmp_path, FUNCS.replace("s = 0", f"s = {next(edits)} * 0"))

    for damaged in (b"", whole[:20], whole[: len(whole) // 2], whole[:-1], whole + b"x"):
        pack.write_bytes(damaged)
        assert edited() == [[16], 3, 0]
    for at in range(0, len(whole), len(whole) // 5):
        pack.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        assert edited() == [[16], 3, 0]
    assert edited() == [[16], 1, 2]  # written again by the one before


def test_another_files_pack_is_a_miss(tmp_path):
    run(tmp_path, FUNCS)
    (pack,) = packs(tmp_path)
    pack.rename(pack.with_name("0" * 32))
    assert run(tmp_path, FUNCS.replace("s = 0", "s = 5")) == [[21], 3, 0]


def test_what_is_not_used_any_more_goes(tmp_path):
    sizes = []
    for n in range(30):
        assert run(tmp_path, FUNCS.replace("s = 0", f"s = {n + 100}"))[0] == [n + 116]
        sizes.append(packs(tmp_path)[0].stat().st_size)
    assert sizes[12] > sizes[0] and sizes[29] <= sizes[12] + 64


def test_texts_that_may_warn_are_parsed_each_time(tmp_path):
    body = FUNCS.replace("    return twice", "    'a \\d'\n    return twice")
    assert run(tmp_path, body)[1:] == [3, 0]
    assert run(tmp_path, body.replace("s = 0", "s = 1"))[1:] == [2, 1]


def test_a_function_that_two_threads_parse(tmp_path):
    """The second finds the first's tree when it is done; its own goes, and must not be written later."""
    body = """
import threading, time, tokenize

read = tokenize.open
def slowly(name):
    file = read(name)
    time.sleep(0.6)  # the other thread gives up waiting for the lock
    return file
tokenize.open = slowly
out = []
threads = [threading.Thread(target=lambda: out.append(k(4))) for _ in range(2)]
"""
    head = "# coding: latin-1\n" + HEAD
    file = tmp_path / "program.py"
    tail = "for t in threads: t.start()\nfor t in threads: t.join()\n"
    file.write_text(head + FUNCS.replace("out = [k(4)]", "") + body + tail + TAIL)
    env = dict(os.environ, QD_KEEP_ALL_TREES="1")
    done = subprocess.run(
        [sys.executable, str(file), str(tmp_path / "cache"), "{}"],
        capture_output=True, text=True, env=env, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out, parsed, _ = json.loads(re.search("^RESULT (.*)$", done.stdout, re.M).group(1))
    assert out == [16, 16]
    assert parsed == 3
