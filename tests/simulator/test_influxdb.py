"""What is InfluxDB's alone: buckets, TLS, and a server that stops, is full or refuses, for real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.contract import StoredPart, Tables
from simulator.errors import OptionError, SimulatorError
from simulator.modules.base import Job
from simulator.modules.influxdb import Influxdb
from simulator.modules.influxdb.flux import (
    compare,
    parse_csv,
    parse_results,
    quote_text,
    write_time,
)
from simulator.modules.influxdb.queries import compile_query
from simulator.modules.options import parse_options
from simulator.oracle.answers import answer_all, compare_answers
from simulator.testing.events import Sundry, insert, insert_with, most_at_once, rows_of
from simulator.testing.server import as_observer, new_job
from simulator.units import write_duration
from simulator.worker import connect
from simulator.workloads.drawing import Stored, bind, draw
from simulator.workloads.queries import Query, Where
from simulator.workloads.schema import Column, ColumnType
from simulator.workloads.temperature import Temperature

from ..contract.entries import find_entry, server_fixtures
from ..contract.influxdb import InfluxUnderTest, own_server, refuse

JOB = new_job(Temperature.schema, batch=10)


@pytest.fixture(scope="module")
def url() -> str:
    """The URL of a server, or a skip."""
    return find_entry("influxdb").values()[0]


_server, server = server_fixtures("influxdb")


def prepare(server: InfluxUnderTest, job: Job = JOB, **options: Any) -> None:
    with server.prepare(job, options=options):
        pass


def own_module(url: str, job: Job, org: str, token: str) -> Influxdb:
    values = {"endpoint": url, "org": org, "token": token}
    return Influxdb(parse_options(Influxdb.options_model, values, str), job)


# --- buckets --------------------------------------------------------------------------------------


def test_a_missing_bucket_is_made_to_keep_events_for_ever(server: InfluxUnderTest) -> None:
    prepare(server, shard_group_duration_h=48)
    [bucket] = server.buckets()
    [rule] = bucket["retentionRules"]
    assert rule["everySeconds"] == 0
    assert rule["shardGroupDurationSeconds"] == 48 * 3600


@pytest.mark.parametrize("tables", Tables)
def test_cleaning_makes_our_own_bucket_anew(server: InfluxUnderTest, tables: Tables) -> None:
    prepare(server)
    insert_with(server.module(new_job(Temperature.schema, tables=tables)), Temperature(), 8)
    [before] = server.buckets()
    prepare(server)
    [after] = server.buckets()
    assert before["id"] != after["id"]
    assert not server.tables()


def test_an_empty_bucket_stays(server: InfluxUnderTest) -> None:
    """Somebody else's empty bucket is the same case."""
    server.make_bucket()
    [before] = server.buckets()
    prepare(server)
    assert server.buckets() == [before]


def test_in_anothers_bucket_only_our_measurements_are_deleted(server: InfluxUnderTest) -> None:
    server.make_bucket()
    [before] = server.buckets()
    server.write("theirs,t=a x=1i 5000000\nevents_too,t=a x=2i 5000000")
    for tables in Tables:
        insert_with(server.module(new_job(Temperature.schema, tables=tables)), Temperature(), 8)
    prepare(server)
    assert server.buckets()[0]["id"] == before["id"]
    assert server.tables() == {"theirs", "events_too"}
    assert server.asked("SELECT x FROM theirs")[0]["values"] == [[5, 1]]


def test_a_bucket_that_would_delete_the_events_is_refused(server: InfluxUnderTest) -> None:
    server.make_bucket(retentionRules=[{"type": "expire", "everySeconds": 86400 * 30}])
    with pytest.raises(SimulatorError, match=r"deletes events older than 30 days.*another bucket"):
        prepare(server)


