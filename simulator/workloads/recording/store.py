"""A converted recording: a folder with a file for each column, which is mapped into memory, so that a worker
needs no more of it than what it sends. Written by `converting.py`, which alone needs pyarrow."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json, to_json

from ...errors import OptionError
from ..schema import ColumnType
from .settings import SendingOrder

HEADER = "recording.json"
VERSION = 1
"""Of the format: with another one, files are converted again."""

NAME_DIGITS = 32

TIME, DEVICE, DUE, DEVICES, BELOW = "time", "device", "due", "devices", "below"
"""Names of files beside those of the columns."""

DTYPES: dict[ColumnType, Any] = {
    ColumnType.TIMESTAMP_MS: np.int64,
    ColumnType.INT64: np.int64,
    ColumnType.INT32: np.int32,
    ColumnType.FLOAT32: np.float32,
    ColumnType.FLOAT64: np.float64,
    ColumnType.BOOL: np.bool_,
    ColumnType.TEXT: np.int32,
    ColumnType.JSON: np.int32,
}
"""How each type is kept: texts as places in a dictionary."""


Tell = Callable[[str], None]
"""Is told again and again how far something has come that may take long."""


def tell_nobody(_: str) -> None:
    """For whoever needn't know how far it is."""


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RecordedColumn(_Kept):
    """A column besides time and device."""

    name: str
    """In the table."""
    source: str
    """In the file."""
    type: ColumnType
    tag: bool = False
    decimals: int | None = None
    """So many digits after the point hold all its values exactly; None: they need more than nine."""
    missing: int = 0
    """Events without a value."""
    not_finite: int = 0
    """Values that are NaN or infinite."""
    least: int | float | None = None
    most: int | float | None = None
    """The lowest and the highest finite number."""
    distinct: int | None = None
    """How many different texts there are."""
    empty: int = 0
    """Empty texts."""


class SourceFile(_Kept):
    """A file that was read."""

    name: str
    octets: int
    sha256: str


class Header(_Kept):
    """What is known of a recording."""

    version: int = VERSION
    rows: int
    devices: int
    time: str
    """The time's column in the table."""
    device: str
    """The device's column in the table."""
    columns: tuple[RecordedColumn, ...]
    files: tuple[SourceFile, ...]
    order: SendingOrder = SendingOrder.FILE
    skipped: Mapping[str, str] = {}
    """Column of the file -> why it was left out."""
    first_ms: int
    last_ms: int
    interval_ms: float
    """The median of the times from one event of a device to its next."""
    gaps: int = 0
    """Of these, how many are longer than ten times the median."""
    late: int = 0
    """Events that come after one of a later time."""
    latest_ms: int = 0
    """How late the latest of these is."""
    disorder: int = 0
    """How many events lie at most between a late one and the first of a later time."""
    duplicates: int = 0
    """Events of a device and time that it had before."""
    cut: int = 0
    """Times that had parts of a millisecond, which is what is kept."""
    coinciding: int = 0
    """Of the duplicates, those that only this made."""


@dataclass(frozen=True)
class Texts:
    """The different texts of a column, by place: an array of equal widths, or, where that would be far
    larger, one text behind the other."""

    fixed: NDArray[np.bytes_] | None
    octets: NDArray[np.uint8] | None = None
    ends: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        counted = self.ends if self.fixed is None else self.fixed
        assert counted is not None
        return len(counted)

    def all(self) -> NDArray[np.bytes_]:
        """All of them."""
        return self.take(np.arange(len(self), dtype=np.int32))

    def take(self, places: NDArray[np.int32]) -> NDArray[np.bytes_]:
        """The texts at these places."""
        if self.fixed is not None:
            return self.fixed[places]
        assert self.octets is not None
        assert self.ends is not None
        ends = self.ends[places].tolist()
        starts = np.where(places > 0, self.ends[places - 1], 0).tolist()
        octets = self.octets
        return np.array([octets[a:b].tobytes() for a, b in zip(starts, ends, strict=True)], "S")


