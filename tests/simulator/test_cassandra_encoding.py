"""Bodies of CQL's binary protocol, against those that the driver itself makes of bound rows."""

from __future__ import annotations

import io
import uuid
from typing import Any

import numpy as np
import pytest
from cassandra.cqltypes import (
    DateType,
    FloatType,
    Int32Type,
    LongType,
    UTF8Type,
    UUIDType,
)
from cassandra.protocol import BatchMessage, ExecuteMessage
from cassandra.query import BatchType as DriverBatchType

from simulator.contract import Load, PrimaryKey, Tables
from simulator.encoding.columns import client_keys
from simulator.modules.base import Job
from simulator.modules.cassandra.encoding import (
    CONSISTENCY_CODES,
    BatchType,
    CassandraEncoder,
    Prepared,
    random_uuids,
)
from simulator.worker.feed import Feed
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.schema import ColumnType, EventBlock
from simulator.workloads.temperature import Temperature

from .encoded import each_kind

TYPES = {
    ColumnType.INT64: LongType,
    ColumnType.INT32: Int32Type,
    ColumnType.FLOAT32: FloatType,
    ColumnType.TIMESTAMP_MS: DateType,
    ColumnType.TEXT: UTF8Type,
    ColumnType.JSON: UTF8Type,
}
STATEMENTS = [Prepared(bytes([65 + n]) * 16, bytes([97 + n]) * 16) for n in range(4)]


def encoder_for(
    job: Job,
    version: int = 5,
    batch_type: BatchType = BatchType.UNLOGGED,
    device_spread: int = 1,
) -> CassandraEncoder:
    """An encoder that knows what the server calls its statements."""
    encoder = CassandraEncoder(job, batch_type, "LOCAL_QUORUM", device_spread)
    encoder.use_statements(STATEMENTS[: len(job.table_names)], version)
    return encoder


def bound(block: EventBlock, row: int, job: Job, version: int) -> list[bytes]:
    """One event's values as the driver binds them, in the order of the INSERT's columns."""
    values = []
    if job.load.primary_key is PrimaryKey.CLIENT:
        values.append(client_keys(block)[row])
    if block.schema.device_path:
        values.append(block.devices[row])
    for column in block.schema.columns:
        kind, value = TYPES[column.type], block.columns[column.name][row].item()
        text = isinstance(value, bytes)
        values.append(value if text else kind.serialize(value, version))
    return values


def dealt(block: EventBlock, batch: int) -> list[list[int]]:
    """The rows of each request: those of one device, in their order."""
    by_device: dict[bytes, list[int]] = {}
    for row, device in enumerate(block.devices.tolist()):
        by_device.setdefault(device, []).append(row)
    return [
        rows[start : start + batch]
        for _, rows in sorted(by_device.items())
        for start in range(0, len(rows), batch)
    ]


def body_of(message: Any, version: int) -> bytes:
    """What the driver writes."""
    stream = io.BytesIO()
    message.send_body(stream, version)
    return stream.getvalue()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("tables", list(Tables))
@pytest.mark.parametrize("key", [PrimaryKey.DB, PrimaryKey.CLIENT, PrimaryKey.NONE])
@each_kind
def test_batches_are_those_of_the_driver(
    kind: type[Workload], key: PrimaryKey, tables: Tables, version: int
) -> None:
    workload = kind(device_spread=3)
    job = Job(workload.schema, Load(batch=7, primary_key=key, tables=tables))
    block = workload.block(2, 5, 90)
    payloads = encoder_for(job, version).encode(block)
    requests = dealt(block, 7)
    assert [payload.events for payload in payloads] == [len(rows) for rows in requests]
    for payload, rows in zip(payloads, requests, strict=True):
        expected = BatchMessage(
            DriverBatchType.UNLOGGED,
            [
                (
                    True,
                    STATEMENTS[(5 + row) % len(job.table_names)].statement_id,
                    bound(block, row, job, version),
                )
                for row in rows
            ],
            CONSISTENCY_CODES["LOCAL_QUORUM"],
        )
        assert payload.data.body == body_of(expected, version)
        assert payload.data.partition == block.devices[rows[0]]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("tables", list(Tables))
