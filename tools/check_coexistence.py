#!/usr/bin/env python3
"""Checks that the compiler lives in one process with packages that bring their own LLVM or C++.

For torch, triton and llvmlite, in either order of loading: each side compiles and runs something,
then each does so again. Every pair runs in a process of its own, so a crash is one failed line.

    check_coexistence.py             all pairs of the packages that are installed
    check_coexistence.py A B         one pair, in this process
"""

import importlib.util
import subprocess
import sys
import tempfile

OTHERS = ["torch", "triton", "llvmlite"]


def use_quadrants() -> None:
    import quadrants as qd

    qd.init(arch=qd.cpu, offline_cache=False)

    @qd.kernel
    def double(x: qd.i32) -> qd.i32:
        return x * 2

    assert double(21) == 42
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert "libqd_compiler" in maps.read(), "the compiler was not loaded"
    try:
        double("no number")
    except Exception:
        return
    raise AssertionError("a wrong argument was accepted")


def use_torch() -> None:
    import torch

    x = torch.arange(12.0).reshape(3, 4)
    assert float((x @ x.T).trace()) == 506.0


def use_triton() -> None:
    import triton  # noqa: F401
    from triton._C.libtriton import llvm

    llvm.init_targets()
    llvm.context()


def use_llvmlite() -> None:
    import ctypes

    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly("define i32 @f(i32 %x) { %y = add i32 %x, 1\n ret i32 %y }")
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(engine.get_function_address("f"))
    assert function(41) == 42


def run_pair(first: str, second: str) -> None:
    uses = {
        "quadrants": use_quadrants,
        "torch": use_torch,
        "triton": use_triton,
        "llvmlite": use_llvmlite,
    }
    for name in (first, second, first, second):
        uses[name]()


def main() -> int:
    if len(sys.argv) == 3:
        run_pair(sys.argv[1], sys.argv[2])
        return 0
    failures = 0
    for other in OTHERS:
        if importlib.util.find_spec(other) is None:
            print(f"coexistence: {other} is not installed, skipped")
            continue
        for pair in [("quadrants", other), (other, "quadrants")]:
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([sys.executable, __file__, *pair], cwd=folder, check=False)
            failures += done.returncode != 0
            print(f"coexistence: {' then '.join(pair)}: {done.returncode or 'fine'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
