"""Converts a recording's files into columns that can be mapped into memory, with values of the table's types.
Otherwise lists what can't be stored: each column, how many values, and what to do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic_core import to_json

from ...errors import OptionError, list_names, one_line
from ...units import format_count
from ..definition import MAX_COLUMNS
from ..schema import DEVICES_APART, FLOATS, NUMBERS, ColumnType
from .ordering import count_cut, finish
from .reading import Reader, Wider
from .roles import Roles, find_roles, make_name
from .settings import ColumnSettings, Format, Recorded
from .sources import Source
from .store import (
    BELOW,
    DEVICE,
    DTYPES,
    NAME_DIGITS,
    TIME,
    VERSION,
    RecordedColumn,
    SourceFile,
    Tell,
    keep,
    new_folder,
    remove_abandoned,
    tell_nobody,
)
from .times import read_times
from .values import Dictionary, Problems, Unfit, convert_values, find_type

with suppress(ImportError):
    # Otherwise pyarrow does it when it makes its first array, and drops what a signal raises meanwhile.
    import_module("pandas")

MOST_DECIMALS = 9
_NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*")
_LEAST_FREE_BYTES = 1 << 30
_BATCHES_BETWEEN_LOOKS = 64


def convert(source: Source, settings: Recorded, folder: Path, tell: Tell = tell_nobody) -> str:
    """Convert files into a new folder below `folder`. Returns its name. OptionError with everything that is
    wrong."""
    remove_abandoned(folder)
    reader = Reader(source, settings)
    with suppress(Wider):
        next(
            reader.read(), None
        )  # what isn't a recording is refused before gigabytes of it are hashed
    hashes = [_hash(file, tell) for file in source.files]
    name = _name(hashes, settings)
    if (folder / name).is_dir():
        return name
    while True:
        with new_folder(folder) as part:
            try:
                conversion = _Conversion(part, settings, reader, source.files[0], tell)
                keep(part, conversion.run(hashes), name)
            except Wider as wider:
                reader.types[wider.column] = wider.type
            else:
                return name


def _hash(file: Path, tell: Tell) -> SourceFile:
    digest = sha256()
    with file.open("rb") as octets:
        tell(f"reading {file.name}")
        while block := octets.read(1 << 20):
            digest.update(block)
        return SourceFile(name=file.name, octets=octets.tell(), sha256=digest.hexdigest())


def _name(files: Iterable[SourceFile], settings: Recorded) -> str:
    content = [VERSION, [file.sha256 for file in files], settings.reading]
    return sha256(to_json(content)).hexdigest()[:NAME_DIGITS]


# --- conversion -----------------------------------------------------------------------------------


@dataclass
class _Column:
    """A column during conversion."""

    source: str
    name: str
    type: ColumnType
    arrow: pa.DataType
    how: ColumnSettings
    values: IO[bytes]
    absent: IO[bytes]
    texts: Dictionary | None = None
    decimals: int | None = 0
    missing: int = 0
    not_finite: int = 0
    empty: int = 0
    least: int | float | None = None
    most: int | float | None = None
    of_device: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    """The text of each device, as long as the column could be a tag."""
    could_be_tag: bool = True

    def note_numbers(self, values: NDArray[Any], missing: NDArray[np.bool_] | None) -> None:
        """Note extremes, digits and values that aren't numbers."""
        there = values if missing is None else values[~missing]
        if self.type in FLOATS:
            finite = np.isfinite(there)
            self.not_finite += len(there) - int(np.count_nonzero(finite))
            there = there[finite]
            while self.decimals is not None and not _has_decimals(there, self.decimals):
                self.decimals = self.decimals + 1 if self.decimals < MOST_DECIMALS else None
        if len(there):
            low, high = there.min().item(), there.max().item()
            self.least = low if self.least is None else min(self.least, low)
            self.most = high if self.most is None else max(self.most, high)

    def note_texts(self, places: NDArray[np.int32], devices: NDArray[np.int32]) -> None:
        """Note whether the column can be a tag: one text for each device."""
        if not self.could_be_tag:
            return
        most = int(devices.max(initial=-1)) + 1
        if most > len(self.of_device):
            more = np.full(max(most, 2 * len(self.of_device)) - len(self.of_device), -1, np.int32)
            self.of_device = np.concatenate([self.of_device, more])
        new = self.of_device[devices] < 0
        self.of_device[devices[new]] = places[new]
        self.could_be_tag = bool(np.array_equal(self.of_device[devices], places))

    def describe(self, tag: bool) -> RecordedColumn:
        """The column's entry in the header."""
        return RecordedColumn(
            name=self.name,
            source=self.source,
            type=self.type,
            tag=tag,
            decimals=self.decimals if self.type in FLOATS else None,
            missing=self.missing,
            not_finite=self.not_finite,
            least=self.least,
            most=self.most,
            distinct=None if self.texts is None else len(self.texts.places),
            empty=self.empty,
        )