@each_kind
def test_single_inserts_are_those_of_the_driver(
    kind: type[Workload], tables: Tables, version: int
) -> None:
    workload = kind(device_spread=3)
    job = Job(workload.schema, Load(primary_key=PrimaryKey.CLIENT, tables=tables))
    block = workload.block(2, 5, 90)
    payloads = encoder_for(job, version).encode(block)
    assert len(payloads) == 90
    for row, payload in enumerate(payloads):
        statement = STATEMENTS[(5 + row) % len(job.table_names)]
        expected = ExecuteMessage(
            statement.statement_id,
            bound(block, row, job, version),
            CONSISTENCY_CODES["LOCAL_QUORUM"],
            result_metadata_id=statement.metadata_id,
        )
        assert payload.data.body == body_of(expected, version)
        assert payload.data.partition == block.devices[row]
        assert (payload.events, payload.last) == (1, row)


@pytest.mark.parametrize(
    ("mine", "drivers"),
    [(BatchType.LOGGED, DriverBatchType.LOGGED), (BatchType.UNLOGGED, DriverBatchType.UNLOGGED)],
)
def test_batch_type(mine: BatchType, drivers: DriverBatchType) -> None:
    job = Job(Temperature.schema, Load(batch=5))
    [payload] = encoder_for(job, batch_type=mine).encode(Temperature().block(0, 0, 5))
    assert payload.data.body[0] == drivers.value


def test_the_columns_are_those_of_the_values() -> None:
    names = [column.name for column in Cpu.schema.columns]
    for key, expected in (
        (PrimaryKey.DB, ["hostname", *names]),
        (PrimaryKey.CLIENT, ["id", "hostname", *names]),
        (PrimaryKey.UUID, ["id", "hostname", *names]),
    ):
        assert encoder_for(Job(Cpu.schema, Load(primary_key=key))).columns == expected


@pytest.mark.parametrize(
    ("spread", "batch", "sizes"),
    [
        # As many events as the processor's cache likes, but whole batches of every device.
        (1, 1000, {1000}),
        (3, 1000, {1000}),
        (100, 1000, {1000}),
        # So many devices that memory sets the limit: what each has of 262,144 events.
        (2000, 1000, {131, 132}),
    ],
)
def test_batches_are_full_however_many_devices(spread: int, batch: int, sizes: set[int]) -> None:
    workload = Temperature(device_spread=spread)
    encoder = encoder_for(Job(workload.schema, Load(batch=batch)), device_spread=spread)
    count = 300_000 // (spread * batch) * spread * batch or 262_144
    feed = Feed(lambda first, size: workload.block(0, first, size), encoder, 0, count)
    payloads = list(feed)
    assert {payload.events for payload in payloads} == sizes
    assert sum(payload.events for payload in payloads) == count


def test_uuids_are_random_ones_of_version_4() -> None:
    uuids = [UUIDType.deserialize(value.tobytes(), 5) for value in random_uuids(1000)]
    assert len(set(uuids)) == 1000
    assert {(value.version, value.variant) for value in uuids} == {(4, uuid.RFC_4122)}
    # No byte is the same in all.
    numbers = np.array([list(value.bytes) for value in uuids])
    assert (numbers != numbers[0]).any(axis=0).all()


def test_the_key_is_in_the_request_so_that_a_retry_has_the_same() -> None:
    job = Job(Temperature.schema, Load(batch=5, primary_key=PrimaryKey.UUID))
    [payload] = encoder_for(job).encode(Temperature().block(0, 0, 5))
    # type, number; per statement: kind, id of 16 bytes, number of values, then the first value.
    at = 1 + 2 + 1 + 2 + 16 + 2
    body = payload.data.body
    assert int.from_bytes(body[at : at + 4], "big") == 16
    assert uuid.UUID(bytes=body[at + 4 : at + 20]).version == 4
