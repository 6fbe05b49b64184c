"""Which lines of kernels ran, for coverage.py. Imported only when QD_KERNEL_COVERAGE=1.

The front end hands each function's tree to `instrument` before it walks it. Probes store into a global
field; the field is read before its runtime ends, and the lines are written when the process ends.
"""

from __future__ import annotations

import ast
import atexit
import functools
import os
import threading
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from quadrants import _logging
from quadrants.lang._config import number

if TYPE_CHECKING:
    from quadrants.lang._inspect.kernel_flow import Arc

_FIELD_NAME = "_qd_cov"
_MAX_PROBES = number(os.environ, "QD_COVERAGE_MAX_PROBES", int, "100000")
_FOLDER = os.getcwd()  # where coverage was first enabled

_probe_map: dict[int, tuple[str, int]] = {}  # number of a probe -> file and line
_probe_counter = 0
_accumulated_lines: dict[str, set[int]] = {}
_ran: set[int] = set()
_arcs: dict[str, list[Arc]] = {}  # by file; kept while arcs are wanted
_capacity_warning_emitted = False
_cov_field: Any = None
_cov_field_prog: Any = None
_namespaces: list[dict[str, Any]] = []  # globals of instrumented functions
_numbering = threading.RLock()  # threads that compile at once share numbers and the field
os.register_at_fork(after_in_child=_numbering._at_fork_reinit)  # type: ignore[attr-defined]


def _leads_to_sections(statement: ast.stmt) -> bool:
    """Whether it is a parallel section, or holds some: nothing else may stand beside those."""
    if isinstance(statement, ast.With):
        call = statement.items[0].context_expr
        name = ast.unparse(call.func).split(".")[-1] if isinstance(call, ast.Call) else ""
        if name.endswith("parallel_context"):
            return False
        if name in ("parallel", "stream_parallel", "graph_parallel"):
            return True
    inner = [*getattr(statement, "body", ()), *getattr(statement, "orelse", ())]
    return any(map(_leads_to_sections, inner))


