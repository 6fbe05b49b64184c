"""Timings of kernels and of the runtime.

Kernel timings need `qd.init(kernel_profiler=True)`; without it each function logs how to turn them
on and returns nothing. The launcher then notes every run of a task; what is shown is computed here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from quadrants import _logging
from quadrants._lib import core

# Hardware counters of CUDA devices: name, column header, format, scale.
_MB, _GB = 1 / 2**20, 1 / 2**30
_METRICS: dict[str, list[tuple[str, str, str, float]]] = {
    "global_access": [
        ("dram__bytes.sum", "  global.R&W ", "{:9.3f} MB ", _MB),
        ("dram__bytes.sum.per_second", " global.R&W/s ", "{:8.3f} GB/s ", _GB),
        ("dram__bytes_read.sum", "   global.R ", "{:8.3f} MB ", _MB),
        ("dram__bytes_read.sum.per_second", "   global.R/s ", "{:8.3f} GB/s ", _GB),
        ("dram__bytes_write.sum", "   global.W ", "{:8.3f} MB ", _MB),
        ("dram__bytes_write.sum.per_second", "   global.W/s ", "{:8.3f} GB/s ", _GB),
    ],
    "shared_access": [
        (f"l1tex__data_{counter}_mem_shared_op_{op}.sum", header, f"{blanks}{{:10.0f}} ", 1.0)
        for counter, op, header, blanks in (
            ("pipe_lsu_wavefronts", "ld", " shared.trans.W ", " " * 5),
            ("pipe_lsu_wavefronts", "st", " shared.trans.R ", " " * 5),
            ("bank_conflicts_pipe_lsu", "st", " bank.conflict.W ", " " * 6),
            ("bank_conflicts_pipe_lsu", "ld", " bank.conflict.R ", " " * 6),
        )
    ],
    "atomic_access": [
        (
            "l1tex__t_set_accesses_pipe_lsu_mem_global_op_atom.sum",
            " global.atom ",
            "    {:8.0f} ",
            1.0,
        ),
        (
            "l1tex__t_set_accesses_pipe_lsu_mem_global_op_red.sum",
            " global.red ",
            "   {:8.0f} ",
            1.0,
        ),
    ],
    "cache_hit_rate": [
        ("l1tex__t_sector_hit_rate.pct", "   L1.hit ", " {:6.2f} % ", 1.0),
        ("lts__t_sector_hit_rate.pct", "   L2.hit ", " {:6.2f} % ", 1.0),
    ],
    "device_utilization": [
        (f"{name}.avg.pct_of_peak_sustained_elapsed", header, form, 1.0)
        for name, header, form in (
            ("smsp__cycles_active", " core.uti ", " {:6.2f} % "),
            ("gpu__dram_throughput", "  mem.uti ", " {:6.2f} % "),
            ("l1tex__data_pipe_lsu_wavefronts_mem_shared", " uqd.shared ", "   {:6.2f} % "),
            ("l1tex__throughput", "   L1.uti ", " {:6.2f} % "),
            ("lts__throughput", "   L2.uti ", " {:6.2f} % "),
        )
    ],
}


class CuptiMetric:
    """A hardware counter of CUDA devices.

    Args:
        name: what CUPTI calls it.
        header: heading of its column.
        val_format: format of a value, such as "{:8.0f}".
        scale: factor from the counter's unit to the one shown.
    """

    def __init__(
        self,
        name: str = "",
        header: str = "unnamed_header",
        val_format: str = "     {:8.0f} ",
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
    if mode not in tables:
        raise ValueError("Argument `mode` (str) must be 'count' or 'trace'.")
    if _is_on():
        print(tables[mode]())


def query_kernel_profiler_info(name: str) -> KernelProfilerQueryResult | None:
    """Timings of a kernel in ms, its tasks summed.

    Args:
        name: what the names of its tasks begin with.
    """
    if not _is_on():
        return None
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
) -> Iterator[None]:
    """Collects hardware counters inside the `with` block; timings start over before and after.

    Args:
        metric_list: the counters; None chooses "global_access".
    """
    on = _is_on()
    if on:
        core.profile_clear()
    yield
    if on:
        clear_kernel_profiler_info()


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


_forgotten: dict[str, float] = {}  # counts and times at the last clear
_PHASES = {"cache": "cache_hits", "trace": "lowered", "compile": "cache_misses"}


def _since_clear() -> dict[str, float]:
    times = {f"{phase} [s]": s for phase, s in core.host_times().items()}
    return {k: v - _forgotten.get(k, 0) for k, v in {**core.counters(), **times}.items()}


def print_scoped_profiler_info() -> None:
    """Prints what the runtime did on the host before launches: how often, and how long."""
    rows = _since_clear()
    print("[Profiler]")
    for phase, counter in _PHASES.items():
        ms = rows.pop(f"{phase} [s]") * 1e3
        print(f"    {phase:<20} {ms:10.3f} ms  [{rows.pop(counter):.0f} x]")
    for name, count in sorted(rows.items()):
        print(f"    {name:<20} [{count:.0f} x]")


def clear_scoped_profiler_info() -> None:
    """Starts those counts and times over."""
    _forgotten.update(core.counters())
    _forgotten.update({f"{phase} [s]": s for phase, s in core.host_times().items()})


def print_memory_profiler_info() -> None:
    """Prints the nodes of all field trees with their cells and sizes."""
    from quadrants.lang import impl
    from quadrants.lang._fields_builder import FieldsBuilder

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
