"""The registry of figures: for each its name, where to find it, and how to format it. Pure. Tables, exports,
`compare`, limits, the live page, `/metrics` and docs/reference/figures.md are made from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from simulator.contract import Role
from simulator.units import format_bytes, format_digits

from .bottleneck import find_bottleneck
from .entries import Entry, of_answer, of_answers_per_s, of_database, share_of_client
from .retention import of_retention
from .statistics import count_events_per_cost
from .summaries import count_bytes, count_rows


class Form(Enum):
    """How a figure is formatted in a table, and its SQL type."""

    TEXT = "VARCHAR", str
    FLAG = "BOOLEAN", lambda value: "yes" if value else "no"
    COUNT = "BIGINT", "{:,}".format
    GROWTH = "BIGINT", "{:+,}".format
    RATE = "DOUBLE", "{:,.0f}".format
    FINE_RATE = "DOUBLE", "{:,.1f}".format
    SECONDS = "DOUBLE", "{:,.2f}".format
    TENTHS = "DOUBLE", "{:.1f}".format
    THREE_DIGITS = "DOUBLE", "{:,.3g}".format
    DIGITS = "DOUBLE", format_digits
    SHARE = "DOUBLE", "{:.0%}".format
    EXACT_SHARE = "DOUBLE", "{:.1%}".format
    MEGABYTES = "BIGINT", lambda value: f"{value / 1e6:,.1f}"
    SIZE = "DOUBLE", format_bytes
    BYTES = "DOUBLE", lambda value: f"{value:,.1f}" if value < 100 else f"{value:,.0f}"

    def __init__(self, sql: str, write: Callable[[Any], str]) -> None:
        self.sql = sql
        self._write = write

    def show(self, value: Any) -> str:
        """The value as text; `-` if unknown."""
        return "-" if value is None else self._write(value)


class Better(StrEnum):
    """Whether higher or lower is better."""

    MORE = "more"
    LESS = "less"


WRITERS, READERS = frozenset({Role.WRITE}), frozenset({Role.READ})
BOTH = WRITERS | READERS


@dataclass(frozen=True)
class Figure:
    """A figure of a group in a run, of one of its queries, or of one execution."""

    key: str
    """Its column in an export."""
    heading: str
    """The heading of its column in tables."""
    about: str
    unit: str
    form: Form
    read: Callable[[Entry], Any]
    """Reads it from an entry; None if there is none."""
    roles: frozenset[Role] = BOTH
    better: Better | None = None
    limit: str | None = None
    """Its name in `--fail-if`."""
    compared: bool = False
    """Whether `compare` compares it between results; times only from open loops."""
    exported: bool = True
    struck: bool = False
    """Whether tables strike it through if the run is invalid."""

    def show(self, entry: Entry) -> str:
        """The figure as text for a table."""
        return self.form.show(self.read(entry))


def _follow(*path: str) -> Callable[[Entry], Any]:
    """Follows these attributes; None as soon as one of them is None."""

    def read(entry: Entry) -> Any:
        value: Any = entry
        for name in path:
            value = getattr(value, name)
            if value is None:
                return None
        return value

    return read


def _of_group(*path: str) -> Callable[[Entry], Any]:
    return _follow("group_run", "group", *path)


def _of_run(*path: str) -> Callable[[Entry], Any]:
    return _follow("group_run", "run", *path)


def _of_times(which: str, percentile: str) -> Callable[[Entry], Any]:
    """Reads a time of the group or, for readers, of the query."""
    of_group, of_query = _of_group(which, percentile), _follow("query", which, percentile)

    def read(entry: Entry) -> Any:
        if entry.each is not None:
            return None
        return of_group(entry) if entry.query is None else of_query(entry)

    return read


def _of_database(name: str) -> Callable[[Entry], Any]:
    """Reads the database's resource use; None if it could not be observed."""

    def read(entry: Entry) -> Any:
        used = entry.group_run.run.resources
        return None if used is None or used.cpu_s is None else getattr(used, name)

    return read


def _most(name: str) -> Callable[[Entry], Any]:
    """Reads the highest of a share over the machines."""

    def read(entry: Entry) -> float | None:
        shares = (getattr(machine, name) for machine in entry.group_run.run.machines)
        return max((share for share in shares if share is not None), default=None)

    return read


