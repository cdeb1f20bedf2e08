"""VictoriaMetrics: duplicates, precision, missing values, and times that it drops."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.collector.database import Preparation
from simulator.contract import DataSet, Load, Role, RunSettings, make_groups
from simulator.errors import SimulatorError
from simulator.modules.base import Job, await_count, connect
from simulator.testing.events import insert_with, make_schema, rows_of
from simulator.testing.server import new_job
from simulator.testing.suite import test_tables
from simulator.workloads.base import Workload
from simulator.workloads.defined import define
from simulator.workloads.drawing import bind
from simulator.workloads.queries import Query
from simulator.workloads.schema import Column, ColumnType, EventBlock
from simulator.workloads.temperature import Temperature
from simulator.workloads.yaml_source import parse_definition

from ..helpers import begin_definition
from .http_proxy import Refuse
from .http_server import await_health, count_inserted, find_program
from .victoriametrics import VictoriaMetricsUnderTest

pytestmark = pytest.mark.module("victoriametrics")


class Sparse(Workload):
    """Numbers of all types, with some missing."""

    name = "sparse"
    schema = make_schema(
        "sparse",
        Column("floor", ColumnType.INT32, tag=True),
        Column("heat", ColumnType.FLOAT32, nullable=True),
        Column("open", ColumnType.BOOL),
        Column("big", ColumnType.INT64),
        Column("seen", ColumnType.TIMESTAMP_MS, nullable=True),
        Column("exact", ColumnType.FLOAT64, decimals=5),
    )

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        numbers = np.arange(first, first + count, dtype=np.int64)
        devices = self.dealt_devices(worker, first, count)
        columns = {
            "at": 1_704_067_200_000 + numbers * 1000,
            "device": devices,
            "floor": (numbers % self.device_spread).astype(np.int32),
            "heat": np.float32(0.1) * numbers.astype(np.float32),
            "open": numbers % 3 == 0,
            "big": 2**53 - numbers,
            "seen": 2**41 + numbers,
            "exact": np.round(123_456.12345 - numbers * 0.00001, 5),
        }
        missing = {"heat": numbers % 4 == 3, "seen": numbers % 5 == 0}
        return EventBlock(self.schema, worker, first, columns, devices, missing)


def test_numbers_of_all_types_and_missing_ones(server: VictoriaMetricsUnderTest) -> None:
    workload = Sparse(device_spread=2)
    server.learn(workload.schema)
    job = new_job(workload.schema, batch=7)
    module = server.module(job)
    module.open()
    module.prepare()
    insert_with(server.module(job), workload, 40)
    assert server.rows(workload.schema, "sparse") == sorted(rows_of(workload.block(0, 0, 40)))
    # The newest events lack one value each: an older one is not theirs.
    newest = Query(name="newest", newest=True, events=("at", "heat", "seen", "open", "floor"))
    last = Query.model_validate(
        {
            "name": "last",
            "per": ["device"],
            "compute": [{"function": "last", "column": name} for name in ("heat", "big", "floor")],
        }
    )
    assert await_count(module.count, 40, module.settle_s) == 40
    answers = {
        query.name: sorted(module.fetch(module.compile(bind(query, 0)))) for query in (newest, last)
    }
    module.close()
    at, big = 1_704_067_200_000, 2**53
    heat = float(np.float32(0.1) * np.float32(38))
    assert [(*row[:2], np.float32(row[2] or -1), *row[3:]) for row in answers["newest"]] == [
        ("w00000d000000", at + 38_000, np.float32(heat), 2**41 + 38, False, 0),
        ("w00000d000001", at + 39_000, -1, 2**41 + 39, True, 1),
    ]
    assert [(row[0], row[1] is None, *row[2:]) for row in answers["last"]] == [
        ("w00000d000000", False, big - 38, 0),
        ("w00000d000001", True, big - 39, 1),
    ]


def test_floats_keep_twelve_digits(server: VictoriaMetricsUnderTest) -> None:
    """So floats of 17 digits are refused, and the suite has none."""
    written = [0.1234567890123456, 98765.43210987654, 1_234_567.890123456]
    lines = "\n".join(f"a,{1_704_067_200_000 + at},{value}" for at, value in enumerate(written))
    params = {
        "format": "1:label:device_id,2:time:unix_ms,3:metric:events:temperature",
        "extra_label": f"_db={server.db}",
    }
    server.http.post("/api/v1/import/csv", params=params, content=lines).raise_for_status()
    [series] = server.series("events")
    assert series["values"] != written
    assert series["values"] == pytest.approx(written, rel=1e-11, abs=0)


# --- duplicates -----------------------------------------------------------------------------------


@contextmanager
def own_server(url: str, folder: Path, *flags: str) -> Iterator[str]:
    """The URL of another process of the program that serves `url`, with flags of its own."""
    program = find_program(url, "victoria")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        program, f"-httpListenAddr={address}", f"-storageDataPath={folder}",
        "-loggerLevel=ERROR", *flags,
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_health(f"http://{address}", "VictoriaMetrics")
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait(30)


def insert_twice(
    server: VictoriaMetricsUnderTest, expected: int, **options: str
) -> tuple[int | None, bool]:
    """How many events are counted after each was sent twice, and whether the writer knows that it may."""
    job = new_job(Temperature.schema, batch=10)
    module = server.module(job, options=options)
    module.open()
    module.prepare()
    for _ in range(2):
        insert_with(server.module(job, options=options), Temperature(device_spread=3), 50)
    counted = await_count(module.count, expected, module.settle_s)
    module.close()
    writer = server.module(job, options=options).writer()
    writer.open()
    writer.close()
    return counted, writer._is_idempotent  # type: ignore[attr-defined]


def test_a_duplicate_counts_twice_unless_the_server_removes_it(
    server: VictoriaMetricsUnderTest, tmp_path: Path
) -> None:
    assert insert_twice(server, 100) == (100, False)
    url, flags = os.environ["VICTORIAMETRICS_URL"], ["-retentionPeriod=100y"]
    with own_server(url, tmp_path, *flags, "-dedup.minScrapeInterval=1ms") as own:
        assert insert_twice(server, 50, endpoint=own) == (50, True)


def test_size_on_disk(
    server: VictoriaMetricsUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server that has nothing else."""
    with own_server(os.environ["VICTORIAMETRICS_URL"], tmp_path, "-retentionPeriod=100y") as own:
        monkeypatch.setitem(server.options, "endpoint", own)
        monkeypatch.setattr(server, "tells_size", True, raising=False)
        test_tables.test_the_size_on_disk_grows_with_the_events(server)


