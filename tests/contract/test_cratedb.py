"""What the suite doesn't ask of CrateDB: a way in with a password, table settings, requests in flight."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.contract import PrimaryKey, Tables
from simulator.testing.events import rows_of
from simulator.testing.inserting import insert, insert_with
from simulator.testing.server import ServerUnderTest, new_job, observing
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
        module = crate.module(observing(job), options=way_in | trust)
        module.open()
        module.prepare()
        insert_with(crate.module(job, options=way_in | trust), Temperature(), 20)
        assert module.count() == 20
        module.close()


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
    module = crate.module(observing(job))
    module.open()
    module.prepare()
    module.close()

    def blow() -> None:
        crate.proxy.fate = fate

    with connect(crate.module(job, options=options).writer(10)) as writer:
        recorder = insert(writer, workload, 200, 10, before={8: blow})
        # As many connections at once, as it may.
        assert 1 < len(crate.connections(job.run_id)) <= 4
    assert crate.rows(job.schema, *job.table_names) == sorted(rows_of(workload.block(0, 0, 200)))
    assert recorder.errors == {"connection_lost": 1}
    assert recorder.retries == 1


@pytest.mark.parametrize("mode", ["bulk", "unnest"])
def test_a_part_that_is_stored_already_is_not_stored_again(
    crate: CratedbUnderTest, mode: str
) -> None:
    """As when a node dies in the middle of a request."""
    workload = Temperature(device_spread=3)
    job = new_job(workload.schema, batch=8)
    module = crate.module(observing(job))
    module.open()
    module.prepare()
    module.close()
    block = workload.block(0, 0, 8)
    with connect(crate.module(job, options={"insert_mode": mode}).writer(8)) as writer:
        encoder: Any = writer.encoder
        (payload,) = encoder.encode(block, 8)
        encoder.keep(payload.data[0], block, [6, 1, 4])
        writer.send(payload)
        (payload,) = encoder.encode(block, 8)
        payload.data[0].in_doubt = True
        assert not writer.recover(payload)
        assert list(payload.data[0].rows) == [0, 2, 3, 5, 7]
        assert writer.send(payload) == 8
        (payload,) = encoder.encode(block, 8)
        payload.data[0].in_doubt = True
        assert writer.recover(payload)
    assert crate.rows(job.schema, *job.table_names) == sorted(rows_of(block))
