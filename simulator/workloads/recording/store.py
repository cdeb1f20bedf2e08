"""A converted recording: a folder with a file for each column. Files are mapped into memory, so a worker only
loads what it sends. Written by `converting.py`, which alone needs pyarrow."""

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
"""The version of the format: files in another one are converted again."""

NAME_DIGITS = 32

TIME, DEVICE, DUE, DEVICES, BELOW = "time", "device", "due", "devices", "below"
"""Names of files other than those of columns."""

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
"""How each type is stored: texts as indexes into a dictionary."""


Tell = Callable[[str], None]
"""Called repeatedly with the progress of something that may take long."""


def tell_nobody(_: str) -> None:
    """For callers that don't show progress."""


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RecordedColumn(_Kept):
    """A column other than time and device."""

    name: str
    """Its name in the table."""
    source: str
    """Its name in the file."""
    type: ColumnType
    tag: bool = False
    decimals: int | None = None
    """How many digits after the point represent all its values exactly; None: more than nine."""
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
    """What is known about a recording."""

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
    """The median time between two events of a device."""
    gaps: int = 0
    """How many of these times are longer than ten times the median."""
    late: int = 0
    """Events sent after one with a later time."""
    latest_ms: int = 0
    """How late the latest of these is."""
    disorder: int = 0
    """The most events between a late one and the first one with a later time."""
    duplicates: int = 0
    """Events whose device already had one at the same time."""
    cut: int = 0
    """How many times had fractions of a millisecond, which were dropped."""
    coinciding: int = 0
    """How many of the duplicates arose only from that."""


@dataclass(frozen=True)
class Texts:
    """The different texts of a column, by index: an array of equal widths, or, if that would be far larger,
    the texts joined one after the other."""

    fixed: NDArray[np.bytes_] | None
    octets: NDArray[np.uint8] | None = None
    ends: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        counted = self.ends if self.fixed is None else self.fixed
        assert counted is not None
        return len(counted)

    def all(self) -> NDArray[np.bytes_]:
        """All texts."""
        return self.take(np.arange(len(self), dtype=np.int32))

    def take(self, places: NDArray[np.int32]) -> NDArray[np.bytes_]:
        """The texts at these indexes."""
        if self.fixed is not None:
            return self.fixed[places]
        assert self.octets is not None
        assert self.ends is not None
        ends = self.ends[places].tolist()
        starts = np.where(places > 0, self.ends[places - 1], 0).tolist()
        octets = self.octets
        return np.array([octets[a:b].tobytes() for a, b in zip(starts, ends, strict=True)], "S")


class Recording:
    """A recording's events in the order of sending; rows are numbered from 0."""

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
        """Determined by the content of the files and the settings for reading them."""
        return self.folder.name

    def __len__(self) -> int:
        return self.header.rows

    def _map(self, name: str, dtype: Any) -> NDArray[Any]:
        file = self.folder / name
        if not file.stat().st_size:
            return np.empty(0, dtype=dtype)
        # A plain array on the map: each slice of numpy's own class for this costs some microseconds.
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
        """The device of each event, as an index into `devices`."""
        return self._map(DEVICE, np.int32)

    @cached_property
    def devices(self) -> NDArray[np.bytes_]:
        """The devices' names in random order, so that the first few are a sample."""
        return self._texts(DEVICES).all()

    def _place(self, name: str) -> tuple[int, RecordedColumn]:
        for place, column in enumerate(self.columns):
            if column.name == name:
                return place, column
        raise KeyError(name)

    def values(self, name: str) -> NDArray[Any]:
        """A column's values: one for each event; for a tag, one for each device. Texts are indexes into
        `texts`. A missing value has an arbitrary one in its place."""
        place, column = self._place(name)
        if name not in self._values:
            self._values[name] = self._map(str(place), DTYPES[column.type])
        return self._values[name]

    def missing(self, name: str) -> NDArray[np.bool_] | None:
        """Which events have no value; None: all have one."""
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
    """The folder of converted recordings: `IOTBENCH_RECORDINGS`, or the user's cache."""
    if named := os.environ.get("IOTBENCH_RECORDINGS"):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "iot-database-benchmark" / "recordings"


def find_recording(name: str) -> Recording:
    """The converted recording of this name. OptionError if it isn't here."""
    folder = recordings_folder() / name
    if not (folder / HEADER).is_file():
        raise OptionError(f"recording {name} isn't in {recordings_folder()}: convert it again")
    return Recording(folder)


def write_whole(file: Path, content: bytes) -> None:
    """Write a file so that it is either complete or absent."""
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(file)


_NEW, _YOUNG_S = "new-", 60


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder below `folder` for incomplete content; removed at the end, unless it was renamed."""
    part = Path(mkdtemp(prefix=_NEW, dir=folder))
    try:
        with _locked(part):
            yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def remove_abandoned(folder: Path) -> None:
    """Remove what killed processes have left."""
    for part in folder.glob(f"{_NEW}*"):
        # A new folder may be locked any moment.
        with suppress(OSError):
            if time.time() > part.stat().st_mtime + _YOUNG_S:
                with _locked(part):
                    shutil.rmtree(part)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """BlockingIOError if another process holds the lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def keep(part: Path, header: Header, name: str) -> None:
    """Give a finished folder its name. If another process was faster, its folder is kept."""
    (part / HEADER).write_bytes(to_json(header))
    target = part.parent / name
    try:
        part.rename(target)
    except OSError:
        if not (target / HEADER).is_file():
            raise


def chunks(count: int, size: int = 1 << 20) -> Iterator[slice]:
    """Slices of at most `size` rows that cover all of `count`."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