@pytest.mark.parametrize("status", [404, 405])
def test_another_servers_answer_is_known_as_one(
    server: VictoriaMetricsUnderTest, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(server.proxy, "instead", lambda _: Refuse(status, b"no such method"))
    with pytest.raises(
        SimulatorError, match="check that endpoint names VictoriaMetrics's HTTP server"
    ):
        server.module(new_job(Temperature.schema)).open()


# --- labels and names -----------------------------------------------------------------------------


def pumps(table: str, heat: str, *tags: str) -> Workload:
    """A pump's only number, called so, and tags with these texts, the first of them called `db`."""
    columns = f"  - {{name: {heat}, type: int32, signal: {{kind: uniform, low: 0, high: 99}}}}\n"
    for number, text in enumerate(tags):
        signal = f"{{kind: constant, value: '{text}'}}"
        name = f"tag{number}" if number else "db"
        columns += f"  - {{name: {name}, type: text, tag: true, signal: {signal}}}\n"
    definition = begin_definition(table, "device", devices=3) + columns
    return define(parse_definition(definition, "pumps.yaml"))()


def count_stored(
    server: VictoriaMetricsUnderTest, workload: Workload, **options: str
) -> int | None:
    job = new_job(workload.schema, batch=10)
    return count_inserted(server, job, 20, workload, **options)


def test_events_with_more_or_longer_labels_than_the_server_takes_are_refused(
    server: VictoriaMetricsUnderTest, tmp_path: Path
) -> None:
    """Nothing is deleted then."""
    flags = ("-maxLabelsPerTimeseries=5", "-maxLabelValueLen=24", "-retentionPeriod=100y")
    with own_server(os.environ["VICTORIAMETRICS_URL"], tmp_path, *flags) as own:
        options = {"endpoint": own, "db": "a"}
        fits = pumps("pump", "heat", "ü" * 12, "b")
        assert count_stored(server, fits, **options) == 20
        for refused, remedy in (
            (pumps("pump", "heat", "a", "b", "c"), "6 labels .*-maxLabelsPerTimeseries=6"),
            (pumps("pump", "heat", "ü" * 12 + "x"), "25 bytes: .*-maxLabelValueLen=25"),
            (pumps("pump", "h" * 20), "25 bytes: .*-maxLabelValueLen=25"),
        ):
            with pytest.raises(SimulatorError, match=remedy):
                count_stored(server, refused, **options)
        with connect(server.module(new_job(fits.schema, clean=False), options=options)) as module:
            assert module.count() == 20


@pytest.mark.parametrize("db", [None, "mine"])
def test_tables_share_no_series_and_a_tag_may_be_called_db(
    server: VictoriaMetricsUnderTest, monkeypatch: pytest.MonkeyPatch, db: str | None
) -> None:
    """Neither with each other nor with what was written by the line protocol."""
    first, second = pumps("pump", "station_heat", "a"), pumps("pump_station", "heat", "a")
    line = "pump,device=x,db=a station_heat=1,heat=1 1704067200000"
    server.http.post("/write?precision=ms", content=line).raise_for_status()
    options = {} if db is None else {"db": db}
    monkeypatch.delitem(server.options, "db")
    assert [count_stored(server, kind, **options) for kind in (first, second)] == [20, 20]
    job = new_job(first.schema, clean=False)
    with connect(server.module(job, options=options)) as module:
        assert module.count() == 20
        query = Query.model_validate(
            {"name": "n", "per": ["db"], "compute": [{"function": "count"}]}
        )
        assert module.fetch(module.compile(bind(query, 0))) == [("a", 20)]
    own = {"match[]": '{__name__=~"pump[:_].*"}'}
    server.http.post("/api/v1/admin/tsdb/delete_series", data=own).raise_for_status()


# --- times ----------------------------------------------------------------------------------------


def prepare(
    server: VictoriaMetricsUnderTest, workload: Workload, loads: Sequence[Load], **options: str
) -> None:
    """Prepare a run as the collector does."""
    job = Job(workload.schema, loads[0], run_id="observer")
    settings = RunSettings(
        run_id="observer", token="", target="x", module="victoriametrics", options={},
        data=DataSet(), groups=make_groups(*loads),
    )  # fmt: skip
    module = server.module(job, options=options)
    preparation = Preparation(settings, module, workload)
    try:
        preparation.prepare()
    finally:
        preparation.close()


class Ahead(Temperature):
    """Events from now on."""

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        block = super().block(worker, first, count, time_origin)
        now_ms = np.datetime64("now", "ms").astype(int)
        times = block.columns["timestamp"] - 1_704_067_200_000 + now_ms
        return replace(block, columns={**block.columns, "timestamp": times})


def test_events_that_would_be_dropped_are_refused_before_the_run(
    server: VictoriaMetricsUnderTest, tmp_path: Path
) -> None:
    """450 ms apart, two days are 384,000 events."""
    prepare(server, Ahead(), [Load(events=380_000)])
    prepare(server, Ahead(), [Load(events=380_000), Load(role=Role.CHECK)])
    with pytest.raises(SimulatorError, match="drops all others"):
        prepare(server, Ahead(), [Load(events=390_000)])
    # A run that ends by the clock begins, and ends where such an event comes.
    prepare(server, Ahead(), [Load(events=390_000, duration_s=5)])
    job = new_job(Ahead.schema, batch=1000)
    with pytest.raises(SimulatorError, match="would drop an event"):
        insert_with(server.module(job), Ahead(), 1000, first=390_000)
    with own_server(os.environ["VICTORIAMETRICS_URL"], tmp_path) as own:
        with pytest.raises(SimulatorError, match="drops all others"):
            prepare(server, Temperature(), [Load(events=1)], endpoint=own)
        with pytest.raises(SimulatorError, match="would drop an event"):
            insert_with(server.module(job, options={"endpoint": own}), Temperature(), 1000)
