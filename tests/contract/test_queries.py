"""The queries' answers are those that follow from the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from simulator.errors import OptionError, SimulatorError
from simulator.modules.base import QUERY_NAMES, Module, Support
from simulator.workloads.cpu import Cpu
from simulator.workloads.temperature import Temperature

from ..helpers import insert_with
from .server import ServerUnderTest, full, new_job, observing

WORKERS, EVENTS, DEVICES = 2, 400, 7
# The values are float32.
PRECISION = 1e-6


@pytest.fixture
def filled(server: ServerUnderTest) -> Iterator[Module]:
    """The module, connected to a database with the events of two workers."""
    job = new_job(Temperature.schema, batch=200)
    module = server.module(observing(job))
    module.open()
    module.prepare()
    workload = Temperature(seed=9, device_spread=DEVICES)
    for worker in range(WORKERS):
        insert_with(server.module(job), workload, EVENTS, worker=worker)
    yield module
    module.close()


def generated() -> dict[str, list[tuple[int, float]]]:
    """Device -> its (timestamp, temperature), as numpy has them."""
    workload = Temperature(seed=9, device_spread=DEVICES)
    found: dict[str, list[tuple[int, float]]] = {}
    for worker in range(WORKERS):
        columns = workload.block(worker, 0, EVENTS).columns
        for device, time, value in zip(
            columns["device_id"], columns["timestamp"], columns["temperature"], strict=True
        ):
            found.setdefault(device.decode(), []).append((int(time), float(value)))
    return found


def _all() -> np.ndarray[Any, Any]:
    return np.array([value for events in generated().values() for _, value in events])


def _statistics(values: Sequence[float]) -> tuple[float, float, float]:
    return min(values), float(np.mean(values)), max(values)


EXPECTED: dict[str, Callable[[], list[tuple[Any, ...]]]] = {
    "count-events": lambda: [(WORKERS * EVENTS,)],
    "temperature-min-max": lambda: [(_all().min(), _all().max())],
    "temperature-stats": lambda: [_statistics(_all().tolist())],
    "temperature-stats-per-device": lambda: [
        (device, *_statistics([value for _, value in events]))
        for device, events in generated().items()
    ],
    "newest-per-device": lambda: [
        (device, max(events)[1]) for device, events in generated().items()
    ],
}


def assert_same(answer: Sequence[Sequence[Any]], expected: list[tuple[Any, ...]]) -> None:
    """Rows in any order; numbers at float32's precision."""
    found = sorted(tuple(row) for row in answer)
    assert len(found) == len(expected)
    for row, wanted in zip(found, sorted(expected), strict=True):
        for value, right in zip(row, wanted, strict=True):
            assert value == (right if isinstance(right, str) else pytest.approx(right, PRECISION))


def test_answers(filled: Module, query: str) -> None:
    filled.prepare_queries()
    answer = filled.queries()[query]()
    assert_same(answer, EXPECTED[query]())


def test_answers_are_the_same_with_indices(
    server: ServerUnderTest, filled: Module, query: str
) -> None:
    if server.module_type.CAPABILITIES.indices is not Support.FULL:
        pytest.skip("no indices")
    module = server.module(new_job(Temperature.schema), options={"create_indices": True})
    module.open()
    module.prepare_queries()
    assert_same(module.queries()[query](), EXPECTED[query]())
    module.close()


def test_indices_are_made_when_asked_for_and_once(server: ServerUnderTest, filled: Module) -> None:
    if server.module_type.CAPABILITIES.indices is not Support.FULL:
        pytest.skip("no indices")
    filled.prepare_queries()
    assert not server.indices("events")
    for _ in range(2):
        module = server.module(new_job(Temperature.schema), options={"create_indices": "true"})
        module.open()
        module.prepare_queries()
        module.close()
        assert server.indices("events") == {"events_device_ts", "events_temp"}


def test_all_queries_are_there_in_order(server: ServerUnderTest) -> None:
    names = full(server.module_type.CAPABILITIES.queries)
    assert list(server.module(new_job(Temperature.schema)).queries()) == names
    assert names == [name for name in QUERY_NAMES if name in names]


@pytest.mark.parametrize(
    "chosen", ["newest-per-device, count-events", ["newest-per-device", "count-events"]]
)
def test_a_choice_of_queries(server: ServerUnderTest, chosen: object) -> None:
    module = server.module(new_job(Temperature.schema), options={"queries": chosen})
    assert list(module.queries()) == ["count-events", "newest-per-device"]


def test_an_unknown_query_is_refused_and_the_known_are_named(server: ServerUnderTest) -> None:
    with pytest.raises(OptionError, match=r"queries.*'newest-per-device'"):
        server.module(new_job(Temperature.schema), options={"queries": "newest"})


def test_a_workload_without_queries_is_refused(server: ServerUnderTest) -> None:
    with pytest.raises(OptionError, match="workload temperature only"):
        server.module(new_job(Cpu.schema)).queries()


def test_nothing_to_query_says_what_to_do(server: ServerUnderTest) -> None:
    module = server.module(new_job(Temperature.schema))
    module.open()
    with pytest.raises(SimulatorError, match="no table events to query: run insert first"):
        module.prepare_queries()
    module.close()


def test_a_query_that_fails_says_why(server: ServerUnderTest, filled: Module) -> None:
    queries = filled.queries()
    server.clear()
    with pytest.raises(SimulatorError, match="events"):
        queries["count-events"]()
