"""Dumps of what goes into the compiler and of its control flow: QD_DUMP_AST and QD_DUMP_CFG."""

from __future__ import annotations

import ast
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_AST_FOLDER = "/tmp/ast"


def dump_tree(kernel: str, function: Callable[..., Any], write: Callable[[str, str], None]) -> None:
    """Writes a function's syntax tree as text and as JSON, and how long that took."""
    import textwrap

    from quadrants.lang._wrap_inspect import get_source_info_and_src

    tree = ast.parse(textwrap.dedent("".join(get_source_info_and_src(function)[1])))
    elapsed = {}
    forms: list[tuple[str, str, Callable[[], str]]] = [
        ("txt", "ast_.txt", lambda: ast.dump(tree, indent=2)),
        ("json", "ast.json", lambda: json.dumps(_plain(tree), indent=2)),
    ]
    for form, name, make in forms:
        start = time.perf_counter()
        write(f"{_AST_FOLDER}/{kernel}_{name}", make())
        elapsed[f"elapsed_{form}"] = time.perf_counter() - start
    write(f"{_AST_FOLDER}/{kernel}_gen_time.json", json.dumps(elapsed, indent=2))


def _plain(node: Any) -> Any:
    if isinstance(node, ast.AST):
        return {
            "type": type(node).__name__,
            "fields": {name: _plain(value) for name, value in ast.iter_fields(node)},
        }
    if isinstance(node, list):
        return [_plain(item) for item in node]
    return node if isinstance(node, (str, int, float, bool, type(None))) else repr(node)


# --- control flow -------------------------------------------------------------------------------


class _Node:
    def __init__(self, number: int) -> None:
        self.number = number
        self.lines: list[str] = []
        self.prev: list[_Node] = []
        self.next: list[_Node] = []

    def __str__(self) -> str:
        parts = [f"size={len(self.lines)}" if self.lines else "empty"]
        for name in ("prev", "next"):
            if nodes := getattr(self, name):
                parts.append(f"{name}={{{', '.join(str(n.number) for n in nodes)}}}")
        text = f"Node {self.number} : {'; '.join(parts)}\n"
        return text + "".join(f"    {line}\n" for line in self.lines) + "\n" * bool(self.lines)


_OPENS = re.compile(r"(?:%\S+(?:, %\S+)* = )?(if|for|loop)\b.*\{$")


class _Graph:
    """Nodes of one function: runs of instructions that nothing enters or leaves in between."""

    def __init__(self, lines: list[str]) -> None:
        self.nodes: list[_Node] = []
        self.lines = iter(lines)
        self.returns: list[_Node] = []
        self.loops: list[dict[str, list[_Node]]] = []  # who continues and breaks each
        self.block(self.new())
        self.new(*self.returns)

    def new(self, *before: _Node) -> _Node:
        node = _Node(len(self.nodes))
        self.nodes.append(node)
        self.join(before, node)
        return node

    @staticmethod
    def join(before: Iterable[_Node], node: _Node) -> None:
        for b in before:
            if node not in b.next:
                b.next.append(node)
                node.prev.append(b)

    def block(self, node: _Node) -> list[_Node]:
        """Reads up to the closing brace; gives the nodes that go on behind it."""
        ends: list[_Node] = []
        for line in self.lines:
            if line.startswith("}"):
                self.closing = line
                break
            opened = _OPENS.match(line)
            node.lines.append(line.removesuffix(" {"))
            if opened is None:
                word = line.partition(" ")[0]
                if word == "yield":
                    ends.append(node)
                elif word == "return":
                    self.returns.append(node)
                elif word in ("continue", "break"):
                    self.loops[-1][word].append(node)
                continue
            inner = self.new(node)
            if opened[1] == "if":
                after = self.block(inner)
                after += self.block(self.new(node)) if "else" in self.closing else [node]
            else:
                self.loops.append({"continue": [], "break": []})
                self.block(inner)
                loop = self.loops.pop()
                self.join(loop["continue"], inner)
                after = loop["break"] + ([*loop["continue"], node] if opened[1] == "for" else [])
            node = self.new(*after)
        return ends


def control_flow(text: str) -> Iterator[tuple[str, str]]:
    """(name, graph) of each function in a text of IR."""
    for m in re.finditer(r"^func @(\w+)\([^\n]*\{\n(.*?)^\}$", text, re.M | re.S):
        lines = [line.strip() for line in m[2].splitlines()]
        yield m[1], "".join(map(str, _Graph([*lines, "}"]).nodes))
