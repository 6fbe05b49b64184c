"""Timings of kernels and of the runtime.

Kernel timings need `qd.init(kernel_profiler=True)`; without it each function logs how to turn them
on and returns nothing. The launcher then notes every run of a task; what is shown is computed here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from quadrants import _logging
from quadrants._lazy import lazy_names as _lazy_names
from quadrants._lib import core

_ALSO = "kernel_metrics kernel_profiler memory_profiler scoped_profiler"
__getattr__, _ = _lazy_names(__name__, globals(), {n: f"{__name__}.{n}" for n in _ALSO.split()})

_NUMBER = "{:14.1f}"


def _column(counter: str, heading: str, unit: str = "", scale: float = 1.0) -> tuple[Any, ...]:
    """Arguments of a `CuptiMetric`; the counters' names are those of NVIDIA's profiling tools."""
    form = f"{_NUMBER} {unit}".rstrip()
    return counter, heading.rjust(len(form.format(0.0))), form, scale


def _traffic(memory: str, action: str) -> list[tuple[Any, ...]]:
    counter = f"{memory}__bytes_{action}.sum"
    return [
        _column(counter, f"{memory} {action}", "MB", 1e-6),
        _column(counter + ".per_second", f"{memory} {action} rate", "GB/s", 1e-9),
    ]


def _busy(unit: str, heading: str) -> tuple[Any, ...]:
    return _column(f"{unit}.avg.pct_of_peak_sustained_elapsed", heading, "%")


_METRICS: dict[str, list[tuple[Any, ...]]] = {
    "global_access": [*_traffic("dram", "read"), *_traffic("dram", "write")],
    "shared_access": [
        _column("smsp__inst_executed_op_shared_ld.sum", "shared loads"),
        _column("smsp__inst_executed_op_shared_st.sum", "shared stores"),
        _column("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "bank conflicts"),
    ],
    "atomic_access": [
        _column("smsp__inst_executed_op_global_atom.sum", "atomics"),
        _column("smsp__inst_executed_op_global_red.sum", "reductions"),
    ],
    "cache_hit_rate": [
        _column("l1tex__t_sector_hit_rate.pct", "L1 hits", "%"),
        _column("lts__t_sector_hit_rate.pct", "L2 hits", "%"),
    ],
    "device_utilization": [
        _busy("sm__throughput", "processors"),
        _busy("dram__throughput", "dram"),
        _busy("l1tex__throughput", "L1"),
        _busy("lts__throughput", "L2"),
    ],
}


class CuptiMetric:
    """A hardware counter of CUDA devices.

    Args:
        name: what CUPTI calls it.
        header: heading of its column.
        val_format: format of a value, such as "{:8.1f} MB".
        scale: factor from the counter's unit to the one shown.
    """

    def __init__(
        self,
        name: str = "",
        header: str = "unnamed_header",
        val_format: str = _NUMBER,
        scale: float = 1.0,
    ) -> None:
        self.name = name
        self.header = header
        self.val_format = val_format
        self.scale = scale


class KernelProfilerQueryResult:
    """Timings of one kernel.

    Args:
        counter: number of runs.
        min: shortest run in ms.
        max: longest run in ms.
        avg: mean in ms.
    """

    def __init__(self, counter: int = 0, min: float = 0, max: float = 0, avg: float = 0) -> None:
        self.counter, self.min, self.max, self.avg = counter, min, max, avg


class _Statistics:
    """All runs of one task."""

    def __init__(self) -> None:
        self.counter, self.total, self.min, self.max = 0, 0.0, float("inf"), 0.0

    def add(self, ms: float) -> None:
        self.counter += 1
        self.total += ms
        self.min, self.max = min(self.min, ms), max(self.max, ms)


def _is_on() -> bool:
    import quadrants as qd

    if qd.cfg is not None and qd.cfg.kernel_profiler:
        qd.sync()
        return True
    _logging.warn("use 'qd.init(kernel_profiler = True)' to turn on KernelProfiler.")
    return False


def _by_task() -> dict[str, _Statistics]:
    tasks: dict[str, _Statistics] = {}
    for name, ms in core.profile_records():
        tasks.setdefault(name, _Statistics()).add(ms)
    return tasks


def _table(mode: str, heading: str, rows: list[str], last: str) -> str:
    import quadrants as qd

    width = max(map(len, (heading, last)))
    title = f"Kernel Profiler({mode}, default) @ {qd.cfg.arch.name.upper()}"
    line, thick = "-" * width, "=" * width
    return "\n".join((thick, title, thick, heading, line, *rows, line, last, thick))


def _count_table() -> str:
    tasks = sorted(_by_task().items(), key=lambda item: -item[1].total)
    whole = sum(t.total for _, t in tasks)
    rows = [
        f"[{100 * t.total / whole if whole else 0:6.2f}% {t.total / 1e3:7.3f} s {t.counter:6d}x |"
        f"{t.min:9.3f} {t.total / t.counter:9.3f} {t.max:9.3f} ms] {name}"
        for name, t in tasks
    ]
    heading = "[      %     total   count |      min       avg       max   ] Kernel name"
    last = f"[100.00%] Total execution time: {whole / 1e3:7.3f} s   number of results: {len(tasks)}"
    return _table("count", heading, rows, last)


def _trace_table() -> str:
    rows, start = [], 0.0
    for name, ms in core.profile_records():
        rows.append(f"[{start:9.3f} ms |{ms:9.3f} ms ] {name}")
        start += ms
    heading = "[  start.time | kernel.time ] Kernel name"
    return _table("trace", heading, rows, f"Number of records:  {len(rows)}")


def print_kernel_profiler_info(mode: str = "count") -> None:
    """Prints timings of all tasks.

    Args:
        mode: "count" sums them up by task, "trace" lists run by run.

    Raises:
        ValueError: another mode.
    """
    tables: dict[str, Callable[[], str]] = {"count": _count_table, "trace": _trace_table}
    if not _is_on():
        return
    if mode not in tables:
        raise ValueError("Argument `mode` (str) must be 'count' or 'trace'.")
    print(tables[mode]())


def query_kernel_profiler_info(name: str) -> KernelProfilerQueryResult | None:
    """Timings of a kernel in ms, its tasks summed.

    Args:
        name: what the names of its tasks begin with.
    """
    return _query(name) if _is_on() else None


def _query(name: str) -> KernelProfilerQueryResult:
    out = KernelProfilerQueryResult()
    for task, t in _by_task().items():
        if not task.startswith(name):
            continue
        if out.counter not in (0, t.counter):
            _logging.warn(f"{name}.counter({out.counter}) != {task}.counter({t.counter}).")
            continue
        out.counter = t.counter
        out.min += t.min
        out.max += t.max
        out.avg += t.total / t.counter
    return out


def clear_kernel_profiler_info() -> None:
    """Forgets all timings of kernels."""
    if _is_on():
        core.profile_clear()


def get_kernel_profiler_total_time() -> float:
    """Time of all kernels in seconds."""
    return sum(ms for _, ms in core.profile_records()) / 1e3 if _is_on() else 0.0


def set_kernel_profiler_toolkit(toolkit_name: str = "default") -> bool:
    """Chooses how kernels are timed.

    Args:
        toolkit_name: "default" or, on CUDA, "cupti".

    Returns:
        Whether it is used now.
    """
    if _is_on():
        _logging.warn(
            f"Failed to set kernel profiler toolkit ({toolkit_name}) , keep using (default)."
        )
    return False


def set_kernel_profiler_metrics(metric_list: list[CuptiMetric] | None = None) -> None:
    """Chooses hardware counters, which CUDA devices have.

    Args:
        metric_list: the counters; None chooses "global_access".
    """
    _is_on()


@contextmanager
def collect_kernel_profiler_metrics(
    metric_list: list[CuptiMetric] | None = None,
) -> "Iterator[KernelProfiler]":
    """Collects hardware counters inside the `with` block; timings start over before and after.

    It gives what can be asked meanwhile.

    Args:
        metric_list: the counters; None chooses "global_access".
    """
    on = _is_on()
    if on:
        core.profile_clear()
    yield _kernel_profiler
    if on:
        clear_kernel_profiler_info()


class KernelProfiler:
    """What this module does for kernels, as one object."""

    COUNT, TRACE = "count", "trace"

    print_info = staticmethod(print_kernel_profiler_info)
    query_info = staticmethod(query_kernel_profiler_info)
    clear_info = staticmethod(clear_kernel_profiler_info)
    get_total_time = staticmethod(get_kernel_profiler_total_time)
    set_toolkit = staticmethod(set_kernel_profiler_toolkit)
    set_metrics = staticmethod(set_kernel_profiler_metrics)
    collect_metrics_in_context = staticmethod(collect_kernel_profiler_metrics)

    @staticmethod
    def get_kernel_profiler_mode() -> bool:
        """Whether kernels are timed."""
        import quadrants as qd

        return bool(qd.cfg is not None and qd.cfg.kernel_profiler)


_kernel_profiler = KernelProfiler()


def get_default_kernel_profiler() -> KernelProfiler:
    """The one there is."""
    return _kernel_profiler


def get_predefined_cupti_metrics(name: str = "") -> list[CuptiMetric] | None:
    """A named set of hardware counters.

    Args:
        name: "global_access", "shared_access", "atomic_access", "cache_hit_rate" or
            "device_utilization".

    Returns:
        The counters; None, and a warning is logged, for another name.
    """
    if name in _METRICS:
        return [CuptiMetric(*row) for row in _METRICS[name]]
    _logging.warn("Valid Quadrants predefined metrics list (str): " + ", ".join(_METRICS))
    return None


_Path = tuple[str, ...]
_forgotten: dict[_Path, tuple[float, int]] = {}  # seconds and counts at the last clear
_forgotten_counts: dict[str, int] = {}
_PHASES = {"cache": "cache_hits", "trace": "lowered", "compile": "cache_misses"}


def _measured() -> dict[_Path, tuple[float, int]]:
    """Seconds and counts of all phases since the process began; callers' phases, then stages."""
    counts = core.counters()
    out: dict[_Path, tuple[float, int]] = {
        ("first calls", phase): (seconds, counts[_PHASES[phase]])
        for phase, seconds in core.host_times().items()
    }
    for line in core.compiler_times().splitlines():
        work, stage, part, ns, count = line.split("\t")
        path = ("compiler, all threads", work, stage, part)
        out[path if part else path[:-1]] = (int(ns) * 1e-9, int(count))
    return out


