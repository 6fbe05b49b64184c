"""Texts and files that show what the compiler does to a kernel (spec 50, section 11)."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import quadrants as qd


@pytest.fixture
def kernel():
    """A new kernel, so that each test compiles it."""

    @qd.kernel
    def step(a: qd.types.ndarray(dtype=qd.f32, ndim=1), s: qd.f32):
        qd.loop_config(name="rows")
        for i in range(a.shape[0]):
            a[i] = a[i] * s
        for i in range(a.shape[0]):
            a[i] += 1

    return step


@pytest.fixture
def ast_folder():
    """Where syntax trees go, whatever the options say."""
    folder = pathlib.Path("/tmp/ast")
    shutil.rmtree(folder, ignore_errors=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def launch(kernel):
    a = qd.ndarray(qd.f32, 8)
    a.fill(2)
    kernel(a, 3.0)
    assert a.to_numpy().tolist() == [7] * 8


def init(folder, **options):
    qd.init(arch=qd.cpu, offline_cache=False, debug_dump_path=f"{folder}/", **options)


STEPS = (
    "00_start 01_extract_constant 03_binary_op_simplify 04_constant_fold 05_die 06_alg_simp "
    "07_loop_invariant_code_motion 08_die 09_simplify 10_die 11_per_task_cse 12_cfg_optimization"
)
STAGES = "from_ast quadrants1 before_simplify_I after_simplify_I after_offload after_simplify_III"


@pytest.mark.oracle_differs("fails otherwise")
def test_a_folder_that_cannot_be_made(kernel, tmp_path, monkeypatch):
    monkeypatch.setenv("QD_DUMP_IR", "1")
    (tmp_path / "file").write_text("")
    init(tmp_path / "file" / "ir")
    with pytest.raises(qd.QuadrantsRuntimeError, match=f"{tmp_path}/file/ir.*debug_dump_path"):
        launch(kernel)
    monkeypatch.delenv("QD_DUMP_IR")
    launch(kernel)


def test_dumped_stages_and_tasks(kernel, tmp_path, monkeypatch):
    monkeypatch.setenv("QD_DUMP_IR", "1")
    init(tmp_path / "ir")
    launch(kernel)
    names = [n for n in os.listdir(tmp_path / "ir") if n.startswith("step_c")]
    for stage in STAGES.split():
        assert sum(n.endswith(f"_0_{stage}.ll") for n in names) == 1
        (parsed,) = (n for n in names if n.endswith(f"_0_{stage}.qir"))
        assert (tmp_path / "ir" / parsed).read_text().startswith('module "step_c')
    tasks = sorted(n[n.index("_kernel_") :] for n in names if n.endswith("_llvm.ll"))
    assert tasks == ["_kernel_0_rows_range_for_llvm.ll", "_kernel_1_range_for_llvm.ll"]
    for n in names:
        text = (tmp_path / "ir" / n).read_text()
        assert ("define " in text) == n.endswith("_llvm.ll")
        if n.endswith(".ll"):
            offloaded = n.endswith(("_after_offload.ll", "_after_simplify_III.ll"))
            assert ("loop_name=rows" in text) == offloaded
            assert text.startswith("kernel {") == (not n.endswith("_llvm.ll"))
    qd.reset()


def test_nothing_is_dumped_without_being_asked(kernel, tmp_path, monkeypatch):
    monkeypatch.setenv("QD_DUMP_IR", "0")
    init(tmp_path / "ir")
    launch(kernel)
    assert not (tmp_path / "ir").exists()
    qd.reset()


def read_steps(folder):
    """Call -> round and step ("1_05_die") -> text, and the table of each call."""
    calls, tables = {}, {}
    for file in folder.iterdir():
        found = re.fullmatch(r".*\.simplify_I_call(\d+)_(?:iter(\w+)\.ir|passes\.txt)", file.name)
        assert found, file
        text = file.read_text()
        if found[2]:
            calls.setdefault(int(found[1]), {})[found[2]] = text
        else:
            tables[int(found[1])] = text.splitlines()
    return calls, tables


def dump_steps(folder, monkeypatch, run, **options):
    monkeypatch.setenv("QD_DUMP_SIMPLIFY", "1")
    init(folder, **options)
    run()
    qd.reset()
    return read_steps(folder)


@pytest.mark.oracle_differs("its passes are others")
def test_dumped_steps(kernel, tmp_path, monkeypatch):
    calls, tables = dump_steps(tmp_path, monkeypatch, lambda: launch(kernel))
    assert sorted(calls) == sorted(tables) == list(range(len(calls)))
    for steps in calls.values():  # whole rounds
        rounds = max(int(s.partition("_")[0]) for s in steps)
        later = [f"{r}_{s}" for r in range(1, rounds + 1) for s in STEPS.split()[1:]]
        assert sorted(steps) == sorted(["0_00_start", *later])
        assert all(text.startswith("kernel {") for text in steps.values())
    assert "offloaded" not in calls[0]["0_00_start"]
    tasks = [steps["0_00_start"].count("offloaded") for n, steps in calls.items() if n]
    assert tasks == [1] * (len(calls) - 1) and len(tasks) >= 2  # each alone
    assert sum("loop_name=rows" in steps["0_00_start"] for steps in calls.values()) == 1


@pytest.mark.oracle_differs("its passes are others")
def test_dumped_steps_are_the_ir_at_that_moment(tmp_path, monkeypatch):
    @qd.kernel
    def staged(out: qd.types.ndarray(dtype=qd.i32, ndim=1), s: qd.i32):
        for i in range(4):
            a, two = out[i], 2
            out[i] = a + (s * 7 + two * 3)
            b = out[i] + (s * 7 + 0)
            for j in range(i):
                b ^= (s * 5) ^ j
            out[i] = b

    def run():
        out = qd.ndarray(qd.i32, 4)
        staged(out, 1)
        assert out.to_numpy().tolist() == [20, 20 ^ 5, 20 ^ 1, 20 ^ 5 ^ 1 ^ 2]

    calls, tables = dump_steps(tmp_path, monkeypatch, run)
    steps, table = calls[0], tables[0]
    assert re.fullmatch(r"passes over staged_c\d+_0, in their order", table[0])
    names = [line.split(": ")[1].split()[0] for line in table[1:]]
    assert names.index("promote") < names.index("simplify") < names.index("cse")
    assert names.index("cse") < names.index("store_forward") < names.index("licm")
    assert names.count("simplify") >= 3 and names[-2:] == ["dce", "late_stores"]
    # A variable until 01, arithmetic on constants until 03, products twice until 11, loads of
    # what was just stored until 12, and what a loop repeats in it until 07 of a later round.
    assert "alloca" in steps["0_00_start"] and "alloca" not in steps["1_01_extract_constant"]
    assert steps["1_01_extract_constant"].count("mul") == 4
    assert steps["1_03_binary_op_simplify"].count("mul") == 3 == steps["2_10_die"].count("mul")
    assert steps["2_11_per_task_cse"].count("mul") == 2
    assert steps["2_11_per_task_cse"].count("global load") == 2
    assert steps["2_12_cfg_optimization"].count("global load") == 1
    assert "mul" in steps["4_06_alg_simp"].rpartition("for in")[2]
    assert "mul" not in steps["4_07_loop_invariant_code_motion"].rpartition("for in")[2]
    # The table says what changed something: between such moments files are equal.
    told = {re.match(r"iter(\d+) (\w+)", line).groups() for line in table if "changes" in line}
    keys = sorted(steps)
    for before, key in zip(keys, keys[1:]):
        assert (steps[before] != steps[key]) == (tuple(key.split("_", 1)) in told), key


@pytest.mark.oracle_differs("its passes are others")
def test_dumped_steps_of_funcs(tmp_path, monkeypatch):
    """Callees come first, each in a call of its own."""

    @qd.real_func
    def leaf(a: qd.f32) -> qd.f32:
        return qd.sin(a) * 2.0 * 3.0

    @qd.kernel
    def top(s: qd.f32) -> qd.f32:
        return leaf(s) + leaf(s + 1.0)

    calls, tables = dump_steps(tmp_path, monkeypatch, lambda: top(1.0), debug=True)
    assert tables[0][0] == "passes over leaf, in their order"
    assert tables[1][0].startswith("passes over top_c")
    assert all(text.startswith("function leaf {") for text in calls[0].values())
    assert all(text.startswith("kernel {") for text in calls[1].values())
    assert "sin" in calls[0]["0_00_start"] and "sin" not in calls[1]["0_00_start"]


@pytest.mark.oracle_differs("its passes are others")
@pytest.mark.parametrize(
    "options, missing, step",
    [
        ({"cfg_optimization": False}, "store_forward", "12_cfg_optimization"),
        ({"opt_level": 0}, "cse", "11_per_task_cse"),
        ({"advanced_optimization": False}, "licm", "07_loop_invariant_code_motion"),
        ({"disable_pass": "licm"}, "licm", "07_loop_invariant_code_motion"),
    ],
)
def test_steps_whose_pass_is_off_leave_the_ir(
    kernel, tmp_path, monkeypatch, options, missing, step
):
    calls, tables = dump_steps(tmp_path, monkeypatch, lambda: launch(kernel), **options)
    assert not any(f": {missing}" in line for table in tables.values() for line in table)
    steps = calls[0]
    before = STEPS.split()[STEPS.split().index(step) - 1]
    rounds = {int(s.partition("_")[0]) for s in steps} - {0}
    for number in rounds:
        if not any(line.startswith(f"iter{number} {step}") for line in tables[0]):
            assert steps[f"{number}_{step}"] == steps[f"{number}_{before}"]
    assert len(rounds) == 1 or "advanced_optimization" not in options


def test_every_pass_is_a_step():
    from quadrants.lang._inspect.steps import _STEPS_OF

    table = (pathlib.Path(__file__).parents[2] / "src/pass/passes.inc").read_text()
    steps = set(re.findall(r"^STEP\((?:function|task), (\w+)", table, re.M))
    assert steps == set(_STEPS_OF) and "store_forward" in steps


def test_the_form_of_listings(tmp_path, monkeypatch):
    """Scripts parse these lines."""
    monkeypatch.setenv("QD_DUMP_IR", "1")
    init(tmp_path)
    out = qd.ndarray(qd.i32, 4)
    total = qd.field(qd.i32, ())

    @qd.real_func
    def double(a: qd.i32) -> qd.i32:
        return a * 2

    @qd.kernel
    def several(out: qd.types.ndarray(), n: qd.i32) -> qd.i32:
        m = n * 3
        for i in range(m):
            j = 0
            while j < i:
                if out[0] > 7:
                    break
                j += 2
            out[i] = qd.atomic_add(total[None], j) + double(qd.volatile_load(out[i]))
            print("at", i)
        assert m > 0, "none"
        return total[None]

    several(out, 1)
    (path,) = tmp_path.glob("several*_after_offload.ll")
    lines = [line.strip() for line in path.read_text().splitlines()]
    for pattern in (
        r"\$\d+ = offloaded",
        r"\$\d+ = offloaded range_for\(0, tmp\(offset=\d+B\)\) grid_dim=0 block_dim=adaptive",
        r"<i32> \$\d+ = const 3",
        r"<\*i32> \$\d+ = global tmp var \(offset = 0 B\)",
        r"\$\d+ : global store \[\$\d+ <- \$\d+\]",
        r"<i32> \$\d+ = mul \$\d+ \$\d+",
        r"<i32> \$\d+ = add \$\d+ \$\d+",
        r"<i32> \$\d+ = argload\[1\]",
        r"<\*i32> \$\d+ = external_ptr \$\d+, \[\$\d+\] layout=AOS is_grad=false",
        r"<\*i32> \$\d+ = global ptr \[\w+\], index \[\] activate=false",
        r"<i32> \$\d+ = global load volatile \$\d+",
        r"<i32> \$\d+ = global load \$\d+",
        r"<i32> \$\d+ = atomic add\(\$\d+, \$\d+\)",
        r"\$\d+ : while true {",
        r"\$\d+ : if \$\d+ {",
        r"<u1> \$\d+ = cmp_gt \$\d+ \$\d+",
        r'<i32> \$\d+ = call "double", args = {\$\d+}',
        r'print "at ", \$\d+, "\\n"',
        r"\$\d+ : return 0 \$\d+",
        r"function double {",
    ):
        assert any(re.fullmatch(pattern, line) for line in lines), (pattern, path.read_text())
    numbers = re.findall(r"\$(\d+) (?:=|:) ", path.read_text())
    assert len(numbers) == len(set(numbers)) and "$?" not in path.read_text()
    qd.reset()


def test_printed_stages(kernel, tmp_path, capfd):
    init(tmp_path, print_ir=True)
    launch(kernel)
    qd.sync()
    out, err = capfd.readouterr()
    labels = [line.split("] ")[-1] for line in err.splitlines() if "[step_c" in line]
    assert labels[0] == "Initial IR:" and len(labels) >= 4
    assert "rows" in out and err.splitlines()[-1].startswith("[I ")
    qd.cfg.print_ir = False
    assert not os.listdir(tmp_path)
    qd.reset()


PLACED = """
import quadrants as qd

