"""Dedenting with a given indentation."""

import textwrap


def dedent(n: int, text: str) -> str:
    """The text without its common indentation, then indented by n spaces."""
    return textwrap.indent(textwrap.dedent(text), " " * n)
