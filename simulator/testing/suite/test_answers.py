"""Described queries of every shape return the generator's answers: compiled, and in a reader's way: made
ahead, counted without decoding, several in flight, by the vendor's client, refused and cut off."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from ...collector.lookup import look_up
from ...contract import Lookup, StoredPart
from ...errors import OptionError, Retryable, SimulatorError
from ...modules.base import AnyModule, Support, connect
from ...modules.options import LEAN
from ...modules.sending import CALLING, Asker, Received, Request
from ...oracle.answers import Answer, answer, answer_all, compare_answers
from ...oracle.survey import UnknownEvents, recognize_events, survey_devices
from ...workloads import load_workload
from ...workloads.base import Workload
from ...workloads.cpu import Cpu
from ...workloads.drawing import BoundQuery, Stored, bind, draw, draw_block
from ...workloads.queries import Query, Shape
from ...workloads.schema import (
    FIRST_TIMESTAMP_MS,
    Column,
    ColumnType,
    EventBlock,
    Schema,
    read_path,
)
from ...workloads.temperature import Temperature
from ..events import PATHS, Sundry, make_schema
from ..server import ServerUnderTest, new_job
from .test_queries import DEVICES, PARTS, SEED, fill, prepare_queries

EXECUTIONS = 2


def list_queries(workload: Workload) -> list[Query]:
    """The workload's own queries, the common ones, and others, which together have all shapes."""
    schema = workload.schema
    first, last = schema.fields[0], schema.fields[-1]
    everything = [{"function": name, "column": last} for name in ("min", "max", "avg", "sum")]
    count, newest = {"function": "count"}, {"function": "last", "column": first}
    times = [{"function": name, "column": schema.time} for name in ("min", "max")]
    devices = ["w00001d000000", "w00000d000003", "no'body\\"]
    more: list[dict[str, object]] = [
        {"compute": [count, *everything, *times]},
        {"compute": [count, *everything], "where": {"column": first, "below": -1e9}},
        {"compute": [newest, count], "per": [schema.device]},
        {"compute": [newest], "devices": 1, "window": {"span": "20s", "at": "newest"}},
        {"compute": [count, *times], "per": [{"every": "17s"}, schema.device], "devices": 3},
        {"compute": everything, "devices": devices, "per": [schema.device]},
        {"compute": [count], "where": {"column": first, "below": 12.34}},
        {"compute": everything, "per": [{"every": "1m"}], "order": {"by": 0}, "limit": 2},
        {
            "events": [schema.device, schema.time, last],
            "window": {"span": "1m", "at": "first"},
            "order": {"by": 1, "descending": True},
            "limit": 20,
        },
        {"events": [schema.time, last], "newest": True, "devices": devices},
        {
            "events": [schema.time, last],
            "newest": True,
            "order": {"by": 1, "descending": True},
            "limit": 3,
        },
        {"events": [first], "where": {"column": last, "above": 20}, "devices": 2},
    ]
    tags = [column.name for column in schema.columns if column.tag]
    texts = [column.name for column in schema.columns if column.type in ("bool", "text")]
    if tags:
        more += [
            {"compute": [count, *everything], "per": [tags[0], {"every": "1m"}]},
            {"events": [*texts, schema.time], "devices": 5, "window": {"span": "1m"}},
        ]
        for order in ({"by": 0}, {"by": 0, "descending": True}):
            more += [
                {"compute": [count], "per": [tags[0]], "order": order, "limit": 5},
                {"events": texts[::-1], "order": order, "limit": 500},
            ]
        more += _list_for_each_field(schema)
    more += _list_of_texts(schema)
    more += _list_of_percentiles(schema)
    named = [
        Query.model_validate({"name": f"more-{i}", **description})
        for i, description in enumerate(more)
    ]
    for query in named:
        schema.check_query(query)
    return [*schema.descriptions, *named]


