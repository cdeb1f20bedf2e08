"""Which table an event goes to: event i of a worker to table i modulo their number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...workloads.schema import EventBlock

TableT = TypeVar("TableT")


class Share(NamedTuple):
    """What one table gets of a request."""

    table: int
    rows: range
    """The events' rows in the block that was dealt out."""


def deal_rows(block: EventBlock, start: int, stop: int, tables: int) -> list[Share]:
    """The rows [start, stop) of a block dealt to so many tables: only those that get some."""
    return [
        Share((block.first + row) % tables, range(row, stop, tables))
        for row in range(start, min(start + tables, stop))
    ]


def deal_block(block: EventBlock, tables: int) -> list[tuple[Share, EventBlock]]:
    """A whole block dealt to so many tables, and the events of each share, as views."""
    if tables == 1:
        return [(Share(0, range(len(block))), block)] if len(block) else []
    return [
        (share, block.part(share.rows.start, len(block), tables))
        for share in deal_rows(block, 0, len(block), tables)
    ]


def deal_in_turn(block: EventBlock, tables: Sequence[TableT]) -> list[TableT]:
    """The table of each event, out of these, whatever stands for a table."""
    first = block.first % len(tables)
    turn = [*tables[first:], *tables[:first]]
    return (turn * -(-len(block) // len(tables)))[: len(block)]


def number_tables(block: EventBlock, tables: int) -> NDArray[np.int64]:
    """The table of each event as a number."""
    if tables == 1:
        return np.zeros(len(block), dtype=np.int64)
    return (block.first + np.arange(len(block))) % tables
