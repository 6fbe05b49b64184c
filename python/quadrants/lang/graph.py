"""Graphs of tasks: constructs inside `@qd.kernel(graph=True)`.

PYTEST_DONT_REWRITE (its imports would show in `dir`)
"""

from quadrants.lang._unavailable import unavailable_function as _missing

do_while = _missing(__name__, "do_while", "qd.graph.do_while")
parallel = _missing(__name__, "parallel", "qd.graph.parallel")
parallel_context = _missing(__name__, "parallel_context", "qd.graph.parallel_context")
graph_do_while = _missing(__name__, "graph_do_while", "qd.graph_do_while")
graph_parallel = _missing(__name__, "graph_parallel", "qd.graph_parallel")
graph_parallel_context = _missing(__name__, "graph_parallel_context", "qd.graph_parallel_context")
checkpoint = _missing(__name__, "checkpoint", "qd.checkpoint")

_MARKS = {
    "graph_do_while": (do_while, graph_do_while),
    "graph_parallel": (parallel, graph_parallel),
    "graph_parallel_context": (parallel_context, graph_parallel_context),
    "checkpoint": (checkpoint,),
}
for _name, _functions in _MARKS.items():
    for _function in _functions:
        _function._qd_op = _name  # type: ignore[attr-defined]


class GraphStatus:
    """Result of a checkpointed graph launch."""


def __dir__() -> list[str]:
    return [
        "do_while",
        "parallel",
        "parallel_context",
        *(n for n in globals() if n.startswith("_")),
    ]