def _list_for_each_field(schema: Schema) -> Iterator[dict[str, object]]:
    """Queries about missing values, and with conditions in each type's precision."""
    fields = schema.fields
    for place, function in enumerate(("min", "max", "avg", "sum", "last"), 1):
        values = [{"function": function, "column": name} for name in fields]
        yield {"compute": values, "per": [schema.device], "order": {"by": place}}
    for number, name in enumerate(fields):
        side = ("above", "below")[number % 2]
        yield {"compute": [{"function": "count"}], "where": {"column": name, side: 1.234567}}
        # So many that rows without a value are among them.
        order = {"by": 0, "descending": side == "above"}
        yield {"events": [name, schema.device, schema.time], "order": order, "limit": 980}


def _list_of_texts(schema: Schema) -> Iterator[dict[str, object]]:
    """Queries with conditions on texts and with rows per text: of tags, of columns, and in documents."""
    count, number = {"function": "count"}, schema.fields[-1]
    for column in _list_texts(schema):
        first, *others = dict.fromkeys(schema_texts(column))
        some = ["no'where\\", first, *others[1:]]
        for condition in ({"is": first}, {"is": some}, {"is_not": first}, {"is_not": some}):
            where = {"column": column.name, **condition}
            yield {"compute": [count, {"function": "max", "column": number}], "where": where}
        where = {"column": column.name, "is": some}
        per = [schema.device, {"every": "1m"}]
        yield {"compute": [count], "where": where, "devices": 2, "per": per}
        yield {"events": [schema.device, schema.time], "where": where, "window": {"span": "1m"}}
        values = [count, {"function": "min", "column": number}]
        yield {"compute": values, "per": [column.name], "order": {"by": 1}}
        yield {"compute": values, "per": [{"every": "10m"}, column.name], "devices": 2}
    for column in _list_paths(schema):
        if column.is_number:
            values = [{"function": f, "column": column.name} for f in ("min", "avg", "sum", "p90")]
            yield {"compute": [count, *values]}
            yield {"compute": values, "per": [schema.device], "order": {"by": 2}}
            yield {"compute": [{"function": "last", "column": column.name}], "per": [schema.device]}
            where = {"column": column.name, "above": 1.5}
            yield {"events": [schema.device, schema.time], "where": where}


def _list_texts(schema: Schema) -> list[Column]:
    columns = [column for column in schema.columns if column.name != schema.device]
    return [c for c in [*columns, *_list_paths(schema)] if c.type is ColumnType.TEXT]


def _list_paths(schema: Schema) -> list[Column]:
    """The paths to query in the documents of `Sundry`."""
    columns = [c.name for c in schema.columns if c.type is ColumnType.JSON and c.texts]
    return [schema.column(f"{name}.{path}") for name in columns for path in PATHS]


def schema_texts(column: Column) -> Sequence[Any]:
    """The possible texts of a column."""
    if not column.path:
        return column.texts
    return [text for text in read_path(column.texts, column.path) if text is not None]


def _list_of_percentiles(schema: Schema) -> Iterator[dict[str, object]]:
    """Percentiles of all kinds of groups."""
    first, last = schema.fields[0], schema.fields[-1]
    values = [{"function": f, "column": first} for f in ("p50", "p90", "p95", "p99", "p99.9")]
    tags = [column.name for column in schema.columns if column.tag][:1]
    for per in ([], [schema.device], [{"every": "1m"}, schema.device], [{"every": "1m"}], tags):
        yield {"compute": [*values, {"function": "p95", "column": last}, *values[:1]], "per": per}
    device = {"devices": 1, "window": {"span": "5m"}}
    yield {"compute": values, **device, "per": [{"every": "1m"}]}
    yield {"compute": values[2:3], "where": {"column": last, "above": 1}, "per": [schema.device]}
    yield {"compute": values[:1], "where": {"column": last, "below": -1e9}}
    descending = {"by": 1, "descending": True}
    yield {"compute": values[1:2], "per": [schema.device], "order": descending, "limit": 4}


DEFINED_PARTS = ((0, 0, 700), (1, 0, 300))
WORKLOADS = [
    Temperature(seed=SEED, device_spread=DEVICES),
    Cpu(seed=SEED, device_spread=10),
    Sundry(seed=SEED),
]
TRUCKS = load_workload("trucks")(seed=SEED, device_spread=10)
APART = load_workload("machines")(seed=SEED, device_spread=10, late=0.1, tags="table")
names = pytest.mark.parametrize(
    "workload",
    [*WORKLOADS, APART],
    ids=[*(workload.name for workload in WORKLOADS), f"{APART.name}-tags=table"],
)


