"""The parts of the Cassandra module that need no server."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from cassandra import (
    AuthenticationFailed,
    InvalidRequest,
    OperationTimedOut,
    Unavailable,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionShutdown, ProtocolVersionUnsupported
from cassandra.protocol import OverloadedErrorMessage, PreparedQueryNotFound

from simulator.contract import Load, PrimaryKey, Tables
from simulator.errors import OptionError, Retryable, SimulatorError
from simulator.modules.base import Job
from simulator.modules.cassandra import Cassandra
from simulator.modules.cassandra.encoding import CassandraOptions
from simulator.modules.cassandra.queries import (
    Computation,
    compare,
    cut_buckets,
    cut_ring,
    cut_time,
)
from simulator.modules.cassandra.server import (
    ClusterSession,
    explain_failure,
    translate,
)
from simulator.modules.kit.series import put_in_order
from simulator.modules.options import parse_options
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Query, Where
from simulator.workloads.schema import Column, ColumnType
from simulator.workloads.temperature import Temperature

from ..helpers import SECRET


def options(**values: Any) -> CassandraOptions:
    return parse_options(CassandraOptions, {"contact_points": "one, two", **values}, str)


def definition(job: Job, **values: Any) -> str:
    return Cassandra(options(**values), job)._define()


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"contact_points": ""}, "contact_points"),
        (
            {"contact_points": "one,two:9042"},
            "contact_points: write only names or addresses, and the port",
        ),
        ({"contact_points": "[::1]:9042"}, "contact_points: write only names or addresses"),
        ({"username": "me"}, "username and password go together"),
        ({"password": SECRET}, "username and password go together"),
        ({"keyspace": "a b"}, "keyspace"),
        ({"compaction": "X, window"}, "compaction: must be a class, then settings as key=value"),
        ({"compaction": "X", "flavor": "ycql"}, "YCQL has no compaction strategies"),
        ({"tablets": 4}, "only flavor ycql has tablets"),
        ({"consistency_level": "ANY"}, "consistency_level"),
        ({"max_sync_calls": 0}, "max_sync_calls"),
        ({"replication_factor": 0}, "replication_factor"),
        ({"protocol_version": "2"}, "protocol_version"),
    ],
)
def test_options_that_can_not_be(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(OptionError, match=problem) as refused:
        options(**values)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "batch", "problem"),
    [
        ({}, 65_536, "at most 65535 events"),
        ({"insert_mode": "single"}, 10, "leave --batch out"),
        ({"insert_mode": "batch"}, 0, "needs --batch N"),
    ],
)
def test_batches_that_can_not_be(values: dict[str, Any], batch: int, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        Cassandra(options(**values), Job(Temperature.schema, Load(batch=batch)))


def test_the_password_is_not_shown() -> None:
    cassandra_options = options(username="me", password=SECRET)
    assert cassandra_options.secrets() == [SECRET]
    assert SECRET not in repr(cassandra_options)
    assert SECRET not in str(cassandra_options.public())


@pytest.mark.parametrize(
    ("job", "key"),
    [
        (
            Job(Temperature.schema),
            (
                'PRIMARY KEY (("device_id"), "timestamp", "sequence_number"))'
                ' WITH CLUSTERING ORDER BY ("timestamp" DESC, "sequence_number" DESC)'
            ),
        ),
        (
            Job(Temperature.schema, Load(primary_key=PrimaryKey.UUID, tables=Tables.MULTIPLE)),
            (
                'PRIMARY KEY (("device_id"), "timestamp", "id"))'
                ' WITH CLUSTERING ORDER BY ("timestamp" DESC, "id" DESC)'
            ),
        ),
        (
            Job(Cpu.schema, Load(primary_key=PrimaryKey.NONE)),
            'PRIMARY KEY (("hostname"), "ts")) WITH CLUSTERING ORDER BY ("ts" DESC)',
        ),
    ],
)
def test_a_partition_is_a_device_newest_event_first(job: Job, key: str) -> None:
    assert definition(job).endswith(f"{key} AND comment = 'made by iot-database-benchmark'")


def test_properties_of_tables() -> None:
    job = Job(Temperature.schema)
    assert definition(job, flavor="ycql", tablets=12).endswith(" AND tablets = 12")
    assert definition(job, compaction="X, a=1, b = two").endswith(
        " AND compaction = {'class': 'X', 'a': '1', 'b': 'two'}"
    )


@pytest.mark.parametrize("count", [1, 3, 32, 65_536])
def test_ranges_cover_the_ring_once(count: int) -> None:
    ranges = cut_ring(count)
    assert len(ranges) == count
    assert ranges[0][0] == -(2**63)
    assert ranges[-1][1] == 2**63 - 1
    for (_, end), (begin, _) in itertools.pairwise(ranges):
        assert begin == end + 1


@pytest.mark.parametrize(
    ("first", "last", "count", "slices"),
    [
        (10, 10, 16, [(10, 10)]),
        (10, 12, 2, [(10, 10), (11, 12)]),
        (0, 99, 4, [(0, 24), (25, 49), (50, 74), (75, 99)]),
    ],
)
def test_slices_cover_the_time_once(
    first: int, last: int, count: int, slices: list[tuple[int, int]]
) -> None:
    assert cut_time(first, last, count) == slices


@pytest.mark.parametrize(
    ("first", "last", "buckets"),
    [
        (10, 19, [(10, 19)]),
        (0, 20, [(0, 9), (10, 19), (20, 20)]),
        (13, 25, [(13, 19), (20, 25)]),
    ],
)
def test_buckets_cover_the_time_once(first: int, last: int, buckets: list[tuple[int, int]]) -> None:
    assert cut_buckets(first, last, 10) == buckets


def computation(**query: Any) -> Computation:
    described = Query.model_validate({"name": "asked", **query})
    return Computation(BoundQuery(described), Temperature.schema, is_ycql=False)


STATISTICS = [{"function": name, "column": "temperature"} for name in ("min", "avg", "max")]


def test_statistics_of_parts() -> None:
    statistics = computation(compute=STATISTICS)
    assert statistics.computed == [
        "count(*)", 'min("temperature")', 'sum(CAST("temperature" AS double))', 'max("temperature")',
    ]  # fmt: skip
    parts = [(4, 1.0, 10.0, 4.0), (0, None, 0.0, None), (2, -2.0, 0.0, 2.0)]
    rows = statistics.put_together((None, None, *part) for part in parts)
    assert rows == [(-2.0, pytest.approx(10 / 6), 4.0)]
    assert statistics.put_together([]) == [(None, None, None)]


def test_parts_of_groups() -> None:
    """Groups without events are left out; times are numbers."""
    newest = {"function": "last", "column": "temperature"}
    first = {"function": "min", "column": "timestamp"}
    groups = computation(compute=[newest, first], per=["device_id"])
    assert groups.newest == ['"temperature"', 'tounixtimestamp("timestamp")']
    times = [datetime(1970, 1, 1, 0, 0, 0, number * 1000) for number in (7, 3)]  # noqa: DTZ001
    parts = [
        ("a", None, 1.5, 9, 2, times[0]),
        ("b", None, None, None, 0, None),
        ("a", None, 0.5, 5, 3, times[1]),
    ]
    assert groups.put_together(parts) == [("a", 1.5, 3)]
    assert computation(compute=[first], per=["device_id"]).put_together([]) == []


def test_buckets_within_buckets() -> None:
    per = [{"every": "15s"}, {"every": "10s"}]
    buckets = computation(compute=[{"function": "count"}], per=per)
    assert buckets.every_ms == 5000
    assert buckets.bucket_of(29_999) == 25_000
    parts = [("a", 5000, 1), ("a", 10_000, 2), ("b", 25_000, 4), ("a", 20_000, 8)]
    assert buckets.put_together(parts) == [(0, 0, 1), (0, 10_000, 2), (15_000, 20_000, 12)]


@pytest.mark.parametrize(
    ("kind", "where", "condition"),
    [
        (ColumnType.INT32, {"above": 12.5}, (">", 12)),
        (ColumnType.INT32, {"below": 12.5}, ("<", 13)),
        (ColumnType.INT32, {"below": -12.5}, ("<", -12)),
        (ColumnType.INT32, {"above": 1e10}, (">", 2**31 - 1)),
        (ColumnType.INT32, {"below": 1e10}, ("<=", 2**31 - 1)),
        (ColumnType.INT32, {"above": -1e10}, (">=", -(2**31))),
        (ColumnType.INT32, {"below": -1e10}, ("<", -(2**31))),
        (ColumnType.INT64, {"above": 1e10}, (">", 10**10)),
        (ColumnType.FLOAT32, {"above": 0.1}, (">", 0.10000000149011612)),
        (ColumnType.FLOAT64, {"above": 0.1}, (">", 0.1)),
    ],
)
def test_conditions_are_in_the_columns_type(
    kind: ColumnType, where: dict[str, float], condition: tuple[str, float]
) -> None:
    schema = replace(Temperature.schema, columns=(Column("value", kind),))
    assert compare(Where(column="value", **where), schema) == condition


def test_rows_in_order() -> None:
    """Equal rows are sorted by their keys; rows without a value come last."""
    order = {"by": 1, "descending": True}
    query = computation(
        compute=STATISTICS[1:2], per=["device_id"], order=order, limit=4
    ).bound.query
    rows = [("d", None), ("c", 1.0), ("b", 2.0), ("e", None), ("a", 1.0)]
    assert put_in_order(query, rows) == [("b", 2.0), ("a", 1.0), ("c", 1.0), ("d", None)]


def no_host(*causes: Exception) -> NoHostAvailable:
    return NoHostAvailable("no host", {f"node{n}": cause for n, cause in enumerate(causes)})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (WriteTimeout("late", write_type=0), "write_timeout"),
        (Unavailable("too few"), "unavailable"),
        (OperationTimedOut("no answer"), "client_timeout"),
        (OverloadedErrorMessage(0x1001, "too much", None), "overloaded"),
        (no_host(OverloadedErrorMessage(0x1001, "too much", None)), "overloaded"),
        (PreparedQueryNotFound(0x2500, "forgotten", None), "unprepared"),
        (ConnectionShutdown("gone"), "connection_lost"),
        (no_host(ConnectionShutdown("gone")), "connection_lost"),
        (no_host(), "connection_lost"),
        (ConnectionResetError("reset"), "connection_lost"),
    ],
)
def test_errors_that_pass(error: Exception, kind: str) -> None:
    meaning = translate(error, options(), Job(Temperature.schema))
    assert isinstance(meaning, Retryable)
    assert meaning.kind == kind


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (InvalidRequest("table x.events does not exist"), "run insert first"),
        (InvalidRequest("unconfigured table events"), "run insert first"),
        (InvalidRequest("Batch too large"), "use a smaller --batch"),
        (InvalidRequest("line 1:3 no viable alternative"), "refused a request"),
    ],
)
def test_errors_that_end_the_run(error: Exception, remedy: str) -> None:
    meaning = translate(error, options(), Job(Temperature.schema))
    assert isinstance(meaning, SimulatorError)
    assert remedy in str(meaning)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (no_host(AuthenticationFailed("bad")), "check username and password"),
        (no_host(OSError(1, "certificate verify failed")), "check tls, ca_certs"),
        (no_host(ProtocolVersionUnsupported("one", 5)), "set protocol_version"),
        (no_host(ConnectionRefusedError(111, "refused")), "check that the server runs"),
    ],
)
def test_remedies_of_failed_connections(error: Exception, remedy: str) -> None:
    text = explain_failure(options(username="me", password=SECRET), error, set())
    assert text.startswith("can't connect to Cassandra at one:9042, two:9042: ")
    assert remedy in text
    assert "\n" not in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("level", "factor", "needed"),
    [("ONE", 3, 1), ("LOCAL_ONE", 3, 1), ("TWO", 3, 2), ("THREE", 3, 3), ("ALL", 5, 5),
     ("QUORUM", 3, 2), ("LOCAL_QUORUM", 4, 3), ("EACH_QUORUM", 1, 1)],
)  # fmt: skip
def test_how_many_copies_must_answer(level: str, factor: int, needed: int) -> None:
    assert options(consistency_level=level, replication_factor=factor).needed_replicas == needed


def test_names_without_an_address_are_named() -> None:
    names = options(contact_points="a.invalid,b.invalid")
    with pytest.raises(
        SimulatorError, match=r"no name in contact_points .* \(a.invalid, b.invalid\)"
    ):
        ClusterSession(names, Job(Temperature.schema))


WITHOUT_LIBEV = """
import sys
from simulator.modules.cassandra import Cassandra
from simulator.modules.cassandra.encoding import CassandraOptions
from simulator.modules.options import Job
from simulator.workloads.temperature import Temperature

sys.modules |= dict.fromkeys(("cassandra.io.libevwrapper", "asyncore"))
Cassandra(CassandraOptions(contact_points=["127.0.0.1"]), Job(Temperature.schema)).open()
"""


def test_without_an_event_loop_the_driver_can_not_connect() -> None:
    """As with Python 3.12 and a driver that was compiled without libev."""
    command = [sys.executable, "-c", WITHOUT_LIBEV]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (
        "SimulatorError: cassandra-driver can't connect here: its extension for libev is"
        in done.stderr
    )


def test_a_data_center_that_there_is_not_is_named() -> None:
    text = explain_failure(options(local_datacenter="mars"), no_host(), {"earth", "moon"})
    assert text.endswith("set local_datacenter to an existing one: earth, moon")


def test_no_size_on_disk_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SimulatorError, match="YCQL doesn't report"):
        Cassandra(options(flavor="ycql"), Job(Temperature.schema)).storage()
    session = object.__new__(ClusterSession)
    session._options = options()
    monkeypatch.setattr(ClusterSession, "release", (3, 11))
    with pytest.raises(SimulatorError, match=r"since 4\.0"):
        session.read_storage(["events"])