def _find_index_build(entry: Entry) -> float | None:
    """How long indexes took to build; None for readers next to writers, who have it."""
    beside = entry.group.role is Role.READ and entry.group_run.run.writers is not None
    return None if beside else entry.group_run.run.index_build_s


def _find_bottleneck(entry: Entry) -> str | None:
    """What held the group back, without evidence."""
    bottleneck = find_bottleneck(entry.group_run.run, entry.group.role)
    return str(bottleneck.limit) if bottleneck and entry.group_run.run.resources else None


def _find_events_per_cost(entry: Entry) -> float | None:
    rate, cost = entry.group.rate_per_s, entry.cost_per_hour
    return count_events_per_cost(rate, cost) if rate and cost else None


def _find_cpu_per_event(entry: Entry) -> float | None:
    client, rate, window_s = entry.group.client, entry.group.rate_per_s, entry.group.window_s
    return client.cpu_s / (rate * window_s) * 1e6 if client and rate and window_s else None


def _find_cpu_per_row(entry: Entry) -> float | None:
    client, rows = entry.group.client, sum(query.rows or 0 for query in entry.group.queries)
    return client.cpu_s / rows * 1e6 if client and rows else None


PERCENTILES = {"p50": "p50", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "max": "max"}
_SINCE = {
    "latency": "from when a request was due (open loop) or sent (closed loop)",
    "service": "from when a request was sent (open loop)",
}  # fmt: skip


def _list_times() -> Iterator[Figure]:
    for which, since in _SINCE.items():
        for name, text in PERCENTILES.items():
            yield Figure(
                f"{which}_{name}_ms", text, f"{text} of request times, {since}", "ms", Form.DIGITS,
                _of_times(f"{which}_ms", name), better=Better.LESS, struck=True,
                limit=name if which == "latency" else f"service_{name}",
                compared=which == "latency" and name in ("p50", "p99"),
            )  # fmt: skip


