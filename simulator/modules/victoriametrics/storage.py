"""What VictoriaMetrics takes on disk, as its metrics tell it: of the whole server."""

from __future__ import annotations

import time

from ...contract import MIB, Allocation, Level, Storage
from ...errors import SimulatorError
from .metrics import Metrics
from .server import Connection

# lib/storage/partition.go: maxRawRowsPerShard. 8 MiB of rows as they arrive are a part of 1 MiB at most.
ALLOCATION = Allocation(
    unit_bytes=MIB,
    cause="VictoriaMetrics compresses parts of some 100,000 samples, and merges them",
)
_SOURCE = (
    "vm_data_size_bytes: parts of samples and of the series index, also those in memory, which go to disk as"
    " they are; of the whole server, with series that were deleted until they are merged away"
)
_INTERVAL_S = 0.1
_FIGURES_S = 1.2
"""The server takes its figures anew once a second."""


def read_flushed(connection: Connection, others: int, values: int | None) -> Storage:
    """As `read_storage`, after what is pending has become parts."""
    connection.flush()
    time.sleep(_FIGURES_S)
    return read_storage(connection, others, values)


def read_storage(connection: Connection, others: int, values: int | None) -> Storage:
    """What is in parts. `others`: metrics on the server that are not the job's; `values`: those of an event,
    if all have the same number.

    Raises SimulatorError if the server doesn't show its metrics; Retryable.
    """
    source = _SOURCE
    if others:
        source += f"; {others} other metric{'s' * (others > 1)} in it"
    metrics = connection.read_metrics()
    data, index = (_add_sizes(metrics, kind) for kind in ("storage/", "indexdb/"))
    total = data + index
    return Storage(
        total_bytes=total,
        data_bytes=data,
        index_bytes=index,
        level=None if values is None else Level(size_bytes=total, events=metrics.rows // values),
        shared=True,
        source=source,
    )


def _add_sizes(metrics: Metrics, kind: str) -> int:
    sizes = [size for name, size in metrics.sizes.items() if name.startswith(kind)]
    if not sizes:
        raise SimulatorError("/metrics tells no vm_data_size_bytes")
    return sum(sizes)


def merge_parts(connection: Connection, timeout_s: float) -> None:
    """Merge all parts, which drops deleted series and duplicates, and wait for it.

    Raises SimulatorError if that takes too long, or the server doesn't let us; Retryable.
    """
    connection.flush()
    connection.merge()
    deadline = time.monotonic() + timeout_s
    # The server begins after its answer, and tells of the end by its metrics only.
    while True:
        time.sleep(_INTERVAL_S)
        if not connection.read_metrics().merges:
            return
        if time.monotonic() > deadline:
            raise SimulatorError(f"merging has taken more than {timeout_s:g} s")
