"""The roles of a recording's columns: which one is the time, which one names the device, and their names in
the table."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from ...errors import OptionError, did_you_mean, list_names
from ..definition import read_name
from .settings import Recorded
from .times import to_instants

_TIME_NAMES = re.compile(
    r"(?:time|timestamp|ts|date|datetime|date_time|t|epoch|created_at|event_time|time_?stamp|utc|_time)"
    r"(?:[_ ]?(?:s|ms|us|ns|utc))?",
    re.IGNORECASE,
)
_DEVICE_NAMES = re.compile(
    r"(?:.*[_ ])?(?:device|sensor|machine|host|hostname|asset|pump|vehicle|truck|station|meter"
    r"|node|unit|equipment|turbine|engine|location|site|city|symbol|unique|series)s?"
    r"(?:[_ ]?(?:id|name|no|number|uuid))?",
    re.IGNORECASE,
)
NO_DEVICE = "none"


@dataclass(frozen=True)
class Roles:
    """The roles of a file's columns."""

    time: str
    device: str | None
    """None: all events belong to one device."""
    skipped: dict[str, str]


def find_roles(schema: pa.Schema, first: pa.RecordBatch, settings: Recorded) -> Roles:
    """Which column is the time, and which the device. OptionError if that is uncertain."""
    names: list[str] = schema.names
    for named in (settings.time, settings.device, *(settings.tags or ()), *settings.columns):
        if named is not None and named not in names and named != NO_DEVICE:
            raise OptionError(
                f"the recording has no column {named!r}{did_you_mean(named, names)} (it has"
                f" {list_names(names)})"
            )
    used = {
        name: schema.field(name).type
        for name in names
        if not (name in settings.columns and settings.columns[name].skip)
    }
    skipped = {name: "as asked" for name in names if name not in used}
    time = settings.time or _find_time(used, first, settings)
    device = settings.device
    if device is None:
        device = _find_device({n: t for n, t in used.items() if n != time}, first)
    return Roles(time, None if device == NO_DEVICE else device, skipped)


def _find_time(types: dict[str, pa.DataType], first: pa.RecordBatch, settings: Recorded) -> str:
    strange = ""

    def could_be(name: str) -> bool:
        kind = types[name]
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return True
        if not _TIME_NAMES.fullmatch(name):
            return False
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return True
        if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
            return False
        sample = first.column(first.schema.names.index(name)).drop_null()
        try:
            return bool(sample) and bool(to_instants(sample[:1], kind, settings))
        except pa.ArrowException:
            nonlocal strange
            strange = f" and recorded.time_format how it is written, as in {sample[0].as_py()!r}"
            return False

    found = [name for name in types if could_be(name)]
    if len(found) > 1:
        typed = [name for name in found if pa.types.is_temporal(types[name])]
        named = [name for name in typed or found if _TIME_NAMES.fullmatch(name)]
        found = next((few for few in (typed, named) if len(few) == 1), found)
    if len(found) != 1:
        which = f"{list_names(found)} could be" if found else "no column is"
        raise OptionError(
            f"{which} the time of the events: set recorded.time to the column that is{strange}"
            f" (it has {list_names(types)})"
        )
    return found[0]


def _find_device(types: dict[str, pa.DataType], first: pa.RecordBatch) -> str | None:
    """The column that names the device; None if there is none."""
    texts = [
        name
        for name, kind in types.items()
        if pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_dictionary(kind)
    ]
    whole = [
        name
        for name, kind in types.items()
        # pandas writes whole numbers as floats if some are missing.
        if pa.types.is_integer(kind) or (pa.types.is_floating(kind) and _are_whole(first[name]))
    ]
    named = [name for name in (*texts, *whole) if _DEVICE_NAMES.fullmatch(name)]
    if len(named) > 1:
        # The column with the most distinct values is the device; the others describe it.
        def count(name: str) -> int:
            return len(first.column(first.schema.names.index(name)).unique())

        named.sort(key=count, reverse=True)
        if count(named[0]) == count(named[1]):
            ids = [name for name in named if re.search(r"device|id$|name$", name, re.IGNORECASE)]
            named = ids[:1] or named
        return named[0]
    if named:
        return named[0]
    if texts:
        raise OptionError(
            f"which column names the device? Set recorded.device to one of {list_names(texts)}, or to none"
        )
    return None


def _are_whole(numbers: pa.Array) -> bool:
    try:
        return bool(numbers.cast(pa.int64()))
    except pa.ArrowInvalid:
        return False


_LIKE_ASCII = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "µ": "u", "°": ""})


def make_name(source: str, rename: str | None) -> str:
    """A column's name in the table: lowercase letters, digits and `_`, which every database takes."""
    try:
        if rename is not None:
            return read_name(rename)
        # CamelCase becomes camel_case.
        text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", source).lower().translate(_LIKE_ASCII)
        text = re.sub(r"[^a-z0-9_]+", "_", text).strip("_")
        if not text:
            raise ValueError(f"{source!r} has no letter from a to z")
        if not text[0].isalpha():
            text = f"c_{text}"
        if text in ("id", "time"):
            text = {"id": "id_", "time": "ts"}[text]
        return read_name(text[:58])
    except ValueError as error:
        raise OptionError(
            f"column {source}: {error}: set recorded.columns.{source}.rename"
        ) from error