def test_a_bucket_that_vanishes_ends_the_run(server: InfluxUnderTest) -> None:
    prepare(server)
    module = server.module(JOB)
    with (
        connect(module.writer()) as writer,
        pytest.raises(SimulatorError, match=r"has no bucket .* run insert first"),
    ):
        insert(writer, Temperature(), 30, before={1: server.clear})


def test_a_partial_write_ends_the_run(server: InfluxUnderTest) -> None:
    """The server keeps the points that fit and says so by an error."""
    prepare(server)
    server.write("events,device_id=other sequence_number=1.5 1704067200000000000")
    with pytest.raises(SimulatorError, match=r"refused a request \(422\).*partial write.*dropped"):
        insert_with(server.module(JOB), Temperature(), 10)


def test_events_at_the_same_time_of_a_device_overwrite(
    server: InfluxUnderTest,
) -> None:
    """The reason why `--timestamps restart` is refused."""
    prepare(server)
    for _ in range(2):
        insert_with(server.module(JOB), Temperature(), 10)
    observer = server.module(as_observer(JOB))
    observer.open()
    assert observer.count() == 10
    observer.close()


def test_a_token_that_may_not_make_a_bucket(server: InfluxUnderTest) -> None:
    with pytest.raises(SimulatorError, match=r"refused the token .*read and write buckets"):
        prepare(server, token=server.new_token("read"))


def test_a_bucket_that_the_token_may_not_see(server: InfluxUnderTest) -> None:
    """The server answers with an empty list."""
    prepare(server)
    module = server.module(JOB, options={"token": server.new_token("write")})
    for connect_to in (module.open, module.writer().open):
        with pytest.raises(SimulatorError, match="allow the token to read and write it"):
            connect_to()


# --- what the server says of itself ---------------------------------------------------------------


def test_settings_that_decide_durability(server: InfluxUnderTest) -> None:
    prepare(server)
    module = server.module(JOB)
    module.open()
    settings = module.server_info()["settings"]
    module.close()
    assert settings["storage-wal-fsync-delay"] == "0s"
    assert settings["bucket_shard_group_duration_s"] == 7 * 86400


def test_a_token_that_may_not_read_the_settings_will_do(server: InfluxUnderTest) -> None:
    prepare(server)
    token = server.new_token("read", "write")
    module = server.module(JOB, options={"token": token})
    module.open()
    module.prepare()
    insert_with(module, Temperature(), 10)
    assert module.count() == 10
    assert module.server_info()["settings"]["storage"] == "not shown to this token"
    module.close()


def test_the_size_says_what_it_includes(server: InfluxUnderTest) -> None:
    prepare(server)
    server.write("other value=1 1704067200000000000")
    insert_with(server.module(JOB), Temperature(), 10)
    sizes = []
    for options in ({"token": server.new_token("read", "write")}, {}):
        module = server.module(JOB, options=options)
        module.open()
        sizes.append(module.storage())
        if not options:
            assert isinstance(module, Influxdb)
            with pytest.raises(SimulatorError, match="has no size of the bucket"):
                module.connection.read_storage("0123456789abcdef", 0)
        module.close()
    logged, flushed = sizes
    assert logged.total_bytes
    assert flushed.total_bytes == server.size_on_disk(JOB.schema.table) != logged.total_bytes
    assert "write-ahead log" in logged.source
    assert "write-ahead log" not in flushed.source
    assert "with 1 other measurement in it" in flushed.source


# --- TLS ------------------------------------------------------------------------------------------


