"""What indices take on disk, as the cluster tells it.

The list of segments rather than `_stats/store`: that is up to 10 s old, since each node keeps it for so long,
whatever has been written since. Nor `_stats/segments`: in OpenSearch it leaves out parts of small segments.

https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-indices-segments
https://docs.opensearch.org/latest/api-reference/index-apis/segment/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...contract import MIB, Allocation, Level, Storage
from ...errors import Retryable, SimulatorError

if TYPE_CHECKING:
    from .server import Connection

# https://www.elastic.co/docs/reference/elasticsearch/index-settings/merge: floor_segment
ALLOCATION = Allocation(
    unit_bytes=2 * MIB, cause="small segments, below 2 MB, are merged before others"
)
"""Of a shard."""
_SOURCE = (
    "_segments, after a flush: Lucene's files of all shards and replicas, in which documents and what they"
    " are found by can't be told apart; without the translog"
)


def read_storage(connection: Connection, names: str, timeout_s: float) -> Storage:
    """All segments of the indices, once they are on disk.

    Raises SimulatorError if no shard is started, or the user may not flush; Retryable.
    """
    connection.ask("POST", f"/{names}/_flush?wait_if_ongoing=true", timeout_s=timeout_s)
    connection.refresh(names)
    return read_segments(connection, names, timeout_s)


def read_segments(connection: Connection, names: str, timeout_s: float) -> Storage:
    """The segments that can be searched so far, on disk or on their way there. Raises as `read_storage`."""
    return add_segments(connection.ask("GET", f"/{names}/_segments", timeout_s=timeout_s))


def add_segments(answer: Mapping[str, Any]) -> Storage:
    """The sum of an answer to `_segments`; Retryable or SimulatorError if shards are missing in it."""
    if failed := answer["_shards"]["failed"]:
        raise Retryable("unavailable", f"{failed} shards didn't tell their segments")
    shards = [
        shard
        for index in answer["indices"].values()
        for copies in index["shards"].values()
        for shard in copies
    ]
    primaries = sum(shard["routing"]["primary"] for shard in shards)
    if not primaries:
        raise SimulatorError("the cluster lists no started shards of the job's indices")
    parts = [part for shard in shards for part in shard["segments"].values()]
    size, copies = sum(part["size_in_bytes"] for part in parts), round(len(shards) / primaries)
    return Storage(
        total_bytes=size,
        copies=copies,
        level=Level(size_bytes=size, events=sum(part["num_docs"] for part in parts) // copies),
        allocation=ALLOCATION.model_copy(
            update={"unit_bytes": ALLOCATION.unit_bytes * len(shards)}
        ),
        source=_SOURCE,
    )


def merge_segments(connection: Connection, names: str, timeout_s: float) -> None:
    """Merge each shard into a single segment, and wait for it."""
    connection.ask("POST", f"/{names}/_forcemerge?max_num_segments=1", timeout_s=timeout_s)
    # OpenSearch keeps the old segments until both are done.
    connection.ask("POST", f"/{names}/_flush?force=true&wait_if_ongoing=true", timeout_s=timeout_s)
    connection.refresh(names)
