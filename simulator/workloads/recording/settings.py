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
    """In file order: late events stay late."""
    TIME = "time"


class Duplicates(StrEnum):
    """How to treat further events of the same device and time."""

    KEEP = "keep"
    DROP = "drop"


class Format(StrEnum):
    """The format of a file."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    """A JSON object in each line."""


def _read_missing(value: object) -> object:
    """Texts as in a CSV file, including NaN, which JSON lacks."""
    values = value if isinstance(value, list | tuple) else [value]
    return [str(part) for part in values]


class ColumnSettings(Part):
    """How to treat a column of the file."""

    skip: bool = False
    """Leave it out."""
    as_: ColumnType | None = Field(None, alias="as")
    """Its type, such as `text`; `timestamp_ms` truncates times to milliseconds."""
    rename: str | None = None
    """Its name in the table."""
    missing: Annotated[tuple[str, ...], BeforeValidator(_read_missing)] = ()
    """Values that mean a missing one, such as -999, NaN or n/a."""


class Recorded(Part):
    """A recording: its location, the meaning of its columns, and how to replay it."""

    file: str = Field(min_length=1)
    """A file, folder or pattern, or an address such as https://… or s3://…, of Parquet, CSV or JSON lines,
    with `.gz` or `.zst` if compressed. Paths are relative to the definition's folder."""
    format: Format | None = None
    """`parquet`, `csv` or `json`; default: by the file name."""
    time: str | None = None
    """The column with the time; default: the only candidate."""
    unit: Literal["s", "ms", "us", "ns"] | None = None
    """The unit of numeric times since 1970; default: by their size."""
    time_format: str | None = None
    """The strptime format of times, if not as in 2024-01-01T00:00:00, such as `%d.%m.%Y %H:%M`."""
    zone: str | None = None
    """The time zone of times without one, such as Europe/Berlin; default: UTC."""
    device: str | None = None
    """The column that names the device; default: detected. `none`: all events belong to one device."""
    tags: tuple[str, ...] | None = None
    """Columns that describe the device; default: texts that are constant for each device."""
    delimiter: str | None = Field(None, min_length=1, max_length=1)
    """The separator of a CSV file; default: detected."""
    decimal: Literal[".", ","] | None = None
    """The decimal mark of a CSV file; default: detected."""
    header: bool | None = None
    """Whether a CSV file begins with column names; default: detected."""
    columns: Mapping[str, ColumnSettings] = Field(default_factory=dict)
    """Settings of single columns, by name in the file."""
    duplicates: Duplicates = Duplicates.KEEP
    """`drop`: use only the first event of the same device and time."""
    order: SendingOrder = SendingOrder.FILE
    """`file`: send events in file order; `time`: in time order."""
    span: str | None = None
    """The part to use: a length from the first event, such as 2h; or first and last time, as in
    2024-01-01T00:00Z/2024-01-02T00:00Z."""
    devices: int | None = Field(None, ge=1)
    """How many recorded devices to use, chosen at random; default: all."""
    fleet: int = Field(1, ge=1, le=1_000_000)
    """How many of each device there are: itself, and copies such as pump-7~3, each shifted in time by its own
    part of the recording."""
    repeat: bool = True
    """Whether it starts over at its end, with later times; if not, a run ends with it."""
    speed: float = Field(1, gt=0)
    """The speed-up at which events are sent, if neither --rate nor --speed is given."""
    store: str | None = None
    """Set by the tool: the name of the converted recording, derived from its content."""

    @property
    def reading(self) -> dict[str, Any]:
        """Everything besides the files' content that affects the converted recording."""
        replayed = {"file", "devices", "fleet", "repeat", "speed", "store"}
        return self.model_dump(mode="json", exclude=replayed, exclude_defaults=True, by_alias=True)

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                ZoneInfo(value)
        except (ValueError, OSError) as error:
            raise ValueError(
                f"{value!r} isn't a time zone: write it as in Europe/Berlin"
            ) from error
        return value

    @field_validator("span")
    @classmethod
    def _check_span(cls, value: str | None) -> str | None:
        if value is not None:
            read_span(value, 0)
        return value


def read_span(text: str, first_ms: int) -> tuple[int, int]:
    """The first time of a part, and its exclusive end. ValueError for another text."""
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
