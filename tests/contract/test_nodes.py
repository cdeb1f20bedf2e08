"""Several nodes: one is down from the start, one dies during the run, the others carry the load."""

from __future__ import annotations

import pytest

from simulator.modules.base import Encoding
from simulator.testing.events import insert, rows_of
from simulator.testing.server import ServerUnderTest, as_observer, batch_of, new_job
from simulator.worker import connect
from simulator.workloads.temperature import Temperature

from .http_server import HttpServerUnderTest

# InfluxDB 2 is one server, and has one URL.
pytestmark = pytest.mark.module("elasticsearch", "cratedb", "arangodb")

BATCH, REQUESTS = 4, 12


@pytest.fixture
def http(server: ServerUnderTest) -> HttpServerUnderTest:
    assert isinstance(server, HttpServerUnderTest)
    return server


def test_one_node_lives_on(http: HttpServerUnderTest, encoding: Encoding) -> None:
    """The request that the dying node had is the only error, and is stored once."""
    dying, living = http.another_proxy(), http.another_proxy()
    options = {"endpoint": [http.refusing, dying.endpoints[0], living.endpoints[0]]}
    workload = Temperature(seed=1, device_spread=2)
    job = new_job(workload.schema, batch=batch_of(encoding, BATCH))
    observer = http.module(as_observer(job), encoding, options)
    observer.open()
    observer.prepare()

    def die() -> None:
        dying.stop_listening()
        dying.fate = "cut while it works"

    module = http.module(job, encoding, options)
    with connect(module.writer()) as writer:
        events = REQUESTS * BATCH if job.load.batch else REQUESTS
        recorder = insert(writer, workload, events, before={3: die})
    assert dying.fate is None
    dying.close()
    assert recorder.errors == {"connection_lost": 1}
    # Without another error: dead nodes are left out, also when events are counted.
    assert observer.count() == events
    observer.close()
    stored = http.rows(job.schema, *job.table_names)
    assert stored == sorted(rows_of(workload.block(0, 0, events)))
