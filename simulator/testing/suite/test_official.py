"""By the vendor's client the same is stored as by the lean path, exactly once, and measured alike."""

from __future__ import annotations

import pytest

from ...contract import Tables
from ...errors import OptionError
from ...modules.base import Encoding, await_count
from ...workloads.temperature import Temperature
from ..events import TESTED, Awkward, rows_of
from ..inserting import insert_with
from ..server import (
    IN_FLIGHT,
    ServerUnderTest,
    as_observer,
    batch_of,
    new_job,
    table_modes,
    two_key_modes,
    workloads_of,
)
from .test_recovery import BATCH, insert_during

COUNT = 45


def test_an_official_client_stores_what_the_lean_path_stores(
    server: ServerUnderTest, official: tuple[str, Encoding]
) -> None:
    """Columns of each type, missing values, and texts with all that some format escapes."""
    client, encoding = official
    multiple = table_modes(server.module_type)[-1]
    key = two_key_modes(server.module_type)[-1]
    awkward = Awkward(device_spread=3)
    awkward.int32_range = server.module_type.CAPABILITIES.int32_range
    awkward.int64_range = server.module_type.CAPABILITIES.int64_range
    names = workloads_of(server.module_type)
    sundry = TESTED["sundry" if "sundry" in names else names[-1]](seed=5, device_spread=4)
    for workload, tables in ((awkward, multiple), (sundry, Tables.SINGLE)):
        batch = batch_of(encoding, 10)
        job = new_job(workload.schema, batch=batch, tables=tables, primary_key=key)
        observer = server.module(as_observer(job), encoding)
        observer.open()
        observer.prepare()
        stored = []
        for number, name in enumerate(("lean", client)):
            # The same events, and both in the same tables but for their keys: by another worker.
            module = server.module(job, encoding, {"client": name})
            recorder = insert_with(module, workload, COUNT, worker=number, first=3)
            assert (recorder.events, recorder.retries, recorder.errors) == (COUNT, 0, {})
            expected = (number + 1) * COUNT
            assert await_count(observer.count, expected, observer.settle_s) == expected
            stored = server.rows(job.schema, *job.table_names)
        observer.close()
        blocks = [workload.block(number, 3, COUNT) for number in range(2)]
        assert stored == sorted(rows_of(*blocks))


def test_an_official_client_stores_events_exactly_once(
    server: ServerUnderTest, official: tuple[str, Encoding]
) -> None:
    client, encoding = official
    faults = [fault for fault in type(server).FAULTS if fault.thorough]
    workload = Temperature(seed=1, device_spread=2)
    key = two_key_modes(server.module_type)[0]
    for fault in faults[:1]:
        job = new_job(workload.schema, batch=batch_of(encoding, BATCH), primary_key=key)
        insert_during(server, fault, job, workload, encoding, client)


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
