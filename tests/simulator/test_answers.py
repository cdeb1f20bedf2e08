"""Right answers, compared with those that a few lines of Python find in a list of all events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from simulator.contract import StoredPart
from simulator.oracle.answers import Answer, answer, answer_all, compare_answers
from simulator.testing.events import make_schema
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import BoundQuery, Stored, draw
from simulator.workloads.queries import Every, Exactness, Function, Percentiles, Query
from simulator.workloads.schema import FIRST_TIMESTAMP_MS, Column, ColumnType, EventBlock
from simulator.workloads.temperature import Temperature

DOCUMENTS = (
    '{"mode":"auto","motor":{"heat":40.5,"turns":3}}',
    '{"mode":"manual","motor":{"heat":7}}',
    '{"motor":{"heat":null,"turns":5}}',
    "{}",
)


class Mixed(Workload):
    """All kinds of columns, some of them without values, out of order in time."""

    name = "mixed"
    schema = make_schema(
        "mixed",
        Column("site", ColumnType.TEXT, tag=True),
        Column("big", ColumnType.INT64),
        Column("small", ColumnType.INT32, nullable=True),
        Column("level", ColumnType.FLOAT32, decimals=1),
        Column("exact", ColumnType.FLOAT64, nullable=True),
        Column("on", ColumnType.BOOL, nullable=True),
        Column("state", ColumnType.TEXT, nullable=True),
        Column("payload", ColumnType.JSON, nullable=True, texts=DOCUMENTS),
    )
    high = ("level", 30.5)
    event_interval_ms = 60_000

    def block(self, worker: int, first: int, count: int, time_origin: int = 0) -> EventBlock:
        numbers = np.arange(first, first + count, dtype=np.int64)
        devices = self.dealt_devices(worker, first, count)
        # Pairs of events in the wrong order of time.
        times = FIRST_TIMESTAMP_MS + (numbers ^ 1) * 60_000 + worker
        columns = {
            "at": times,
            "device": devices,
            "site": np.array([b"north", b"south"])[numbers % self.device_spread % 2],
            "big": (numbers * 7_777_777_777_777_777) ** 1 - 2**62,
            "small": (numbers * 37 % 100).astype(np.int32),
            "level": (numbers * 7919 % 500 / 10).astype(np.float32),
            "exact": numbers * 0.1 - 5,
            "on": numbers % 3 == 0,
            "state": np.array([b"idle", b"failed", b"lost"])[numbers * 7 % 11 % 3],
            "payload": np.array([text.encode() for text in DOCUMENTS])[numbers * 5 % 7 % 4],
        }
        # A device without any value of `small`.
        missing = {
            "small": numbers % self.device_spread == 1,
            "exact": numbers % 11 == 0,
            "state": numbers % 13 == 0,
            "payload": numbers % 17 == 0,
        }
        return EventBlock(self.schema, worker, first, columns, devices, missing)


MIXED = Mixed(device_spread=4)
PARTS = [StoredPart(0, 0, 333), StoredPart(1, 20, 100)]


def make(**values: Any) -> Query:
    query = Query.model_validate({"name": "asked", **values})
    MIXED.schema.check_query(query)
    return query


def count_values(*columns: str, **values: Any) -> Query:
    """What nobody can write: how many values there are."""
    compute = [{"function": "count", "column": name} for name in columns]
    return Query.model_validate({"name": "asked", "compute": compute, **values})


def all_of(column: str) -> list[dict[str, str]]:
    return [{"function": f, "column": column} for f in ("min", "max", "avg", "sum")]


def percentiles_of(*columns: str) -> list[dict[str, str]]:
    names = ("p50", "p90", "p95", "p99", "p99.9")
    return [{"function": f, "column": column} for column in columns for f in names]


QUERIES = [
    make(compute=[{"function": "count"}, *all_of("big"), *all_of("small"), *all_of("level")]),
    make(compute=[{"function": "count"}, *all_of("small"), *all_of("exact")], per=["device"]),
    make(compute=all_of("exact"), per=["site", {"every": "1h"}]),
    make(compute=all_of("big"), per=[{"every": "90m"}, "device"], devices=3),
    make(compute=[{"function": "last", "column": name} for name in ("small", "level")], per=["device"]),
    make(compute=[{"function": "last", "column": "big"}], devices=1, window={"span": "1h"}),
    make(compute=[{"function": "max", "column": "at"}], devices=["w00001d000002", "nobody"]),
    make(compute=[{"function": "count"}, *all_of("level")], where={"column": "level", "above": 60}),
    make(compute=[{"function": "count"}], where={"column": "level", "above": 30.1}),
    make(compute=[{"function": "count"}], where={"column": "small", "below": 50}),
    count_values("small", "on", "site", "level"),
    count_values("exact", "on", "device", per=["device", {"every": "1h"}]),
    make(events=["device", "at", "small", "on", "level", "exact"], window={"span": "30m"}),
    make(events=["device", "big"], where={"column": "exact", "above": 0}, order={"by": 1}, limit=7),
    make(events=["at"], devices=1, instant=True),
    make(compute=[{"function": "count"}], where={"column": "state", "is": "failed"}),
    make(compute=[{"function": "count"}], where={"column": "site", "is_not": ["south", "x"]}),
    make(events=["state", "at"], where={"column": "state", "is": ["lost", "failed", "nowhere"]}),
    make(events=["state", "at"], where={"column": "state", "is_not": "lost"}),
    make(events=["at"], where={"column": "state", "is": "nowhere"}),
    make(events=["at"], where={"column": "payload.mode", "is_not": "auto"}),
    make(events=["at"], where={"column": "payload.motor.heat", "above": 7}),
    make(compute=[{"function": "count"}, *all_of("payload.motor.heat")], per=["payload.mode"]),
    make(compute=[{"function": "p50", "column": "payload.motor.turns"}], per=["state", "device"]),
    make(compute=[{"function": "last", "column": "payload.motor.turns"}], per=["device"]),
    make(compute=percentiles_of("small", "level", "exact", "big"), per=["device"]),
    make(compute=percentiles_of("level"), per=[{"every": "2h"}, "site"]),
    make(compute=percentiles_of("exact"), where={"column": "level", "above": 1e9}),
    make(events=["at", "exact", "site"], newest=True),
    make(events=["small"], newest=True, devices=2),
    make(
        compute=[{"function": "avg", "column": "small"}],
        per=["device"],
        order={"by": 1, "descending": True},
        limit=7,
    ),
]  # fmt: skip


def plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def list_events(stored: Stored) -> list[dict[str, Any]]:
    events = []
    for part in stored.parts:
        block = stored.workload.block(part.worker, part.first, part.count)
        columns = {name: values.tolist() for name, values in block.columns.items()}
        for row, device in enumerate(block.devices.tolist()):
            event = {name: plain(values[row]) for name, values in columns.items()}
            event |= dict.fromkeys(name for name, missing in block.missing.items() if missing[row])
            event[block.schema.device] = device.decode()
            for path in ("mode", "motor.heat", "motor.turns") if "payload" in event else ():
                value = json.loads(event["payload"] or "{}")
                for step in path.split("."):
                    value = value.get(step, {})
                event[f"payload.{path}"] = None if value == {} else value
            events.append(event)
    return events


def search(bound: BoundQuery, stored: Stored) -> list[tuple[Any, ...]]:
    """The right answer, in any order and without a limit."""
    query, schema = bound.query, stored.workload.schema
    where = query.where

    def fits(event: dict[str, Any]) -> bool:
        if bound.devices is not None and event[schema.device] not in bound.devices:
            return False
        time, start, end = event[schema.time], bound.start_ms, bound.end_ms
        if start is not None and end is not None and not start <= time < end:
            return False
        if where is None:
            return True
        value = event[where.column]
        if value is None:
            return False
        if where.texts:
            return (value in where.texts) == (where.one_of is not None)
        limit = where.above if where.above is not None else where.below
        if schema.column(where.column).type is ColumnType.FLOAT32:
            value, limit = np.float32(value), float(np.float32(limit))
        return bool(value > limit if where.above is not None else value < limit)

    events = [event for event in list_events(stored) if fits(event)]
    if query.newest:
        newest = {
            event[schema.device]: event for event in sorted(events, key=lambda e: e[schema.time])
        }
        return [(name, *(event[c] for c in query.events)) for name, event in newest.items()]
    if query.events:
        return [tuple(event[name] for name in query.events) for event in events]

    def key(event: dict[str, Any]) -> tuple[Any, ...]:
        time = event[schema.time]
        return tuple(
            time - time % part.every if isinstance(part, Every) else event[part]
            for part in query.per
        )

    def rows() -> Iterator[tuple[Any, ...]]:
        for name, members in groupby(sorted(events, key=lambda e: repr(key(e))), key):
            yield name, list(members)
        if not events and not query.per:
            yield (), []

    return [
        (
            *name,
            *(
                compute(aggregate.function, aggregate.column, members, schema.time)
                for aggregate in query.compute
            ),
        )
        for name, members in rows()
    ]


def compute(function: str, column: str | None, events: list[dict[str, Any]], time: str) -> Any:
    if column is None:
        return len(events)
    if function == "last":
        return max(events, key=lambda event: event[time])[column] if events else None
    values = [event[column] for event in events if event[column] is not None]
    if function == "count":
        return len(values)
    if function.startswith("p"):
        return (
            float(np.percentile(np.array(values, float), float(function[1:]))) if values else None
        )
    functions: dict[str, Callable[[list[Any]], Any]] = {
        "min": min, "max": max, "sum": sum, "avg": lambda numbers: sum(numbers) / len(numbers),
    }  # fmt: skip
    return functions[function](values) if values else None


def sort_key(row: tuple[Any, ...]) -> str:
    return repr([round(v, 6) if isinstance(v, float) else v for v in row])


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks so small that groups and devices span many of them, and cross their ends."""
    monkeypatch.setattr("simulator.workloads.drawing.BLOCK_VALUES", 300)


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_answers_are_those_that_a_search_finds(query: Query) -> None:
    stored = Stored(MIXED, PARTS)
    for execution in range(3):
        bound = draw(query, stored, 0, execution)
        actual, expected = answer(bound, stored), search(bound, stored)
        assert len(actual.all_rows) == len(expected)
        for row, expected_row in zip(
            sorted(actual.all_rows, key=sort_key), sorted(expected, key=sort_key), strict=True
        ):
            for value, expected_value in zip(row, expected_row, strict=True):
                assert value == (
                    pytest.approx(expected_value, 1e-9)
                    if isinstance(expected_value, float)
                    else expected_value
                )
        assert compare_answers(actual, actual.rows) is None
        if query.order is None:
            assert compare_answers(actual, expected[::-1]) is None
        else:
            assert len(actual.rows) == min(query.limit or 99, len(expected))


