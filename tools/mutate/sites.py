"""Where a source may be changed, and the source with chosen changes behind switches.

A site is a range of the source that becomes `qd_mutant(N) ? changed : original`, in pieces: texts, and
ranges of the source that are rendered in their turn, so that sites nest. libclang gives the ranges.
"""

import dataclasses
import re
import shlex
import subprocess

import clang.cindex as clang
from clang.cindex import CursorKind as K
from clang.cindex import TypeKind as T

OTHER = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "+=": "-=", "-=": "+=",
}  # fmt: skip
NUMBERS = {"+", "-", "+=", "-="}
INTEGERS = {
    T.INT, T.UINT, T.LONG, T.ULONG, T.LONGLONG, T.ULONGLONG, T.SHORT, T.USHORT, T.SCHAR, T.UCHAR,
}  # fmt: skip
ASIDE = {K.CXX_THROW_EXPR, K.STATIC_ASSERT, K.ENUM_DECL, K.CASE_STMT}  # their own part: see walk
TEXT = re.compile(  # functions that make messages and dumps: what they say is not what is tested
    r"(?i)describe|print|dump|report|explain|message|hint|suggest|show|spell|format_|diag|warn|text"
)
TALK = re.compile(r"fprintf|fputs|QD_CHECK|assert\(|\.hint\(|Diag\(|log_|PyErr_|raise_|throw ")
FUNCTIONS = {K.FUNCTION_DECL, K.CXX_METHOD, K.CONSTRUCTOR, K.FUNCTION_TEMPLATE}


@dataclasses.dataclass
class Site:
    start: int
    end: int
    line: int
    what: str
    pieces: list  # texts, with {} for the number, and ranges
    file: str = ""
    number: int = 0


def _span(cursor):
    return cursor.extent.start.offset, cursor.extent.end.offset


class Finder:
    """All sites of one source."""

    def __init__(self, path, text):
        self.path, self.text, self.sites = str(path), text, []

    def add(self, start, end, what, *pieces):
        line = self.text.count(b"\n", 0, start) + 1
        if re.search(rb"//|\n\s*#", self.text[start:end]):
            return  # it becomes one line
        around = self.text[self.text.rfind(b"\n", 0, start) + 1 : self.text.find(b"\n", end)]
        if not TALK.search(around.decode()):
            self.sites.append(Site(start, end, line, what, list(pieces)))

    def has(self, span):
        """Whether the range lies in this file as written, not in what a macro expands to."""
        return 0 < span[0] < span[1] <= len(self.text)

    def walk(self, cursor, parent=None):
        if cursor.kind in ASIDE or (cursor.kind in FUNCTIONS and TEXT.search(cursor.spelling)):
            for child in list(cursor.get_children())[1:] if cursor.kind == K.CASE_STMT else ():
                self.walk(child, cursor)
            return
        if cursor.kind == K.VAR_DECL and parent is not None and parent.kind != K.DECL_STMT:
            return  # constants and tables of a namespace
        self.look(cursor, parent)
        for child in cursor.get_children():
            f = child.location.file
            if f is None or f.name == self.path:
                self.walk(child, cursor)

    def look(self, cursor, parent):
        span = _span(cursor)
        children = list(cursor.get_children())
        if not self.has(span):
            return
        source = self.text[span[0] : span[1]]
        if cursor.kind == K.IF_STMT:
            self.condition(cursor, children)
        elif cursor.kind in (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR):
            self.binary(span, children)
        elif cursor.kind == K.INTEGER_LITERAL and re.fullmatch(rb"\d+[uUlL]*", source):
            if parent is not None and parent.kind != K.CASE_STMT:
                sign = b"+" if (span[0] * 7 + len(source)) % 2 else b"-"
                what = f"{source.decode()} -> {source.decode()} {sign.decode()} 1"
                self.add(
                    *span, what, "(qd_mutant({}) ? (", span, f" {sign.decode()} 1) : ", span, ")"
                )
        elif cursor.kind == K.CXX_BOOL_LITERAL_EXPR and parent is not None:
            if parent.kind == K.RETURN_STMT and source in (b"true", b"false"):
                other = "false" if source == b"true" else "true"
                what = f"return {source.decode()} -> {other}"
                self.add(*span, what, "(qd_mutant({}) ? " + other + " : ", span, ")")
        elif cursor.kind in (K.CONTINUE_STMT, K.BREAK_STMT):
            if source in (b"continue", b"break") and parent.kind != K.CASE_STMT:
                whole = self.statement(span)
                if whole and not self.in_switch(cursor, parent):
                    what = f"no {source.decode()}"
                    self.add(*whole, what, "if (!qd_mutant({})) ", whole)
        if parent is not None and parent.kind in (K.COMPOUND_STMT, K.IF_STMT, K.FOR_STMT):
            self.dropped(cursor, span, parent)

    def in_switch(self, cursor, parent):
        return cursor.kind == K.BREAK_STMT and self.switches

    switches = False  # set while a switch is walked: its breaks end cases

    def condition(self, cursor, children):
        at = self.text.find(b"(", cursor.extent.start.offset)
        if self.text[cursor.extent.start.offset : at].strip() != b"if":
            return  # if constexpr
        first = children[0] if children else None
        if first is None or first.kind in (K.DECL_STMT, K.VAR_DECL) or len(children) > 3:
            return
        span = _span(first)
        if self.has(span) and self.text[at + 1 : span[0]].strip() == b"":
            if re.match(rb"\s*\)", self.text[span[1] :]):
                what = "negated condition"
                self.add(*span, what, "qd_mutant({}) != static_cast<bool>(", span, ")")

    def binary(self, span, children):
        if len(children) != 2:
            return
        left, right = map(_span, children)
        if not (self.has(left) and self.has(right) and left[1] <= right[0]):
            return
        operator = self.text[left[1] : right[0]].decode().strip()
        if operator not in OTHER or b"[" in self.text[span[0] : span[1]].replace(b"[i]", b""):
            if operator not in OTHER or b"[&" in self.text[span[0] : span[1]]:
                return
        kinds = [c.type.get_canonical().kind for c in children]
        if operator in NUMBERS and not all(k in INTEGERS for k in kinds):
            return
        other = OTHER[operator]
        self.add(
            *span, f"{operator} -> {other}",
            "(qd_mutant({}) ? ((", left, f") {other} (", right, ")) : ((", left, f") {operator} (",
            right, ")))",
        )  # fmt: skip

    def statement(self, span):
        """The range with its semicolon."""
        m = re.match(rb"\s*;", self.text[span[1] :])
        return (span[0], span[1] + m.end()) if m else None

    def dropped(self, cursor, span, parent):
        source = self.text[span[0] : span[1]]
        kinds = (K.CALL_EXPR, K.COMPOUND_ASSIGNMENT_OPERATOR, K.UNARY_OPERATOR, K.BINARY_OPERATOR)
        if cursor.kind not in kinds and not cursor.kind.is_unexposed():
            return
        whole = self.statement(span)
        if not whole or not re.match(rb"[A-Za-z_(*+-]", source) or b"qd_mutant" in source:
            return
        if not re.search(rb"\(|[^=!<>]=[^=]|\+\+|--", source) or source.startswith(b"return"):
            return
        if parent.kind != K.COMPOUND_STMT and _span(list(parent.get_children())[0]) == span:
            return  # the condition
        self.add(*whole, "statement dropped", "{ if (!qd_mutant({})) { ", whole, " } }")


