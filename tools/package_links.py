"""A build of its own as a package: `PYTHONPATH=<build>` imports its objects with the tree's Python files."""

import pathlib

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "python" / "quadrants"


def link_package(build):
    """The Python files beside the objects in `build/quadrants`, as links."""
    package = build / "quadrants"
    for path in SOURCE.rglob("*"):
        target = package / path.relative_to(SOURCE)
        if path.is_dir() or path.suffix == ".so" or "__pycache__" in path.parts:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(path)