@qd.func
def twice(x):
    return x * 2.0

@qd.kernel
def step(a: qd.types.ndarray(dtype=qd.f32, ndim=1), s: qd.f32):
    for i in range(a.shape[0]):
        if a[i] > 1.0: a[i] = twice(a[i]) + s  # größer
        else:
            a[i] = (a[i] +
                    s)
"""


@pytest.fixture
def placed(tmp_path):
    """A kernel in a file of its own, and how its places are shown."""
    file = tmp_path / "placed.py"
    file.write_text(PLACED)
    scope = {}
    exec(compile(PLACED, str(file), "exec"), scope)

    def place(number, function, *lines):
        return f'File "{file}", line {number}, in {function}:\n' + "".join(x + "\n" for x in lines)

    return scope["step"], place


@pytest.mark.oracle_differs("its statements are others")
@pytest.mark.parametrize("option", ["print_ir", "print_preprocessed_ir"])
def test_printed_places(placed, tmp_path, capfd, option):
    """Behind each statement stands where it is, with its code."""
    step, place = placed
    init(tmp_path, print_ir_dbg_info=True, **{option: True})
    a = qd.ndarray(qd.f32, 8)
    a.fill(2)
    step(a, 1.0)
    qd.sync()
    out = capfd.readouterr().out
    loop = place(10, "step", "    for i in range(a.shape[0]):", "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^")
    test = place(11, "step", "        if a[i] > 1.0: a[i] = twice(a[i]) + s  # größer",
                 "        ^^^^^^^^^^^^^^")  # fmt: skip
    then = place(11, "step", "        if a[i] > 1.0: a[i] = twice(a[i]) + s  # größer",
                 "                       ^^^^^^^^^^^^^^^^^^^^^^")  # fmt: skip
    inner = place(6, "twice", "    return x * 2.0", "    ^^^^^^^^^^^^^^")
    several = place(13, "step", "            a[i] = (a[i] +", "            ^^^^^^^^^^^^^^",
                    "                    s)", "                    ^^")  # fmt: skip
    for pattern in (
        rf"^( *)<f32> \$\d+ = mul \$\d+ \$\d+\n\1{re.escape(inner)}",
        rf"^( *)\$\d+ : global store .*\n\1{re.escape(then)}",
        rf"^( *)<f32> \$\d+ = add \$\d+ \$\d+\n\1{re.escape(several)}",
        rf"^( *)}}\n\1{re.escape(test)}",
        rf"^( *)}}\n\1{re.escape(loop)}",
    ):
        assert re.search(pattern, out, re.M), (pattern, out)
    assert "\x01" not in out
    qd.cfg.print_ir = False
    qd.reset()


def test_no_places_without_being_asked(placed, tmp_path, capfd):
    step, _ = placed
    init(tmp_path, print_ir=True, print_preprocessed_ir=True)
    step(qd.ndarray(qd.f32, 8), 1.0)
    out, err = capfd.readouterr()
    assert "File" not in out and "\x01" not in out
    assert out.partition("kernel {\n")[0].count("\n") <= 1 and "Preprocessed IR:" in err
    qd.cfg.print_ir = False
    qd.reset()


def test_printed_code(kernel, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    init(
        tmp_path,
        print_kernel_llvm_ir=True,
        print_kernel_llvm_ir_optimized=True,
        print_kernel_asm=True,
    )
    launch(kernel)
    files = {n.rpartition("_")[0]: (tmp_path / n).read_text() for n in os.listdir(tmp_path)}
    for n, part in {
        "quadrants_kernel_generic_llvm_ir": "define",
        "quadrants_kernel_cpu_llvm_ir_optimized": "define",
        "quadrants_kernel_cpu_llvm_ir_optimized_asm": "ret",
    }.items():
        assert part in files[n] and n in capfd.readouterr().err or files[n]
    qd.reset()


def test_announced_kernels(kernel, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("QD_SHOW_COMPILING", "1")
    init(tmp_path)
    launch(kernel)
    launch(kernel)
    assert capfd.readouterr().err.count("Compiling kernel 'step_c") == 1
    qd.reset()


def test_printing_beside_the_cache_warns(tmp_path):
    with pytest.warns(UserWarning, match=r"\[warning_code=DUMP_IR_CACHE_MISMATCH\]$"):
        qd.init(arch=qd.cpu, print_ir=True, offline_cache_file_path=str(tmp_path))
    qd.reset()


def test_dumped_syntax_trees(kernel, tmp_path, monkeypatch, ast_folder):
    monkeypatch.setenv("QD_DUMP_AST", "1")
    init(tmp_path)
    launch(kernel)
    (stem,) = {n.partition("_0_")[0] for n in os.listdir(ast_folder) if n.startswith("step_c")}
    texts = {
        n: (ast_folder / f"{stem}_0_{n}").read_text()
        for n in ("ast_.txt", "ast.json", "gen_time.json")
    }
    assert texts["ast_.txt"].startswith("Module(") and "name='step'" in texts["ast_.txt"]
    tree = json.loads(texts["ast.json"])
    assert tree["type"] == "Module" and tree["fields"]["body"][0]["fields"]["name"] == "step"
    assert set(json.loads(texts["gen_time.json"])) == {"elapsed_txt", "elapsed_json"}


NODE = re.compile(
    r"Node (\d+) : (?:empty|.*size=\d+\)?)(?:; prev=\{([\d, ]+)\})?(?:; next=\{([\d, ]+)\})?"
)


def read_flow(text):
    """Node -> nodes that follow."""
    flow = {}
    for line in text.splitlines():
        if m := NODE.match(line):
            flow[int(m[1])] = {int(n) for n in (m[3] or "").split(",") if n.strip()}
    return flow


def test_dumped_control_flow(tmp_path, monkeypatch, capfd):
    @qd.kernel
    def branchy(n: qd.i32) -> qd.i32:
        total = n
        while total < 100:
            total += 7
            if total == 50:
                total += 1
            else:
                total += 2
        return total

    monkeypatch.setenv("QD_DUMP_CFG", "1")
    init(tmp_path)
    assert branchy(1) >= 100
    names = sorted(n for n in os.listdir(tmp_path) if n.startswith("branchy_c"))
    err = capfd.readouterr().err
    assert all(f"CFG dumped to: {tmp_path}/{n}" in err for n in names)
    ends = {n[n.index("_CFG_") + 5 :] for n in names}
    assert "simplify_I_before_cfg_opt.txt" in ends
    assert {f"simplify_III_task0_{side}_cfg_opt.txt" for side in ("before", "post")} <= ends
    (first,) = (n for n in names if n.endswith("_CFG_simplify_I_before_cfg_opt.txt"))
    flow = read_flow((tmp_path / first).read_text())
    (last,) = (n for n, after in flow.items() if not after)
    reached, waiting = set(), [0]
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting += flow[node]
    assert last in reached and any(node >= after for node in flow for after in flow[node])  # a loop
    assert max(map(len, flow.values())) == 2


def test_printed_structs(kernel, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    init(tmp_path, print_struct_llvm_ir=True)
    x = qd.field(qd.f64)
    y = qd.field(qd.i16)
    qd.root.dense(qd.i, 5).place(x, y)
    x[3] = 1.5
    (file,) = tmp_path.glob("quadrants_struct_llvm_ir_*.ll")
    assert file.name in capfd.readouterr().err
    text = file.read_text()
    assert "= type { double, i16 }" in text and "[5 x " in text


SCALING = """
import sys
import quadrants as qd

