"""What a database takes on disk, as its regions tell it."""

from __future__ import annotations

import time

from ...contract import Allocation, Storage
from ...errors import SimulatorError
from .server import Server

_UNITS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_SOURCE = (
    "SHOW DATA REGIONS of the whole database, after FLUSH: TsFiles, to three digits or so; without the"
    " write-ahead log"
)
# target_chunk_size of iotdb-system.properties.
ALLOCATION = Allocation(unit_bytes=1_600_000, cause="IoTDB merges chunks later into such of 1.6 MB")
_APART_S = 11.0
"""The config node hears of sizes every ten seconds."""
_UNDER_WAY_S = 1.0
"""What it hears so soon after a flush may be of before."""
_PAUSE_S = 0.2


def read_storage(server: Server, database: str, timeout_s: float) -> Storage:
    """What the database's TsFiles take, once all is in them and the config node has heard of it.

    Raises SimulatorError if the server doesn't tell; Retryable.
    """
    server.ask("FLUSH", timeout_s)
    flushed = time.monotonic()
    before = _list_sizes(server, database, timeout_s)
    until = flushed + _APART_S
    while (now := time.monotonic()) < until:
        # There is no event for it.
        time.sleep(_PAUSE_S)
        found = _list_sizes(server, database, timeout_s)
        if found != before:
            if now > flushed + _UNDER_WAY_S:
                break
            before, until = found, now + _APART_S
    sizes = _list_sizes(server, database, timeout_s)
    if not sizes or not all(map(_is_size, sizes)):
        raise SimulatorError(
            f"IoTDB doesn't tell the size of database {database}: its regions say {sizes}"
        )
    copies = server.describe_database(database)["data_replication_factor"]
    return Storage(total_bytes=sum(map(_read_size, sizes)), copies=int(copies), source=_SOURCE)


def _list_sizes(server: Server, database: str, timeout_s: float) -> list[str]:
    """What SHOW DATA REGIONS says of each copy of the database's regions."""
    regions = server.ask("SHOW DATA REGIONS", timeout_s)
    return [str(row[-1]) for row in regions if row[3] == database]


def _is_size(text: str) -> bool:
    number, _, unit = text.partition(" ")
    return unit in _UNITS and number.replace(".", "", 1).isdigit()


def _read_size(text: str) -> int:
    number, _, unit = text.partition(" ")
    return round(float(number) * _UNITS[unit])
