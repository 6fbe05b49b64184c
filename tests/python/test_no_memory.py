"""Memory runs out in our extension: a Python exception, and the program goes on.

What the compiler object does then is test_compiler_failures' business.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
CC = shutil.which("cc")
pytestmark = [
    pytest.mark.oracle_differs("counts allocations of our extension", run=False),
    pytest.mark.skipif(
        not CC or sys.platform != "linux", reason="no C compiler, or another C library"
    ),
]
# Each of the first, then fewer; behind a stage's last nothing is refused. From these on all are.
ONE = [*range(1, 8), 9, 12, 16, 22, 30, 42, 58, 80, 110, 160, 220, 300, 420, 600]
ALL = [1, 3, 9, 27, 81, 243]
POINTS = ",".join([*map(str, ONE), *(f"{n}+" for n in ALL)])


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    made = tmp_path_factory.mktemp("shim") / "malloc.so"
    subprocess.run(
        [CC, "-shared", "-fPIC", "-O1", "-o", made, HERE / "standins/malloc.c"], check=True
    )
    return made


@pytest.fixture
def ends(shim, tmp_path):
    """How a stage ended at each point: (point, exit status, refused, what it said)."""

    def go(stage, points=POINTS):
        env = {**os.environ, "LD_PRELOAD": str(shim), "TMPDIR": str(tmp_path)}
        env.pop("QD_CPU_TIER", None)
        command = [sys.executable, HERE / "no_memory_program.py", stage, points]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        rows = (line.split(" ", 4) for line in done.stdout.splitlines() if line.startswith("END "))
        return [(point, int(code), int(refused), said) for _, point, code, refused, said in rows]

    return go


# What allocation of a field's or array's memory says of itself, and what needed none after all. Who
# launches beside a thread that finds no memory for the fields of both finds them without.
SOUND = ("MemoryError", "RuntimeError Out of memory: ", "went on")
BESIDE = "place those of the other thread first"


@pytest.mark.parametrize(
    "stage",
    "init field ndarray compile error launch gradient reset threads fork".split(),
)
def test_refused_memory_is_an_exception(ends, stage):
    rows = ends(stage)
    assert len(rows) == len(ONE) + len(ALL)
    sound = [
        said.startswith(SOUND) or (stage == "threads" and said.endswith(BESIDE))
        for _, _, _, said in rows
    ]
    assert [row for row, well in zip(rows, sound) if row[1] != 0 or not well] == []
    assert any(refused for _, _, refused, _ in rows)


def test_a_launch_in_the_small_needs_no_memory(ends):
    """What most programs do all the time cannot fail for lack of it."""
    assert ends("small_launch", "1+") == [("1+", 0, 0, "went on")]


@pytest.mark.parametrize(
    "row, wrong",
    [
        (
            'PyMethodDef rows[] = {{"f", F, METH_O, "Of, them."}, {nullptr, nullptr, 0, nullptr}};',
            1,
        ),
        ('PyGetSetDef rows[] = {{"f", entry<get>, F, nullptr, nullptr}};', 1),
        ('PyGetSetDef rows[] = {{"f", entry<get<1, 2>>, nullptr, nullptr, nullptr}};', 0),
        ("PyTypeObject t = {.tp_basicsize = sizeof(T), .tp_dealloc = F, .tp_methods = rows};", 1),
        ("PyNumberMethods n = {.nb_add = slot<Op::add>, .nb_bool = entry<truth>};", 1),
        ("PyMappingMethods m = {nullptr, entry<item>, F};", 1),
        ("auto c = PyCapsule_New(p, name, F);", 1),
        ("(void)Py_AddPendingCall(F, nullptr);", 1),
        ("k->vectorcall = F;", 1),
    ],
)
def test_no_function_is_handed_over_bare(tmp_path, row, wrong):
    """What tools/check_entries.py, which lint runs, finds."""
    tool = HERE.parents[1] / "tools/check_entries.py"
    (tmp_path / "known.cpp").write_text("k->vectorcall = cpython::entry<call>;\n" * 100)
    (tmp_path / "table.cpp").write_text("// one, {two}\n" + row.replace("F", "bare"))
    done = subprocess.run([sys.executable, tool, tmp_path], capture_output=True, text=True)
    found = [line for line in done.stdout.splitlines() if line.startswith("src/table.cpp:2: ")]
    assert (len(found), done.returncode) == (wrong, wrong), done.stdout
