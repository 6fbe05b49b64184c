"""Which arcs between lines of a function ran, from the probes that ran."""

from __future__ import annotations

import ast
from typing import NamedTuple


class Arc(NamedTuple):
    """Ran if the witness did and no blocker did. Negative lines stand for outside."""

    start: int
    end: int
    witness: int
    blockers: tuple[int, ...] = ()


class Flow:
    """Finds the arcs of a function.

    Args:
        ids: probe of each statement.
        else_ids: probe in the place of each missing `else`.
        offset: what to add to the tree's lines.
    """

    def __init__(
        self, ids: dict[ast.stmt, int], else_ids: dict[ast.stmt, int], offset: int
    ) -> None:
        self._ids, self._else_ids, self._offset = ids, else_ids, offset
        self._loops: list[tuple[int, int]] = []  # header and what follows
        self.arcs: list[Arc] = []

    def function(self, node: ast.FunctionDef, body: list[ast.stmt]) -> list[Arc]:
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        self._outside = -(first + self._offset)
        if body:
            self._add(self._outside, self._line(body[0]), body[0])
        self._block(body, self._outside)
        return self.arcs

    def _line(self, statement: ast.stmt) -> int:
        return statement.lineno + self._offset

    def _add(self, start: int, end: int, witness: ast.stmt, *blockers: ast.stmt) -> None:
        number = self._ids.get(witness)
        if number is not None and start != end:
            stops = tuple(self._ids[b] for b in blockers if b in self._ids)
            self.arcs.append(Arc(start, end, number, stops))

    def _block(self, body: list[ast.stmt], after: int) -> None:
        """Statements in a row; `after` is the line that follows the last."""
        for n, s in enumerate(body):
            self._statement(s, self._line(body[n + 1]) if n + 1 < len(body) else after)

    def _statement(self, s: ast.stmt, after: int) -> None:
        line = self._line(s)
        if isinstance(s, ast.If):
            self._add(line, self._line(s.body[0]), s.body[0])
            self._block(s.body, after)
            if s.orelse:
                self._add(line, self._line(s.orelse[0]), s.orelse[0])
                self._block(s.orelse, after)
            elif s in self._else_ids:
                self.arcs.append(Arc(line, after, self._else_ids[s]))
        elif isinstance(s, (ast.For, ast.While)):
            self._add(line, self._line(s.body[0]), s.body[0])
            self._add(line, after, s, *_breaks(s.body))
            self._loops.append((line, after))
            self._block(s.body, line)
            self._loops.pop()
        elif isinstance(s, ast.With):
            self._add(line, self._line(s.body[0]), s.body[0])
            self._block(s.body, after)
        elif isinstance(s, (ast.Break, ast.Continue)) and self._loops:
            self._add(line, self._loops[-1][isinstance(s, ast.Break)], s)
        else:
            self._add(line, self._outside if isinstance(s, ast.Return) else after, s)


def _breaks(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that leave the loop around these."""
    found: list[ast.stmt] = []
    for s in body:
        if isinstance(s, ast.Break):
            found.append(s)
        elif not isinstance(s, (ast.For, ast.While)):
            found += _breaks(getattr(s, "body", []))
            found += _breaks(getattr(s, "orelse", []))
    return found