class _CoverageASTRewriter:
    """Puts a probe before every statement that begins a line, in place.

    Args:
        field_name: the global that probes store to.
        filepath: of the source.
        start_lineno: line in the file of the tree's first line.
        probe_id_start: number of the first probe.
    """

    def __init__(
        self, *, field_name: str, filepath: str, start_lineno: int, probe_id_start: int
    ) -> None:
        self.field_name, self.filepath, self.start_lineno = field_name, filepath, start_lineno
        self.next_probe_id = probe_id_start
        self.probe_map: dict[int, tuple[str, int]] = {}
        self.arcs: list[Arc] = []
        self._ids: dict[ast.stmt, int] = {}  # probe of each statement
        self._firsts: set[ast.stmt] = set()  # statements that begin a line: the probe is theirs
        self._else_ids: dict[ast.stmt, int] = {}  # probe in the place of a missing `else`

    def visit(self, tree: Any, with_arcs: bool = False) -> Any:
        """The tree, with probes in all functions' bodies; `with_arcs` fills `arcs` too."""
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                first = node.body[0]
                is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                text, body = node.body[:is_text], node.body[is_text:]
                self._number(body, with_arcs)
                if with_arcs:
                    from quadrants.lang._inspect.kernel_flow import Flow

                    flow = Flow(self._ids, self._else_ids, self.start_lineno - 1)
                    self.arcs += flow.function(node, body)
                node.body = [*text, *self._probed(body)]
                break
        return tree

    def _number(self, statements: list[ast.stmt], with_arcs: bool) -> None:
        line = None
        bare = any(map(_leads_to_sections, statements))
        for statement in statements:
            if not bare and self.next_probe_id < _MAX_PROBES:
                if statement.lineno != line:
                    self._firsts.add(statement)
                    self._new_probe(statement.lineno)
                self._ids[statement] = self.next_probe_id - 1
            line = statement.lineno
            for body in _bodies(statement):
                self._number(body, with_arcs)
            if with_arcs and isinstance(statement, ast.If) and not statement.orelse:
                if statement in self._ids and self.next_probe_id < _MAX_PROBES:
                    self._else_ids[statement] = self._new_probe(statement.lineno)

    def _new_probe(self, line: int) -> int:
        self.probe_map[self.next_probe_id] = (self.filepath, self.start_lineno + line - 1)
        self.next_probe_id += 1
        return self.next_probe_id - 1

    def _probed(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            if statement in self._firsts:
                out.append(self._probe(self._ids[statement], statement))
            for part in (statement, *getattr(statement, "handlers", ())):
                for name in ("body", "orelse", "finalbody"):
                    if inner := getattr(part, name, None):
                        setattr(part, name, self._probed(inner))
            if statement in self._else_ids and isinstance(statement, ast.If):
                statement.orelse = [self._probe(self._else_ids[statement], statement)]
            out.append(statement)
        return out

    def _probe(self, number: int, statement: ast.stmt) -> ast.stmt:
        (probe,) = ast.parse(f"{self.field_name}[{number}] = 1").body
        for node in ast.walk(probe):
            ast.copy_location(node, statement)
        return probe


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for part in (statement, *getattr(statement, "handlers", ())):
        for name in ("body", "orelse", "finalbody"):
            if inner := getattr(part, name, None):
                yield inner


def instrument(tree: Any, filepath: str, offset: int) -> None:
    """Adds probes to a function that is about to be compiled.

    Args:
        tree: its definition; changed in place.
        filepath: of the source.
        offset: what to add to the tree's lines to get the file's.
    """
    global _probe_counter, _capacity_warning_emitted
    if os.path.exists(filepath):  # coverage.py files what it measures under such names
        filepath = os.path.realpath(filepath)
    with _numbering:
        rewriter = _CoverageASTRewriter(
            field_name=_FIELD_NAME,
            filepath=filepath,
            start_lineno=offset + 1,
            probe_id_start=_probe_counter,
        )
        rewriter.visit(tree, _wants_arcs())
        _arcs.setdefault(filepath, []).extend(rewriter.arcs)
        _probe_map.update(rewriter.probe_map)
        _probe_counter = rewriter.next_probe_id
        if _probe_counter >= _MAX_PROBES and not _capacity_warning_emitted:
            _capacity_warning_emitted = True
            warnings.warn(
                f"Kernel coverage is full after {_MAX_PROBES} probes: further lines are not seen. "
                "QD_COVERAGE_MAX_PROBES raises the limit.",
                stacklevel=2,
            )


def lend_field(namespace: dict[str, Any]) -> None:
    """Makes the field a global of a function that has probes and is about to be compiled."""
    with _numbering:
        namespace[_FIELD_NAME] = get_field()
        if not any(known is namespace for known in _namespaces):
            _namespaces.append(namespace)


def ensure_field_allocated() -> None:
    """Makes the field of the live runtime, once."""
    global _cov_field, _cov_field_prog
    import quadrants as qd
    from quadrants.lang import impl

    prog = impl.get_runtime().prog
    if _cov_field is not None and _cov_field_prog is prog:
        return
    _cov_field, _cov_field_prog = qd.field(qd.i32, shape=_MAX_PROBES), prog
    for namespace in _namespaces:
        namespace[_FIELD_NAME] = _cov_field


def get_field() -> Any:
    """The field that probes store to."""
    ensure_field_allocated()
    return _cov_field


def _harvest_field() -> None:
    """Notes which probes ran; a failing readback loses only this runtime's."""
    global _cov_field, _cov_field_prog
    if _cov_field is None:
        return
    try:
        ran = _cov_field.to_numpy().nonzero()[0].tolist()
    except Exception as e:
        _logging.warn(f"Kernel coverage of this runtime is lost: {e}")
        ran = []
    _cov_field = _cov_field_prog = None
    _ran.update(ran)
    for probe in ran:
        if probe in _probe_map:
            file, line = _probe_map[probe]
            _accumulated_lines.setdefault(file, set()).add(line)


@functools.cache
def _wants_arcs() -> bool:
    choice = os.environ.get("_QD_KCOV_ARC")
    path = os.path.join(_FOLDER, ".coverage")
    if choice is not None or not os.path.exists(path):
        return choice == "1"
    from coverage import CoverageData

    data = CoverageData(basename=path)
    data.read()
    return bool(data.has_arcs())


def _arcs_that_ran(file: str, lines: set[int]) -> set[tuple[int, int]]:
    """Every line has one at least: coverage.py knows lines by their arcs."""
    arcs = {
        (a.start, a.end)
        for a in _arcs.get(file, ())
        if a.witness in _ran and not _ran.intersection(a.blockers)
    }
    return arcs | {(-1, n) for n in lines.difference(*arcs)}


@atexit.register
def _write() -> None:
    _harvest_field()
    if not _accumulated_lines:
        return
    try:
        from coverage import CoverageData
    except ImportError:
        _logging.warn("Kernel coverage is lost: the package coverage is not installed")
        return
    data = CoverageData(basename=os.path.join(_FOLDER, f"_qd_kcov.{os.getpid()}"))
    if _wants_arcs():
        data.add_arcs({f: _arcs_that_ran(f, lines) for f, lines in _accumulated_lines.items()})
    else:
        data.add_lines(_accumulated_lines)
    data.write()
