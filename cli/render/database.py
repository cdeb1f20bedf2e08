"""Tables of the database's side: what it took on disk, what it used, what held it back."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.contract import Resources, Storage
from simulator.units import format_digits

from ..results.bottleneck import find_bottleneck
from ..results.growth import list_event_sizes
from ..results.model import GroupRun, Result
from .tables import Table, format_bytes_per_event, list_places, locate


def tabulate_storage(runs: Sequence[GroupRun]) -> Table:
    """What the tables took after each run, in all copies, and after they were compacted."""
    compacted = any(one.group.storage_compacted for one in runs)
    rows = []
    for one, weight in zip(runs, list_event_sizes(runs), strict=True):
        storage = one.group.storage
        if storage is None:
            continue
        sizes = (weight.bytes_per_event, weight.index_bytes)
        cells = [*locate(one), _format_total(storage), *map(_format_size, sizes)]
        if compacted:
            cells.append(_format_total(one.group.storage_compacted or Storage()))
            cells.append(_format_size(weight.compacted_bytes))
        rows.append([*cells, f"{storage.copies:,}", storage.source or "-"])
    after = ["Compacted MB", "Compacted B/event"] if compacted else []
    headers = [
        "Workers", "Run", "Level", "MB", "B/event", "of it indexes",
        *after, "Copies", "By",
    ]  # fmt: skip
    return Table(headers, rows, left=("By",))


def _format_total(storage: Storage) -> str:
    return "-" if storage.total_bytes is None else f"{storage.total_bytes / 1e6:,.1f}"


def _format_size(size: float | None) -> str:
    return "-" if size is None else format_bytes_per_event(size)


def tabulate_resources(result: Result) -> Table:
    """CPU, memory, disk and network of the database's processes or pods in each run."""
    headers, own = list_places(result)
    rows = [
        [*place, *_list_use(used)]
        for place, run in own
        if (used := run.resources) and used.cpu_s is not None
    ]
    headers += [
        "CPU s", "CPU", "CPUs", "µs/event", "Memory MB", "Read MB", "Written MB", "Disk busy",
        "Received MB", "Sent MB", "Restarts", "By",
    ]  # fmt: skip
    return Table(headers, rows, left=("By",))


def _list_use(used: Resources) -> list[str]:
    def show(value: float | None, form: str, unit: float = 1.0) -> str:
        return "-" if value is None else form.format(value / unit)

    return [
        show(used.cpu_s, "{:,.2f}"),
        show(used.cpu_share, "{:.0%}"),
        show(used.cpus, "{:,.3g}"),
        "-" if used.cpu_us_per_event is None else format_digits(used.cpu_us_per_event),
        show(used.memory_peak_bytes, "{:,.1f}", 1e6),
        show(used.disk_read_bytes, "{:,.1f}", 1e6),
        show(used.disk_written_bytes, "{:,.1f}", 1e6),
        show(used.disk_busy_share, "{:.0%}"),
        show(used.received_bytes, "{:,.1f}", 1e6),
        show(used.sent_bytes, "{:,.1f}", 1e6),
        f"{used.restarts:,}",
        used.source,
    ]


def tabulate_bottlenecks(runs: Sequence[GroupRun]) -> Table:
    """What held each valid run back, and how that shows."""
    rows = [
        [*locate(one), found.limit, found.evidence]
        for one in runs
        if (found := find_bottleneck(one.run)) is not None
    ]
    headers = ["Workers", "Run", "Level", "Bottleneck", "Evidence"]
    return Table(headers, rows, left=("Bottleneck", "Evidence"))
