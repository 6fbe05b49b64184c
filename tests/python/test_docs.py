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
PAGES = ["README.md", "docs/guide.md"]


def program_of(page):
    """The page's code with every other line blanked, and the lines that it says it prints."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        fence = line.startswith("```")
        if fence:
            inside = line == "```python"
        lines.append(line if inside and not fence else "")
    text = "\n".join(lines) + "\n"
    return text, re.findall(r"# prints: (.*)", text)


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
    printed = [x for x in done.stdout.splitlines() if not x.startswith("[Quadrants]")]
    assert printed == expect


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")) + [ROOT / "README.md"])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