@pytest.mark.parametrize(
    "workload",
    [
        Temperature(device_spread=7),
        Cpu(device_spread=3),
        load_workload("machines")(device_spread=4, late=0.3),
    ],
    ids=["temperature", "cpu", "machines"],
)
def test_all_queries_of_shipped_workloads(workload: Workload) -> None:
    stored = Stored(workload, [StoredPart(0, 0, 400), StoredPart(1, 10, 200)])
    bounds = [draw(query, stored, 0, 0) for query in workload.schema.descriptions]
    for bound, actual in zip(bounds, answer_all(bounds, stored), strict=True):
        expected = search(bound, stored)
        assert expected or bound.query.where, bound.query.name
        assert len(actual.all_rows) == len(expected)
        if bound.query.order is None:
            assert compare_answers(actual, expected) is None, bound.query.name


def test_top_devices_without_any_value_come_last() -> None:
    stored = Stored(MIXED, PARTS)
    top = answer(draw(QUERIES[-1], stored, 0, 0), stored)
    means = [row[1] for row in top.rows]
    assert means[-1] is None
    assert means[:-1][:4] == sorted((mean for mean in means if mean is not None), reverse=True)[:4]


# --- comparing ------------------------------------------------------------------------------------


def right(query: Query) -> Answer:
    stored = Stored(MIXED, PARTS)
    return answer(draw(query, stored, 0, 0), stored)


