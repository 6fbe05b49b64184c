"""Writes docs/options.md from the option table (src/ir/options.inc), and the table of passes in
docs/passes.md from theirs (src/pass/passes.inc).

.venv/bin/python tools/option_page.py
"""

import pathlib

from quadrants._lib import core
from quadrants.lang._config import DataType, Option, table

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"

ROOMS = {
    "module": "Meaning of code and optimisation: part of every cache key",
    "frontend": "The front end: part of the keys of warm starts",
    "compile": "Compiling",
    "launch": "Running",
    "cache": "Caches",
    "log": "Messages",
    "dump": "Seeing what the compiler does",
    "gpu": "GPUs: read by nobody on the CPU",
    "gradient": "Gradients",
    "quant": "Quantised types: accepted and without effect",
    "mesh": "Meshes: accepted and without effect",
    "inert": "Accepted and without effect",
}
# Of this implementation alone, and why they are there.
OURS = {
    "compile_report": "Waiting for a compiler is the complaint about tools of this kind: it says which kernel, "
    "what took long and which guard missed.",
    "compile_progress": "A long first call looks like a hang.",
    "trace_file": "Compiling runs on several threads, beside launches: only over time one sees who waited for whom.",
    "disable_pass": "A wrong result goes away with one pass: that pass is where to look.",
}
HEAD = """# Options

Each is a keyword of `qd.init`, read from the environment variable `QD_<NAME>` if it is not given, and
an attribute of `qd.cfg` (but those marked *). A keyword wins over the environment. A flag's variable
is a whole number, 0 for False. A value of another type is a `TypeError`, a number out of range a
`ValueError`, and so is text in a variable that takes a number. This page is made from the table in
`src/ir/options.inc` by `tools/option_page.py`.
"""


def default_of(row: Option) -> str:
    if row.name == "cpu_max_num_threads":
        return "all of the machine"
    if row.name == "offline_cache_file_path":
        return "`<cache root>/qdcache`"
    return f"`{row.default}`" if row.default != "" else "empty"


def type_of(row: Option) -> str:
    name = "dtype" if row.type is DataType else row.type.__name__
    usual = (-(2**31), 2**31 - 1)
    return (
        name
        if row.low == row.high or (row.low, row.high) == usual
        else f"{name}, {row.low} to {row.high}"
    )


def page() -> str:
    lines = [HEAD]
    for room, title in ROOMS.items():
        rows = [row for row in table().values() if row.room == room]
        lines += [f"## {title}\n", "| Option | Type | Default | Meaning |", "|---|---|---|---|"]
        for row in rows:
            star = "*" if row.aside else ""
            lines.append(
                f"| `{row.name}`{star} | {type_of(row)} | {default_of(row)} | {row.documentation} |"
            )
        lines.append("")
    lines += [
        "## Ours\n",
        "The established package has no such options; programs that set them do not run on it.\n",
        "| Option | Why it is there |",
        "|---|---|",
    ]
    lines += [f"| `{table()[name].name}` | {why} |" for name, why in OURS.items()]
    return "\n".join(lines) + "\n"


def pass_table() -> str:
    lines = ["| Pass | What it does | Options that switch it |", "|---|---|---|"]
    for name, switches, documentation in core.pass_rows():
        # `a, b (what)` -> each name as code
        words = [
            w if not w.strip() else f"`{w.split(' ')[0]}`" + w[len(w.split(" ")[0]) :]
            for w in switches.split(", ")
        ]
        lines.append(f"| `{name}` | {documentation} | {', '.join(words)} |")
    return "\n".join(lines)


def passes_page(old: str) -> str:
    """The page with the table as it should be, between its head and the blank line behind it."""
    begin = old.index("| Pass |")
    return old[:begin] + pass_table() + old[old.index("\n\n", begin) :]


if __name__ == "__main__":
    (DOCS / "options.md").write_text(page())
    (DOCS / "passes.md").write_text(passes_page((DOCS / "passes.md").read_text()))
