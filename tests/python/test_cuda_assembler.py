"""NVIDIA's assembler as a program: when it is asked, for what, and what becomes of what it makes.

On stand-ins for it (standins/ptxas.sh) and for the driver, whose log says which code is loaded.
"""

import time

import pytest

from cuda_standin import HERE, driver_marks

pytestmark = driver_marks

QUICK, PLAIN, FULL = "-O1 --Ofast-compile=min", "-O1", "-O3"
LARGE = """
from quadrants._lib import core
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.f32, 100)
@qd.kernel
def k(n: qd.i32):
    for i in x:
        for j in qd.static(range(150)):
            x[i] = x[(i * 3 + j) % 100] * 0.5 + j
def tier():
    return k._specialisations[0]["tier"]
k(1)
first = tier()
core.finish_optimisations()
k(2)
print(first, tier(), core.counters()["lowered"])
"""
SMALL = LARGE.replace("range(150)", "range(2)")
RECURSIVE = """
from quadrants._lib import core
qd.init(arch=qd.cuda, log_level=qd.ERROR)
x = qd.field(qd.i32, 100)
@qd.real_func
def f(n: qd.i32) -> qd.i32:
    found = 1
    if n > 0:
        found = f(n - 1) + 1
    return found
@qd.kernel
def k(n: qd.i32):
    for i in x:
        for j in qd.static(range(150)):
            x[i] = x[(i * 3 + j) % 100] + f(i + j)
k(1)
core.finish_optimisations()
print("done")
"""


@pytest.fixture
def assemble(cuda_run, tmp_path):
    """Runs a program; its output's lines, what the assembler was asked, what the driver loaded."""

    def go(program, fault="", program_of=str(HERE / "standins/ptxas.sh"), **environment):
        log = tmp_path / "asked"
        log.unlink(missing_ok=True)
        lines, drivers, said = cuda_run(
            program,
            **{
                "QD_PTXAS": program_of,
                "QD_FAKE_PTXAS": fault,
                "QD_FAKE_PTXAS_LOG": str(log),
                "QD_CPU_TIER": "",
                **environment,
            },
        )
        asked = log.read_text().splitlines() if log.exists() else []
        loaded = [line[7:].strip() if line.startswith("cubin") else "ptx" for line in drivers
                  if line.startswith(("cubin", "load "))]  # fmt: skip
        return lines, [a.removeprefix("-arch=sm_90 ") for a in asked], loaded, said

    return go


def of(*options):
    return [f"-arch=sm_90 {o}" for o in options]


def test_quick_code_first_and_then_what_is_worth_having(assemble):
    assert assemble(LARGE)[:3] == (["0 1 1"], [QUICK, FULL], of(QUICK, FULL))
    # The next process has the code, and no need of assemblers.
    assert assemble(LARGE)[:3] == (["1 1 0"], [], of(FULL))


def test_small_code_is_the_drivers(assemble):
    assert assemble(SMALL)[:3] == (["1 1 1"], [], ["ptx"])


def test_a_later_process_improves_what_one_left(assemble):
    program = LARGE.replace("core.finish_optimisations()", "")
    began = time.monotonic()
    lines, asked, loaded, _ = assemble(program, "slow")
    assert lines == ["0 0 1"] and loaded == of(QUICK)  # it did not come to an end ...
    assert time.monotonic() - began < 50  # ... and was not waited for
    assert asked in ([QUICK], [QUICK, FULL])
    assert assemble(LARGE)[:3] == (["0 1 0"], [FULL], of(QUICK, FULL))


@pytest.mark.parametrize("tier", ["0", "1"])
def test_a_forced_tier_stays(assemble, tier):
    option = [QUICK, FULL][int(tier)]
    lines, asked, loaded, _ = assemble(LARGE, QD_CPU_TIER=tier)
    assert lines == [f"{tier} {tier} 1"] and asked == [option] and loaded == of(option)
    assert assemble(SMALL, QD_CPU_TIER=tier)[1] == ([QUICK] if tier == "0" else [])


@pytest.mark.parametrize("fault", ["newer", "older", "silent"])
def test_programs_that_do_not_fit_the_driver_are_not_asked(assemble, fault):
    assert assemble(LARGE, fault)[:3] == (["1 1 1"], [], ["ptx"])


@pytest.mark.parametrize("program_of", ["", "0", "/none/ptxas", str(HERE / "conftest.py")])
def test_without_a_program_the_driver_assembles(assemble, program_of):
    assert assemble(LARGE, program_of=program_of)[:3] == (["1 1 1"], [], ["ptx"])


@pytest.mark.parametrize("fault", ["fails", "empty"])
def test_what_the_program_cannot_do_the_driver_does(assemble, fault):
    assert assemble(LARGE, fault)[:3] == (["1 1 1"], [QUICK, PLAIN], ["ptx"])