Questions = Sequence[tuple[BoundQuery, Answer]]
"""Bound queries with their right answers."""


def list_askable(
    module: AnyModule | type[AnyModule], schema: Schema, queries: Iterable[Query]
) -> list[Query]:
    """The queries that the module supports."""
    shapes = frozenset(module.CAPABILITIES.shapes)
    return [query for query in queries if schema.shapes_of(query) <= shapes]


def fill_and_draw(server: ServerUnderTest, workload: Workload) -> Questions:
    """Store events, and draw parameters for all queries that the module supports, several times."""
    if not server.can_hold(workload.schema):
        pytest.skip("the module doesn't store it")
    queries = list_askable(server.module_type, workload.schema, list_queries(workload))
    if not queries:
        pytest.skip("compiles no queries")
    parts = PARTS.get(type(workload), DEFINED_PARTS)
    fill(server, workload, parts)
    stored = Stored(workload, [StoredPart(*part) for part in parts])
    bounds = [
        draw(query, stored, 0, execution)
        for query in queries
        for execution in range(EXECUTIONS if query.is_drawn else 1)
    ]
    exactness = server.module_type.CAPABILITIES.exactness
    return list(zip(bounds, answer_all(bounds, stored, exactness=exactness), strict=True))


def find_wrong(module: AnyModule, questions: Questions) -> dict[BoundQuery, str]:
    """What is wrong with the answers. All queries are run before a test says which failed."""
    problems = {
        bound: compare_answers(right, module.fetch(module.compile(bound)))
        for bound, right in questions
    }
    return {bound: problem for bound, problem in problems.items() if problem}


@names
def test_answers_to_described_queries(server: ServerUnderTest, workload: Workload) -> None:
    """Without indexes and with them."""
    if isinstance(workload, Sundry) and not server.can_hold(workload.schema):
        workload = TRUCKS  # its texts are tags
    questions = fill_and_draw(server, workload)
    # With indexes some queries are run in another way.
    has_indexes = server.module_type.CAPABILITIES.indices is Support.FULL
    for options in [{}, *([{"create_indices": "after"}] if has_indexes else [])]:
        with prepare_queries(server, workload, options) as module:
            wrong = find_wrong(module, questions)
        assert not wrong, options


class Great(Workload):
    """Whole numbers that 64-bit floats can't represent."""

    name = "great"
    schema = make_schema("great", Column("great", ColumnType.INT64))

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        numbers = np.arange(first, first + count, dtype=np.int64)
        devices = self.dealt_devices(worker, first, count)
        times = FIRST_TIMESTAMP_MS + numbers * 1000
        columns = {"at": times, "device": devices, "great": 2**56 + numbers * 1_234_567_891}
        return EventBlock(self.schema, worker, first, columns, devices)


def test_great_whole_numbers_are_rounded_as_declared(server: ServerUnderTest) -> None:
    can = server.module_type.CAPABILITIES
    if can.int64_range[1] < 2**57:
        pytest.skip("its numbers are smaller")
    workload = Great(device_spread=2)
    functions = ("min", "max", "sum", "avg", "last")
    values = [{"function": name, "column": "great"} for name in functions]
    query = Query.model_validate({"name": "q", "compute": values, "per": ["device"]})
    if not workload.schema.shapes_of(query) <= frozenset(can.shapes):
        pytest.skip("compiles no such query")
    fill(server, workload, [(0, 0, 40)])
    stored = Stored(workload, [StoredPart(0, 0, 40)])
    bound = draw(query, stored, 0, 0)
    with prepare_queries(server, workload) as module:
        rows = module.fetch(module.compile(bound))
    assert compare_answers(answer(bound, stored, can.exactness), rows) is None


