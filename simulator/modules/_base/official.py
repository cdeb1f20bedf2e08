"""What official clients are given: rows and documents of Python values, as an application has them.

A module with `client=official` keeps it in `official.py`: an encoder made of these, a writer whose `send`
is one call of the client's documented bulk way, with the client's defaults, and `make_writer`. What differs
from the lean path is that alone: events, tables, counting and the queries are the module's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ...contract import PrimaryKey
from ...encoding.columns import FLOATS, bounds, with_client_key
from ...workloads.events import EventBlock
from ...workloads.schema import Column, ColumnType
from ..base import Job
from ..sending import Encoder, Payload

_TEXTS = (ColumnType.TEXT, ColumnType.JSON)


class OfficialEncoder(Encoder):
    """Hands out what a client takes. Rows are made between two requests, as an application makes them, and
    not in a thread beside a client that needs the interpreter itself."""

    overlaps = False

    def __init__(self, job: Job) -> None:
        self._job = job

    def encode(self, block: EventBlock, batch: int) -> list[Payload]:
        size = batch or 1
        return [
            Payload(data, stop - start, block, stop - 1)
            for data, (start, stop) in zip(
                self._requests(block, size), bounds(len(block), size), strict=True
            )
        ]

    @abstractmethod
    def _requests(self, block: EventBlock, size: int) -> Sequence[Any]:
        """What the writer's `send` is given, of `size` events each."""


def list_columns(
    columns: Sequence[Column],
    values: Mapping[str, NDArray[Any]],
    missing: Mapping[str, NDArray[np.bool_]],
    parse_json: bool = False,
) -> list[list[Any]]:
    """Each column as a list of Python values: texts are `str`, a missing value is None, a document its
    text, or parsed."""
    return [
        _list_values(one, values[one.name], missing.get(one.name), parse_json) for one in columns
    ]


def _list_values(
    column: Column, values: NDArray[Any], missing: NDArray[np.bool_] | None, parse_json: bool
) -> list[Any]:
    found: list[Any]
    if column.type is ColumnType.JSON and parse_json:
        found = [orjson.loads(text) for text in values.tolist()]
    elif column.type in _TEXTS:
        found = [text.decode() for text in values.tolist()]
    elif column.type in FLOATS and column.decimals is not None:
        # 21.4, as an application has it, and not the float32 next to it as a float64.
        found = np.round(values.astype(np.float64), column.decimals).tolist()
    else:
        found = values.tolist()
    if missing is not None:
        for row in np.flatnonzero(missing).tolist():
            found[row] = None
    return found


def list_rows(block: EventBlock, job: Job) -> list[tuple[Any, ...]]:
    """The events as rows of a table: with the client's key first, if it makes one."""
    if job.load.primary_key is PrimaryKey.CLIENT:
        columns, values = with_client_key(block)
    else:
        columns, values = block.schema.row, block.row_columns
    return list(zip(*list_columns(columns, values, block.missing), strict=True))


def list_documents(block: EventBlock) -> list[dict[str, Any]]:
    """The events' rows as documents."""
    columns = block.schema.row
    names = [column.name for column in columns]
    rows = list_columns(columns, block.row_columns, block.missing, parse_json=True)
    return [dict(zip(names, row, strict=True)) for row in zip(*rows, strict=True)]
