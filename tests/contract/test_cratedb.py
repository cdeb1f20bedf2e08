"""What the suite doesn't ask of CrateDB: a way in with a password, table settings, requests in flight."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from simulator.contract import PrimaryKey, Tables
from simulator.errors import Retryable, SimulatorError
from simulator.modules.base import AnyModule, Job
from simulator.modules.cratedb.server import CratedbWriter, count_copies
from simulator.modules.sending import Request
from simulator.testing.events import Awkward, insert, insert_with, rows_of
from simulator.testing.server import ServerUnderTest, as_observer, new_job
from simulator.worker import connect
from simulator.workloads.temperature import Temperature

from .cratedb import CratedbStandIn, CratedbUnderTest
from .cratedb_stand_in import PASSWORD

pytestmark = pytest.mark.module("cratedb")


@pytest.fixture
def crate(server: ServerUnderTest) -> CratedbUnderTest:
    assert isinstance(server, CratedbUnderTest)
    return server


def test_credentials_over_tls(crate: CratedbUnderTest) -> None:
    if not isinstance(crate, CratedbStandIn):
        pytest.skip("the server's users aren't known")
    for trust in ({"ca_certs": crate.trusted}, {"verify_certs": False}):
        way_in = {"endpoint": crate.encrypted, "user": "somebody", "password": PASSWORD}
        job = new_job(Temperature.schema, batch=10)
        module = crate.module(as_observer(job), options=way_in | trust)
        module.open()
        module.prepare()
        insert_with(crate.module(job, options=way_in | trust), Temperature(), 20)
        assert module.count() == 20
        module.close()


@pytest.mark.parametrize(
    ("shards", "copies"), [([(True, 4)], 1), ([(False, 8), (True, 4)], 3), ([(False, 1)], 0)]
)
def test_copies_are_primaries_and_replicas(shards: list[tuple[bool, int]], copies: int) -> None:
    assert count_copies(shards) == copies


def test_tables_are_made_as_the_options_say(crate: CratedbUnderTest) -> None:
    module = crate.module(new_job(Temperature.schema), options={"shards": 3, "replicas": "0-1"})
    module.open()
    module.prepare()
    info = module.server_info()
    module.close()
    assert info["version"].startswith("CrateDB ")
    shown = {name: str(value).lower() for name, value in info["settings"].items()}
    assert shown["number_of_shards"] == "3"
    assert shown["number_of_replicas"] == "0-1"
    assert shown["translog.durability"] == "request"
    assert int(shown["nodes"]) >= 1


@pytest.mark.parametrize("key", [PrimaryKey.DB, PrimaryKey.CLIENT])
@pytest.mark.parametrize("mode", ["bulk", "unnest"])
@pytest.mark.parametrize("fate", ["drop request", "drop answer"])
def test_exactly_once_with_requests_in_flight(
    crate: CratedbUnderTest, key: PrimaryKey, mode: str, fate: Any
) -> None:
    workload = Temperature(device_spread=3)
    job = new_job(workload.schema, batch=10, primary_key=key, tables=Tables.MULTIPLE)
    options = {"concurrent_requests": 4, "insert_mode": mode}
    with crate.prepare(job):
        pass

    def trigger() -> None:
        crate.proxy.fate = fate

    with connect(crate.module(job, options=options).writer()) as writer:
        recorder = insert(writer, workload, 200, before={8: trigger})
        # As many connections at once as it may have.
        assert 1 < len(crate.connections(job.run_id)) <= 4
    assert crate.rows(job.schema, *job.table_names) == sorted(rows_of(workload.block(0, 0, 200)))
    assert recorder.errors == {"connection_lost": 1}
    assert recorder.retries == 1


def test_the_others_go_on_while_one_request_is_in_doubt(
    crate: CratedbUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding out takes seconds at best, in which an open loop has more to send."""
    job = new_job(Temperature.schema, batch=10, in_flight=4)
    prepared(crate, job).close()
    all_sent = threading.Event()
    waited: list[bool] = []
    look = CratedbWriter.settle

    def settle(writer: CratedbWriter, payload: Request) -> bool:
        waited.append(all_sent.wait(20))
        return look(writer, payload)

    monkeypatch.setattr(CratedbWriter, "settle", settle)

    def trigger() -> None:
        crate.proxy.fate = "drop answer"

    with connect(crate.module(job).writer()) as writer:
        recorder = insert(writer, Temperature(), 800, before={8: trigger, 79: all_sent.set})
    assert waited == [True]
    assert recorder.errors == {"connection_lost": 1}
    assert crate.rows(job.schema, "events") == sorted(rows_of(Temperature().block(0, 0, 800)))


