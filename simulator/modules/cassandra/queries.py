"""How Cassandra is asked: range by range of the token ring, several at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from cassandra import ReadFailure, ReadTimeout
from cassandra.concurrent import execute_concurrent_with_args

from ...errors import Retryable
from ...workloads.base import FIRST_TIMESTAMP_MS, Schema
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    HOUR_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)
from ..base import Query
from ..shared.sql import quote_name
from .errors import ERRORS
from .options import CassandraOptions, Flavor
from .server import ClusterSession

_FIRST_TOKEN, _TOKENS = -(2**63), 2**64
_QUERIES_AT_ONCE = 16
_SLICES = 16


Rows = Sequence[tuple[Any, ...]]


class CassandraQueries:
    """Counts and asks the queries of a schema's workload."""

    def __init__(
        self, options: CassandraOptions, schema: Schema, connect: Callable[[], ClusterSession]
    ) -> None:
        """`connect`: the session, once a node answers; Retryable if none does."""
        self._options = options
        self._schema = schema
        self._connect = connect
        self._large: set[str] = set()
        """Tables that proved to be too large to be asked range by range."""

    def of_workload(self) -> Mapping[str, Query]:
        """All queries of the schema's workload, in its order."""
        names = [name for name in self._schema.queries if name in QUERIES]
        return {name: partial(QUERIES[name], self) for name in names}

    def count(self, table: str) -> int:
        """The events in a table."""
        return sum(row[0] for _, *row in self._aggregate("count(*)", table))

    def _count_events(self) -> Rows:
        return [(self.count("events"),)]

    def _temperature_min_max(self) -> Rows:
        rows = self._aggregate("min(temperature), max(temperature)", "events")
        return [combine_extremes(row for _, *row in rows)]

    def _temperature_stats(self) -> Rows:
        return [combine_statistics(row for _, *row in self._aggregate(self._selected, "events"))]

    def _temperature_stats_per_device(self) -> Rows:
        by_device: dict[str, list[Sequence[Any]]] = {}
        for device, *row in self._aggregate(self._selected, "events", by_device=True):
            by_device.setdefault(device, []).append(row)
        return [(device, *combine_statistics(rows)) for device, rows in by_device.items()]

    @property
    def _selected(self) -> str:
        """What `combine_statistics` is computed from. As float, a sum would lose digits."""
        total = "temperature" if self._ycql else "CAST(temperature AS double)"
        return f"min(temperature), max(temperature), sum({total}), count(*)"

    @property
    def _ycql(self) -> bool:
        return self._options.flavor is Flavor.YCQL

    def _newest_temperature(self) -> Rows:
        return self._newest("temperature")

    def _last_point(self) -> Rows:
        return self._newest(", ".join(("tounixtimestamp(ts)", *METRICS)))

    def _newest(self, values: str) -> Rows:
        """Each device's newest event."""
        table = self._schema.table
        if not self._ycql:
            return self._scan(f"{self._device}, {values}", table, "PER PARTITION LIMIT 1")
        return self._ask_all(
            f"SELECT {self._device}, {values} FROM {self._name(table)}"
            f" WHERE {self._device} = ? LIMIT 1",
            self._scan(f"DISTINCT {self._device}", table),
        )

    def _cpu_max_all(self) -> Rows:
        hours = range(FIRST_TIMESTAMP_MS, MAX_ALL_UNTIL_MS, HOUR_MS)
        asked = [(host, hour, hour + HOUR_MS) for host in MAX_ALL_HOSTS for hour in hours]
        answers = self._ask_all(
            f"SELECT {', '.join(f'max({name})' for name in METRICS)} FROM {self._name('cpu')}"
            f" WHERE {self._device} = ? AND ts >= ? AND ts < ?",
            asked,
        )
        maxima: dict[int, list[int]] = {}
        for (_, hour, _), found in zip(asked, answers, strict=True):
            if found[0] is not None:
                maxima[hour] = list(map(max, maxima.get(hour, found), found))
        return [(hour, *values) for hour, values in sorted(maxima.items())]

    def _high_cpu(self) -> Rows:
        return self._scan(
            f"{self._device}, tounixtimestamp(ts), {', '.join(METRICS)}",
            "cpu",
            f"AND ts >= {FIRST_TIMESTAMP_MS} AND ts < {HIGH_CPU_UNTIL_MS}"
            f" AND usage_user > {HIGH_CPU_ABOVE} ALLOW FILTERING",
        )

    def _scan(self, select: str, table: str, suffix: str = "") -> list[tuple[Any, ...]]:
        """The rows of a query that is asked for each range of tokens, several at once."""
        return self._ask_all(
            f"SELECT {select} FROM {self._name(table)}"
            f" WHERE token({self._device}) >= ? AND token({self._device}) <= ? {suffix}",
            cut_ring(self._options.scan_ranges),
        )

    def _aggregate(self, select: str, table: str, by_device: bool = False) -> list[tuple[Any, ...]]:
        """Device (or None, unless `by_device`) and aggregates of parts that together are the table."""
        ranges = cut_ring(self._options.scan_ranges)
        if table in self._large or (by_device and self._ycql):
            return self._aggregate_slices(select, table, ranges)
        group = f"GROUP BY {self._device}" if by_device else ""
        answers = self._ask_in_time(
            f"SELECT {f'{self._device}, ' * by_device}{select} FROM {self._name(table)}"
            f" WHERE token({self._device}) >= ? AND token({self._device}) <= ? {group}",
            ranges,
        )
        late = [asked for asked, rows in zip(ranges, answers, strict=True) if rows is None]
        found = [row if by_device else (None, *row) for rows in answers for row in rows or ()]
        if not late:
            return found
        self._large.add(table)
        return found + self._aggregate_slices(select, table, late)

    def _aggregate_slices(
        self, select: str, table: str, ranges: Sequence[tuple[int, int]]
    ) -> list[tuple[Any, ...]]:
        """Device and aggregates of slices of time of each partition in these ranges of tokens."""
        name, time_column = self._name(table), quote_name(self._schema.time)
        devices = self._ask_all(
            f"SELECT DISTINCT {self._device} FROM {name}"
            f" WHERE token({self._device}) >= ? AND token({self._device}) <= ?",
            ranges,
        )
        ends = [
            self._ask_all(
                f"SELECT tounixtimestamp({time_column}) FROM {name} WHERE {self._device} = ?"
                f" ORDER BY {time_column} {order} LIMIT 1",
                devices,
            )
            for order in ("ASC", "DESC")
        ]
        slices: list[tuple[str, int, int]] = []
        for (device,), (first,), (last,) in zip(devices, *ends, strict=True):
            slices += [(device, begin, end) for begin, end in cut_time(first, last, _SLICES)]
        statement = (
            f"SELECT {select} FROM {name}"
            f" WHERE {self._device} = ? AND {time_column} >= ? AND {time_column} <= ?"
        )
        found: list[tuple[Any, ...]] = []
        while slices:
            late = []
            for asked, rows in zip(slices, self._ask_in_time(statement, slices), strict=True):
                if rows is None:
                    device, begin, end = asked
                    if begin == end:
                        raise Retryable("read_timeout", f"{table}: too slow to be read")
                    late += [(device, *half) for half in cut_time(begin, end, 2)]
                else:
                    found += [(asked[0], *row) for row in rows]
            slices = late
        return found

    def _ask_all(self, statement: str, values: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """All rows of the statement with each of `values`, in their order."""
        session = self._connect()
        try:
            answers = execute_concurrent_with_args(
                session.driver, session.prepare(statement), values, _QUERIES_AT_ONCE
            )
            return [row for answer in answers for row in answer.result_or_exc]
        except ERRORS as error:
            raise session.translate(error) from error

    def _ask_in_time(
        self, statement: str, values: Sequence[Sequence[Any]]
    ) -> list[list[tuple[Any, ...]] | None]:
        """The rows with each of `values`; None where the server took too long."""
        session = self._connect()
        try:
            answers = execute_concurrent_with_args(
                session.driver, session.prepare(statement), values, _QUERIES_AT_ONCE,
                raise_on_first_error=False,
            )  # fmt: skip
            return [take_rows(answer.result_or_exc) for answer in answers]
        except ERRORS as error:
            raise session.translate(error) from error

    def _name(self, table: str) -> str:
        return f"{quote_name(self._options.keyspace)}.{quote_name(table)}"

    @property
    def _device(self) -> str:
        """The partition key."""
        return quote_name(self._schema.device_path or self._schema.device)


QUERIES: Mapping[str, Callable[[CassandraQueries], Rows]] = {
    "count-events": CassandraQueries._count_events,
    "temperature-min-max": CassandraQueries._temperature_min_max,
    "temperature-stats": CassandraQueries._temperature_stats,
    "temperature-stats-per-device": CassandraQueries._temperature_stats_per_device,
    "newest-per-device": CassandraQueries._newest_temperature,
    "cpu-max-all": CassandraQueries._cpu_max_all,
    "high-cpu": CassandraQueries._high_cpu,
    "last-point": CassandraQueries._last_point,
}
"""How each is asked."""


def cut_ring(count: int) -> list[tuple[int, int]]:
    """The token ring in `count` parts: first and last token of each."""
    begins = [_FIRST_TOKEN + part * _TOKENS // count for part in range(count + 1)]
    return [(begin, after - 1) for begin, after in itertools.pairwise(begins)]


def cut_time(first: int, last: int, count: int) -> list[tuple[int, int]]:
    """The times from `first` to `last` in `count` parts, or as many as there are: ends of each."""
    count = min(count, last - first + 1)
    begins = [first + part * (last - first + 1) // count for part in range(count + 1)]
    return [(begin, after - 1) for begin, after in itertools.pairwise(begins)]


def take_rows(answer: Any) -> list[tuple[Any, ...]] | None:
    """The rows, or None if the server took too long; raises what else went wrong.

    A replica that gives up a read says so by a failure for no reason, the coordinator by a timeout.
    """
    if isinstance(answer, (ReadTimeout, ReadFailure)):
        return None
    if isinstance(answer, Exception):
        raise answer
    return list(answer)


def combine_extremes(rows: Iterable[Sequence[Any]]) -> tuple[Any, Any]:
    """Of (minimum, maximum, …) of parts, of which some may be empty."""
    full = [row for row in rows if row[0] is not None]
    return min((row[0] for row in full), default=None), max((row[1] for row in full), default=None)


def combine_statistics(rows: Iterable[Sequence[Any]]) -> tuple[Any, Any, Any]:
    """Minimum, mean, maximum, from (minimum, maximum, sum, number) of parts."""
    full = [row for row in rows if row[3]]
    minimum, maximum = combine_extremes(full)
    number = sum(row[3] for row in full)
    return minimum, (sum(row[2] for row in full) / number if number else None), maximum
