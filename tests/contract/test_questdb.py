"""What QuestDB alone has: options of its tables, keys, a log that may stand still."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simulator.contract import Level, PrimaryKey, Storage, measure_growth
from simulator.errors import OptionError, SimulatorError
from simulator.modules.base import AnyModule, await_count, connect
from simulator.modules.questdb import Questdb
from simulator.modules.questdb.queries import PgWireAsker, QuestdbAsker
from simulator.testing.events import insert_with, rows_of
from simulator.testing.server import new_job
from simulator.testing.suite.test_answers import ASKED_IN_FLIGHT, ASKED_WORKLOADS, check_answers
from simulator.workloads.defined import define
from simulator.workloads.drawing import bind
from simulator.workloads.queries import Query
from simulator.workloads.temperature import Temperature
from simulator.workloads.yaml_source import parse_definition

from ..helpers import begin_definition
from .http_proxy import HttpRequest, Refuse
from .http_server import count_inserted
from .questdb import QuestdbUnderTest

pytestmark = pytest.mark.module("questdb")


def prepared(server: QuestdbUnderTest, **options: object) -> AnyModule:
    """The module, open, with its tables made by these options."""
    module = server.module(new_job(Temperature.schema), options=options)
    module.open()
    module.prepare()
    return module


def test_what_is_allocated_ahead_is_no_events_size(server: QuestdbUnderTest) -> None:
    """100,000 events show the size that 1,500,000 show, or none, whatever pages the server allocates. By all
    bytes the first would take 670 each by default, the others 66."""
    workload = Temperature(seed=8)
    module = server.module(new_job(workload.schema, batch=10_000))
    module.open()
    module.prepare()
    done, storages = 0, []
    for events in (40_000, 100_000, 600_000, 1_500_000):
        insert_with(server.module(module.job), workload, events - done, first=done)
        assert await_count(module.count, events, module.settle_s) == events
        done = events
        storages.append(module.storage())
    module.close()

    def weigh(sizes: Sequence[Storage]) -> float | None:
        levels: list[Level] = [level for size in sizes if (level := size.find_level())]
        assert sizes[-1].allocation is not None
        return measure_growth(levels, sizes[-1].allocation)

    few, many = weigh(storages[:2]), weigh(storages[2:])
    # Time and sequence number have 8 bytes each, device (a symbol) and temperature 4.
    assert many == pytest.approx(24, rel=0.05)
    assert few is None or few == pytest.approx(many, rel=0.25)


def test_a_tables_options_are_told(server: QuestdbUnderTest) -> None:
    module = prepared(
        server,
        partition_by="month",
        o3_max_lag="7s",
        max_uncommitted_rows=1234,
        index_devices=True,
    )
    settings = module.server_info()["settings"]
    module.close()
    assert settings["partition_by"] == "MONTH"
    assert settings["o3MaxLag_us"] == 7_000_000
    assert settings["maxUncommittedRows"] == 1234
    assert settings["dedup"] is True
    assert settings["cairo.commit.mode"] == "nosync"
    indexed = server.sql(f'SELECT "column" FROM (SHOW COLUMNS FROM "{server.prefix}events")'
                         " WHERE indexed")  # fmt: skip
    assert indexed == [("device_id",)]


def test_a_table_with_other_keys_is_refused(server: QuestdbUnderTest) -> None:
    prepared(server).close()
    job = new_job(Temperature.schema, primary_key=PrimaryKey.CLIENT, clean=False)
    module = server.module(job)
    module.open()
    with pytest.raises(
        SimulatorError, match=r"a different primary key .* or with --primary-key none"
    ):
        module.prepare()
    module.close()


def test_a_table_that_stands_still_is_said(
    server: QuestdbUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what it has so far counted. Only a server in development can be told to suspend one."""
    names = ("name", "suspended", "writerTxn", "sequencerTxn", "errorMessage")
    columns = [{"name": name, "type": "STRING"} for name in names]
    suspended = ["events", True, 1, 2, "no space left on device"]

    def answer(request: HttpRequest) -> Refuse | None:
        if "wal_tables" not in request.target:
            return None
        return Refuse(200, {"columns": columns, "dataset": [suspended]})

    module = prepared(server)
    monkeypatch.setattr(server.proxy, "instead", answer)
    with pytest.raises(SimulatorError, match=r"suspended table events \(no space.* RESUME WAL"):
        module.count()
    monkeypatch.undo()
    assert module.count() == 0
    module.close()


