"""The order of an answer's rows, for databases that can't be asked for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...workloads.queries import Query

Row = tuple[Any, ...]


def put_in_order(query: Query, rows: Iterable[Row]) -> list[Row]:
    """The rows in the query's order and within its limit: nothing comes last, and equal ones in the order
    of what tells them apart."""
    found = list(rows)
    order = query.order
    if order is None:
        return found
    found.sort(key=lambda row: row[: query.keys])
    some = [row for row in found if row[order.by] is not None]
    none = [row for row in found if row[order.by] is None]
    # Stable in both directions: equal rows stay as they are.
    some.sort(key=lambda row: row[order.by], reverse=order.descending)
    return (some + none)[: query.limit]
