"""The steps of simplification, as files (`QD_DUMP_SIMPLIFY`, spec 50 section 11.3).

The chapter names twelve steps of a round. Our passes have an order of their own (`src/pass/passes.inc`),
so each is said to be one or several of the steps, and a round ends where the next pass is an earlier
step. Every file shows the IR at its moment: what no pass did in a round leaves the IR as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_STEPS = (
    "01_extract_constant",
    "03_binary_op_simplify",
    "04_constant_fold",
    "05_die",
    "06_alg_simp",
    "07_loop_invariant_code_motion",
    "08_die",
    "09_simplify",
    "10_die",
    "11_per_task_cse",
    "12_cfg_optimization",
)
# Pass -> the first and the last step that it is; dce is whichever of its steps comes next.
_STEPS_OF = {
    "unroll": (("01", "01"),),
    "promote": (("01", "01"),),
    "simplify": (("03", "06"),),
    "licm": (("07", "07"),),
    "inline_calls": (("09", "09"),),
    "serial_reduce": (("09", "09"),),
    "split_edges": (("09", "09"),),
    "contract": (("09", "09"),),
    "dce": (("05", "05"), ("08", "08"), ("10", "10")),
    "cse": (("11", "11"),),
    "own_elements": (("12", "12"),),
    "store_forward": (("12", "12"),),
    "late_stores": (("12", "12"),),
}


class _Run(NamedTuple):
    name: str  # of the pass
    text: str  # of the function or task behind it
    round: int
    first: str
    last: str


def dump_steps(
    stem: str, moments: Iterable[tuple[str, str]], write: Callable[[str, str], None]
) -> None:
    """Writes the files of a kernel.

    Each function that is finished, callees first, and then each task is one call of the simplification:
    its files show it alone, and `..._passes.txt` says which pass ran in which step.

    Args:
        stem: path of the files up to the kernel's name.
        moments: titles and texts, in their order: "phase pass function", where the pass is `start`
            before the first one.
        write: takes a path and what the file is to hold.
    """
    calls: list[tuple[str, str, list[tuple[str, str]]]] = []
    for title, text in moments:
        phase, name, function = title.split(" ", 2)
        if phase not in ("I", "III"):
            continue
        if name == "start":
            calls.append((function, text, []))
        elif calls:  # before: what inserts checks
            calls[-1][2].append((name, text))
    for number, (function, start, passes) in enumerate(calls):
        runs = list(_in_rounds(passes))
        call = f"{stem}.simplify_I_call{number}"
        write(f"{call}_iter0_00_start.ir", start)
        for file, text in _files(start, runs):
            write(f"{call}_{file}.ir", text)
        write(f"{call}_passes.txt", _table(function, start, runs))


def _in_rounds(passes: Iterable[tuple[str, str]]) -> Iterator[_Run]:
    number, reached = 1, ""
    for name, text in passes:
        spans = _STEPS_OF[name]
        span = next((s for s in spans if s[0] >= reached), None)
        if span is None:
            number, span = number + 1, spans[0]
        reached = span[1]
        yield _Run(name, text, number, *span)


def _files(text: str, runs: list[_Run]) -> Iterator[tuple[str, str]]:
    waiting = runs[::-1]
    for number in range(1, runs[-1].round + 1 if runs else 1):
        for step in _STEPS:
            while waiting and waiting[-1].round == number and waiting[-1].first <= step[:2]:
                text = waiting.pop().text
            yield f"iter{number}_{step}", text


def _table(function: str, text: str, runs: list[_Run]) -> str:
    names = {step[:2]: step for step in _STEPS}
    lines = [f"passes over {function}, in their order"]
    for run in runs:
        effect = "" if run.text == text else "  changes"
        step = names[run.first] + (f" .. {names[run.last]}" if run.first != run.last else "")
        lines.append(f"iter{run.round} {step}: {run.name}{effect}")
        text = run.text
    return "\n".join(lines) + "\n"