_MORE, _LESS = Better.MORE, Better.LESS
F = Figure
MEASURED: tuple[Figure, ...] = (
    F("workers", "Workers", "processes or pods in the group", "", Form.COUNT, _of_group("workers")),
    F("run", "Run", "number of the run", "", Form.COUNT,
      lambda e: e.each.run if e.each else e.group_run.run.run),
    F("valid", "Valid", "whether the run's figures count", "", Form.FLAG, _of_group("valid")),
    F("invalid_reasons", "Reasons", "why they don't count", "", Form.TEXT,
      lambda e: "; ".join(e.group.invalid_reasons)),
    F("fill_level", "Level", "events in the database when the window began", "events", Form.COUNT,
      _of_run("fill_level")),
    F("events", "Events", "events acknowledged, warm-up included", "events", Form.COUNT,
      _of_group("count"), WRITERS),
    F("window_s", "Window s", "from the first worker's start to the last one's end", "s", Form.SECONDS,
      _of_group("window_s")),
    F("inserts_per_s", "Inserts/s", "events acknowledged in the window ÷ its length", "events/s", Form.RATE,
      _of_group("rate_per_s"), WRITERS, _MORE, "rate", compared=True, struck=True),
    F("inserts_per_s_mean_duration", "By mean duration",
      "events ÷ the workers' mean duration: the formula of the published comparison", "events/s", Form.RATE,
      _of_group("rate_per_s_mean_duration"), WRITERS, _MORE, struck=True),
    F("metrics_per_s", "Metrics/s", "measured values per second: an event may have several", "values/s",
      Form.RATE, _of_group("metrics_per_s"), WRITERS, _MORE),
    F("overlap", "Overlap", "share of the window in which all workers were active", "", Form.EXACT_SHARE,
      _of_group("overlap"), better=_MORE),
    *_list_times(),
    F("due", "Due", "what was due in the window (open loop)", "", Form.COUNT,
      _of_group("offered", "due")),
    F("achieved", "Achieved", "the part of that done in the window", "", Form.COUNT,
      _of_group("offered", "achieved"), better=_MORE),
    F("unsent", "Unsent", "what was due but not sent by the end of the run", "", Form.COUNT,
      _of_group("offered", "unsent"), better=_LESS),
    F("backlog_max", "Most waiting", "the most that was due but not done at the end of any second", "",
      Form.COUNT, _of_group("offered", "backlog_max"), better=_LESS),
    F("backlog_growth", "Growth", "growth of that in the second half of the window", "", Form.GROWTH,
      _of_group("offered", "backlog_growth"), better=_LESS),
    F("saturated", "Saturated", "whether the database fell behind", "", Form.FLAG,
      _of_group("offered", "saturated")),
    F("own_delay_p99_ms", "Client late p99 ms",
      "how late requests were sent although the in-flight limit was not reached", "ms", Form.DIGITS,
      _of_group("offered", "own_delay_p99_ms"), better=_LESS),
    F("client_cpu_s", "Client CPU s", "CPU of all workers in the window", "s", Form.SECONDS,
      _of_group("client", "cpu_s"), better=_LESS),
    F("client_cpu_share", "Client CPU", "CPU time of the busiest worker ÷ its run time", "", Form.EXACT_SHARE,
      _of_group("client", "cpu_share"), better=_LESS, struck=True),
    F("client_bound", "Client-bound", "whether the figures show the client's speed", "", Form.FLAG,
      _of_group("client", "bound")),
    F("bottleneck", "Bound by", "what held the group back", "", Form.TEXT, _find_bottleneck),
    F("holds", "Holds", "whether the run (or the step of a capacity search) kept its limits", "", Form.FLAG,
      _follow("holds")),
    F("limits", "Limits", "the outcome of each limit in the run", "", Form.TEXT,
      _follow("verdict", "summary")),
    F("began_at", "Began (UTC)", "when the measured window began", "", Form.TEXT, _of_run("began_at")),
    F("ended_at", "Ended", "when it ended", "", Form.TEXT, _of_run("ended_at")),
    F("busy_share", "Busy", "CPU use of the workers' busiest machine", "", Form.SHARE,
      _most("busy_share")),
    F("steal_share", "Stolen", "CPU that the hypervisor gave to other machines (steal)", "", Form.SHARE,
      _most("steal_share"), better=_LESS),
    F("others_share", "Others", "CPU used by anything but the run and the database", "", Form.SHARE,
      _most("others_share"), better=_LESS),
    F("retries", "Retries", "requests that were sent again", "", Form.COUNT, _of_group("retries"),
      WRITERS, _LESS),
    F("errors", "Errors", "errors by kind, including those cured by a retry (JSON)", "", Form.TEXT,
      lambda e: json.dumps(e.group.errors, sort_keys=True), WRITERS),
    F("stored", "Counted", "events in the database after the run", "events", Form.COUNT,
      _of_group("verification", "stored"), WRITERS),
    F("queryable_lag_s", "Lag s", "time until all events were queryable", "s", Form.TENTHS,
      _of_group("queryable", "lag_s"), WRITERS, _LESS),
    F("queryable_events_per_s", "Queryable/s", "events ÷ the time until all were queryable", "events/s",
      Form.RATE, _of_group("queryable", "events_per_s"), WRITERS, _MORE),
    F("index_build_s", "Index s", "time to build indexes outside of the window", "s",
      Form.THREE_DIGITS, _find_index_build, better=_LESS),
    F("deletions", "Deletions", "number of deletions of events older than --retention during the run",
      "", Form.COUNT, of_retention("count"), WRITERS),
    F("deletion_mean_s", "Mean s", "mean time of a deletion", "s", Form.THREE_DIGITS, of_retention("mean_s"),
      WRITERS, _LESS),
    F("deletion_longest_s", "Longest s", "longest time of a deletion", "s", Form.THREE_DIGITS,
      of_retention("longest_s"), WRITERS, _LESS),
    F("deleted", "Deleted", "events deleted, including after the run", "events", Form.COUNT,
      of_retention("deleted"), WRITERS),
    *(
        F(f"{when}_deletion{'s' * (when != 'during')}_{key}", heading, f"{about} {seconds}", unit, form,
          _of_group("deletion_cost", when, field), better=better)
        for when, seconds in (
            ("before", "in the seconds before the first deletion"),
            ("during", "in the seconds in which a deletion ran"),
            ("between", "in those between deletions"),
        )
        for key, heading, about, unit, form, field, better in (
            ("per_s", f"{when.title()}/s", "events acknowledged, or queries answered,", "", Form.RATE,
             "rate_per_s", _MORE),
            ("p99_ms", "p99 ms", "99 % of the requests' times", "ms", Form.DIGITS, "p99_ms", _LESS),
        )
    ),
    F("storage_bytes", "MB", "disk space of the tables after the run, all copies", "bytes",
      Form.MEGABYTES,
      _of_group("storage", "total_bytes"), WRITERS, _LESS),
    F("storage_index_bytes", "Indexes MB", "of which indexes", "bytes", Form.MEGABYTES,
      _of_group("storage", "index_bytes"), WRITERS, _LESS),
    F("storage_copies", "Copies", "copies of each event included", "", Form.COUNT,
      _of_group("storage", "copies"), WRITERS),
    F("storage_compacted_bytes", "Compacted MB", "disk space of the tables after --compact", "bytes",
      Form.MEGABYTES, _of_group("storage_compacted", "total_bytes"), WRITERS, _LESS),
    F("bytes_per_event", "B/event", "bytes on disk per event, from growth", "bytes", Form.BYTES,
      _follow("size", "bytes_per_event"), WRITERS, _LESS, "bytes_per_event"),
)  # fmt: skip
"""What a group measured in a run, in the order of an export."""

