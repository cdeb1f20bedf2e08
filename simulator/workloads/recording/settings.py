"""How a recording is read and replayed: the key `recorded` of a workload's definition."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, field_validator

from ...units import parse_duration_s
from ..queries import Part
from ..schema import ColumnType


class SendingOrder(StrEnum):
    """In which order a recording's events are sent."""

    FILE = "file"
    """As they lie in the file: late events stay late."""
    TIME = "time"


class Duplicates(StrEnum):
    """What becomes of further events of one device and time."""

    KEEP = "keep"
    DROP = "drop"


class Format(StrEnum):
    """What a file is."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    """A JSON object in each line."""


def _read_missing(value: object) -> object:
    """Texts as a CSV file has them: NaN, which is no value of JSON, among them."""
    values = value if isinstance(value, list | tuple) else [value]
    return [str(part) for part in values]


class ColumnSettings(Part):
    """What becomes of a column of the file."""

    skip: bool = False
    """Leave it out."""
    as_: ColumnType | None = Field(None, alias="as")
    """The type that it gets, such as `text`; with `timestamp_ms`, times are cut to milliseconds."""
    rename: str | None = None
    """Its name in the table."""
    missing: Annotated[tuple[str, ...], BeforeValidator(_read_missing)] = ()
    """Values that stand for a missing one, such as -999, NaN or n/a."""


class Recorded(Part):
    """A recording: where it is, what its columns mean, how it is replayed."""

    file: str = Field(min_length=1)
    """A file, a folder or a pattern of several, or an address such as https://… or s3://…, of Parquet, CSV or
    JSON lines, with `.gz` or `.zst` if it is compressed. Relative paths begin at the definition's folder."""
    format: Format | None = None
    """`parquet`, `csv` or `json`; by default what the name ends with says."""
    time: str | None = None
    """The column with the time; by default the only one that can be."""
    unit: Literal["s", "ms", "us", "ns"] | None = None
    """The unit of times that are numbers since 1970; by default it follows from their size."""
    time_format: str | None = None
    """How times are written, if not as 2024-01-01T00:00:00: in strptime's letters, as in `%d.%m.%Y %H:%M`."""
    zone: str | None = None
    """The time zone of times without one, such as Europe/Berlin; by default UTC."""
    device: str | None = None
    """The column that names the device; by default it is found. `none`: all events are one device's."""
    tags: tuple[str, ...] | None = None
    """Columns that describe the device; by default texts that are constant for each device."""
    delimiter: str | None = Field(None, min_length=1, max_length=1)
    """What separates the values of a CSV file; by default it is found."""
    decimal: Literal[".", ","] | None = None
    """The decimal mark of a CSV file; by default it is found."""
    header: bool | None = None
    """Whether a CSV file begins with the columns' names; by default it is found."""
    columns: Mapping[str, ColumnSettings] = Field(default_factory=dict)
    """What becomes of single columns, by their names in the file."""
    duplicates: Duplicates = Duplicates.KEEP
    """`drop`: of events of the same device and time, only the first is used."""
    order: SendingOrder = SendingOrder.FILE
    """`file`: events are sent as they lie in the file; `time`: in the order of their times."""
    span: str | None = None
    """The part that is used: its length, such as 2h, from the first event on; or its first and last time, as
    in 2024-01-01T00:00Z/2024-01-02T00:00Z."""
    devices: int | None = Field(None, ge=1)
    """How many of the recorded devices are used, chosen by chance; by default all."""
    fleet: int = Field(1, ge=1, le=1_000_000)
    """How many times each device is there: itself, and copies such as pump-7~3, each shifted in time by its
    own part of the recording."""
    repeat: bool = True
    """Whether it begins anew, later, at its end; if not, a run ends with it."""
    speed: float = Field(1, gt=0)
    """How many times as fast as recorded the events are sent, if neither --rate nor --speed is given."""
    store: str | None = None
    """Set by the tool: the name of the converted recording, which follows from what it holds."""

    @property
    def reading(self) -> dict[str, Any]:
        """What decides about the converted recording, besides the files' content."""
        replayed = {"file", "devices", "fleet", "repeat", "speed", "store"}
        return self.model_dump(mode="json", exclude=replayed, exclude_defaults=True, by_alias=True)

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                ZoneInfo(value)
        except (ValueError, OSError) as error:
            raise ValueError(f"{value!r} is no time zone: write it as Europe/Berlin") from error
        return value

    @field_validator("span")
    @classmethod
    def _check_span(cls, value: str | None) -> str | None:
        if value is not None:
            read_span(value, 0)
        return value


def read_span(text: str, first_ms: int) -> tuple[int, int]:
    """The first time of a part, and the one before which it ends. ValueError for another text."""
    begin, slash, end = text.partition("/")
    problem = f"{text!r}: write a span as 2h, or as 2024-01-01T00:00Z/2024-01-02T00:00Z"
    if not slash:
        length_s = parse_duration_s(text)
        if not length_s or length_s <= 0:
            raise ValueError(problem)
        return first_ms, first_ms + round(1000 * length_s)
    try:
        times = [datetime.fromisoformat(part.strip()) for part in (begin, end)]
    except ValueError as error:
        raise ValueError(problem) from error
    start, stop = (
        round(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1000) for time in times
    )
    if start < 0:
        raise ValueError(f"{text!r}: times before 1970 can't be stored")
    if stop <= start:
        raise ValueError(f"{text!r}: the end isn't after the beginning")
    return start, stop
