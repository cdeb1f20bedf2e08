"""Events as samples of series, for databases that know a series by its labels, which are texts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from ...encoding.columns import TEXTS, text_format
from ...workloads.schema import FLOATS, Column, ColumnType, Schema


def tag_columns(schema: Schema) -> list[Column]:
    """The columns that become tags beside the device."""
    return [column for column in schema.columns if column.tag]


def name_device(schema: Schema) -> str:
    """The tag that names the device."""
    return schema.device_path or schema.device


def name_tag(column: str, schema: Schema) -> str:
    """The tag that a column becomes."""
    return name_device(schema) if column == schema.device else column


def field_columns(schema: Schema) -> list[Column]:
    """The columns that become fields. Those whose value an event may lack are last: it has no such field
    then."""
    key_names = (schema.device, schema.time)
    fields = [c for c in schema.columns if c.name not in key_names and not c.tag]
    return sorted(fields, key=lambda column: column.nullable)


def find_witness(schema: Schema) -> str:
    """A field that every event has: it is there as often as there are events."""
    return [column.name for column in field_columns(schema) if not column.nullable][-1]


def has_labels(schema: Schema, names: Collection[str]) -> bool:
    """Whether series with tags of these names can be a workload's. A document that names the device has tags
    that nobody knows."""
    device = name_device(schema)
    known = {device, *(column.name for column in tag_columns(schema))}
    return device in names and (schema.device_path is not None or set(names) <= known)


@lru_cache(maxsize=65_536)
def read_labels(document: bytes) -> Mapping[str, str]:
    """The members of a JSON object as labels. Kept, since the events of a device share one document."""
    return {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in orjson.loads(document).items()
    }


class Labels:
    """A column of numbers or truth values as texts. Tags have few different values: each is written once."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._known: NDArray[Any] | None = None
        self._texts: NDArray[Any] = np.empty(0, dtype="S1")

    def write(self, values: NDArray[Any]) -> NDArray[Any]:
        """Each value's text."""
        places = self._find(values)
        if places is None:
            seen = values if self._known is None else np.append(self._known, values)
            self._known = np.unique(seen)
            self._texts = np.array([label(self._column, value) for value in self._known])
            places = np.searchsorted(self._known, values)
        texts: NDArray[Any] = self._texts[places]
        return texts

    def _find(self, values: NDArray[Any]) -> NDArray[np.intp] | None:
        """Where each value is among the known ones; None if one isn't there."""
        if self._known is None:
            return None
        places = np.minimum(np.searchsorted(self._known, values), len(self._known) - 1)
        return places if bool((self._known[places] == values).all()) else None


def label(column: Column, value: Any) -> bytes:
    """A number or truth value of a column as a tag's text; without decimals the shortest that is exact."""
    if column.type in FLOATS and column.decimals is None:
        return np.format_float_positional(value, trim="-").encode()
    if column.type is ColumnType.BOOL:
        return b"true" if value else b"false"
    text: bytes = text_format(column) % value
    return text


def read_tag(column: Column, text: Any) -> Any:
    """A tag's value; there is no tag where the text is empty."""
    if column.type in FLOATS:
        return float(text)
    if column.type is ColumnType.BOOL:
        return text == "true"
    if column.type in TEXTS:
        return text or ""
    return int(text)
