"""What the compilers of listed events and of computed values have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...workloads.queries import BoundQuery, Query
from ...workloads.schema import Column, Schema
from .._base.labels import field_columns, find_witness
from .._base.row_order import Row
from .flux import (
    cast,
    compare,
    quote_text,
    select_bound,
)

_AS_COLUMNS = 'pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")'


Ask = Callable[[str], str]
"""Asks Flux, and gives its answer."""


@dataclass(frozen=True)
class Question:
    """What is asked, and how the rows are read from the answer."""

    text: str
    _read: Callable[[str, Ask], list[Row]]

    def ask(self, ask: Ask) -> list[Row]:
        """Ask it, and read the answer."""
        return self._read(ask(self.text), ask)


class Compiler(ABC):
    """What is bound, on its way to a question in Flux."""

    def __init__(self, bound: BoundQuery, schema: Schema, bucket: str) -> None:
        self._bound, self._schema, self._bucket = bound, schema, bucket
        self._query: Query = bound.query
        where = bound.query.where
        self._filtered = None if where is None or schema.column(where.column).tag else where.column
        """The field that there is a condition on."""
        self._witness = self._filtered or find_witness(schema)
        """A field that each event has that is asked about."""
        self._fields: Mapping[str, Column] = {one.name: one for one in field_columns(schema)}

    @abstractmethod
    def compile(self) -> Question:
        """The query."""

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
