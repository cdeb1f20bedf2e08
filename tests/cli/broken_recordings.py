"""Recordings as a stranger might hand them in, none of which is one: small functions that write them. As a
program, answers each line of its standard input, a command as JSON, with what the command line made of it."""

from __future__ import annotations

import ctypes
import gzip
import io
import json
import os
import random
import resource
import signal
import socket
import sqlite3
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

SEED = 20261128
ROWS = 400
LIMIT_S = 20
"""After which the program gives a command up."""

Make = Callable[[Path], Path | str]
"""Writes files below a new folder; what `--workload` is to name."""


# --- CSV and JSON lines ---------------------------------------------------------------------------


def rows(count: int = ROWS) -> list[list[str]]:
    """Sound rows: time, device, value."""
    draw = random.Random(SEED)
    return [
        [
            f"2024-03-01T{n // 60 % 24:02}:{n % 60:02}:00Z",
            f"pump-{n % 4}",
            f"{draw.gauss(20, 3):.2f}",
        ]
        for n in range(count)
    ]


def csv(lines: Iterable[Iterable[str]], header: str = "ts,pump,pressure") -> bytes:
    """A CSV of these rows."""
    return "\n".join([header, *(",".join(line) for line in lines), ""]).encode()


SOUND = csv(rows())


def content(data: bytes | str | Callable[[], bytes], name: str = "pumps.csv") -> Make:
    """A file with this content; a function for what takes time to make."""

    def make(folder: Path) -> Path:
        file = folder / name
        made = data() if callable(data) else data
        file.write_bytes(made.encode() if isinstance(made, str) else made)
        return file

    return make


def changed(column: int, value: str, row: int = 200, header: str = "ts,pump,pressure") -> Make:
    """Sound rows, with another value in one of them."""
    lines = rows()
    lines[row][column] = value
    return content(csv(lines, header))


def all_changed(column: int, value: str) -> Make:
    """Sound rows, with another value in all."""
    return content(csv([*line[:column], value, *line[column + 1 :]] for line in rows()))


def wide(columns: int) -> Make:
    """One row of so many columns."""
    names = ",".join(["ts", "pump", *(f"c{number}" for number in range(columns))])
    return content(csv([["2024-03-01T00:00:00Z", "p", *["1"] * columns]], names))


def json_lines(*more: str, first: int = 200) -> Make:
    """Sound rows as JSON, these lines amid them."""
    lines = [
        json.dumps({"ts": time, "pump": pump, "pressure": float(value)})
        for time, pump, value in rows()
    ]
    return content("\n".join([*lines[:first], *more, *lines[first:]]), "pumps.jsonl")


# --- Parquet --------------------------------------------------------------------------------------


def parquet_bytes(columns: dict[str, Any] | None = None, names: list[str] | None = None) -> bytes:
    """A Parquet file with these columns, or sound ones; as it would be without pyarrow's own schema in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if columns is None:
        columns = {
            "ts": pa.array(
                np.arange(54_321) * 1_000 + 1_709_251_200_000, pa.timestamp("ms", "UTC")
            ),
            "pump": pa.array([f"pump-{number % 7}" for number in range(54_321)]),
            "pressure": pa.array(np.random.default_rng(SEED).normal(20, 3, 54_321)),
        }
    sink = io.BytesIO()
    table = pa.table(list(columns.values()), names=names or list(columns))
    pq.write_table(table, sink, store_schema=False)
    return sink.getvalue()


def parquet(change: Callable[[bytes], bytes] = bytes, name: str = "pumps.parquet") -> Make:
    """A sound Parquet file, changed."""
    return content(lambda: change(parquet_bytes()), name)


def parquet_of(
    make_columns: Callable[[Any], dict[str, Any]], names: list[str] | None = None
) -> Make:
    """A Parquet file of columns that are made with pyarrow."""

    def make(folder: Path) -> Path | str:
        import pyarrow as pa

        return content(parquet_bytes(make_columns(pa), names), "pumps.parquet")(folder)

    return make


def times(pa: Any, count: int = ROWS) -> Any:
    """A sound column of times."""
    return pa.array(np.arange(count) * 1_000 + 1_709_251_200_000, pa.timestamp("ms", "UTC"))


def claim_rows(sound: bytes) -> bytes:
    """The footer claims ten thousand million rows, of 100 GB in all."""
    length = int.from_bytes(sound[-8:-4], "little")
    footer = sound[-8 - length : -8]
    assert _varint(54_321) in footer
    footer = footer.replace(_varint(54_321), _varint(10**10))
    return sound[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _varint(number: int) -> bytes:
    """As Thrift's compact protocol has a positive number."""
    number, octets = 2 * number, bytearray()
    while number > 127:
        octets.append(number & 127 | 128)
        number >>= 7
    return bytes([*octets, number])


