"""Tables in partitions by ranges of time, so that what is too old is dropped, and not deleted row by row.

https://www.postgresql.org/docs/current/ddl-partitioning.html

All partitions are there before the first event, as schedulers such as pg_partman make them ahead of time. A
default partition would have to be searched through for each that is made or detached, so the first and the
last one take what lies outside.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...contract import Retention
from .._base.sql_queries import quote_name

_AHEAD = 10
"""For how many retentions partitions are made if it isn't known how much time passes in a run."""


def list_bounds(retention: Retention, first_ms: int) -> list[int]:
    """Where partitions end, except the last. `first_ms`: the first time of the run's events."""
    step_ms = retention.step_ms
    until_ms = retention.until_ms or first_ms + _AHEAD * retention.period_ms
    return list(range((first_ms // step_ms + 1) * step_ms, until_ms + step_ms, step_ms))


def name_partition(table: str, end_ms: int | None) -> str:
    """The name of the partition with events before this time; None: of the last one."""
    return f"{table}_before_{end_ms}" if end_ms is not None else f"{table}_later"


def create_partitions(table: str, bounds: list[int]) -> list[str]:
    """The statements that make a table's partitions."""
    begins = ["MINVALUE", *map(str, bounds)]
    ends = [*map(str, bounds), "MAXVALUE"]
    names = [name_partition(table, end) for end in (*bounds, None)]
    return [
        f"CREATE TABLE IF NOT EXISTS {quote_name(name)} PARTITION OF {quote_name(table)}"
        f" FOR VALUES FROM ({begin}) TO ({end})"
        for name, begin, end in zip(names, begins, ends, strict=True)
    ]


def list_older(table: str, partitions: Iterable[str], before_ms: int) -> list[str]:
    """The partitions of a table that have nothing but older events, the oldest first."""
    prefix = name_partition(table, 0).removesuffix("0")
    ends = (int(name.removeprefix(prefix)) for name in partitions if name.startswith(prefix))
    return [name_partition(table, end) for end in sorted(ends) if end <= before_ms]