class Recording:
    """A recording's events, in the order in which they are sent; rows are numbered from 0 on."""

    def __init__(self, folder: Path) -> None:
        """OptionError if there is none that this version can read."""
        self.folder = folder
        try:
            self.header = Header.model_validate(from_json((folder / HEADER).read_bytes()))
        except (OSError, ValueError) as error:
            raise OptionError(f"no recording can be read from {folder}") from error
        self.columns = self.header.columns

    @property
    def name(self) -> str:
        """Follows from the content of the files, and how they were read."""
        return self.folder.name

    def __len__(self) -> int:
        return self.header.rows

    def _map(self, name: str, dtype: Any) -> NDArray[Any]:
        file = self.folder / name
        if not file.stat().st_size:
            return np.empty(0, dtype=dtype)
        # A plain array on the map: each slice of numpy's own class for that costs some microseconds.
        return np.asarray(np.memmap(file, dtype=dtype, mode="r"))

    @cached_property
    def times_ms(self) -> NDArray[np.int64]:
        """The time of each event since 1970."""
        return self._map(TIME, np.int64)

    @cached_property
    def due_ms(self) -> NDArray[np.int64]:
        """When each event was sent: at its time, or, if it is late, with the newest before it."""
        return self._map(DUE, np.int64) if self.header.late else self.times_ms

    @cached_property
    def device_numbers(self) -> NDArray[np.int32]:
        """The device of each event: a place in `devices`."""
        return self._map(DEVICE, np.int32)

    @cached_property
    def devices(self) -> NDArray[np.bytes_]:
        """The devices' names, in an order of chance, so that the first few are a sample."""
        return self._texts(DEVICES).all()

    def _place(self, name: str) -> tuple[int, RecordedColumn]:
        for place, column in enumerate(self.columns):
            if column.name == name:
                return place, column
        raise KeyError(name)

    def values(self, name: str) -> NDArray[Any]:
        """A column's values: one for each event, of a tag for each device. Texts are places in `texts`. Where
        a value is missing there is some other."""
        place, column = self._place(name)
        if name not in self._values:
            self._values[name] = self._map(str(place), DTYPES[column.type])
        return self._values[name]

    def missing(self, name: str) -> NDArray[np.bool_] | None:
        """Where an event has no value; None: each has one."""
        place, column = self._place(name)
        if not column.missing:
            return None
        if name not in self._missing:
            self._missing[name] = self._map(f"{place}.missing", np.bool_)
        return self._missing[name]

    def texts(self, name: str) -> Texts:
        """The different texts of a column."""
        place, _ = self._place(name)
        if name not in self._dictionaries:
            self._dictionaries[name] = self._texts(str(place))
        return self._dictionaries[name]

    def _texts(self, name: str) -> Texts:
        ends = self._map(f"{name}.ends", np.int64)
        width_file = self.folder / f"{name}.texts"
        if width_file.exists() and len(ends):
            width = width_file.stat().st_size // len(ends)
            return Texts(self._map(f"{name}.texts", f"S{width}"))
        return Texts(None, self._map(f"{name}.octets", np.uint8), ends)

    @cached_property
    def _values(self) -> dict[str, NDArray[Any]]:
        return {}

    @cached_property
    def _missing(self) -> dict[str, NDArray[np.bool_]]:
        return {}

    @cached_property
    def _dictionaries(self) -> dict[str, Texts]:
        return {}


def recordings_folder() -> Path:
    """Where converted recordings are kept: `IOTBENCH_RECORDINGS`, or the user's cache."""
    if named := os.environ.get("IOTBENCH_RECORDINGS"):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "iot-database-benchmark" / "recordings"


def find_recording(name: str) -> Recording:
    """The converted recording of this name; OptionError if it isn't here."""
    folder = recordings_folder() / name
    if not (folder / HEADER).is_file():
        raise OptionError(f"recording {name} isn't in {recordings_folder()}: convert it again")
    return Recording(folder)


def write_whole(file: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(file)


_NEW, _YOUNG_S = "new-", 60


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder below `folder` for what isn't whole yet; removed in the end, unless it was renamed."""
    part = Path(mkdtemp(prefix=_NEW, dir=folder))
    try:
        with _locked(part):
            yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def remove_abandoned(folder: Path) -> None:
    """Remove what processes that were killed have left."""
    for part in folder.glob(f"{_NEW}*"):
        # What is new may be locked in a moment.
        with suppress(OSError):
            if time.time() > part.stat().st_mtime + _YOUNG_S:
                with _locked(part):
                    shutil.rmtree(part)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """BlockingIOError if another process has locked it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def keep(part: Path, header: Header, name: str) -> None:
    """Give a finished folder its name; if another process was quicker, its is kept."""
    (part / HEADER).write_bytes(to_json(header))
    target = part.parent / name
    try:
        part.rename(target)
    except OSError:
        if not (target / HEADER).is_file():
            raise


def chunks(count: int, size: int = 1 << 20) -> Iterator[slice]:
    """Slices of `size` rows at most that make up all of `count`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