def flip(sound: bytes) -> bytes:
    """Wrong bits all over the data; the footer is whole."""
    draw, octets = random.Random(SEED), bytearray(sound)
    for _ in range(2_000):
        octets[draw.randrange(8, len(octets) - 2_000)] ^= 1 << draw.randrange(8)
    return bytes(octets)


# --- compressed -----------------------------------------------------------------------------------


def zstd(data: bytes) -> bytes:
    from backports import zstd

    return zstd.compress(data)


def bomb(compress: Callable[[bytes], bytes]) -> bytes:
    """Ten gigabytes of one line."""
    return compress(SOUND) + compress(b"x" * 2**24) * 600


def archive(kind: str) -> Make:
    """A file beside others in an archive."""

    def make(folder: Path) -> Path:
        file = folder / f"pumps.{kind}"
        if kind == "zip":
            with zipfile.ZipFile(file, "w") as packed:
                packed.writestr("pumps.csv", SOUND)
        else:
            (folder / "pumps.csv").write_bytes(SOUND)
            with tarfile.open(file, "w:gz") as packed_tar:
                packed_tar.add(folder / "pumps.csv", "pumps.csv")
        return file

    return make


# --- what isn't a file, or more than one -------------------------------------------------------------


def fifo(name: str) -> Make:
    def make(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    return make


def listening(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "pumps.csv"))
    return folder / "pumps.csv"


def link(to: str) -> Make:
    def make(folder: Path) -> Path:
        (folder / "pumps.csv").symlink_to(to)
        return folder / "pumps.csv"

    return make


def looping_folder(folder: Path) -> Path:
    """A folder that holds itself, and nothing else."""
    (folder / "again").symlink_to(folder)
    return folder


def unreadable(folder: Path) -> Path:
    """For nobody: the program gives up root's rights before it reads."""
    file = folder / "pumps.csv"
    file.write_bytes(SOUND)
    file.chmod(0)
    return file


def sparse(folder: Path) -> Path:
    """100 GB of nothing."""
    file = folder / "pumps.csv"
    with file.open("wb") as opened:
        opened.truncate(100 * 10**9)
    return file


def several(**files: bytes) -> Make:
    """A folder with these files, whose names end in .csv unless they say otherwise."""

    def make(folder: Path) -> Path:
        for name, data in files.items():
            stem, _, ending = name.partition("__")
            (folder / f"{stem}.{ending or 'csv'}").write_bytes(data)
        return folder

    return make


def database_file(folder: Path) -> Path:
    with sqlite3.connect(folder / "pumps.parquet") as database:
        database.execute("CREATE TABLE pumps (ts, pump, pressure)")
    return folder / "pumps.parquet"


# --- the program ----------------------------------------------------------------------------------


def obey_permissions() -> None:
    """Give up what lets root read all files (https://man7.org/linux/man-pages/man2/capset.2.html)."""
    if os.geteuid():
        return
    libc = ctypes.CDLL(None)
    header = struct.pack("Ii", 0x20080522, 0)
    sets = ctypes.create_string_buffer(24)
    assert libc.capget(header, sets) == 0
    effective, *others = struct.unpack("6I", sets.raw)
    override, read_search = 1 << 1, 1 << 2
    effective &= ~(override | read_search)
    assert libc.capset(header, struct.pack("6I", effective, *others)) == 0


def answer(arguments: list[str]) -> dict[str, Any]:
    """What the command line makes of a command, in a process of its own."""
    from .mutations import run_command

    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            signal.alarm(LIMIT_S)
            obey_permissions()
            # A safety net for the machine: the test looks at what was used.
            resource.setrlimit(resource.RLIMIT_DATA, (3 * 2**30, 3 * 2**30))
            os.write(write, json.dumps(run_command(arguments)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if not text:
        return {"died": os.waitstatus_to_exitcode(status)}
    outcome: dict[str, Any] = json.loads(text)
    return outcome


def main() -> None:
    """One command after another."""
    # Imported once for all.
    import simulator.workloads.recording.converting  # noqa: F401

    from .mutations import run_command

    run_command(["workloads", "temperature"])
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)  # noqa: T201


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 1)


if __name__ == "__main__":
    main()