PAID = F("events_per_cost", "Events per unit", "events that one unit of `cost_per_hour` pays for", "events",
         Form.RATE, _find_events_per_cost, WRITERS, _MORE)  # fmt: skip

ASKED: tuple[Figure, ...] = (
    F("query", "Query", "name of the query", "", Form.TEXT, _follow("query", "query"), READERS),
    F("worker", "Worker", "the reader, for a single execution", "", Form.COUNT, _follow("each", "worker"),
      READERS),
    F("duration_s", "Duration s", "time it took", "s", Form.SECONDS, _follow("each", "duration_s"),
      READERS, _LESS),
    F("rows", "Rows", "of the answer; the most of several executions", "rows", Form.COUNT,
      lambda e: e.each.rows if e.each else e.query and e.query.rows_max, READERS),
    F("error", "Error", "the database's message if it failed", "", Form.TEXT,
      lambda e: e.each.error if e.each else e.query and e.query.error, READERS),
    F("queries_per_s", "Queries/s", "queries answered in the window ÷ its length", "queries/s",
      Form.FINE_RATE, lambda e: None if e.each else e.group.rate_per_s, READERS, _MORE, "queries_per_s"),
    F("executions", "Executions", "executions that were answered", "", Form.COUNT,
      lambda e: None if e.each else e.query and e.query.executions, READERS),
    F("failed", "Failed", "executions that were not", "", Form.COUNT,
      lambda e: None if e.each else e.query and e.query.errors, READERS, _LESS),
    F("cold_s", "Cold", "mean of each reader's first execution", "s", Form.SECONDS,
      lambda e: None if e.each else e.query and e.query.cold_s, READERS, _LESS),
    F("rows_mean", "Rows (mean)", "of an answer", "rows", Form.DIGITS, of_answer("rows", count_rows),
      READERS),
    F("bytes_mean", "Bytes", "of an answer as it was received, the mean", "bytes", Form.DIGITS,
      of_answer("bytes", count_bytes), READERS),
    F("rows_per_s", "Rows/s", "rows of answers ÷ the window's length", "rows/s", Form.RATE,
      of_answers_per_s(count_rows), READERS, _MORE, "rows_per_s"),
    F("bytes_per_s", "Bytes/s", "bytes of answers ÷ the window's length", "bytes/s", Form.SIZE,
      of_answers_per_s(count_bytes), READERS, _MORE, "bytes_per_s"),
    F("database_cpu_us_per_query", "DB µs/query",
      "the database's CPU ÷ queries answered in the window, readers alone", "µs", Form.DIGITS,
      of_database("cpu_s", 1e6), READERS, _LESS, "database_cpu_us_per_query"),
    F("disk_read_bytes_per_query", "Read/query",
      "what the database read from disks ÷ queries answered, readers alone", "bytes", Form.SIZE,
      of_database("disk_read_bytes"), READERS, _LESS, "disk_read_bytes_per_query"),
    F("client_cpu_us_per_query", "Client µs/query", "CPU of all readers ÷ queries answered in the window",
      "µs", Form.DIGITS, lambda e: None if e.each else share_of_client(e.group), READERS, _LESS,
      "client_cpu_us_per_query"),
    F("pause_share", "Pause", "closed loop: time from an answer to the next query, over everything in"
      " flight", "", Form.EXACT_SHARE, _of_group("client", "pause_share"), READERS, _LESS, "pause_share"),
)  # fmt: skip
"""Additional figures of readers: of a query, or of one execution."""


