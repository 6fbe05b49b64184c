"""What the compiler does to a kernel, printed or written to files.

Native code calls `show` for each kernel that is really compiled, if an option or an environment
variable asks for something. Texts come from running the compiler on the same module once more.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from quadrants import _logging
from quadrants._lib import core
from quadrants.lang import impl
from quadrants.lang.exception import QuadrantsRuntimeError

_LABELS = {
    "from_ast": "Initial IR",
    "quadrants1": "Typechecked",
    "before_simplify_I": "Checks inserted",
    "after_simplify_I": "Simplified I",
    "after_offload": "Offloaded",
    "after_simplify_III": "Simplified III",
}
# Option, the compiler's text, file in the working directory, what the log calls it.
_PRINTED = (
    (
        "print_kernel_llvm_ir",
        "lowered_llvm",
        "quadrants_kernel_generic_llvm_ir_{:04}.ll",
        "unoptimized LLVM IR (generic)",
    ),
    (
        "print_kernel_llvm_ir_optimized",
        "llvm",
        "quadrants_kernel_cpu_llvm_ir_optimized_{:04}.ll",
        "optimized LLVM IR (CPU)",
    ),
    (
        "print_kernel_asm",
        "assembly",
        "quadrants_kernel_cpu_llvm_ir_optimized_asm_{:04}.s",
        "optimized assembly code (CPU)",
    ),
)
_written: dict[str, int] = {}  # files of each kind in this process


def show(definition: Any, kernel: str, module: bytes) -> None:
    """Shows a kernel that is about to be compiled.

    Args:
        definition: what the decorator made.
        kernel: its unique name.
        module: the front end's serialised IR.
    """
    cfg = impl.current_cfg()
    if _is_set("QD_SHOW_COMPILING"):
        _logging.info(f"Compiling kernel '{kernel}'")
    if _is_set("QD_DUMP_AST"):
        from quadrants.lang._inspect import syntax

        syntax.dump_tree(kernel, definition.fn, _write)
    located = "located_" if cfg.print_ir_dbg_info else "listed_"
    if cfg.print_preprocessed_ir:
        text = core._compiler_text(module, located + "input")
        _print(kernel, "Preprocessed IR", _with_code(text))
    if cfg.print_ir:
        _print_stages(kernel, module)
    for option, what, pattern, noun in _PRINTED:
        if getattr(cfg, option):
            path = _numbered(option, pattern)
            _logging.info(f"Saving {noun} to {path}")
            _write(path, core._compiler_text(module, what))
    if _is_set("QD_DUMP_IR"):
        _dump(cfg.debug_dump_path, kernel, module)
    if _is_set("QD_DUMP_SIMPLIFY"):
        from quadrants.lang._inspect.steps import dump_steps

        moments = _sections(core._compiler_text(module, "listed_passes"))
        dump_steps(os.path.join(cfg.debug_dump_path, kernel), moments, _write)
    if _is_set("QD_DUMP_CFG"):
        _dump_control_flow(cfg.debug_dump_path, kernel, module)


def show_accessor(kernel: str, module: bytes) -> None:
    """Prints what stands for the first read or write of a field's elements from Python."""
    _print_stages(kernel, module)


def _print_stages(kernel: str, module: bytes) -> None:
    located = "located_" if impl.current_cfg().print_ir_dbg_info else "listed_"
    for name, text in _sections(core._compiler_text(module, located + "stages")):
        if name in _LABELS:
            _print(kernel, _LABELS[name], _with_code(text))


_PLACE = re.compile("^( *)\x01(\\d+) (\\d+) (\\d+) (\\d+) (\\S+) (.*)\n", re.M)


def _with_code(listing: str) -> str:
    """A listing with code in the source where it has places."""

    def shown(place: re.Match[str]) -> str:
        indentation, *numbers, function, file = place.groups()
        return indentation + core._site_text(file, function, *map(int, numbers))

    return _PLACE.sub(shown, listing)


# Stage, what the files call it, and whether it stands before or behind the passes.
_FLOWS = (
    ("quadrants1", "simplify_I", "before"),
    ("after_simplify_I", "simplify_I", "post"),
    ("after_offload", "simplify_III", "before"),
    ("after_simplify_III", "simplify_III", "post"),
)


