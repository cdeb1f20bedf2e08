"""What tables take on disk, as ClickHouse tells it.

https://clickhouse.com/docs/operations/system-tables/parts
"""

from __future__ import annotations

from collections.abc import Sequence

from ...contract import MIB, Allocation, Level, Storage
from .queries import quote_text
from .server import Connection

# https://clickhouse.com/docs/operations/settings/settings#max_compress_block_size
ALLOCATION = Allocation(
    unit_bytes=MIB, cause="ClickHouse compresses columns in blocks of up to 1 MiB, and merges parts"
)
_SOURCE = (
    "system.parts: the files of all active parts, with the marks and the primary index, on the server that"
    " was asked; without parts that were merged and not yet deleted, and without the log of insert tokens"
)


def read_storage(connection: Connection, database: str, tables: Sequence[str]) -> Storage:
    """All active parts of the tables. Raises Retryable or SimulatorError."""
    among = ", ".join(map(quote_text, tables))
    [(total, rows, index)] = connection.ask(
        "SELECT sum(bytes_on_disk), sum(rows), sum(marks_bytes + primary_key_size"
        " + secondary_indices_compressed_bytes + secondary_indices_marks_bytes) FROM system.parts"
        f" WHERE active AND database = {quote_text(database)} AND table IN ({among})"
    )
    return Storage(
        total_bytes=int(total),
        data_bytes=int(total) - int(index),
        index_bytes=int(index),
        copies=1,
        level=Level(size_bytes=int(total), events=int(rows)),
        source=_SOURCE,
    )
