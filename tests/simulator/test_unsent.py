"""What is known of the events that were sent when a run ends by the clock, in whatever order that was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from simulator.contract import Load
from simulator.modules.base import Capabilities, Job, Support
from simulator.modules.cassandra.encoding import BatchType, CassandraEncoder
from simulator.modules.sending import Encoder, Request
from simulator.oracle.answers import answer_blocks
from simulator.testing.events import Sparse
from simulator.worker.feed import Feed
from simulator.workloads.base import Workload
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Shape
from simulator.workloads.schema import EventBlock
from simulator.workloads.temperature import Temperature

from ..helpers import NumberEncoder, worker_result
from .collecting import FakeDatabase, Run, play
from .writing import FakeWriter

BATCH = 5


def sorting(workload: Workload) -> CassandraEncoder:
    """An encoder whose requests are of one device each."""
    job = Job(workload.schema, Load(batch=BATCH))
    return CassandraEncoder(job, BatchType.UNLOGGED, "ONE", workload.device_spread)


def keys_of(payloads: Sequence[Request]) -> set[tuple[object, ...]]:
    """The events of requests."""
    return {
        tuple(payload.block.key_of(row).values())
        for payload in payloads
        for row in range(payload.last + 1 - payload.events, payload.last + 1)
    }


@pytest.mark.parametrize("sorts", [False, True])
@pytest.mark.parametrize("requests", [0, 1, 3, 8, 9, 20, 27])
def test_missing_values_are_counted_of_what_was_sent(
    monkeypatch: pytest.MonkeyPatch, sorts: bool, requests: int
) -> None:
    """Of chunks that were made ahead none counts, and of the last one what was sent of it."""
    monkeypatch.setattr("simulator.worker.feed._CHUNK_EVENTS", 45)
    workload = Sparse(device_spread=3)
    encoder: Encoder = sorting(workload) if sorts else NumberEncoder(BATCH)
    feed = Feed(lambda first, count: workload.block(0, first, count), encoder, 7, None)
    feed.prime()
    source = iter(feed)
    payloads = [next(source) for _ in range(requests)]
    sent = sum(payload.events for payload in payloads)
    missing = sum(
        int(np.count_nonzero(p.block.missing["level"][p.last + 1 - p.events : p.last + 1]))
        for p in payloads
    )
    assert feed.count_lacking(sent)["level"] == missing
    chunk = feed.find_chunk(sent)
    assert chunk is not None
    assert chunk.first <= 7 + sent <= chunk.first + chunk.count
    source.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("lost", "missing"), [(0, 0), (1, BATCH)])
def test_events_that_were_sorted_are_looked_up_where_a_run_ends_by_the_clock(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch, lost: int, missing: int
) -> None:
    """Two workers were interrupted while they sent a chunk of 150 events device by device."""
    workload = Temperature(device_spread=3)
    monkeypatch.setattr("simulator.collector.run.build", lambda _: (workload, database))
    database.job = Job(workload.schema, Load(batch=BATCH))
    encoder = sorting(workload)
    stored: list[EventBlock] = []
    for worker in range(2):
        stored.append(workload.block(worker, 0, 40))
        payloads = encoder.encode(workload.block(worker, 40, 150))
        sent = payloads[: 60 // BATCH]
        assert len(keys_of(sent)) == 60
        stored += [p.block.part(p.last + 1 - p.events, p.last + 1) for p in sent[lost * worker :]]

    def fetch(bound: BoundQuery) -> Sequence[tuple[object, ...]]:
        return answer_blocks(bound, workload.schema, stored).rows

    monkeypatch.setattr(
        database, "CAPABILITIES", Capabilities({}, {}, Support.FULL, {}, shapes=tuple(Shape))
    )
    monkeypatch.setattr(database, "compile", lambda bound: bound)
    monkeypatch.setattr(database, "fetch", fetch)
    writer = FakeWriter(len)
    writer.encoder = encoder
    monkeypatch.setattr(database, "writer", lambda: writer)

    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            result = worker_result(worker).model_copy(update={"chunk": (40, 150)})
            await run.post("/result", result)
        report = await run.report()
        lookup = report.json()["run"]["groups"][0]["lookup"]
        assert (lookup["reason"], lookup["events"]) == (None, 200)
        assert (lookup["missing"], lookup["doubled"]) == (missing, 0)

    play(story, duration_s=10.0, batch=BATCH, look_up=True)
