"""Reads the rows of a recording's files with pyarrow, some ten thousand at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from ...errors import OptionError, one_line
from .settings import Format, Recorded
from .sources import COMPRESSED, Source
from .values import leave_out

ROWS = 65_536
"""How many rows are read at once."""

_BLOCK_BYTES = 1 << 23
_SNIFFED_BYTES = 1 << 18
_MOST_TEXT_TIMES, _BOMB_BYTES = 1000, 1 << 30
"""A file that compresses to less than a thousandth, and is larger than a gigabyte, isn't a recording."""
_NULLS = ["", "NULL", "null", "\\N"]
_DELIMITERS = ",;\t|"

_WIDER = [pa.int64(), pa.float64(), pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.string()]
"""The types to try, in order, for a column of a CSV file that was empty at first."""
_NEXT = {
    pa.int64(): pa.float64(),
    pa.date32(): pa.timestamp("ns"),
    pa.timestamp("s"): pa.timestamp("ns"),
    pa.timestamp("s", "UTC"): pa.timestamp("ns", "UTC"),
}
"""The types to try next for a column of a CSV file, by the type of its first values."""
_COLUMN = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?.*invalid value '(.*)'", re.DOTALL)


class Wider(Exception):
    """A column needs a different type from what its first values suggested: read again."""

    def __init__(self, column: str, type_: pa.DataType) -> None:
        super().__init__(column)
        self.column, self.type = column, type_