def _dump_control_flow(folder: str, kernel: str, module: bytes) -> None:
    """A file for each function and task, before and behind the passes."""
    from quadrants.lang._inspect.syntax import control_flow

    stages = dict(_sections(core._compiler_text(module, "stages")))
    for stage, phase, side in _FLOWS:
        for function, graph in control_flow(stages[stage]):
            task = re.fullmatch(r"task(\d+)", function)
            if (function != kernel) if phase == "simplify_I" else not task:
                continue
            part = f"_task{task[1]}" if task else ""
            path = os.path.join(folder, f"{kernel}_CFG_{phase}{part}_{side}_cfg_opt.txt")
            _write(path, graph)
            _logging.info(f"CFG dumped to: {path}")


def show_tree(root: Any) -> None:
    """Shows a field tree that was just laid out."""
    from quadrants.lang._inspect.structs import struct_types

    cfg = impl.current_cfg()
    targets = []
    if cfg.print_struct_llvm_ir:
        targets.append(("print_struct_llvm_ir", "quadrants_struct_llvm_ir_{:04}.ll"))
    if _is_set("QD_DUMP_IR"):
        targets.append(("struct", os.path.join(cfg.debug_dump_path, "struct_{:04}_llvm.ll")))
    for kind, pattern in targets:
        path = _numbered(kind, pattern)
        if kind != "struct":
            _logging.info(f"Saving struct LLVM IR to {path}")
        _write(path, struct_types(root))


def _numbered(kind: str, pattern: str) -> str:
    number = _written.get(kind, 0)
    _written[kind] = number + 1
    return pattern.format(number)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


def _print(kernel: str, stage: str, text: str) -> None:
    _logging.info(f"[{kernel}] {stage}:")
    print(text, flush=True)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    for section in text.split("\f")[1:]:
        name, _, body = section.partition("\n")
        yield name, body


def _write(path: str, text: str) -> None:
    folder = os.path.dirname(path)
    try:
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as e:
        raise QuadrantsRuntimeError(
            f"what is dumped cannot be written to {folder or os.getcwd()}: {e}; see debug_dump_path"
        ) from None


def _tasks(kernel: str, listed: str) -> Iterator[tuple[int, str, str, str]]:
    """Number, kind, the loop's name and the file of each task that the compiler lists."""
    for n, line in enumerate(listed.splitlines()):
        kind, _, name = line.partition(" ")
        if name == f"{kind.partition('_')[0]}{n}":  # made up: the loop has no name
            name = ""
        yield n, kind, name, f"{kernel}_kernel_{n}_{name and name + '_'}{kind}_llvm.ll"


def _without_other_tasks(llvm: str, n: int) -> str:
    """The module without the functions of tasks other than number n: none calls another."""
    return re.sub(rf"^define [^\n]*@task(?!{n}\()\d+\(.*?^\}}\n", "", llvm, flags=re.M | re.S)


def _dump(folder: str, kernel: str, module: bytes) -> None:
    """Two files for each stage, for people and for our parser, and the LLVM IR of each task."""
    sections = dict(_sections(core._compiler_text(module, "stages")))
    llvm = core._compiler_text(module, "llvm")
    for n, *_, file in _tasks(kernel, sections.pop("tasks")):
        _write(os.path.join(folder, file), _without_other_tasks(llvm, n))
    for stage, text in sections.items():
        _write(os.path.join(folder, f"{kernel}_{stage}.qir"), text)
    for stage, text in _sections(core._compiler_text(module, "listed_stages")):
        if stage != "tasks":
            _write(os.path.join(folder, f"{kernel}_{stage}.ll"), text)


def edited_tasks(kernel: str, module: bytes) -> list[tuple[int, str, str]]:
    """The LLVM modules of tasks that lie in the dump folder, for `QD_LOAD_IR`: number, file, text."""
    listed = dict(_sections(core._compiler_text(module, "stages")))["tasks"]
    texts = []
    for n, *_, file in _tasks(kernel, listed):
        path = os.path.join(impl.current_cfg().debug_dump_path, file)
        if os.path.exists(path):
            _logging.info(f"Loading LLVM IR from {path}")
            try:
                with open(path, encoding="utf-8") as text:
                    texts.append((n, path, text.read()))
            except (OSError, UnicodeDecodeError) as e:
                raise QuadrantsRuntimeError(f"QD_LOAD_IR: {path} cannot be read: {e}") from None
    return texts