def _by_duration(name: str) -> Callable[[Entry], Any]:
    """Reads a count of a stage, per second."""
    return lambda e: None if e.stage is None else getattr(e.stage, name) / e.stage.duration_s


STAGED: tuple[Figure, ...] = (
    F("stage", "Stage", "number of the stage of a changing rate", "", Form.COUNT, _follow("number")),
    F("stage_s", "Seconds", "how much of the stage lies in the window", "s", Form.DIGITS,
      _follow("stage", "duration_s")),
    F("stage_rate_per_s", "Rate/s", "the rate requested for the stage", "", Form.DIGITS,
      _follow("stage", "rate_per_s")),
    F("stage_offered_per_s", "Offered/s", "what was due in the stage ÷ its length", "", Form.DIGITS,
      _by_duration("due")),
    F("stage_achieved_per_s", "Achieved/s", "what was done in the stage, whenever it was due, ÷ its length",
      "", Form.DIGITS, _by_duration("achieved"), better=_MORE),
    *(
        F(f"stage_{name}_ms", heading, f"{text} of the response times of what was due in the stage", "ms",
          Form.DIGITS, _follow("stage", "latency_ms", name), better=_LESS)
        for name, heading, text in (("p50", "Response p50 ms", "p50"), ("p99", "p99 ms", "p99"))
    ),
    F("stage_backlog", "Backlog", "what was due but not done at the stage's end", "", Form.COUNT,
      _follow("stage", "backlog"), better=_LESS),
    F("stage_saturated", "Saturated", "whether the database fell behind in the stage", "", Form.FLAG,
      _follow("stage", "saturated")),
)  # fmt: skip
"""The figures of a stage, which has its own row in an export, without those of the whole run."""

DATABASE: tuple[Figure, ...] = tuple(
    F(name, heading, about, unit, form, _of_database(name), better=better, exported=False)
    for name, heading, about, unit, form, better in (
        ("cpu_s", "CPU s", "CPU of the database's processes or pods in the window", "s", Form.SECONDS, _LESS),
        ("cpu_share", "CPU", "the same ÷ the CPU available to them", "", Form.SHARE, None),
        ("cpus", "CPUs", "CPUs available to them", "", Form.THREE_DIGITS, None),
        ("cpu_us_per_event", "µs/event", "their CPU ÷ events acknowledged", "µs", Form.DIGITS, _LESS),
        ("memory_peak_bytes", "Memory MB", "their peak memory", "bytes", Form.MEGABYTES, _LESS),
        ("disk_read_bytes", "Read MB", "what they read from disks", "bytes", Form.MEGABYTES, _LESS),
        ("disk_written_bytes", "Written MB", "what they wrote to disks", "bytes", Form.MEGABYTES, _LESS),
        ("disk_busy_share", "Disk busy", "share of time the busiest disk was busy", "", Form.SHARE, None),
        ("received_bytes", "Received MB", "what they received", "bytes", Form.MEGABYTES, None),
        ("sent_bytes", "Sent MB", "what they sent", "bytes", Form.MEGABYTES, None),
        ("restarts", "Restarts", "restarts of any of them", "", Form.COUNT, _LESS),
        ("source", "By", "how they were observed", "", Form.TEXT, None),
    )
)  # fmt: skip
"""Resource use of the database in a run."""