@dataclass
class Reader:
    """Reads files of one format; remembers which types the columns of CSV and JSON files need."""

    source: Source
    settings: Recorded
    types: dict[str, pa.DataType] = field(default_factory=dict)
    _empty: set[str] = field(default_factory=set)
    """Columns without a value in the part from which types are inferred."""
    _before: int = 0
    """Bytes of the files before the current one."""
    _find_place: Callable[[], int] = int
    """Returns how many bytes of the current file have been read."""

    @property
    def share(self) -> float:
        """How much of all files has been read."""
        return (self._before + self._find_place()) / self.source.octets

    def read(self) -> Iterator[tuple[Path, pa.RecordBatch]]:
        """All rows, each batch with its file. Wider if files must be read again; OptionError if one is
        malformed."""
        self._before = 0
        for file in self.source.files:
            try:
                size = file.stat().st_size
                opened = {
                    Format.PARQUET: self._read_parquet,
                    Format.CSV: self._read_csv,
                    Format.JSON: self._read_json,
                }[self.source.format](file)
                seen, most = 0, max(_BOMB_BYTES, _MOST_TEXT_TIMES * size)
                for batch in opened:
                    seen += batch.nbytes
                    if seen > most and file.suffix.lower() in COMPRESSED:
                        raise OptionError(
                            f"{file} holds more than {_MOST_TEXT_TIMES:,} times its size:"
                            " decompress it first, if that is right"
                        )
                    yield file, batch
                self._before, self._find_place = self._before + size, int
            except (pa.ArrowException, OSError, UnicodeError) as error:
                self._explain(file, error)

    def _explain(self, file: Path, error: Exception) -> None:
        """Raise the error that one of pyarrow's stands for."""
        text = str(error)
        found = _COLUMN.match(text)
        if found and self._names:
            name = self._names[int(found[1])]
            known = self.types.get(name, pa.null())
            value = one_line(found[3], 40)
            if name in self._empty or pa.types.is_null(known):
                self._empty.add(name)
                place = _WIDER.index(known) + 1 if known in _WIDER else 0
                if place < len(_WIDER):
                    raise Wider(name, _WIDER[place]) from error
            elif known in _NEXT:
                raise Wider(name, _NEXT[known]) from error
            row = f" in row {found[2]}" if found[2] else ""
            raise OptionError(
                f"{file}: column {name}: {value!r}{row} is no {_words(known)} like the values before it: set"
                f" recorded.columns.{name} to `missing: [{value}]` or `as: text`, or skip it"
            ) from error
        if isinstance(error, OSError) and error.errno:
            text = os.strerror(error.errno)
        elif "straddl" in text:
            text = f"a row is longer than {_BLOCK_BYTES:,} bytes"
        raise OptionError(f"{file} can't be read: {one_line(text, 200)}") from error

    _names: list[str] = field(default_factory=list)
    """Columns of the current CSV file."""

    # --- Parquet ----------------------------------------------------------------------------------

    def _read_parquet(self, file: Path) -> Iterator[pa.RecordBatch]:
        with pa.parquet.ParquetFile(file, memory_map=True, pre_buffer=False) as opened:
            _refuse_twice(file, opened.schema_arrow.names)
            rows = missing = opened.metadata.num_rows
            size = file.stat().st_size
            self._find_place = lambda: size * (rows - missing) // max(rows, 1)
            for batch in opened.iter_batches(ROWS):
                missing -= batch.num_rows
                yield batch
            if missing:
                raise OptionError(
                    f"{file} is damaged: {missing:,} of the rows that it names are missing"
                )

    @contextmanager
    def _open_text(self, file: Path) -> Iterator[pa.NativeFile]:
        """A file's content, decompressed."""
        with pa.OSFile(str(file)) as raw:
            self._find_place = raw.tell
            yield pa.input_stream(raw, compression=COMPRESSED.get(file.suffix.lower()))

    # --- CSV --------------------------------------------------------------------------------------

    def _read_csv(self, file: Path) -> Iterator[pa.RecordBatch]:
        form = sniff(file, self.settings)
        self._names = form.names
        _refuse_twice(file, form.names)
        # The text for a missing value may not be a value of the column's type.
        hidden = [name for name, column in self.settings.columns.items() if column.missing]
        texts = [name for name, column in self.settings.columns.items() if column.as_ == "text"]
        convert = pa.csv.ConvertOptions(
            column_types={**self.types, **dict.fromkeys([*hidden, *texts], pa.string())},
            null_values=_NULLS,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            decimal_point=form.decimal,
        )
        read = pa.csv.ReadOptions(
            block_size=_BLOCK_BYTES,
            column_names=None if form.header and not form.completed else form.names,
            skip_rows=int(form.completed),
            use_threads=False,
        )
        parse = pa.csv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True)
        with self._open_text(file) as stream:
            opened = pa.csv.open_csv(stream, read, parse, convert)
            for part in opened.schema:
                if part.name not in hidden:
                    self.types.setdefault(part.name, part.type)
            for batch in opened:
                yield self._uncover(batch, [name for name in hidden if name not in texts])

    def _uncover(self, batch: pa.RecordBatch, names: list[str]) -> pa.RecordBatch:
        """The rows with these columns, which were read as texts, in their own type, without the texts for
        missing values. Wider if a value isn't of the same type as earlier ones."""
        for name in names:
            if name not in batch.schema.names:
                continue
            place = batch.schema.names.index(name)
            array = leave_out(batch.column(place), self.settings.columns[name].missing)
            for kind in (
                _WIDER[_WIDER.index(known) :] if (known := self.types.get(name)) else _WIDER
            ):
                try:
                    cast = array.cast(kind)
                except pa.ArrowInvalid:
                    continue
                if self.types.setdefault(name, kind) != kind:
                    raise Wider(name, kind)
                batch = batch.set_column(place, pa.field(name, kind), cast)
                break
        return batch

    # --- JSON lines -------------------------------------------------------------------------------

    def _read_json(self, file: Path) -> Iterator[pa.RecordBatch]:
        read = pa.json.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False)
        with pa.input_stream(str(file), compression="detect") as stream:
            if stream.read(_SNIFFED_BYTES).lstrip().startswith(b"["):
                raise OptionError(
                    f"{file} is a JSON array: write an object in each line, as by jq -c '.[]'"
                )
        with pa.input_stream(str(file), compression="detect") as stream:
            first = pa.json.open_json(stream, read, pa.json.ParseOptions(newlines_in_values=True))
            schema = first.schema
        # Times are read as texts: pyarrow would forget whether they had a zone.
        fields = [
            pa.field(part.name, pa.string() if pa.types.is_timestamp(part.type) else part.type)
            for part in schema
        ]
        fields = [pa.field(part.name, self.types.get(part.name, part.type)) for part in fields]
        explicit = pa.json.ParseOptions(explicit_schema=pa.schema(fields), newlines_in_values=True)
        with self._open_text(file) as stream:
            yield from pa.json.open_json(stream, read, explicit)


