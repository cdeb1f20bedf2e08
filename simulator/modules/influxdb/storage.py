"""What a bucket takes on disk, as InfluxDB's metrics tell it.

By the sizes of data files and write-ahead log rather than `storage_shard_disk_size`, which lags behind.

https://docs.influxdata.com/influxdb/v2/reference/internals/metrics/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ...contract import MIB, Allocation, Storage
from ...errors import Retryable, SimulatorError

if TYPE_CHECKING:
    from .server import Connection

_DATA, _LOG = "storage_tsm_files_disk_bytes", "storage_wal_size"
_SAMPLE = re.compile(
    rf'^({_DATA}|{_LOG})\{{bucket="(\w+)",.*?\bid="(\d+)".*\}} (\S+)$', re.MULTILINE
)

# https://docs.influxdata.com/influxdb/v2/reference/config-options/#storage-cache-snapshot-memory-size
ALLOCATION = Allocation(
    unit_bytes=25 * MIB, cause="InfluxDB writes 25 MiB of its cache at a time, and merges it later"
)
_SOURCE = "metrics of the bucket's shards: TSM files"
_LOGGED = (
    " and write-ahead log, which only an operator's token can have written to TSM files at once"
)
_LEFT_OUT = "; without the series index and the series files, which no metric tells"


def read_storage(connection: Connection, bucket: str, others: int) -> Storage:
    """What the bucket of that id takes, once it is in data files; it holds `others` measurements that are
    not the job's.

    Raises SimulatorError if the metrics don't have it; Retryable.
    """
    shards = _ask_shards(connection, bucket)
    if _has_log(shards):
        # A log that stays is counted, too.
        with suppress(SimulatorError, Retryable):
            for shard, sizes in shards.items():
                if sizes.get(_LOG):
                    connection.flush_shard(shard)
        shards = _ask_shards(connection, bucket)
    source = _SOURCE + _LOGGED * _has_log(shards)
    if others:
        source += (
            f"; of the whole bucket, with {others} other measurement{'s' * (others > 1)} in it"
        )
    total = sum(sum(sizes.values()) for sizes in shards.values())
    return Storage(total_bytes=total, shared=others > 0, source=source + _LEFT_OUT)


def parse_sizes(metrics: str, bucket: str) -> dict[str, dict[str, int]]:
    """Bytes of a bucket's shards, by the shard's id and the metric's name, from metrics in Prometheus's
    text format."""
    shards: dict[str, dict[str, int]] = {}
    for name, owner, shard, value in _SAMPLE.findall(metrics):
        if owner == bucket:
            shards.setdefault(shard, {})[name] = int(float(value))
    return shards


def _has_log(shards: Mapping[str, Mapping[str, int]]) -> bool:
    return any(sizes.get(_LOG) for sizes in shards.values())


def _ask_shards(connection: Connection, bucket: str) -> dict[str, dict[str, int]]:
    try:
        metrics = connection.read_metrics()
    except SimulatorError as error:
        raise SimulatorError(f"/metrics can't be read, which tells the size: {error}") from error
    shards = parse_sizes(metrics, bucket)
    if not shards:
        raise SimulatorError(
            "/metrics tells no size of the bucket: is metrics-disabled set, or is it InfluxDB Cloud,"
            " which doesn't tell?"
        )
    return shards