qd.init(qd.cpu, offline_cache=False, src_ll_cache=False, debug_dump_path=sys.argv[1])

@qd.kernel
def scale(a: qd.types.ndarray(dtype=qd.f32, ndim=1)):
    for i in range(a.shape[0]):
        a[i] = a[i] * 3.0
    for i in range(a.shape[0]):
        a[i] += 1.0

a = qd.ndarray(qd.f32, 100)
a.fill(2)
scale(a)
print("result", *set(a.to_numpy().tolist()))
"""


@pytest.mark.oracle_differs("other files and instructions")
def test_edited_llvm_is_read_back(tmp_path):
    program, folder = tmp_path / "scaling.py", tmp_path / "ir"
    program.write_text(SCALING)

    def run(**environment):
        done = subprocess.run(
            [sys.executable, str(program), f"{folder}/"],
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )
        return done.stdout + done.stderr

    assert "result 7.0" in run(QD_DUMP_IR="1")
    first, second = sorted(folder.glob("*_kernel_*_llvm.ll"))
    text = first.read_text()
    assert "@task0(" in text and "@task1(" not in text and "fadd" not in text
    first.write_text(text.replace("3.000000e+00", "5.000000e+00"))
    assert "result 7.0" in run()
    loaded = run(QD_LOAD_IR="1")
    assert "result 11.0" in loaded and f"Loading LLVM IR from {first}" in loaded
    second.unlink()  # a task without a file keeps its own code
    assert "result 11.0" in run(QD_LOAD_IR="1", QD_CPU_TIER="0")
    wrong = {
        "": "does not define the function @task0",
        "; nothing but a comment\n": "does not define the function @task0",
        re.sub(r"^define .*?^}$", "", text, flags=re.M | re.S): "does not define the function",
        text.replace("@task0(", "@task9("): "does not define the function @task0",
        text.replace("fmul", "fnul"): "is invalid, line",
        re.sub(
            r"@task0\(", "@task0(i64 %more, ", text
        ): "has another @task0 than the kernel: void (i64, ",
        re.sub(r"^define [^@]*@task0", "define i32 @task0", text, flags=re.M).replace(
            "ret void", "ret i32 0"
        ): "has another @task0 than the kernel: i32 (",
        re.sub(r'triple = "[^"]*"', 'triple = "riscv64-unknown-linux-gnu"', text): "is for riscv64",
    }
    for edited, why in wrong.items():
        first.write_text(edited)
        told = run(QD_LOAD_IR="1")
        assert f"compiling scale: QD_LOAD_IR: {first} {why}" in told
        assert "internal error" not in told and "result" not in told
    first.write_bytes(b"\xff\xfe")
    unreadable = run(QD_LOAD_IR="1")
    assert f"QD_LOAD_IR: {first} cannot be read" in unreadable and "result" not in unreadable