def _refuse_twice(file: Path, names: list[str]) -> None:
    twice = (
        sorted({name for name in names if names.count(name) > 1})
        if len(set(names)) < len(names)
        else []
    )
    if twice:
        raise OptionError(
            f"{file} has several columns named {', '.join(twice[:5])}: rename them in the file"
        )


def _words(type_: pa.DataType) -> str:
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return "number"
    if pa.types.is_temporal(type_):
        return "time"
    return "truth value" if pa.types.is_boolean(type_) else str(type_)


# --- the form of a CSV file -----------------------------------------------------------------------


@dataclass(frozen=True)
class CsvForm:
    """The form of a CSV file."""

    delimiter: str
    decimal: str
    header: bool
    names: list[str]
    completed: bool
    """Whether the header lacks some names."""


def sniff(file: Path, settings: Recorded) -> CsvForm:
    """The form of a CSV file, from its first lines, as far as the settings don't give it. OptionError if it
    isn't in UTF-8, or isn't text."""
    import csv

    with pa.input_stream(str(file), compression="detect") as stream:
        octets = stream.read(_SNIFFED_BYTES)
    if octets[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise OptionError(f"{file} is UTF-16: convert it to UTF-8")
    if b"\0" in octets:
        raise OptionError(f"{file} has NUL bytes: it isn't a CSV file")
    whole = len(octets) < _SNIFFED_BYTES
    cut = octets if whole else octets[: octets.rfind(b"\n") + 1]
    if not cut:
        raise OptionError(f"{file}: its first line is longer than {_SNIFFED_BYTES:,} bytes")
    try:
        text = cut.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(f"{file} isn't UTF-8 (byte {error.start:,}): convert it") from error
    # The most frequent delimiter in the first line.
    first = text.partition("\n")[0]
    delimiter = settings.delimiter or max(_DELIMITERS, key=first.count)
    rows = []
    try:
        for row in csv.reader(text.splitlines(keepends=True), delimiter=delimiter, strict=False):
            if row:
                rows.append(row)
            if len(rows) > 100:
                break
    except csv.Error as error:
        raise OptionError(f"{file} can't be read: {error}") from error
    if not rows:
        raise OptionError(f"{file} has no rows")
    head, *below = rows
    values = [value for row in below for value in row]
    decimal = settings.decimal
    if decimal is None:
        commas = sum(bool(re.fullmatch(r"[+-]?\d+,\d+", value)) for value in values)
        points = sum(bool(re.fullmatch(r"[+-]?\d+\.\d+", value)) for value in values)
        decimal = "," if delimiter != "," and commas > points else "."
    header = settings.header
    if header is None:
        # The index of a pandas table has no name.
        header = any(map(str.strip, head)) and not any(map(_is_value, head))
    names = [
        name if header and name.strip() else f"column_{place}" for place, name in enumerate(head, 1)
    ]
    return CsvForm(delimiter, decimal, header, names, header and names != head)


def _is_value(text: str) -> bool:
    """Whether a text is a number or a time, and so not a column's name."""
    return bool(re.fullmatch(r"[+-]?[\d.,]+(e[+-]?\d+)?|\d{4}-\d\d.*", text.strip(), re.IGNORECASE))