def test_stored_events_are_recognized(server: ServerUnderTest) -> None:
    """Events of another seed are not, though here they have the same devices and times."""
    workload, other = Cpu(seed=SEED, device_spread=10), Cpu(seed=SEED + 1, device_spread=10)
    parts = [StoredPart(0, 0, 150), StoredPart(1, 0, 90)]
    fill(server, workload, [(part.worker, part.first, part.count) for part in parts])
    with prepare_queries(server, workload) as module:
        try:
            inventory = survey_devices(module, workload)
        except UnknownEvents as error:
            pytest.skip(str(error))
        assert recognize_events(module, workload, inventory).parts == parts
        with pytest.raises(UnknownEvents, match="other values than events of seed 10"):
            recognize_events(module, other, inventory)
        assert look_up(module, workload, parts) == Lookup(
            events=240, missing=0, doubled=0, per_group=1
        )
        more_and_less = [StoredPart(0, 0, 155), StoredPart(1, 2, 88)]
        assert look_up(module, workload, more_and_less) == Lookup(
            events=243, missing=5, doubled=2, per_group=1
        )


def test_the_queries_above_have_all_shapes() -> None:
    shapes = [
        workload.schema.shapes_of(q) for workload in WORKLOADS for q in list_queries(workload)
    ]
    assert frozenset[Shape]().union(*shapes) == frozenset(Shape)


@pytest.mark.parametrize("workload", WORKLOADS[:2], ids=["temperature", "cpu"])
def test_common_queries_are_asked_by_name_only(server: ServerUnderTest, workload: Workload) -> None:
    schema = workload.schema
    if not server.module_type.CAPABILITIES.shapes:
        with pytest.raises(OptionError, match=r"can't ask range yet.*known: "):
            server.module(new_job(schema, queries=["range"])).choose_queries()
        return
    assert not server.module(new_job(schema)).drawn_queries()
    chosen = ["range", "last-values", schema.queries[0]]
    module = server.module(new_job(schema, queries=chosen))
    assert module.choose_queries() == [schema.queries[0], "range", "last-values"]
    assert list(module.queries()) == [schema.queries[0], "last-values"]
    assert list(module.drawn_queries()) == ["range"]


ASKED_EXECUTIONS = 3
ASKED_IN_FLIGHT = 3
ASKED_PARTS = ((0, 0, 500), (1, 0, 200))

TEMPERATURE = Temperature(seed=SEED, device_spread=5)
ASKED_WORKLOADS = [
    TEMPERATURE,
    Sundry(seed=SEED),
    load_workload("machines")(seed=SEED, device_spread=5, late=0.1, tags="table"),
]
asked_workloads = pytest.mark.parametrize(
    "workload", ASKED_WORKLOADS, ids=["temperature", "sundry", "machines-tags=table"]
)


@contextmanager
def reading(
    server: ServerUnderTest,
    workload: Workload,
    in_flight: int = 1,
    options: Mapping[str, Any] | None = None,
) -> Iterator[tuple[AnyModule, Asker]]:
    """A module ready for queries, and an open asker."""
    with (
        prepare_queries(server, workload, options) as module,
        connect(module.asker(in_flight)) as asker,
    ):
        yield module, asker


def make_requests(
    module: AnyModule, asker: Asker, query: Query, stored: Stored
) -> Iterator[tuple[BoundQuery, Any]]:
    """Executions of a query, and a request for each."""
    if query.is_drawn:
        bounds = draw_block(query, stored, 0, 0, ASKED_EXECUTIONS)
        requests = list(asker.encode(bounds))
        assert len(requests) == len(bounds)
        yield from zip(bounds, requests, strict=True)
    else:
        bound = bind(query, stored.epoch_ms)
        yield bound, asker.encode_statement(module.compile(bound))


def ask_all(
    asker: Asker, requests: Sequence[Any], in_flight: int
) -> dict[int, Received | BaseException]:
    """How each request ended, by number; `in_flight` of them at once."""
    if in_flight == 1:
        return {number: asker.ask(request) for number, request in enumerate(requests)}
    results: dict[int, Received | BaseException] = {}
    begun = 0
    while len(results) < len(requests):
        while begun < len(requests) and begun - len(results) < in_flight:
            request = Request(requests[begun], execution=begun)
            request.sent_s = time.perf_counter()
            asker.submit(request)
            begun += 1
        ended = asker.poll(60.0)
        assert ended, "no answer came"
        for completion in ended:
            result = completion.answer or completion.error
            assert result is not None
            results[completion.request.execution] = result
    return results


