"""What an acknowledgement is worth: each module declares the settings that decide it."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.modules import load_module, module_names
from simulator.modules.base import Durability, Needed

ON = {"fsync": "on", "synchronous_commit": "on", "synchronous_standby_names": ""}
IN_TWO = {"class": "NetworkTopologyStrategy", "one": "3", "two": "3"}
SYNCED = {"commitlog_sync": "group", "durable_writes": True, "replication": IN_TWO}


@pytest.mark.parametrize(
    ("module", "version", "settings", "on_disk", "places"),
    [
        ("postgres", "PostgreSQL 18", ON, True, 1),
        ("postgres", "PostgreSQL 18", ON | {"fsync": "off"}, False, 1),
        ("postgres", "PostgreSQL 18", ON | {"synchronous_commit": "off"}, False, 1),
        ("postgres", "PostgreSQL 18", ON | {"synchronous_standby_names": "ANY 2 (a, b, c)"}, True, 3),
        ("postgres", "PostgreSQL 18", ON | {"synchronous_standby_names": "a, b"}, True, 2),
        ("timescaledb", "PostgreSQL 18; TimescaleDB 2.20", ON, True, 1),
        # What these tell of PostgreSQL's settings says nothing.
        ("postgres", "PostgreSQL 15-YB-2.25", ON, None, None),
        ("postgres", "CockroachDB CCL v24", ON, None, None),
        (
            "postgres", "CockroachDB CCL v24",
            {
                "kv.raft_log.disable_synchronization_unsafe": "false",
                "zone_configuration": "ALTER RANGE default CONFIGURE ZONE USING num_replicas = 5",
            },
            True, 3,
        ),
        ("questdb", "QuestDB 9", {"cairo.commit.mode": "nosync"}, False, 1),
        ("questdb", "QuestDB 9", {"cairo.commit.mode": "sync"}, True, 1),
        ("questdb", "QuestDB 9", {"parameters": "not shown to this user"}, None, 1),
        ("cassandra", "cassandra 5", SYNCED | {"consistency_level": "LOCAL_QUORUM"}, True, 2),
        ("cassandra", "cassandra 5", SYNCED | {"consistency_level": "QUORUM"}, True, 4),
        ("cassandra", "cassandra 5", SYNCED | {"consistency_level": "LOCAL_ONE"}, True, 1),
        ("cassandra", "cassandra 5", SYNCED | {"commitlog_sync": "periodic"}, False, None),
        ("cassandra", "cassandra 5", SYNCED | {"durable_writes": False}, False, None),
        ("cassandra", "ycql 3.9", SYNCED, None, None),
        ("clickhouse", "ClickHouse 26", {"wait_for_async_insert": True, "fsync_after_insert": "0"}, False, 1),
        ("clickhouse", "ClickHouse 26", {"wait_for_async_insert": True, "fsync_after_insert": True}, True, 1),
        (
            "cratedb", "CrateDB 6",
            {"translog.durability": "REQUEST", "number_of_replicas": "0-1", "nodes": 3}, True, 2,
        ),
        (
            "elasticsearch", "elasticsearch 8",
            {"index.translog.durability": "request", "index.number_of_replicas": "1", "data_nodes": 1},
            True, 1,
        ),
        ("influxdb", "2.9", {"storage-wal-fsync-delay": "0s"}, True, 1),
        ("influxdb", "2.9", {"storage-wal-fsync-delay": "1s"}, False, 1),
        ("iotdb", "IoTDB 2", {"wal_mode": "SYNC"}, True, 1),
        ("arangodb", "ArangoDB 3", {"sync": False, "role": "COORDINATOR", "write_concern": 2}, False, 2),
        ("victoriametrics", "v1", {"inmemoryDataFlushInterval": "5s"}, False, 1),
        ("azure_data_explorer", "1", {"ingestion": "queued"}, True, None),
        ("azure_data_explorer", "1", {"ingestion": "streaming"}, None, None),
        ("blackhole", "none", {}, False, 0),
    ],
)  # fmt: skip
def test_settings_decide_it(
    module: str, version: str, settings: dict[str, Any], on_disk: bool | None, places: int | None
) -> None:
    durability = load_module(module).find_durability(version)
    assert durability is not None
    worth = durability.judge(settings)
    assert (worth.on_disk, worth.places) == (on_disk, places)
    assert worth.when


@pytest.mark.parametrize("name", module_names())
def test_every_module_declares_it(name: str) -> None:
    assert load_module(name).find_durability("") is not None


def test_the_words_name_the_setting_and_what_would_do() -> None:
    durability = Durability({"wal.mode": Needed(("SYNC",), "within {wal.delay} ({wal.other})")})
    worth = durability.judge({"wal.mode": "ASYNC", "wal.delay": "3 s"})
    assert worth.when == "within 3 s (wal.other)"
    assert worth.remedy == {"wal.mode": "SYNC"}
    assert durability.judge({}).when == "it didn't tell wal.mode"
