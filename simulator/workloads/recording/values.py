"""Converts the values of a recording's columns to the table's types."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...errors import OptionError
from ...units import format_count
from ..schema import ColumnType
from .settings import ColumnSettings

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999."""
MOST_TEXT_BYTES = 16_384
"""The longest text: in blocks of events texts have equal widths."""
MOST_TEXTS = 5_000_000
"""The most different texts of a column."""
_MOST_DIGITS = 15
"""How many decimal digits a 64-bit float represents exactly."""

_SKIP = "skip it"
_AS_TEXT = "use `as: text`, or skip it"


class Unfit(ValueError):
    """A column can't be stored. The arguments are the problem and the remedy."""


class Dictionary:
    """The different texts of a column, by index."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}

    def add(self, texts: list[str]) -> NDArray[np.int32]:
        """The index of each text; new ones are appended."""
        places = self.places
        return np.array([places.setdefault(text, len(places)) for text in texts], dtype=np.int32)


class Problems:
    """What can't be stored, counted by column and kind."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str, str]] = Counter()

    def add(
        self, column: str, problem: str, remedy: str, count: int = 0, what: str = "value"
    ) -> None:
        """Note this many values (or `what` they are) of a column; 0: the whole column."""
        self._counts[column, what, problem, remedy] += count

    def refuse(self) -> None:
        """OptionError if there are any: a line for each column and kind."""
        if self._counts:
            raise OptionError(
                *(
                    f"column {column}: {f'{format_count(count, what)} ' if count else ''}{problem}: {remedy}"
                    for (column, what, problem, remedy), count in self._counts.items()
                )
            )


def find_type(arrow: Any, how: ColumnSettings) -> ColumnType:
    """The table's type for one of pyarrow's. Unfit if there is none."""
    if how.as_ is not None:
        return how.as_
    types = pa.types
    if types.is_dictionary(arrow):
        arrow = arrow.value_type
    for matches, kind in (
        (types.is_boolean, ColumnType.BOOL),
        (types.is_int64, ColumnType.INT64),
        (types.is_uint32, ColumnType.INT64),
        (types.is_uint64, ColumnType.INT64),
        (types.is_integer, ColumnType.INT32),
        (types.is_float64, ColumnType.FLOAT64),
        (types.is_floating, ColumnType.FLOAT32),
        (types.is_string, ColumnType.TEXT),
        (types.is_large_string, ColumnType.TEXT),
        (types.is_string_view, ColumnType.TEXT),
        (types.is_timestamp, ColumnType.TIMESTAMP_MS),
        (types.is_date, ColumnType.TIMESTAMP_MS),
        (types.is_struct, ColumnType.JSON),
    ):
        if matches(arrow):
            return kind
    if types.is_decimal(arrow):
        if arrow.precision <= _MOST_DIGITS:
            return ColumnType.FLOAT64
        raise Unfit(
            f"decimals of {arrow.precision} digits exceed a 64-bit float",
            "use `as: float64`, which rounds, or `as: text`, or skip it",
        )
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_map(arrow):
        raise Unfit("lists can't be stored", _AS_TEXT)
    if types.is_time(arrow) or types.is_duration(arrow):
        raise Unfit(f"values of type {arrow} can't be stored", _AS_TEXT)
    raise Unfit(f"values of type {arrow} can't be stored", _SKIP)