def _tree() -> dict[_Path, tuple[float, int]]:
    """The same since the last clear, with nodes for what only has children."""
    nodes: dict[_Path, tuple[float, int]] = {}
    for path, (seconds, count) in _measured().items():
        before = _forgotten.get(path, (0.0, 0))
        seconds, count = max(0.0, seconds - before[0]), count - before[1]
        if seconds == 0 and count == 0 and path[0] != "first calls":
            continue
        for depth in range(1, len(path)):
            above = nodes.get(path[:depth], (0.0, 0))
            nodes[path[:depth]] = (above[0] + seconds, above[1])
        own = nodes.get(path, (0.0, 0))
        nodes[path] = (own[0] + seconds, own[1] + count)
    return nodes


def _show_node(nodes: dict[_Path, tuple[float, int]], path: _Path) -> None:
    seconds, count = nodes[path]
    indent = "    " * len(path)
    line = f"{indent}{seconds * 1e3:10.3f} ms"
    if len(path) > 1:
        whole = nodes[path[:-1]][0]
        line += f" {100 * seconds / whole if whole else 0:6.2f}%"
    line += f"  {path[-1]:<24}"
    if count:
        line += f" [{count} x {seconds * 1e3 / count:10.3f} ms]"
    print(line.rstrip())
    below = [p for p in nodes if len(p) == len(path) + 1 and p[:-1] == path]
    for child in sorted(below, key=lambda p: -nodes[p][0]):
        _show_node(nodes, child)
    rest = seconds - sum(nodes[p][0] for p in below)
    if below and rest > 1e-6:
        share = 100 * rest / seconds
        print(f"{indent}    {rest * 1e3:10.3f} ms {share:6.2f}%  [unaccounted]")