def test_a_program_without_the_quickest_way(assemble):
    more = LARGE.replace("range(150)", "range(151)").replace("def k(", "def other(").replace(
        "    k(", "    other(").replace("k(1)", "other(1)").replace("k(2)", "")  # fmt: skip
    more = more[more.index("@qd.kernel") : more.index("def tier")] + "other(1)\n"
    _, asked, loaded, _ = assemble(LARGE + more, "plain")
    assert asked[:3] == [QUICK, PLAIN, FULL] and asked[3] == PLAIN  # not tried again
    assert loaded[:3] == of(PLAIN, FULL, PLAIN)


def test_functions_that_call_themselves_are_not_optimised(assemble):
    assert assemble(RECURSIVE)[:3] == (["done"], ["-O0"], of("-O0"))


@pytest.mark.parametrize("variable", ["CUDA_HOME", "PATH", "package"])
def test_where_the_program_is_looked_for(assemble, tmp_path, variable):
    place = {
        "CUDA_HOME": "bin/ptxas",
        "PATH": "ptxas",
        "package": "triton/backends/nvidia/bin/ptxas",
    }
    to = tmp_path / "here" / place[variable]
    to.parent.mkdir(parents=True)
    to.symlink_to(HERE / "standins/ptxas.sh")
    here = str(tmp_path / "here")
    program = "import os, sys\nfor name in 'QD_PTXAS', 'CUDA_HOME': os.environ.pop(name, None)\n"
    program += "os.environ['PATH'] = '/usr/bin:/bin'\n"
    program += {
        "CUDA_HOME": f"os.environ['CUDA_HOME'] = {here!r}\n",
        "PATH": f"os.environ['PATH'] = {here!r} + ':/usr/bin:/bin'\n",
        "package": f"sys.path.insert(0, {here!r})\n",
    }[variable]
    assert assemble(program + LARGE)[1] == [QUICK, FULL]


def test_machine_code_of_a_damaged_cache_is_made_anew(assemble, tmp_path):
    assemble(LARGE)
    for path in (tmp_path / "cache").rglob("T*.qdc"):
        data = bytearray(path.read_bytes())
        data[-3] ^= 255
        path.write_bytes(data)
    lines, asked, loaded, _ = assemble(LARGE)
    assert lines == ["0 1 1"] and asked == [QUICK, FULL] and loaded == of(QUICK, FULL)


def test_the_report_tells_of_assembling(assemble):
    _, _, _, said = assemble(LARGE, QD_COMPILE_REPORT="1")
    assert ", assembling " in said and "optimised" in said


SEVERAL = """
qd.init(arch=qd.cuda, log_level=qd.ERROR)
from quadrants._lib import core
x, y = qd.field(qd.f32, 5000), qd.field(qd.f32, 5000)
@qd.kernel
def k(n: qd.i32):
    for t in qd.static(range(3)):
        for i in x:
            for j in qd.static(range(200)):
                y[i] = x[(i * 3 + j) % 5000] * 0.5 + y[(i + j * t) % 5000]
    y[0] = 1
k(1)
core.finish_optimisations()
k(2)
"""


def test_several_programs_share_the_tasks_of_a_large_kernel(assemble, tmp_path):
    _, asked, loaded, _ = assemble(SEVERAL)
    assert len(asked) == len(loaded) >= 4 and set(asked) == {QUICK, FULL}
    assert asked.count(QUICK) == asked.count(FULL) == loaded.count(*of(FULL))
    _, asked, loaded, _ = assemble(SEVERAL)
    assert asked == [] and loaded == of(FULL) * len(loaded) and len(loaded) >= 2
    _, asked, loaded, _ = assemble(SEVERAL.replace("0.5", "0.25"), program_of="")
    assert asked == [] and len(loaded) >= 2  # by the driver


@pytest.mark.parametrize("cached", [True, False])
def test_what_is_not_to_be_cached_is_not_in_the_drivers_cache_either(cuda_run, tmp_path, cached):
    nonces = []
    for _ in range(2):
        (tmp_path / "log.ptx").unlink(missing_ok=True)
        cuda_run(f"""
qd.init(arch=qd.cuda, log_level=qd.ERROR, offline_cache={cached})
x = qd.field(qd.f32, 100)
@qd.kernel
def k():
    for i in x:
        x[i] = i
@qd.kernel
def other():
    for i in x:
        x[i] = 2 * i
k()
other()
""")
        text = (tmp_path / "log.ptx").read_text()
        nonces.append(
            {x for x in text.splitlines() if x.startswith("// quadrants-session-nonce: ")}
        )
        assert text.count("entry task0") == 2
    # One a process, and none if the driver may keep what it makes.
    assert [len(n) for n in nonces] == ([0, 0] if cached else [1, 1])
    assert cached or nonces[0] != nonces[1]
