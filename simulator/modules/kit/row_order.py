"""The order of an answer's rows, for databases that can't be asked for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...workloads.queries import Query

Row = tuple[Any, ...]


def put_in_order(query: Query, rows: Iterable[Row]) -> list[Row]:
    """The rows in the query's order and within its limit: missing values come last, and equal rows are in the
    order of what tells them apart."""
    answer = list(rows)
    order = query.order
    if order is None:
        return answer
    answer.sort(key=lambda row: row[: query.keys])
    present = [row for row in answer if row[order.by] is not None]
    missing = [row for row in answer if row[order.by] is None]
    # Stable in both directions: equal rows stay as they are.
    present.sort(key=lambda row: row[order.by], reverse=order.descending)
    return (present + missing)[: query.limit]