def print_scoped_profiler_info() -> None:
    """Prints a tree of what the package did on the host: how long each phase took, and how often.

    First calls are what callers waited for. The compiler's part of it, and what it did on other
    threads meanwhile, is shown by stage.
    """
    nodes = _tree()
    print("[Profiler]")
    for root in [p for p in nodes if len(p) == 1]:
        _show_node(nodes, root)
    for name, count in sorted(core.counters().items()):
        if name not in _PHASES.values():
            print(f"    {name:<20} {count - _forgotten_counts.get(name, 0):.0f}")


def clear_scoped_profiler_info() -> None:
    """Starts those counts and times over."""
    _forgotten.update(_measured())
    _forgotten_counts.update(core.counters())


def print_memory_profiler_info() -> None:
    """Prints the nodes of all field trees with their cells and sizes."""
    from quadrants.lang import impl
    from quadrants.lang._data.fields_builder import FieldsBuilder

    impl.check_initialised()
    impl.get_runtime().materialize()
    lines: list[str] = []

    def show(node: Any, depth: int, above: int) -> int:
        size, _, cells = node._sizes
        cells *= above
        lines.append(f"{'    ' * depth}{node._kind:<10}{cells:>12} x {size} B")
        return max(
            cells * size, sum(show(child, depth + 1, cells) for child in node._get_children())
        )

    total = sum(show(root, 0, 1) for root in FieldsBuilder._finalized_roots())
    print("\n[Memory Profiler]", *lines, f"Total memory of fields: {total} B", sep="\n")
