"""What VictoriaMetrics takes on disk, as its metrics tell it: of the whole server."""

from __future__ import annotations

import time

from ...contract import Storage
from ...errors import SimulatorError
from .metrics import Metrics
from .server import Connection

_SOURCE = (
    "vm_data_size_bytes: parts of samples and of the series index, also those in memory, which go to disk as"
    " they are; of the whole server, with series that were deleted until they are merged away"
)
_INTERVAL_S = 0.1
_FIGURES_S = 1.2
"""The server takes its figures anew once a second."""


def read_storage(connection: Connection, others: int) -> Storage:
    """After what is pending has become parts. `others`: metrics on the server that are not the job's.

    Raises SimulatorError if the server doesn't show its metrics; Retryable.
    """
    connection.flush()
    time.sleep(_FIGURES_S)
    source = _SOURCE
    if others:
        source += f"; {others} other metric{'s' * (others > 1)} in it"
    metrics = connection.read_metrics()
    data, index = (_add_sizes(metrics, kind) for kind in ("storage/", "indexdb/"))
    return Storage(total_bytes=data + index, data_bytes=data, index_bytes=index, source=source)


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
