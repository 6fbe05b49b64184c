"""Texts and files that show what the compiler does to a kernel (spec 50, section 11)."""

import os

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


def launch(kernel):
    a = qd.ndarray(qd.f32, 8)
    a.fill(2)
    kernel(a, 3.0)
    assert a.to_numpy().tolist() == [7] * 8


def init(folder, **options):
    qd.init(arch=qd.cpu, offline_cache=False, debug_dump_path=f"{folder}/", **options)


STAGES = "from_ast quadrants1 before_simplify_I after_simplify_I after_offload after_simplify_III"


def test_dumped_stages_and_tasks(kernel, tmp_path, monkeypatch):
    monkeypatch.setenv("QD_DUMP_IR", "1")
    init(tmp_path / "ir")
    launch(kernel)
    names = [n for n in os.listdir(tmp_path / "ir") if n.startswith("step_c")]
    for stage in STAGES.split():
        assert sum(n.endswith(f"_0_{stage}.ll") for n in names) == 1
    tasks = sorted(n[n.index("_kernel_") :] for n in names if n.endswith("_llvm.ll"))
    assert tasks == ["_kernel_0_rows_range_for_llvm.ll", "_kernel_1_range_for_llvm.ll"]
    for n in names:
        text = (tmp_path / "ir" / n).read_text()
        assert ("define " in text) == n.endswith("_llvm.ll")
        assert ("loop_name=rows" in text) == n.endswith("_after_offload.ll")
    qd.reset()


def test_nothing_is_dumped_without_being_asked(kernel, tmp_path, monkeypatch):
    monkeypatch.setenv("QD_DUMP_IR", "0")
    init(tmp_path / "ir")
    launch(kernel)
    assert not (tmp_path / "ir").exists()
    qd.reset()


def test_dumped_passes(kernel, tmp_path, monkeypatch):
    monkeypatch.setenv("QD_DUMP_SIMPLIFY", "1")
    init(tmp_path)
    launch(kernel)
    names = sorted(os.listdir(tmp_path))
    assert len(names) > 3 and all(
        n.startswith("step_c") and ".simplify_I_call" in n and n.endswith(".ir") for n in names
    )
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