def _has_decimals(values: NDArray[Any], decimals: int) -> bool:
    """Whether this many digits after the point represent the values exactly, as texts and as numbers."""
    factor = 10.0**decimals
    with np.errstate(over="ignore", invalid="ignore"):
        units = np.rint(values.astype(np.float64) * factor)
        exact = (units / factor).astype(values.dtype) == values
        signs = np.signbit(values) == (units < 0)
        return bool(np.all(exact & signs & (np.abs(units) < 2.0**53)))


class _Conversion:
    """One pass over the files."""

    def __init__(
        self, folder: Path, settings: Recorded, reader: Reader, first_file: Path, tell: Tell
    ) -> None:
        self._folder = folder
        self._tell = tell
        self._settings = settings
        self._reader = reader
        self._stem = re.sub(r"\W+", "-", first_file.name.split(".")[0]).strip("-") or "device"
        self._devices = Dictionary()
        self._columns: list[_Column] = []
        self._problems = Problems()
        self._rows = 0
        self._open: list[IO[bytes]] = []

    def run(self, hashes: list[SourceFile]) -> Any:
        """Read everything. Returns the header of what was written."""
        try:
            self._read()
            if self._rows and self._below.tell():
                self._below.truncate(4 * self._rows)
        finally:
            for file in self._open:
                file.close()
        self._find_hidden_numbers()
        self._find_cut_times()
        self._problems.refuse()
        if not self._rows:
            raise OptionError(f"{self._settings.file} has no rows")
        self._tell(f"converting {self._settings.file}: {self._rows:,} rows, their order")
        tags = self._choose_tags()
        described = [column.describe(column.source in tags) for column in self._columns]
        return finish(
            self._folder,
            self._settings,
            described,
            [c.texts.places if c.texts else None for c in self._columns],
            {
                place: column.of_device
                for place, column in enumerate(self._columns)
                if column.source in tags
            },
            list(self._devices.places),
            self._rows,
            hashes,
            (self._time_name, self._device_name),
            self._skipped,
        )

    def _find_hidden_numbers(self) -> None:
        """Note columns of a CSV file that are texts because of a few values that aren't numbers."""
        if self._reader.source.format is not Format.CSV:
            return
        for column in self._columns:
            if column.texts is None or column.how.as_ is not None:
                continue
            strange = [text for text in column.texts.places if not _NUMBER.fullmatch(text)]
            if 0 < 2 * len(strange) < len(column.texts.places):
                self._problems.add(
                    column.source,
                    f"among numbers, such as {one_line(strange[0], 40)!r}",
                    f"set recorded.columns.{column.source} to `missing: [{one_line(strange[0], 40)}]` or"
                    " `as: text`, or skip it",
                    len(strange),
                    "different text",
                )

    def _find_cut_times(self) -> None:
        """Note times with fractions of a millisecond, unless they may be truncated."""
        if not self._rows or self._time_how.as_ is ColumnType.TIMESTAMP_MS:
            return
        cut, coinciding = count_cut(self._folder)
        if cut:
            alike = (
                f"; without them {format_count(coinciding, 'event')} would repeat a device and time"
            )
            self._problems.add(
                self._time_source,
                f"with fractions of a millisecond, which are not kept{alike if coinciding else ''}",
                f"recorded.columns: {{{self._time_source}: {{as: timestamp_ms}}}} cuts them",
                cut,
                "time",
            )

    def _file(self, name: str) -> IO[bytes]:
        file = (self._folder / name).open("wb", buffering=1 << 16)
        self._open.append(file)
        return file

    def _read(self) -> None:
        roles: Roles | None = None
        schema: pa.Schema = None
        for number, (file, batch) in enumerate(self._reader.read()):
            if number % _BATCHES_BETWEEN_LOOKS == 0:
                self._require_space()
            if roles is None:
                if not batch.num_rows:
                    continue
                schema = batch.schema
                roles = find_roles(schema, batch, self._settings)
                self._keep_names(roles, schema)
                self._prepare(roles, schema)
            if other := sorted(set(batch.schema.names) ^ set(schema.names)):
                raise OptionError(
                    f"{file} has other columns than the first file ({list_names(other, 5)}): skip them, or"
                    " leave the file out"
                )
            if batch.num_rows:
                self._take(batch.select(schema.names), roles)
            share = f"{self._reader.share:.0%}, {self._rows:,} rows"
            self._tell(f"converting {self._settings.file}: {share}")

    def _keep_names(self, roles: Roles, schema: pa.Schema) -> None:
        """Raise Wider if devices of a CSV file were read as numbers: 007 isn't 7."""
        if roles.device is None or self._reader.source.format is not Format.CSV:
            return
        if not pa.types.is_string(schema.field(roles.device).type):
            raise Wider(roles.device, pa.string())

    def _require_space(self) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < _LEAST_FREE_BYTES:
            raise OptionError(
                f"{self._folder.parent} has only {free / 1e9:.1f} GB left, too little for the converted"
                " recording: free some, or set IOTBENCH_RECORDINGS to another folder"
            )

    def _prepare(self, roles: Roles, schema: pa.Schema) -> None:
        """Open the files to write."""
        self._skipped = dict(roles.skipped)
        taken: dict[str, str] = {}

        def name(source: str) -> str:
            how = self._settings.columns.get(source, ColumnSettings())
            made = make_name(source, how.rename)
            if made in taken:
                raise OptionError(
                    f"columns {taken[made]} and {source} would both be called {made}: set"
                    f" recorded.columns.{source}.rename"
                )
            taken[made] = source
            return made

        self._time_name = name(roles.time)
        self._device_name = "device" if roles.device is None else name(roles.device)
        taken.setdefault(self._device_name, "(the device)")
        self._time_source = roles.time
        self._time_how = self._settings.columns.get(roles.time, ColumnSettings())
        self._times, self._below, self._device_file = map(self._file, (TIME, BELOW, DEVICE))
        for part in schema:
            if part.name in (roles.time, roles.device) or part.name in self._skipped:
                continue
            how = self._settings.columns.get(part.name, ColumnSettings())
            if pa.types.is_null(part.type):
                self._skipped[part.name] = "it has no values"
                continue
            try:
                kind = find_type(part.type, how)
            except Unfit as error:
                problem, remedy = error.args
                self._problems.add(part.name, problem, remedy)
                continue
            place = str(len(self._columns))
            self._columns.append(
                _Column(
                    part.name, name(part.name), kind, part.type, how,
                    self._file(place), self._file(f"{place}.missing"),
                    Dictionary() if kind in (ColumnType.TEXT, ColumnType.JSON) else None,
                    could_be_tag=kind is ColumnType.TEXT,
                )
            )  # fmt: skip
        if len(self._columns) + 2 > MAX_COLUMNS:
            raise OptionError(
                f"the recording has {len(self._columns) + 2:,} columns, {MAX_COLUMNS:,} is the maximum:"
                " skip some with recorded.columns"
            )

    def _take(self, batch: pa.RecordBatch, roles: Roles) -> None:
        """Convert some rows."""
        names = batch.schema.names
        times, below = read_times(
            batch.column(names.index(roles.time)), roles.time, self._settings, self._problems
        )
        devices = self._take_devices(batch, roles)
        self._times.write(times.tobytes())
        if below is not None:
            self._below.seek(4 * self._rows)  # everything before it is 0
            self._below.write(below.tobytes())
        self._device_file.write(devices.tobytes())
        self._rows += batch.num_rows
        for column in self._columns:
            array = batch.column(names.index(column.source))
            if array.type != column.arrow:
                try:
                    array = array.cast(column.arrow)
                except pa.ArrowException as error:
                    raise OptionError(
                        f"column {column.source} is of type {array.type} in one file and of {column.arrow} in"
                        " another: convert one of them"
                    ) from error
            values, missing = convert_values(
                array, column.type, column.source, column.how, column.texts, self._problems
            )
            column.values.write(np.ascontiguousarray(values, dtype=DTYPES[column.type]).tobytes())
            column.absent.write(
                (np.zeros(len(values), np.bool_) if missing is None else missing).tobytes()
            )
            if missing is not None:
                column.missing += int(np.count_nonzero(missing))
                column.could_be_tag = False
            if column.type in NUMBERS:
                column.note_numbers(values, missing)
            elif column.type is ColumnType.TEXT:
                column.note_texts(values, devices)
                assert column.texts is not None
                if (empty := column.texts.places.get("")) is not None:
                    found = values == empty if missing is None else (values == empty) & ~missing
                    column.empty += int(np.count_nonzero(found))

    def _take_devices(self, batch: pa.RecordBatch, roles: Roles) -> NDArray[np.int32]:
        if roles.device is None:
            self._devices.add([self._stem])
            return np.zeros(batch.num_rows, dtype=np.int32)
        array = batch.column(batch.schema.names.index(roles.device))
        if pa.types.is_floating(array.type):
            with suppress(pa.ArrowInvalid):
                array = array.cast(pa.int64())
        if pa.types.is_integer(array.type):
            array = array.cast(pa.string())
        how = self._settings.columns.get(roles.device, ColumnSettings())
        values, missing = convert_values(
            array, ColumnType.TEXT, roles.device, how, self._devices, self._problems
        )
        if missing is not None:
            lacking = int(np.count_nonzero(missing))
            self._problems.add(
                roles.device, "without a device", "name another column by recorded.device",
                lacking, "row",
            )  # fmt: skip
        elif "" in self._devices.places:
            self._problems.add(
                roles.device, "a device has an empty name", "name another column by recorded.device"
            )
        if len(self._devices.places) > DEVICES_APART:
            raise OptionError(
                f"column {roles.device} names more than {DEVICES_APART:,} devices: set recorded.device to the"
                " column that names them"
            )
        return values

    def _choose_tags(self) -> set[str]:
        """The columns that describe the device. OptionError if one that is named as such doesn't."""
        can_be = {column.source for column in self._columns if column.could_be_tag}
        if self._settings.tags is None:
            # If devices have one event each, everything is constant.
            return can_be if self._rows > len(self._devices.places) else set()
        for named in self._settings.tags:
            if named not in can_be:
                raise OptionError(
                    f"recorded.tags: {named} is not a text that is constant for each device"
                )
        return set(self._settings.tags)
