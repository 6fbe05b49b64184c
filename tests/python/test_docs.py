"""The Python blocks of the user pages run, in page order, and print what they say.

A page becomes one program whose line numbers are the page's, so that errors point into the page.
`# prints: text` stands behind or below the code that prints the line; all lines count.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/guide.md", "docs/debugging.md", "docs/gradients.md"]


def program_of(page):
    """The page's code with every other line blanked, and the lines that it says it prints."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        fence = line.startswith("```")
        if fence:
            inside = line == "```python"
        lines.append(line if inside and not fence else "")
    text = "\n".join(lines) + "\n"
    return text, re.findall(r"# prints: ?(.*)", text)


@pytest.mark.parametrize("name", PAGES)
def test_page(tmp_path, name):
    text, expect = program_of(ROOT / name)
    assert expect, "a page shows some output"
    path = tmp_path / "page.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=dict(os.environ, ENABLE_QUADRANTS_HEADER_PRINT="0", QD_OFFLINE_CACHE="0"),
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout.replace(f"{tmp_path}{os.sep}", "")
    printed = [x for x in said.splitlines() if not x.startswith("[Quadrants]")]
    assert printed == expect


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")) + [ROOT / "README.md"])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def text_of(path):
    return (ROOT / path).read_text()


def test_rooms_exist():
    rooms = {
        p.name for p in (ROOT / "src").iterdir() if any(p.rglob("*.cpp")) or any(p.rglob("*.h"))
    }
    table = re.findall(
        r"^\| `(?:qd_|quadrants/)[^|]*\| ([a-z, ]+) \|", text_of("docs/building.md"), re.M
    )
    assert {room for row in table for room in row.split(", ")} == rooms
    for page in (ROOT / "docs").rglob("*.md"):
        named = set(re.findall(r"`src/(\w+)`", page.read_text()))
        assert named <= rooms, (page, named - rooms)


def test_named_files_exist():
    names = {
        p.name
        for folder in ("cmake", "src", "python", "tests", "tools")
        for p in (ROOT / folder).rglob("*")
    }
    for page in sorted((ROOT / "docs" / "internals").glob("*.md")):
        for name in re.findall(r"`(?:[\w/]+/)?(\w+\.(?:cpp|h|py|qir|inc))`", page.read_text()):
            assert name in names, (page.name, name)


def test_guard_kinds():
    kinds = re.search(
        r"enum class FactKind[^{]*\{(.*?)\};", text_of("src/frontend/specialise.h"), re.S
    )
    told = re.search(r"a fact: ([a-z, ]+)", text_of("docs/internals/frontend.md"))
    assert told.group(1).strip().split(", ") == [
        name.strip() for name in re.findall(r"^\s*(\w+),", kinds.group(1), re.M)
    ]


@pytest.mark.parametrize("page", PAGES[:2])
def test_what_is_said_to_be_missing_is(page):
    said = " ".join(text_of(page).split())
    for feature in ("sparse fields", "quantised types"):
        name = {"s": "sparse", "q": "quant"}[feature[0]]
        missing = not core_supports(name)
        assert (feature in said.partition("Not yet")[2]) == missing, (feature, missing)


def core_supports(extension):
    import quadrants as qd

    return qd.lang.misc.is_extension_supported(qd.cpu, getattr(qd.extension, extension))