def check_answers(
    server: ServerUnderTest, workload: Workload, in_flight: int, options: Mapping[str, Any]
) -> None:
    """Run all queries: each answer is right, and has as many rows as were counted."""
    fill(server, workload, ASKED_PARTS)
    stored = Stored(workload, [StoredPart(*part) for part in ASKED_PARTS])
    with reading(server, workload, in_flight, options) as (module, asker):
        assert asker.max_in_flight == in_flight
        questions = [
            question
            for query in list_askable(module, workload.schema, workload.schema.descriptions)
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


@asked_workloads
@pytest.mark.parametrize("in_flight", [1, ASKED_IN_FLIGHT])
def test_answers_are_right_and_their_rows_are_counted(
    server: ServerUnderTest, workload: Workload, in_flight: int
) -> None:
    if not server.can_hold(workload.schema):
        pytest.skip("the module doesn't store it")
    if in_flight > 1 and server.module_type.CLIENTS[LEAN].asker == CALLING:
        pytest.skip("asks one query at a time")
    check_answers(server, workload, in_flight, {})


def test_an_official_client_asks_the_same(server: ServerUnderTest, official_asker: str) -> None:
    for in_flight in (1, ASKED_IN_FLIGHT):
        check_answers(server, TEMPERATURE, in_flight, {"client": official_asker})


def test_an_answer_may_have_no_rows(server: ServerUnderTest) -> None:
    query = Query.model_validate(
        {"name": "nobody", "events": [TEMPERATURE.schema.time], "devices": ["nobody"]}
    )
    TEMPERATURE.schema.check_query(query)
    if not TEMPERATURE.schema.shapes_of(query) <= frozenset(server.module_type.CAPABILITIES.shapes):
        pytest.skip("compiles no such query")
    fill(server, TEMPERATURE, ASKED_PARTS)
    with reading(server, TEMPERATURE) as (module, asker):
        bound = bind(query, TEMPERATURE.schema.epoch_ms)
        received = asker.ask(asker.encode_statement(module.compile(bound)))
        assert received.rows == 0
        assert list(asker.decode(received)) == []


def count_events(module: AnyModule, asker: Asker) -> Any:
    """A request that counts all events."""
    return asker.encode_statement(module.queries()["count-events"])


COUNTED = [(sum(count for *_, count in ASKED_PARTS),)]


def test_a_question_that_is_refused_keeps_no_other_from_being_asked(
    server: ServerUnderTest,
) -> None:
    fill(server, TEMPERATURE, ASKED_PARTS)
    with reading(server, TEMPERATURE) as (module, asker):
        request = count_events(module, asker)
        assert [tuple(row) for row in asker.decode(asker.ask(request))] == COUNTED
        server.clear()
        with pytest.raises(SimulatorError, match="events"):
            asker.ask(request)
        fill(server, TEMPERATURE, ASKED_PARTS)
        assert [tuple(row) for row in asker.decode(asker.ask(request))] == COUNTED


def test_a_lost_connection_is_made_again(server: ServerUnderTest) -> None:
    if server.in_process:
        pytest.skip("there is no connection")
    fill(server, TEMPERATURE, ASKED_PARTS)
    with reading(server, TEMPERATURE) as (module, asker):
        request = count_events(module, asker)
        asker.ask(request)
        assert server.kill_connections(module.job.run_id)
        received, was_lost = ask_again(asker, request)
        assert was_lost or server.reconnects_unasked
        assert [tuple(row) for row in asker.decode(received)] == COUNTED


def ask_again(asker: Asker, request: Any) -> tuple[Received, bool]:
    """The answer, and whether a connection was lost before it."""
    try:
        return asker.ask(request), False
    except Retryable as error:
        kind = error.kind
    assert kind == "connection_lost"
    asker.recover(Request(request))
    return asker.ask(request), True
