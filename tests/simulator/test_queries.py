"""Queries as data: what a description may say, what is drawn for an execution."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from simulator.contract import StoredPart
from simulator.errors import OptionError
from simulator.testing.events import make_schema
from simulator.workloads.base import describe_queries
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import Stored, bind, draw
from simulator.workloads.queries import HOUR_MS, Query, Shape
from simulator.workloads.schema import FIRST_TIMESTAMP_MS, Column, ColumnType
from simulator.workloads.temperature import Temperature

COUNT = {"function": "count"}
MEAN = {"function": "avg", "column": "temperature"}
COMMON = (
    "point", "range", "range-filter", "aggregate", "downsample", "fleet-downsample", "last-values",
    "last-value", "threshold", "top-devices",
)  # fmt: skip


def make(**values: Any) -> Query:
    return Query.model_validate({"name": "asked", **values})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "set one of compute and events"),
        ({"compute": [COUNT], "events": ["temperature"]}, "set one of compute and events"),
        ({"events": ["temperature"], "per": ["device_id"]}, "per needs compute"),
        ({"compute": [COUNT], "per": ["a", "a"]}, "per names something twice"),
        ({"compute": [COUNT], "limit": 3}, "a limit needs an order"),
        ({"compute": [COUNT], "order": {"by": 1}}, "a row has the values 0 to 0"),
        ({"compute": [COUNT], "newest": True}, "newest needs events"),
        ({"events": ["a"], "newest": True, "window": {"span": 1}}, "newest needs events"),
        ({"events": ["a"], "instant": True}, "devices: 1 and no window"),
        ({"compute": [{"function": "max"}]}, "count has no column, all other functions have one"),
        ({"compute": [COUNT], "where": {"column": "a"}}, "set one of above, below, is and is_not"),
        (
            {"compute": [COUNT], "where": {"column": "a", "is": "b", "above": 1}},
            "set one of above, below, is and is_not",
        ),
        (
            {"compute": [COUNT], "where": {"column": "a", "is": True}},
            "true is not a text: put it in",
        ),
        (
            {"compute": [COUNT], "where": {"column": "a", "is": ["b", 5]}},
            "5 is not a text: put it in",
        ),
        ({"compute": [COUNT], "where": {"column": "a", "is_not": []}}, "name at least one text"),
        ({"compute": [{"function": "p98", "column": "a"}]}, "'p90', 'p95', 'p99' or 'p99.9'"),
        ({"compute": [{"function": "p95"}]}, "count has no column, all other functions have one"),
        ({"compute": [COUNT], "where": {"column": "a", "above": float("nan")}}, "finite"),
        ({"compute": [COUNT], "window": {"span": "an hour"}}, "duration with its unit"),
        ({"compute": [COUNT], "window": {"span": 0}}, "greater than or equal to 1"),
        ({"compute": [COUNT], "devices": []}, "name at least one"),
        ({"compute": [COUNT], "devices": 0}, "greater than or equal to 1"),
        ({"compute": [COUNT], "devises": 1}, "devises"),
        ({"compute": [COUNT], "name": "Max All"}, "name"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        make(**values)
    assert said in str(refused.value)


SCHEMA = make_schema(
    "things",
    Column("site", ColumnType.TEXT, tag=True),
    Column("speed", ColumnType.FLOAT64),
    Column("document", ColumnType.JSON, texts=('{"a":{"b":1,"c":"x"},"d":1}', '{"d":"x"}', "{}")),
    Column("note", ColumnType.TEXT),
)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"events": ["sped"]},
            "query asked: events: there is no column 'sped'; did you mean speed?",
        ),
        ({"events": ["document"]}, "document is a document"),
        ({"compute": [{"function": "count", "column": "speed"}]}, "compute: count has no column"),
        ({"compute": [{"function": "avg", "column": "site"}]}, "avg: site is of type text"),
        ({"compute": [{"function": "avg", "column": "at"}]}, "avg: at is of type timestamp_ms"),
        ({"compute": [COUNT], "where": {"column": "device", "above": 1}}, "where: device is of"),
        ({"compute": [COUNT], "per": ["speed"]}, "per: speed is neither the device (device), nor"),
        (
            {"compute": [COUNT], "where": {"column": "speed", "is": "failed"}},
            "where: speed is of type float64, not a text: use above or below",
        ),
        (
            {"compute": [COUNT], "where": {"column": "device", "is": "x"}},
            "device is the device: name devices by the query's key `devices`",
        ),
        ({"compute": [COUNT], "where": {"column": "note", "below": 1}}, "note is of type text"),
        (
            {"compute": [COUNT], "where": {"column": "document", "is": "x"}},
            "document is of type json",
        ),
        ({"compute": [COUNT], "where": {"column": "note.a", "is": "x"}}, "no column 'note.a'"),
        ({"compute": [COUNT], "where": {"column": "document.a", "is": "x"}}, "its members (b, c)"),
        (
            {"compute": [COUNT], "where": {"column": "document.a.d", "is": "x"}},
            "where: no document of document has 'a.d' (known: b, c)",
        ),
        (
            {"compute": [COUNT], "where": {"column": "document.d", "above": 1}},
            "not a number in all",
        ),
        ({"compute": [COUNT], "per": ["document.a.b"]}, "per: document.a.b is neither the device"),
        ({"compute": [{"function": "p95", "column": "note"}]}, "p95: note is of type text"),
        ({"compute": [{"function": "p95", "column": "document.a.c"}]}, "a.c is of type text"),
        ({"events": ["document.a.b"]}, "a path into documents is for where, compute and per"),
        ({"compute": [COUNT], "per": ["spot"]}, "per: there is no column 'spot'"),
        ({"compute": [{"function": "last", "column": "speed"}]}, "last needs per: [device]"),
    ],
)
def test_what_the_columns_dont_allow_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        SCHEMA.check_query(make(**values))
    assert said in str(refused.value)


def test_what_they_allow_is_not() -> None:
    newest = [{"function": "max", "column": "at"}, {"function": "last", "column": "speed"}]
    SCHEMA.check_query(make(compute=newest, per=["device", "site", {"every": "1h"}]))
    SCHEMA.check_query(make(events=["device", "at", "site"], newest=True))
    where = {"column": "site", "is_not": ["nowhere", "elsewhere"]}
    percentile = {"function": "p99.9", "column": "document.a.b"}
    SCHEMA.check_query(make(compute=[percentile], where=where, per=["note", "document.a.c"]))


def test_a_path_is_a_column_of_what_is_there() -> None:
    found = SCHEMA.column("document.a.b")
    assert (found.type, found.nullable, found.stored_as) == (ColumnType.INT64, True, "document")
    query = make(compute=[{"function": "p50", "column": "document.a.b"}], per=["document.a.c"])
    assert replace(SCHEMA, descriptions=(query,)).list_paths("document") == [
        found,
        SCHEMA.column("document.a.c"),
    ]
    assert SCHEMA.shapes_of(query) == {
        Shape.COMPUTE, Shape.PATH, Shape.PERCENTILE_OF_ALL, Shape.PER_TEXT,
    }  # fmt: skip


def test_a_workload_whose_query_asks_for_no_column_of_its_own_is_refused() -> None:
    with pytest.raises(OptionError, match="no column 'temperatur'; did you mean temperature"):

        class Wrong(Temperature):
            schema = Temperature.schema
            queries = (make(events=["temperatur"]),)


@pytest.mark.parametrize("workload", [Temperature(), Cpu(device_spread=8)])
def test_each_workload_with_numbers_has_the_common_queries(workload: Temperature | Cpu) -> None:
    schema = workload.schema
    own = tuple(query.name for query in workload.queries)
    assert schema.queries == type(workload).schema.queries == own
    assert tuple(query.name for query in schema.descriptions) == (*own, *COMMON)
    for query in schema.descriptions:
        schema.check_query(query)
        assert query.about
    # All that a query can be made of, except for what these workloads have no columns for.
    shapes = frozenset[Shape]().union(*(schema.shapes_of(query) for query in schema.descriptions))
    assert shapes == {
        Shape.DEVICES, Shape.WINDOW, Shape.WHERE, Shape.COMPUTE, Shape.EVENTS, Shape.PER_DEVICE,
        Shape.PER_TIME, Shape.NEWEST, Shape.ORDER,
    }  # fmt: skip


def test_an_hour_is_longer_for_slow_devices_and_a_query_of_ones_own_replaces_a_common_one() -> None:
    own = make(name="range", events=["speed"])
    described = {q.name: q for q in describe_queries((own,), SCHEMA, 10 * 60_000)}
    assert described["range"] is own
    window = described["aggregate"].window
    assert window is not None
    assert window.span == 240 * HOUR_MS
    assert described["aggregate"].about == "count; min, avg, max of speed of a device in 10 days"
    # Without a value that is high there is nothing to ask for.
    assert {"range-filter", "threshold"} & set(described) == set()


# --- drawing --------------------------------------------------------------------------------------


def stored(events: int = 200_000, seed: int = 3) -> Stored:
    """Of two workers with five devices each; 25 hours by default."""
    workload = Temperature(seed=seed, device_spread=5)
    return Stored(workload, [StoredPart(0, 0, events), StoredPart(1, 0, events)])


def described(name: str) -> Query:
    query = Temperature.schema.description(name)
    assert query is not None
    return query


def test_each_execution_of_each_reader_draws_its_own_and_the_same_when_repeated() -> None:
    query, events = described("downsample"), stored()
    drawn = {(w, e): draw(query, events, w, e) for w in range(3) for e in range(20)}
    assert len(set(drawn.values())) == 60
    assert drawn == {(w, e): draw(query, stored(), w, e) for w in range(3) for e in range(20)}
    assert draw(query, stored(seed=4), 0, 0) != drawn[0, 0]
    assert draw(described("fleet-downsample"), events, 0, 0).start_ms != drawn[0, 0].start_ms


def test_windows_lie_within_what_is_stored_and_devices_are_of_all_workers() -> None:
    events = stored()
    first, end = events.span_ms
    assert 0 <= first - FIRST_TIMESTAMP_MS + 150 <= 300
    assert end - first == pytest.approx(200_000 * 450, abs=1000)
    drawn = [draw(described("range"), events, 0, execution) for execution in range(300)]
    starts = [bound.start_ms or 0 for bound in drawn]
    assert {(bound.end_ms or 0) - (bound.start_ms or 0) for bound in drawn} == {HOUR_MS}
    assert first <= min(starts) < first + HOUR_MS
    assert end - 2 * HOUR_MS < max(starts) <= end - HOUR_MS
    names = {f"w0000{worker}d00000{device}" for worker in range(2) for device in range(5)}
    assert {bound.devices for bound in drawn} == {(name,) for name in names}
    several = draw(described("downsample"), events, 0, 0).devices
    assert several is not None
    assert set(several) == names
    assert len(several) == 10


def test_the_newest_window_ends_just_behind_the_last_event() -> None:
    query = make(compute=[COUNT], window={"span": "10m", "at": "newest"})
    bound, (_, end) = draw(query, stored(), 0, 0), stored().span_ms
    assert (bound.start_ms, bound.end_ms) == (end - 600_000, end)


def test_a_window_longer_than_all_time_is_all_time() -> None:
    bound = draw(described("aggregate"), stored(1000), 0, 0)
    assert (bound.start_ms, bound.end_ms) == stored(1000).span_ms


def test_an_instant_is_that_of_an_event_of_the_device() -> None:
    events = stored(50)
    workload = events.workload
    existing = {
        (device.decode(), time)
        for worker in range(2)
        for block in [workload.block(worker, 0, 50)]
        for device, time in zip(
            block.devices.tolist(), block.columns["timestamp"].tolist(), strict=True
        )
    }
    drawn = set()
    for execution in range(500):
        bound = draw(described("point"), events, 0, execution)
        assert bound.devices is not None
        assert bound.start_ms is not None
        assert bound.end_ms == bound.start_ms + 1
        drawn.add((bound.devices[0], bound.start_ms))
    assert drawn <= existing
    assert len(drawn) > 90


def test_devices_without_events_are_not_drawn() -> None:
    events = Stored(Temperature(device_spread=1000), [StoredPart(1, 998, 4), StoredPart(0, 0, 0)])
    names = {draw(described("range"), events, 0, e).devices for e in range(60)}
    assert names == {(f"w00001d{number:06d}",) for number in (998, 999, 0, 1)}
    with pytest.raises(ValueError, match="no events"):
        Stored(Temperature(), [StoredPart(0, 0, 0)])


def test_what_is_not_drawn_is_bound_without_anything_stored() -> None:
    query = next(query for query in Cpu.queries if query.name == "cpu-max-all")
    bound = bind(query, FIRST_TIMESTAMP_MS)
    assert bound.devices == query.devices
    assert bound.end_ms == FIRST_TIMESTAMP_MS + 8 * HOUR_MS
    assert bound == draw(query, stored(), 1, 1)
    drawn = {query.name for query in Cpu.schema.descriptions if query.is_drawn}
    assert drawn == {*COMMON} - {"last-values"}