class _Walker(Finder):
    def walk(self, cursor, parent=None):
        if cursor.kind == K.SWITCH_STMT:
            before, self.switches = self.switches, True
            super().walk(cursor, parent)
            self.switches = before
        elif cursor.kind in (K.FOR_STMT, K.WHILE_STMT, K.DO_STMT, K.CXX_FOR_RANGE_STMT):
            before, self.switches = self.switches, False
            super().walk(cursor, parent)
            self.switches = before
        else:
            super().walk(cursor, parent)


def find(path, command):
    """Sites of a source that is compiled by `command`; the bytes they refer to."""
    words = shlex.split(command)
    args = [
        w
        for before, w in zip(["", *words], words)
        if w.startswith(("-I", "-D", "-std", "-isystem")) or before == "-isystem"
    ]
    own = subprocess.run(["clang", "-print-resource-dir"], capture_output=True, text=True).stdout
    tu = clang.Index.create().parse(str(path), args=[*args, "-isystem", own.strip() + "/include"])
    text = path.read_bytes()
    finder = _Walker(path, text)
    for cursor in tu.cursor.get_children():
        if cursor.location.file and cursor.location.file.name == str(path):
            finder.walk(cursor)
    unique = {(s.start, s.end): s for s in finder.sites}
    return list(unique.values()), text


def rewritten(text, sites):
    """The source with every one of these sites behind its switch."""
    ordered = sorted(sites, key=lambda s: (s.start, -s.end))

    def render(start, end, inside):
        out, at = [], start
        for s in inside:
            if s.start < at:
                continue  # within the one before
            out.append(text[at : s.start])
            deeper = [d for d in inside if d is not s and s.start <= d.start and d.end <= s.end]
            changed = []
            for piece in s.pieces:
                if isinstance(piece, str):
                    changed.append(piece.replace("{}", str(s.number)).encode())
                else:
                    nested = [d for d in deeper if piece[0] <= d.start and d.end <= piece[1]]
                    changed.append(render(*piece, nested))
            lines = text.count(b"\n", s.start, s.end)  # what follows keeps its line numbers
            out += [b"".join(changed).replace(b"\n", b" "), b"\n" * lines]
            at = s.end
        out.append(text[at:end])
        return b"".join(out)

    return b'#include "qd_mutant.h"\n#line 1\n' + render(0, len(text), ordered)