def test_waiting_for_the_log_ends(
    server: QuestdbUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        server.proxy,
        "instead",
        lambda request: (
            Refuse(200, {"columns": [], "dataset": [["events", False, 1, 2, ""]]})
            if "wal_tables" in request.target
            else None
        ),
    )
    module = prepared(server, database_timeout_s=0.2)
    with pytest.raises(SimulatorError, match=r"not applied the log of .*events after 0\.2 s"):
        module.count()
    module.close()


def test_another_servers_answer_is_known_as_one(
    server: QuestdbUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QuestDB's own errors are JSON."""
    other = Refuse(400, b'unsupported path requested: "/exec"')
    monkeypatch.setattr(server.proxy, "instead", lambda _: other)
    with pytest.raises(SimulatorError, match="check that endpoint names QuestDB's HTTP server"):
        server.module(new_job(Temperature.schema)).open()


def test_the_same_events_again_change_nothing(server: QuestdbUnderTest) -> None:
    module = prepared(server)
    for _ in range(2):
        insert_with(server.module(module.job), Temperature(), 8)
    assert module.count() == 8
    module.close()


@pytest.mark.parametrize("in_flight", [1, ASKED_IN_FLIGHT])
def test_queries_go_over_http_without_a_connection_string(
    server: QuestdbUnderTest, in_flight: int
) -> None:
    """Their answers are the same."""
    over_http = {"connection_string": None}
    module = server.module(new_job(Temperature.schema), options=over_http)
    assert isinstance(module.asker(1), QuestdbAsker)
    assert isinstance(server.module(module.job).asker(1), PgWireAsker)
    for workload in ASKED_WORKLOADS:
        check_answers(server, workload, in_flight, over_http)


def test_pgwire_needs_to_know_where_it_is(server: QuestdbUnderTest) -> None:
    values = {"endpoint": server.options["endpoint"], "insert_mode": "statement"}
    options = Questdb.options_model.model_validate(values)
    with pytest.raises(
        OptionError, match="insert_mode=statement needs the option connection_string"
    ):
        Questdb(options, new_job(Temperature.schema))


def test_a_table_may_be_wider_than_a_url(server: QuestdbUnderTest) -> None:
    """Its columns are counted in bytes. Only what can't be asked over HTTP is refused."""
    definition = begin_definition("wide", "device", devices=3) + (
        f"  - {{name: {'x' * 54}, type: float32, repeat: 440, signal: {{kind: uniform, low: 0, high: 9}}}}\n"
        "  - {name: last, type: text, tag: true, signal: {kind: constant, value: a}}\n"
    )
    workload = define(parse_definition(definition, "wide.yaml"))()
    job = new_job(workload.schema, batch=10)
    assert count_inserted(server, job, 20, workload) == 20
    assert server.rows(workload.schema, "wide") == sorted(rows_of(workload.block(0, 0, 20)))
    assert (
        count_inserted(server, new_job(workload.schema, batch=10, clean=False), 20, workload) == 20
    )
    names = [column.name for column in workload.schema.columns]
    whole = bind(Query(name="whole", events=tuple(names)), 0)
    narrow = bind(Query(name="narrow", events=(names[-2], "last")), 0)
    with connect(server.module(job)) as module:
        assert len(module.fetch(module.compile(whole))) == 20
    with connect(server.module(job, options={"connection_string": None})) as module:
        assert len(module.fetch(module.compile(narrow))) == 20
        with pytest.raises(
            SimulatorError, match=r"a statement has .* bytes in a URL, .* set connection_str"
        ):
            module.fetch(module.compile(whole))