def test_the_first_row_that_differs_is_named() -> None:
    expected = right(QUERIES[1])
    rows = list(expected.rows)

    def compared(actual: list[Any]) -> str:
        difference = compare_answers(expected, actual)
        assert difference is not None
        return difference

    wrong = (rows[2][0], rows[2][1] + 1, *rows[2][2:])
    assert compared([*rows[:2], wrong, *rows[3:]]) == (
        f"count of device {wrong[0]} is {wrong[1]} instead of {rows[2][1]}"
    )
    assert "7 rows instead of 8; no row of device w00001d000003, expected" in compared(rows[:-1])
    assert "9 rows instead of 8; two rows of device w00000d000000" in compared([rows[0], *rows])
    assert "a row that shouldn't be there: ('x'" in compared([*rows[:-1], ("x", *rows[-1][1:])])
    assert "row 1 has 1 values instead of 10" in compared([("x",)])
    assert "row 1, " in compared([("x", "y", *rows[0][2:])])
    assert "is not a whole number" in compared([(rows[0][0], 1.5, *rows[0][2:])])


def test_how_exact_each_kind_of_value_must_be() -> None:
    expected = right(
        make(
            compute=[
                {"function": "avg", "column": "level"},
                {"function": "max", "column": "level"},
                {"function": "max", "column": "exact"},
                {"function": "sum", "column": "big"},
            ]
        )
    )
    mean, high, exact, total = expected.rows[0]
    assert compare_answers(expected, [(mean * (1 + 5e-7), high, exact, total)]) is None
    # The same float32 number, as databases that store float64 return it.
    assert compare_answers(expected, [(mean, round(high, 1), exact, total)]) is None
    for wrong in (
        (mean * (1 + 2e-6), high, exact, total),
        (mean, high + 1e-5, exact, total),
        (mean, high, exact * (1 + 1e-15), total),
        (mean, high, exact, total + 1),
        (mean, high, None, total),
    ):
        assert compare_answers(expected, [wrong]) is not None