def test_a_certificate_of_an_unknown_authority(server: InfluxUnderTest) -> None:
    module = server.module(JOB, options={"endpoint": server.encrypted})
    for enter in (module.open, module.writer().open):
        with pytest.raises(SimulatorError, match=r"(?i)certificate verify failed") as refused:
            enter()
        assert "ssl_ca_cert" in str(refused.value)
        assert "\n" not in str(refused.value)
    trusting: dict[str, Any] = {
        "endpoint": server.encrypted,
        "ssl_ca_cert": str(server.certificate),
    }
    prepare(server, **trusting)
    insert_with(server.module(JOB, options=trusting), Temperature(), 20)
    assert len(server.rows(Temperature.schema, "events")) == 20


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_certificate_that_nobody_checks(server: InfluxUnderTest) -> None:
    prepare(server, endpoint=server.encrypted, verify_ssl="false")
    assert server.buckets()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read(
    server: InfluxUnderTest, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content:
        file.write_text(content)
    module = server.module(
        JOB, options={"endpoint": "https://127.0.0.1:1", "ssl_ca_cert": str(file)}
    )
    with pytest.raises(OptionError, match=rf"option ssl_ca_cert: .*{file}"):
        module.open()


@pytest.mark.parametrize(
    "endpoint", ["influxdb:8086", "ftp://influxdb", "http://", "http://me:secret@influxdb:8086"]
)
def test_an_endpoint_that_is_none(endpoint: str) -> None:
    with pytest.raises(OptionError, match="option endpoint: ") as refused:
        own_module(endpoint, JOB, "org", "token")
    assert "secret" not in str(refused.value)


# --- a server that fails --------------------------------------------------------------------------


def test_a_server_that_wants_too_much_patience_ends_the_run(server: InfluxUnderTest) -> None:
    prepare(server)
    server.proxy.fate = refuse(503, "come back tomorrow", **{"Retry-After": "86400"})
    with pytest.raises(
        SimulatorError, match=r"rejects requests for the next 86400 s \(come back tomorrow"
    ):
        insert_with(server.module(JOB), Temperature(), 10)


def test_an_answer_that_promises_nothing_is_no_success(server: InfluxUnderTest) -> None:
    prepare(server)
    server.proxy.fate = refuse(202, "queued")
    with pytest.raises(SimulatorError, match="with 202 instead of 204"):
        insert_with(server.module(JOB), Temperature(), 10)


def test_a_write_without_an_answer_is_sent_again(server: InfluxUnderTest) -> None:
    prepare(server)
    module = server.module(JOB, options={"request_timeout_s": 0.5})

    def silence() -> None:
        server.proxy.hold_s = 1.5

    with connect(module.writer()) as writer:
        recorder = insert(writer, Temperature(), 30, before={1: silence})
    # More than once if the machine is slow enough.
    assert set(recorder.errors) == {"timeout"}
    assert server.rows(Temperature.schema, "events") == sorted(
        rows_of(Temperature().block(0, 0, 30))
    )


def test_requests_in_flight(server: InfluxUnderTest) -> None:
    """Several at once, each on its connection; one that is refused is sent again."""
    prepare(server)
    job = new_job(Temperature.schema, batch=10)
    module = server.module(job, options={"max_in_flight": 4})
    seen: list[int] = []

    def look() -> None:
        seen.append(len(server.connections(job.run_id)))
        server.proxy.fate = refuse(429, "slow down")

    server.proxy.delay_s = 0.02
    try:
        with connect(module.writer()) as writer:
            recorder = insert(writer, Temperature(), 400, before={20: look})
    finally:
        server.proxy.delay_s = 0.0
    # Plus the connection over which it asked for the bucket.
    assert seen == [4 + 1]
    assert 1 < most_at_once(recorder) <= 4
    assert recorder.errors == {"too_many_requests": 1}
    assert server.rows(Temperature.schema, "events") == sorted(
        rows_of(Temperature().block(0, 0, 400))
    )


def test_a_server_that_is_stopped_and_started_in_mid_run(url: str, tmp_path: Path) -> None:
    job = new_job(Temperature.schema, batch=100)
    with own_server(url, tmp_path) as own:
        module = own_module(own.url, job, own.ORG, own.TOKEN)
        module.open()
        module.prepare()

        attempts = 0

        def abort() -> None:
            nonlocal attempts
            attempts += 1
            if attempts == 2:
                own.start()

        with connect(module.writer()) as writer:
            recorder = insert(writer, Temperature(), 1000, before={4: own.stop}, abort=abort)
        assert recorder.errors == {"connection_lost": 2}
        assert recorder.retries == 2
        # What was acknowledged before the stop is still there.
        assert module.count() == 1000
        module.close()


def test_a_cache_that_is_full(url: str, tmp_path: Path) -> None:
    with own_server(url, tmp_path, "--storage-cache-max-memory-size=50000") as own:
        job = new_job(Temperature.schema, batch=1000)
        module = own_module(own.url, job, own.ORG, own.TOKEN)
        module.open()
        module.prepare()
        with (
            connect(module.writer()) as writer,
            pytest.raises(
                SimulatorError, match=r"gave up after 2 retries \(cache_full\).*exceeded"
            ),
        ):
            insert(writer, Temperature(), 5000, max_retries=2)
        module.close()


# --- Flux -----------------------------------------------------------------------------------------


def test_flux_literals() -> None:
    assert quote_text('a "b" \\ ${c}') == r'"a \"b\" \\ \${c}"'
    assert write_time(1_704_067_200_045) == "2024-01-01T00:00:00.045Z"


@pytest.mark.parametrize(
    ("span_ms", "literal"),
    [(86_400_000, "1d"), (7_200_000, "2h"), (90_000, "90s"), (1500, "1500ms")],
)
def test_duration_literals(span_ms: int, literal: str) -> None:
    assert write_duration(span_ms) == literal


@pytest.mark.parametrize(
    ("kind", "where", "condition"),
    [
        (ColumnType.INT32, {"above": 12.5}, "x > 12"),
        (ColumnType.INT32, {"below": -12.5}, "x < -12"),
        (ColumnType.INT64, {"above": 1e30}, f"x > {2**63 - 1}"),
        (ColumnType.FLOAT64, {"below": 12.34}, "x < 12.34"),
        (ColumnType.FLOAT64, {"above": -1e22}, "x > -10000000000000000000000.0"),
        (ColumnType.FLOAT64, {"above": 1e-7}, "x > 0.0000001"),
        # As the value is stored that is no greater: nine digits say which float32 it is.
        (ColumnType.FLOAT32, {"above": 12.34}, "x > 12.3400002"),
    ],
)
def test_conditions(kind: ColumnType, where: dict[str, float], condition: str) -> None:
    described = Where.model_validate({"column": "x", **where})
    assert compare("x", described, Column("x", kind)) == condition


def test_a_limit_that_has_the_columns_decimals_is_stored_so() -> None:
    column = Column("x", ColumnType.FLOAT32, decimals=2)
    assert compare("x", Where(column="x", above=12.34), column) == "x > 12.34"
    between = compare("x", Where(column="x", above=12.345), column)
    assert between == f"x > {float(np.float32(12.345))}"


def test_annotated_csv_of_several_tables() -> None:
    text = (
        "#datatype,string,long,dateTime:RFC3339,double,string\r\n"
        ",result,table,_time,v,name\r\n"
        ',_result,0,2024-01-01T00:00:00.045Z,1.5,"a, ""b"""\r\n'
        "\r\n"
        "#datatype,string,long,string,dateTime:RFC3339,long\r\n"
        ",result,table,name,_time,v\r\n"
        ",_result,1,c,2024-01-01T00:00:00Z,7\r\n"
        "\r\n"
    )
    assert parse_csv(text, ["name", "v", "_time"]) == [
        ('a, "b"', 1.5, 1_704_067_200_045),
        ("c", 7, 1_704_067_200_000),
    ]
    assert parse_csv("\r\n", ["name"]) == []


def test_annotated_csv_without_some_values() -> None:
    """A column may be missing in a table, and one may have the name of an error's column."""
    text = (
        "#datatype,string,long,dateTime:RFC3339,double,boolean,string\r\n"
        ",result,table,_time,error,result,name\r\n"
        ",a,0,2024-01-01T00:00:00Z,,true,x\r\n"
        ",a,0,2024-01-01T00:00:00Z,1.5,,\r\n"
        "\r\n"
        "#datatype,string,long,long\r\n,result,table,n\r\n,b,1,7\r\n\r\n"
    )
    columns = ["error", "result", "name", "n"]
    assert list(parse_results(text, columns)) == [
        ("a", (None, True, "x", None)),
        ("a", (1.5, None, "", None)),
        ("b", (None, None, None, 7)),
    ]


def test_a_query_that_fails_half_way() -> None:
    text = (
        "#datatype,string,long,double\r\n,result,table,v\r\n,_result,0,1.5\r\n\r\n"
        "#datatype,string,string\r\n,error,reference\r\n,memory limit exceeded,897\r\n"
    )
    with pytest.raises(SimulatorError, match="aborted a query: memory limit exceeded"):
        parse_csv(text, ["v"])


# --- described queries ----------------------------------------------------------------------------

NUMERIC_TAGS: list[dict[str, Any]] = [
    {"compute": [{"function": name, "column": "table"} for name in ("min", "sum", "avg")]},
    {"compute": [{"function": "max", "column": "table"}], "per": ["table", {"every": "1m"}]},
    {"events": ["table", "timestamp"], "where": {"column": "table", "below": 0}, "devices": 3},
    {"events": ["table", "timestamp"], "order": {"by": 0}, "limit": 5},
    {
        "compute": [{"function": "sum", "column": "table"}, {"function": "count"}],
        "where": {"column": "return", "above": 0},
        "per": ["table"],
    },
]
EMPTY_TAGS: list[dict[str, Any]] = [
    {"events": ["order"], "order": {"by": 0, "descending": descending}, "limit": 90}
    for descending in (False, True)
]
MISSING: list[dict[str, Any]] = [
    # Groups without any value are there.
    {"compute": [{"function": "avg", "column": "by"}], "per": ["user", {"every": "10s"}]},
    {
        "compute": [{"function": "min", "column": "by"}],
        "per": ["user", {"every": "10s"}],
        "order": {"by": 2, "descending": True},
        "limit": 300,
    },
    {
        "compute": [{"function": name, "column": "by"} for name in ("last", "max")],
        "where": {"column": "return", "above": 0.5},
        "per": ["user", {"every": "10s"}, {"every": "1m"}],
        "order": {"by": 1},
        "limit": 40,
    },
    {"events": ["let"], "order": {"by": 0}, "limit": 100},
    {"events": ["by"], "order": {"by": 0, "descending": True}, "limit": 250, "devices": 4},
    {"events": ["let", "by"], "newest": True},
]


def test_answers_about_tags_and_missing_values(server: InfluxUnderTest) -> None:
    workload = Sundry(seed=3, device_spread=6)
    job = new_job(workload.schema, batch=200)
    prepare(server, job)
    insert_with(server.module(job), workload, 400)
    stored = Stored(workload, [StoredPart(0, 0, 400)])
    queries = [
        Query.model_validate({"name": f"query-{number}", **described})
        for number, described in enumerate([*NUMERIC_TAGS, *EMPTY_TAGS, *MISSING])
    ]
    bounds = [draw(query, stored, 0, 0) for query in queries]
    module = server.module(job)
    module.open()
    wrong = {
        bound.query: problem
        for bound, right in zip(bounds, answer_all(bounds, stored), strict=True)
        if (problem := compare_answers(right, module.fetch(module.compile(bound))))
    }
    module.close()
    assert not wrong


def test_buckets_that_dont_fit_into_each_other() -> None:
    query = Query.model_validate(
        {
            "name": "two",
            "compute": [{"function": "count"}],
            "per": [{"every": "7s"}, {"every": "1m"}],
        }
    )
    with pytest.raises(OptionError, match=r"query two: .* 7s and 1m together only if"):
        compile_query(bind(query, 0), Temperature.schema, "bucket")