STORAGE: tuple[Figure, ...] = (
    F("storage_events", "Events", "events in the database when the size was measured", "events", Form.COUNT,
      _of_group("storage", "events"), WRITERS, exported=False),
    F("storage_during_bytes", "MB during", "disk space of the tables at a point during the run", "bytes",
      Form.MEGABYTES, _of_group("storage_during", "total_bytes"), WRITERS, _LESS, exported=False),
    F("storage_during_events", "Events during", "events in the database at that point", "events", Form.COUNT,
      _of_group("storage_during", "events"), WRITERS, exported=False),
    F("index_bytes_per_event", "of which indexes", "bytes per event in indexes", "bytes", Form.BYTES,
      _follow("size", "index_bytes"), WRITERS, _LESS, exported=False),
    F("compacted_bytes_per_event", "Compacted B/event", "bytes per event after compaction", "bytes",
      Form.BYTES, _follow("size", "compacted_bytes"), WRITERS, _LESS, exported=False),
    F("storage_source", "By", "source of the size", "", Form.TEXT,
      lambda e: e.group.storage and (e.group.storage.source or None), WRITERS, exported=False),
)  # fmt: skip

OF_CLIENTS: tuple[Figure, ...] = (
    F("client_cpu_us_per_event", "Client µs/event", "CPU of all writers per event acknowledged in the window",
      "µs", Form.SECONDS, _find_cpu_per_event, WRITERS, _LESS, exported=False),
    F("client_cpu_us_per_row", "µs/row", "CPU of all readers per row of the window's answers", "µs",
      Form.SECONDS, _find_cpu_per_row, READERS, _LESS, exported=False),
)  # fmt: skip
"""The cost of each client, in a comparison of clients."""

FIGURES = {
    figure.key: figure
    for figure in (*MEASURED, PAID, *ASKED, *STAGED, *DATABASE, *STORAGE, *OF_CLIENTS)
}
EXPORTED = [figure for figure in FIGURES.values() if figure.exported]
LIMITED = {figure.limit: figure for figure in FIGURES.values() if figure.limit}
COMPARED = [figure for figure in FIGURES.values() if figure.compared]

TABLES: dict[str, tuple[str, ...]] = {
    "Runs": (
        "valid", "inserts_per_s", "inserts_per_s_mean_duration", "window_s", "overlap", "events", "stored",
        "client_cpu_share",
    ),
    "Latencies": tuple(f"latency_{name}_ms" for name in PERCENTILES),
    "Service times": tuple(f"service_{name}_ms" for name in PERCENTILES),
    "What was due": (
        "saturated", "due", "achieved", "unsent", "backlog_max", "backlog_growth", "own_delay_p99_ms",
    ),
    "Stages": tuple(figure.key for figure in STAGED),
    "Deletions": (
        "deletions", "deletion_mean_s", "deletion_longest_s", "deleted", "before_deletions_per_s",
        "before_deletions_p99_ms", "during_deletion_per_s", "during_deletion_p99_ms",
        "between_deletions_per_s", "between_deletions_p99_ms",
    ),
    "On disk": (
        "storage_bytes", "bytes_per_event", "index_bytes_per_event", "storage_compacted_bytes",
        "compacted_bytes_per_event", "storage_copies", "storage_source",
    ),
    "Clients": tuple(figure.key for figure in OF_CLIENTS),
    "What the database used": tuple(figure.key for figure in DATABASE),
}  # fmt: skip
"""Table of `results show` with a row for each run -> its columns."""

SUMMED: dict[Role, tuple[str, ...]] = {
    Role.WRITE: (
        "metrics_per_s", "queryable_events_per_s", "queryable_lag_s", "index_build_s", "bytes_per_event",
    ),
    Role.READ: (
        "rows_per_s", "bytes_per_s", "database_cpu_us_per_query", "disk_read_bytes_per_query",
        "client_cpu_us_per_query", "pause_share",
    ),
}  # fmt: skip
"""Further columns of the table by worker count, over the valid runs, where they have figures: not all
workloads and databases do."""


def read_all(entry: Entry, figures: Iterable[Figure]) -> dict[str, Any]:
    """Key -> value of the entry's figures."""
    values = {
        figure.key: figure.read(entry) for figure in figures if entry.group.role in figure.roles
    }
    return {key: value for key, value in values.items() if value is not None}