def test_whole_numbers_are_rounded_where_that_is_declared() -> None:
    """As far as 64-bit floats require it; numbers that these hold exactly are not rounded."""
    functions = (Function.MIN, Function.MAX, Function.SUM)
    aggregates = [{"function": f, "column": name} for name in ("big", "small") for f in functions]
    bound = draw(make(compute=aggregates), Stored(MIXED, PARTS), 0, 0)
    exact, rounded = (
        answer(bound, Stored(MIXED, PARTS), Exactness(how)) for how in ((), functions)
    )
    row = exact.rows[0]
    floats = tuple(int(float(value)) for value in row)
    assert floats[:2] != row[:2]
    assert compare_answers(rounded, [floats]) is None
    assert compare_answers(rounded, [row]) is None
    assert compare_answers(exact, [floats]) is not None
    # The sizes add up to 1.5e21, of which floats have every 2**18th number.
    for place, off in ((0, 2**11), (1, 2**11), (2, 2**28), (3, 1), (4, 1), (5, 1)):
        wrong = tuple(value + off * (number == place) for number, value in enumerate(row))
        assert compare_answers(rounded, [wrong]) is not None, place


def test_estimates_of_percentiles_may_be_off_as_far_as_declared() -> None:
    """Among 453 values from 0 to 50, a hundredth of them is 5 places; and a percent of itself."""
    bound = draw(make(compute=[{"function": "p90", "column": "level"}]), Stored(MIXED, PARTS), 0, 0)

    def is_right(value: float, how: Percentiles) -> bool:
        right = answer(bound, Stored(MIXED, PARTS), Exactness(percentiles=how))
        return compare_answers(right, [(value,)]) is None

    values = np.sort([event["level"] for event in list_events(Stored(MIXED, PARTS))])
    exact = float(np.percentile(values.astype(float), 90))
    place = round(0.9 * (len(values) - 1))
    by_rank = Percentiles("a sketch", rank_error=0.01)
    by_value = Percentiles("a histogram", relative_error=0.01)
    assert is_right(exact, Percentiles())
    assert not is_right(exact * 1.00001, Percentiles())
    assert not is_right(float(values[place + 1]), Percentiles())
    for off, right in ((-7, False), (-4, True), (4, True), (7, False)):
        assert is_right(float(values[place + off]), by_rank) is right, off
    for factor, right in ((0.97, False), (0.995, True), (1.005, True), (1.03, False)):
        assert is_right(exact * factor, by_value) is right, factor
    assert str(by_rank) == "estimated by a sketch, within 1 % of values' ranks"


def test_estimates_are_in_an_order_of_their_own() -> None:
    """Rows that the right values would put elsewhere are no mistake, but what isn't in order is."""
    values = {"compute": [{"function": "p50", "column": "level"}], "per": ["device"]}
    query = make(**values, order={"by": 1, "descending": True}, limit=5)
    bound, how = draw(query, Stored(MIXED, PARTS), 0, 0), Percentiles("a sketch", rank_error=0.05)
    right = answer(bound, Stored(MIXED, PARTS), Exactness(percentiles=how))
    slack = right.columns[1].slack
    assert slack is not None
    estimates = [
        (device, value + (0.9 if place % 2 else -0.9) * off)
        for place, ((device, value), off) in enumerate(zip(right.all_rows, slack, strict=True))
    ]
    rows = sorted(estimates, key=lambda row: -row[1])
    assert [row[0] for row in rows] != [row[0] for row in right.all_rows]
    assert compare_answers(right, rows[:5]) is None
    assert "row 5 by p50 of level" in (compare_answers(right, rows[-5:]) or "")


def test_equal_rows_are_counted() -> None:
    expected = right(make(events=["site"], window={"span": "10m"}, devices=["w00000d000000"]))
    assert len(expected.rows) >= 2
    assert compare_answers(expected, [*expected.rows, expected.rows[0]]) is not None
    assert "missing row" in (compare_answers(expected, expected.rows[1:]) or "")
    assert compare_answers(expected, []) is not None


def test_an_order_is_checked_but_not_among_equals() -> None:
    query = make(events=["site", "device"], order={"by": 0}, limit=200)
    expected = right(query)
    rows = expected.rows
    assert compare_answers(expected, [rows[1], rows[0], *rows[2:]]) is None
    # Of the events at one site, any may be within the limit.
    assert {row[0] for row in rows} == {"north"}
    other_rows = expected.all_rows[5:205]
    assert compare_answers(expected, other_rows) is None
    unlimited = right(make(events=["site", "device"], order={"by": 0}))
    assert "row 1 by site" in (compare_answers(unlimited, unlimited.rows[::-1]) or "")
