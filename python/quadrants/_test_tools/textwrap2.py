"""Dedenting by a given number of columns."""


def dedent(n: int, text: str) -> str:
    """The text without the first n characters of each line."""
    return "\n".join(line[n:] for line in text.split("\n"))
