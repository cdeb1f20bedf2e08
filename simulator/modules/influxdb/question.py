"""What all described queries in Flux have in common: the events that they are about, and how their answers
are counted and read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ...workloads.drawing import BoundQuery
from ...workloads.queries import Query
from ...workloads.schema import Column, Schema
from .._base.labels import field_columns, find_witness
from .._base.row_order import Row
from .flux import Result, cast, compare, name_device, quote_text, select_bound

_AS_COLUMNS = 'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")'


class Question(ABC):
    """A bound query in Flux, and how the rows are counted in the answer and read from it."""

    text: str
    columns: Sequence[str]
    """The columns that are read of an answer's rows."""
    counted: str | None = None
    """The result whose rows are counted; None: all rows."""
    repeated: int = 1
    """How many counted rows make one row of the answer."""
    is_scanned: bool = True
    """Whether rows are counted this way, and nothing has to be asked afterwards. Otherwise they must be
    read, by what this very question is about."""

    def __init__(self, bound: BoundQuery, schema: Schema, bucket: str) -> None:
        self._bound, self._schema, self._bucket = bound, schema, bucket
        self._query: Query = bound.query
        where = bound.query.where
        self._filtered = None if where is None or schema.column(where.column).tag else where.column
        """The field with a condition, if there is one."""
        self._witness = self._filtered or find_witness(schema)
        """A field that each event that is asked about has."""
        self._fields: Mapping[str, Column] = {
            column.name: column for column in field_columns(schema)
        }

    def count(self, lines: int) -> int:
        """How many rows the answer has, by those that were counted."""
        limit = self._query.limit if self._query.order else None
        rows = lines // self.repeated
        return rows if limit is None else min(rows, limit)

    def find_missing(self, answer: Sequence[Result]) -> str | None:
        """Flux for what this answer may lack; None: nothing."""
        return None

    @abstractmethod
    def read(self, answers: Sequence[Sequence[Result]]) -> list[Row]:
        """The rows of the answer, and of the one to `find_missing` if that was asked."""

    def _name_tag(self, name: str) -> str:
        return name_device(self._schema) if name == self._schema.device else name

    def _is_certain(self, name: str) -> bool:
        """Whether each event that is asked about has a value of this column."""
        return name == self._witness or not self._schema.column(name).nullable

    def _select(self, fields: Sequence[str]) -> str:
        """The values of these fields. With several, a condition on one is left to `_pivot`."""
        conditions = []
        if fields == [self._filtered]:
            conditions.append(self._compare('r["_value"]'))
        return select_bound(self._bound, self._schema, self._bucket, fields, *conditions)

    def _compare(self, expression: str) -> str:
        where = self._query.where
        assert where is not None
        return compare(expression, where, self._schema.column(where.column))

    def _pivot(self, values: str) -> str:
        """Events with their fields as columns, as far as they fulfil the condition."""
        text = f"{values} |> {_AS_COLUMNS}"
        if self._filtered is not None:
            text += f" |> filter(fn: (r) => {self._compare(f'r[{quote_text(self._filtered)}]')})"
        return text

    def _cast(self, name: str, to: str) -> str:
        """A step that makes numbers of a tag's texts."""
        number = cast(self._schema.column(name))
        return f"map(fn: (r) => ({{r with {quote_text(to)}: {number}}}))"
