"""Names that stand in the Python package and that neither a chapter nor our own code has a use for.

    python tools/check_compat_names.py CHAPTERS

CHAPTERS is the folder of the specification. The compatibility layer promises what its chapters name,
and nothing is taken from elsewhere: a function, class, method or attribute that no chapter mentions,
that no code of ours reads, and that the native modules don't ask for, has no business here.
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "quadrants"
CALLED_BY_OTHERS = re.compile(r"__\w+__|visit_\w+|pytest_\w+|_qd_\w+")  # Python, ast, pytest; marks


def words(text):
    """Identifiers, with `a_b/c/d` and `a_{b,c}` of the chapters' rows written out."""
    text = re.sub(r"/\n\s*", "/", text)
    found = set(re.findall(r"\w+", text))
    for head, tails in re.findall(r"\b(\w+_)\{([\w, ]+)\}", text):
        found.update(head + t.strip() for t in tails.split(","))
    for row in re.findall(r"\b\w+(?:/\w+)+", text):
        first, *rest = row.split("/")
        stem = first.rpartition("_")[0]
        found.update(f"{stem}_{t}" for t in rest)
    return found


def collect(tree, defined, read):
    """Adds the names that a module defines, and those that it reads."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            registered = node.decorator_list and not isinstance(node, ast.ClassDef)
            kinds = {ast.unparse(d) for d in node.decorator_list}
            if not registered or kinds & {"property", "staticmethod", "classmethod"}:
                defined.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            read.update(
                alias.name for alias in node.names if alias.asname not in (None, alias.name)
            )
        elif isinstance(node, ast.Attribute):
            (read if isinstance(node.ctx, ast.Load) else defined).add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            read.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            read.update(re.findall(r"\w+", node.value) if len(node.value) < 2000 else ())


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    promised = words("\n".join(p.read_text() for p in pathlib.Path(sys.argv[1]).glob("*.md")))
    native = words("\n".join(p.read_text() for p in (ROOT / "src").rglob("*") if p.is_file()))
    where, read = {}, set()
    for path in sorted(PACKAGE.rglob("*.py")):
        defined = set()
        collect(ast.parse(path.read_text()), defined, read)
        for name in defined:
            where.setdefault(name, path.relative_to(ROOT))
    idle = {
        name: path
        for name, path in where.items()
        if name not in promised | native | read and not CALLED_BY_OTHERS.fullmatch(name)
    }
    for name, path in sorted(idle.items(), key=lambda item: (item[1], item[0])):
        print(f"{path}: {name}")
    sys.exit(bool(idle))


if __name__ == "__main__":
    main()
