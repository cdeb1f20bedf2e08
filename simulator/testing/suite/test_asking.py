"""Questions as a reader asks them: made ahead, counted without being decoded, several in flight, by the
vendor's client, refused and cut off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from ...contract import StoredPart
from ...errors import Retryable, SimulatorError
from ...modules.asking import Asker, Received
from ...modules.base import AnyModule, Module, connect
from ...oracle.answers import answer_all, compare_answers
from ...workloads import load_workload
from ...workloads.base import Workload
from ...workloads.drawing import BoundQuery, Stored, bind, draw_block
from ...workloads.queries import Query
from ...workloads.temperature import Temperature
from ..events import Sundry
from ..server import ServerUnderTest
from .test_queries import SEED, fill, prepare_queries

EXECUTIONS = 3
IN_FLIGHT = 3
PARTS = ((0, 0, 500), (1, 0, 200))

TEMPERATURE = Temperature(seed=SEED, device_spread=5)
WORKLOADS = [
    TEMPERATURE,
    Sundry(seed=SEED),
    load_workload("machines")(seed=SEED, device_spread=5, late=0.1, tags="table"),
]
workloads = pytest.mark.parametrize(
    "workload", WORKLOADS, ids=["temperature", "sundry", "machines-tags=table"]
)


@contextmanager
def reading(
    server: ServerUnderTest,
    workload: Workload,
    in_flight: int = 1,
    options: Mapping[str, Any] | None = None,
) -> Iterator[tuple[AnyModule, Asker]]:
    """A module that is ready for queries, and an open asker of its."""
    with (
        prepare_queries(server, workload, options) as module,
        connect(module.asker(in_flight)) as asker,
    ):
        yield module, asker


def list_queries(module: AnyModule, workload: Workload) -> list[Query]:
    """The workload's own queries, and the common ones, as far as the module can ask them."""
    schema, shapes = workload.schema, frozenset(module.CAPABILITIES.shapes)
    return [query for query in schema.descriptions if schema.shapes_of(query) <= shapes]


def make_requests(
    module: AnyModule, asker: Asker, query: Query, stored: Stored
) -> Iterator[tuple[BoundQuery, Any]]:
    """Executions of a query, and a request for each."""
    if query.is_drawn:
        bounds = draw_block(query, stored, 0, 0, EXECUTIONS)
        requests = list(asker.encode(bounds))
        assert len(requests) == len(bounds)
        yield from zip(bounds, requests, strict=True)
    else:
        bound = bind(query, stored.epoch_ms)
        yield bound, asker.encode_statement(module.compile(bound))


def ask_all(
    asker: Asker, requests: Sequence[Any], in_flight: int
) -> dict[int, Received | BaseException]:
    """How each request ended, by its number; `in_flight` of them are under way at once."""
    if in_flight == 1:
        return {number: asker.send(request) for number, request in enumerate(requests)}
    results: dict[int, Received | BaseException] = {}
    begun = 0
    try:
        while len(results) < len(requests):
            while begun < len(requests) and begun - len(results) < in_flight:
                asker.submit(requests[begun], begun)
                begun += 1
            ended = asker.outcomes(60.0)
            assert ended, "no answer came"
            results |= {outcome.request: outcome.result for outcome in ended}
    finally:
        asker.stop_submitting()
    return results


def check_answers(
    server: ServerUnderTest, workload: Workload, in_flight: int, options: Mapping[str, Any]
) -> None:
    """Ask all queries; each answer is right, and has as many rows as were counted."""
    fill(server, workload, PARTS)
    stored = Stored(workload, [StoredPart(*part) for part in PARTS])
    with reading(server, workload, in_flight, options) as (module, asker):
        assert asker.max_in_flight == in_flight
        questions = [
            question
            for query in list_queries(module, workload)
            for question in make_requests(module, asker, query, stored)
        ]
        if not questions:
            pytest.skip("compiles no queries")
        results = ask_all(asker, [request for _, request in questions], in_flight)
        rights = answer_all([bound for bound, _ in questions], stored)
        wrong: dict[BoundQuery, str] = {}
        for number, right in enumerate(rights):
            received, bound = results[number], questions[number][0]
            if not isinstance(received, Received):
                raise received
            rows = asker.decode(received)
            if received.rows != len(rows):
                wrong[bound] = f"{received.rows} rows were counted, and {len(rows)} came"
            elif problem := compare_answers(right, rows):
                wrong[bound] = problem
    assert not wrong


@workloads
@pytest.mark.parametrize("in_flight", [1, IN_FLIGHT])
def test_answers_are_right_and_their_rows_are_counted(
    server: ServerUnderTest, workload: Workload, in_flight: int
) -> None:
    if not server.can_hold(workload.schema):
        pytest.skip("the module doesn't store it")
    if in_flight > 1 and server.module_type.make_asker is Module.make_asker:
        pytest.skip("asks one question at a time")
    check_answers(server, workload, in_flight, {})


def test_an_official_client_asks_the_same(server: ServerUnderTest, official_asker: str) -> None:
    for in_flight in (1, IN_FLIGHT):
        check_answers(server, TEMPERATURE, in_flight, {"client": official_asker})


def test_an_answer_may_have_no_rows(server: ServerUnderTest) -> None:
    query = Query.model_validate(
        {"name": "nobody", "events": [TEMPERATURE.schema.time], "devices": ["nobody"]}
    )
    TEMPERATURE.schema.check_query(query)
    if not TEMPERATURE.schema.shapes_of(query) <= frozenset(server.module_type.CAPABILITIES.shapes):
        pytest.skip("compiles no such query")
    fill(server, TEMPERATURE, PARTS)
    with reading(server, TEMPERATURE) as (module, asker):
        bound = bind(query, TEMPERATURE.schema.epoch_ms)
        received = asker.send(asker.encode_statement(module.compile(bound)))
        assert received.rows == 0
        assert list(asker.decode(received)) == []


def count_events(module: AnyModule, asker: Asker) -> Any:
    """A request that counts all events."""
    return asker.encode_statement(module.queries()["count-events"])


COUNTED = [(sum(count for *_, count in PARTS),)]


def test_a_question_that_is_refused_keeps_no_other_from_being_asked(
    server: ServerUnderTest,
) -> None:
    fill(server, TEMPERATURE, PARTS)
    with reading(server, TEMPERATURE) as (module, asker):
        request = count_events(module, asker)
        assert [tuple(row) for row in asker.decode(asker.send(request))] == COUNTED
        server.clear()
        with pytest.raises(SimulatorError, match="events"):
            asker.send(request)
        fill(server, TEMPERATURE, PARTS)
        assert [tuple(row) for row in asker.decode(asker.send(request))] == COUNTED


def test_a_lost_connection_is_made_again(server: ServerUnderTest) -> None:
    if server.in_process:
        pytest.skip("there is no connection")
    fill(server, TEMPERATURE, PARTS)
    with reading(server, TEMPERATURE) as (module, asker):
        request = count_events(module, asker)
        asker.send(request)
        assert server.kill_connections(module.job.run_id)
        received, was_lost = ask_again(asker, request)
        assert was_lost or server.reconnects_unasked
        assert [tuple(row) for row in asker.decode(received)] == COUNTED


def ask_again(asker: Asker, request: Any) -> tuple[Received, bool]:
    """The answer, and whether a connection was lost before it."""
    try:
        return asker.send(request), False
    except Retryable as error:
        kind = error.kind
    assert kind == "connection_lost"
    asker.recover()
    return asker.send(request), True