@pytest.mark.parametrize("mode", ["bulk", "unnest"])
def test_a_part_that_is_stored_already_is_not_stored_again(
    crate: CratedbUnderTest, mode: str
) -> None:
    """As when a node dies in the middle of a request."""
    workload = Temperature(device_spread=3)
    job = new_job(workload.schema, batch=8)
    with crate.prepare(job):
        pass
    block = workload.block(0, 0, 8)
    with connect(crate.module(job, options={"insert_mode": mode}).writer()) as writer:
        assert isinstance(writer, CratedbWriter)
        encoder: Any = writer.encoder
        (payload,) = encoder.encode(block)
        payload.data[0].keep([6, 1, 4], payload)
        writer.call(payload)
        (payload,) = encoder.encode(block)
        payload.data[0].in_doubt = True
        assert not writer.settle(payload)
        assert list(payload.data[0].rows) == [0, 2, 3, 5, 7]
        assert writer.call(payload).done == 8
        (payload,) = encoder.encode(block)
        payload.data[0].in_doubt = True
        assert writer.settle(payload)
    assert crate.rows(job.schema, *job.table_names) == sorted(rows_of(block))


@pytest.mark.parametrize("mode", ["bulk", "single"])
def test_rows_that_a_node_has_sent_again_itself_are_stored_once(
    crate: CratedbUnderTest, mode: str
) -> None:
    """When a primary shard dies, CrateDB repeats its part of the request, and meets what is there."""
    workload = Temperature(device_spread=3)
    size = 4 if mode == "bulk" else 0
    job = new_job(workload.schema, batch=size, primary_key=PrimaryKey.CLIENT)
    prepared(crate, job).close()
    block = workload.block(0, 0, 8)
    with connect(crate.module(job, options={"insert_mode": mode}).writer()) as writer:
        assert isinstance(writer, CratedbWriter)
        payloads = writer.encoder.encode(block)
        writer.call(payloads[0])
        # By another writer, so that this one knows nothing of it.
        with connect(crate.module(job, options={"insert_mode": mode}).writer()) as other:
            other.call(writer.encoder.encode(block)[1])
        with pytest.raises(Retryable) as doubted:
            writer.call(payloads[1])
        assert doubted.value.kind == "duplicate_key"
        assert writer.settle(payloads[1])
    stored = crate.rows(job.schema, *job.table_names)
    assert stored == sorted(rows_of(block.part(0, 8 if size else 2)))


def test_an_earlier_runs_event_ends_the_run(crate: CratedbUnderTest) -> None:
    workload = Temperature(device_spread=3)
    job = new_job(workload.schema, batch=4, primary_key=PrimaryKey.CLIENT)
    prepared(crate, job).close()
    insert_with(crate.module(job), workload, 4)
    with pytest.raises(SimulatorError, match="an earlier run has stored the event"):
        insert_with(crate.module(job), workload, 4)


def test_a_server_that_lists_no_jobs_is_told_of_before_the_run(crate: CratedbUnderTest) -> None:
    """Nothing would say when a request in doubt has ended, and events would be stored twice."""
    prepared(crate, new_job(Temperature.schema)).close()
    with crate.listing_no_jobs():
        module = crate.module(new_job(Temperature.schema))
        module.open()
        with pytest.raises(SimulatorError, match=r"stats\.enabled.*--primary-key client"):
            module.prepare()
        module.close()
        assert crate.tables() == {"events"}
        # Nothing can be stored twice.
        prepared(crate, new_job(Temperature.schema, primary_key=PrimaryKey.CLIENT)).close()


def test_the_ends_of_bigint_are_those_that_are_declared(crate: CratedbUnderTest) -> None:
    """Beyond them the server refuses a row, and the run ends at once."""
    low, high = crate.module_type.CAPABILITIES.int64_range
    for beyond in (low - 1, high + 1):
        workload = Awkward()
        workload.int64_range = (low, beyond)
        job = new_job(workload.schema, batch=10)
        prepared(crate, job).close()
        with pytest.raises(SimulatorError, match="exceeds allowed range"):
            insert_with(crate.module(job), workload, 10)


def test_a_user_without_privileges_is_told_which(crate: CratedbUnderTest) -> None:
    prepared(crate, new_job(Temperature.schema)).close()
    with crate.stranger() as (user, password):
        way_in = {"endpoint": crate.encrypted, "user": user, "password": password}
        module = crate.module(
            new_job(Temperature.schema), options=way_in | {"ca_certs": crate.trusted}
        )
        module.open()
        remedy = f"GRANT DQL, DML, DDL ON SCHEMA {crate.schema} TO {user}"
        for ask in (module.prepare_queries, module.count, module.prepare):
            with pytest.raises(SimulatorError, match=remedy):
                ask()
        module.close()


def prepared(crate: CratedbUnderTest, job: Job) -> AnyModule:
    """A module, open, whose tables are made."""
    module = crate.module(job)
    module.open()
    module.prepare()
    return module
