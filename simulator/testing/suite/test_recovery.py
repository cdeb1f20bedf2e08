"""Whatever happens to a connection, every event is stored exactly once, and failures are counted."""

from __future__ import annotations

from itertools import cycle

import pytest

from ...contract import PrimaryKey, Tables
from ...errors import SimulatorError
from ...modules.base import Encoding, Job, connect
from ...modules.options import LEAN
from ...worker.measure import Recorder
from ...workloads.base import Workload
from ...workloads.temperature import Temperature
from ..events import TESTED, insert, rows_of, store_devices_of
from ..server import (
    IN_FLIGHT,
    Fault,
    ServerUnderTest,
    as_observer,
    batch_of,
    key_modes,
    new_job,
    two_key_modes,
    workloads_of,
)

# Four requests in batches; the second one fails.
BATCH, EVENTS = 4, 14


def insert_during(
    server: ServerUnderTest,
    fault: Fault,
    job: Job,
    workload: Workload,
    encoding: Encoding,
    client: str = LEAN,
) -> Recorder:
    """Insert while the fault occurs: everything is stored once, and the fault is counted."""
    with server.prepare(job, encoding):
        pass
    store_devices_of(server.module(as_observer(job), encoding), workload, worker=2)
    connections: list[set[str]] = []
    with fault.prepare(server, job) as strike:

        def note() -> None:
            connections.append(server.connections(job.run_id))

        def trigger() -> None:
            note()
            strike.trigger()

        module = server.module(job, encoding, {**strike.options, "client": client})
        with connect(module.writer()) as writer:
            recorder = insert(
                writer,
                workload,
                EVENTS,
                worker=2,
                first=5,
                before={1: trigger, 2: note},
                abort=strike.abort,
            )
    # A new connection if the old one is lost or in doubt, and only then.
    before, after = connections
    assert before and after
    assert (before <= after) == (not fault.ends_a_connection)
    block = workload.block(2, 5, EVENTS)
    assert server.rows(job.schema, *job.table_names) == sorted(rows_of(block))
    retries = sum(fault.errors.values())
    assert (recorder.events, recorder.retries, recorder.errors) == (EVENTS, retries, fault.errors)
    assert recorder.result().histogram.count == len(writer.encoder.encode(block))
    return recorder


def test_exactly_once_in_every_mode(
    server: ServerUnderTest,
    thorough_fault: Fault,
    encoding: Encoding,
    primary_key: PrimaryKey,
    tables: Tables,
) -> None:
    workload = Temperature(seed=1, device_spread=2)
    job = new_job(
        workload.schema, batch=batch_of(encoding, BATCH), primary_key=primary_key, tables=tables
    )
    insert_during(server, thorough_fault, job, workload, encoding)


def test_exactly_once_whatever_happens(
    server: ServerUnderTest, strike: tuple[Fault, Encoding]
) -> None:
    """The test above covers the thorough faults."""
    fault, encoding = strike
    workload = Temperature(seed=1, device_spread=2)
    job = new_job(workload.schema, batch=batch_of(encoding, BATCH))
    insert_during(server, fault, job, workload, encoding)


def test_exactly_once_with_requests_in_flight(
    server: ServerUnderTest, fault_in_flight: Fault, pipelined: Encoding
) -> None:
    """One request suffers the fault, and later all connections end: each request is stored once."""
    workload = Temperature(seed=2, device_spread=3)
    # In turn, as all encodings share this code.
    keys = two_key_modes(server.module_type)
    key = keys[server.module_type.ENCODINGS.index(pipelined) % len(keys)]
    job = new_job(
        workload.schema, batch=batch_of(pipelined, BATCH), primary_key=key, in_flight=IN_FLIGHT
    )
    events = 60 * max(1, job.load.batch)
    with server.prepare(job, pipelined):
        pass
    with fault_in_flight.prepare(server, job) as strike:

        def cut() -> None:
            server.kill_connections(job.run_id)

        module = server.module(job, pipelined, strike.options)
        with connect(module.writer()) as writer:
            assert writer.max_in_flight == IN_FLIGHT
            recorder = insert(
                writer, workload, events, before={20: strike.trigger, 40: cut}, abort=strike.abort
            )
    expected = sorted(rows_of(workload.block(0, 0, events)))
    assert server.rows(job.schema, *job.table_names) == expected
    faults = set(fault_in_flight.errors)
    assert faults <= set(recorder.errors) <= faults | {"connection_lost"}
    retries = sum(recorder.errors.values())
    assert (recorder.events, recorder.retries) == (events, retries)
    assert recorder.result().histogram.count == 60


def test_exactly_once_for_every_workload(server: ServerUnderTest, workload_name: str) -> None:
    """Events are looked up by the schema's key. In turn in all key modes."""
    workload = TESTED[workload_name](seed=1, device_spread=3)
    encoding = server.module_type.ENCODINGS[0]
    faults = cycle(fault for fault in server.FAULTS if fault.thorough)
    names = [name for name in workloads_of(server.module_type) if name != Temperature.name]
    if workload_name not in names:
        pytest.skip("tried above")
    keys = key_modes(server.module_type)[names.index(workload_name) :: len(names)]
    for key, fault in zip(keys, faults, strict=False):
        job = new_job(workload.schema, batch=batch_of(encoding, BATCH), primary_key=key)
        insert_during(server, fault, job, workload, encoding)


def test_an_outage_that_lasts_ends_the_run(server: ServerUnderTest, thorough_fault: Fault) -> None:
    """After `max_retries`, with the last reason; every failure is counted."""
    (kind,) = thorough_fault.errors
    workload = Temperature()
    job = new_job(workload.schema, batch=BATCH)
    with server.prepare(job):
        pass
    with thorough_fault.prepare(server, job) as strike:
        module = server.module(job, options=strike.options)
        with (
            connect(module.writer()) as writer,
            pytest.raises(SimulatorError, match=rf"gave up after 0 retries \({kind}\)"),
        ):
            insert(writer, workload, EVENTS, before={1: strike.trigger}, max_retries=0)
