"""By the vendor's client the same is stored as by the lean path, exactly once, and measured alike."""

from __future__ import annotations

import pytest

from ...contract import Tables
from ...errors import OptionError
from ...modules.base import Encoding, await_count
from ...workloads.base import Workload
from ...workloads.temperature import Temperature
from ..events import TESTED, Awkward, insert_with
from ..server import (
    IN_FLIGHT,
    ServerUnderTest,
    batch_of,
    new_job,
    table_modes,
    two_key_modes,
    workloads_of,
)
from .test_inserts import check_dealt, insert_in_flight
from .test_recovery import BATCH, insert_during

COUNT = 45


def check_stored(
    server: ServerUnderTest, official: tuple[str, Encoding], workload: Workload, tables: Tables
) -> None:
    """Insert by the client; all is stored as it was generated, as by the lean path."""
    client, encoding = official
    key = two_key_modes(server.module_type)[-1]
    job = new_job(workload.schema, batch=batch_of(encoding, 10), tables=tables, primary_key=key)
    with server.prepare(job, encoding) as observer:
        module = server.module(job, encoding, {"client": client})
        recorder = insert_with(module, workload, COUNT, first=3)
        assert (recorder.events, recorder.retries, recorder.errors) == (COUNT, 0, {})
        assert await_count(observer.count, COUNT, observer.settle_s) == COUNT
    check_dealt(server, job, workload.block(0, 3, COUNT))


def test_an_official_client_stores_events_of_all_types(
    server: ServerUnderTest, official: tuple[str, Encoding]
) -> None:
    """Also those that lack values, where the database has such."""
    names = workloads_of(server.module_type)
    workload = TESTED["sundry" if "sundry" in names else names[-1]](seed=5, device_spread=4)
    check_stored(server, official, workload, Tables.SINGLE)


def test_an_official_client_stores_awkward_events_in_several_tables(
    server: ServerUnderTest, official_client: tuple[str, Encoding]
) -> None:
    """Texts with all that some format escapes."""
    workload = Awkward(device_spread=3)
    workload.int32_range = server.module_type.CAPABILITIES.int32_range
    workload.int64_range = server.module_type.CAPABILITIES.int64_range
    check_stored(server, official_client, workload, table_modes(server.module_type)[-1])


def test_an_official_client_stores_events_exactly_once(
    server: ServerUnderTest, official_client: tuple[str, Encoding]
) -> None:
    client, encoding = official_client
    faults = [fault for fault in type(server).FAULTS if fault.thorough]
    workload = Temperature(seed=1, device_spread=2)
    key = two_key_modes(server.module_type)[-1]
    for fault in faults[:1]:
        job = new_job(workload.schema, batch=batch_of(encoding, BATCH), primary_key=key)
        insert_during(server, fault, job, workload, encoding, client)


def test_an_official_client_holds_several_requests_in_flight(
    server: ServerUnderTest, official_in_flight: tuple[str, Encoding]
) -> None:
    client, encoding = official_in_flight
    workload = Temperature(seed=4, device_spread=3)
    job = new_job(workload.schema, batch=batch_of(encoding, 5), in_flight=IN_FLIGHT)
    insert_in_flight(server, job, workload, 30, encoding, client)


def test_only_the_clients_that_a_module_has_can_be_chosen(server: ServerUnderTest) -> None:
    clients = server.module_type.CAPABILITIES.clients
    with pytest.raises(OptionError, match=r"has no client=offical.*\(known: lean") as refused:
        server.module(new_job(Temperature.schema), options={"client": "offical"})
    assert "\n" not in str(refused.value)
    assert all(name in str(refused.value) for name in clients)
    for name, client in clients.items():
        for encoding in server.module_type.ENCODINGS:
            job = new_job(Temperature.schema, batch=batch_of(encoding, 10))
            if encoding.label.split()[0] not in client.ways:
                with pytest.raises(OptionError, match="has no way to insert in mode"):
                    server.module(job, encoding, {"client": name})
                continue
            module = server.module(job, encoding, {"client": name})
            assert set(client.packages) <= set(module.packages)
            several = new_job(Temperature.schema, batch=job.load.batch, in_flight=IN_FLIGHT)
            if not client.in_flight:
                with pytest.raises(OptionError, match="holds one request in flight"):
                    server.module(several, encoding, {"client": name})