def convert_values(
    array: Any,
    kind: ColumnType,
    name: str,
    how: ColumnSettings,
    texts: Dictionary | None,
    problems: Problems,
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """The values (for texts, their indexes in the dictionary) and where they are missing, with arbitrary ones
    in their place; None: none is missing. What can't be stored is noted."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if how.missing:
        array = leave_out(array, how.missing)
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if kind in (ColumnType.TEXT, ColumnType.JSON):
        assert texts is not None
        return _convert_texts(array, kind, name, texts, problems), missing
    try:
        return _convert_plain(array, kind, name, how, problems), missing
    except (pa.ArrowException, ValueError, OverflowError):
        lacking = _count_unfit(array, kind)
        problems.add(
            name, f"not of type {kind}", _AS_TEXT if how.as_ is None else _SKIP, lacking,
        )  # fmt: skip
        return np.zeros(len(array), dtype=np.int64), missing


def leave_out(array: Any, values: tuple[str, ...]) -> Any:
    """The array without these values."""
    if pa.types.is_floating(array.type):
        numbers = array.to_numpy(zero_copy_only=False)
        gone = np.zeros(len(numbers), dtype=np.bool_)
        for text in values:
            try:
                value = float(text)
            except ValueError:
                continue
            gone |= np.isnan(numbers) if np.isnan(value) else numbers == value
    else:
        gone = np.isin(array.cast(pa.string()).to_numpy(zero_copy_only=False).astype(str), values)
    return pc.if_else(pa.array(gone), pa.scalar(None, array.type), array)


def _convert_plain(
    array: Any, kind: ColumnType, name: str, how: ColumnSettings, problems: Problems
) -> NDArray[Any]:
    if kind is ColumnType.TIMESTAMP_MS:
        return _convert_times(array, name, how, problems)
    target = {
        ColumnType.INT64: pa.int64(),
        ColumnType.INT32: pa.int32(),
        ColumnType.FLOAT64: pa.float64(),
        ColumnType.FLOAT32: pa.float32(),
        ColumnType.BOOL: pa.bool_(),
    }[kind]
    safe = kind not in (ColumnType.FLOAT32, ColumnType.FLOAT64)
    cast = array.cast(target, safe=safe)
    return np.asarray(
        cast.fill_null(False if kind is ColumnType.BOOL else 0).to_numpy(zero_copy_only=False)
    )


def _convert_times(array: Any, name: str, how: ColumnSettings, problems: Problems) -> NDArray[Any]:
    if pa.types.is_date(array.type):
        array = array.cast(pa.timestamp("ms"))
    numbers = array.fill_null(0 if pa.types.is_integer(array.type) else pa.scalar(0, array.type))
    instants = numbers.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    times = np.asarray(instants.to_numpy(zero_copy_only=False))
    if how.as_ is None and pa.types.is_timestamp(array.type):
        exact = (
            array.type.unit in ("s", "ms")
            or pc.all(pc.equal(numbers, instants.cast(pa.timestamp("ms")).cast(array.type))).as_py()
        )
        if not exact:
            back = instants.cast(pa.timestamp("ms")).cast(array.type)
            lost = pc.sum(pc.not_equal(numbers, back)).as_py()
            problems.add(
                name, "with fractions of a millisecond",
                "use `as: timestamp_ms`, which truncates them, or `as: text`", lost, "time",
            )  # fmt: skip
    outside = int(np.count_nonzero((times < 0) | (times > LATEST_MS)))
    if outside:
        problems.add(name, "before 1970 or after 9999", _AS_TEXT, outside, "time")
    return times


def _count_unfit(array: Any, kind: ColumnType) -> int:
    """How many values can't be converted to this type."""
    if kind in (ColumnType.INT64, ColumnType.INT32) and not pa.types.is_string(array.type):
        limit = 2**63 if kind is ColumnType.INT64 else 2**31
        numbers = array.drop_null().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        unfit = (numbers >= limit) | (numbers < -limit) | (numbers % 1 != 0)
        return max(1, int(np.count_nonzero(unfit)))
    return int(len(array) - array.null_count)


def _convert_texts(
    array: Any, kind: ColumnType, name: str, texts: Dictionary, problems: Problems
) -> NDArray[np.int32]:
    types = pa.types
    if kind is ColumnType.JSON or types.is_nested(array.type):
        documents = [
            "{}" if value is None else orjson.dumps(value, default=str).decode()
            for value in array.to_pylist()
        ]
        array = pa.array(documents)
    elif not types.is_string(array.type):
        array = array.cast(pa.string())
    encoded = array.fill_null("").dictionary_encode()
    try:
        new = encoded.dictionary.to_pylist()
    except UnicodeDecodeError:
        problems.add(name, "it has texts that aren't UTF-8", _SKIP)
        return np.zeros(len(array), dtype=np.int32)
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    for unfit, problem in (
        (_has_nul if kind is ColumnType.TEXT else _has_escaped_nul, "with a NUL character"),
        (_is_long, f"longer than {MOST_TEXT_BYTES:,} bytes"),
    ):
        places = [place for place, text in enumerate(new) if unfit(text)]
        if places:
            problems.add(name, problem, _SKIP, int(np.isin(codes, places).sum()), "text")
    if len(texts.places) > MOST_TEXTS:
        raise OptionError(
            f"column {name}: it has more than {MOST_TEXTS:,} different texts: skip it with recorded.columns"
        )
    added: NDArray[np.int32] = texts.add(new)[codes]
    return added


def _has_nul(text: str) -> bool:
    return "\0" in text


def _has_escaped_nul(text: str) -> bool:
    return "\\u0000" in text


def _is_long(text: str) -> bool:
    return len(text) > MOST_TEXT_BYTES // 4 and len(text.encode()) > MOST_TEXT_BYTES
