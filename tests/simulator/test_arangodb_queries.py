"""What described queries are in AQL, and what the stand-in makes of it by the language's rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.encoding.columns import text_format
from simulator.modules.arangodb.queries import compile_query
from simulator.testing.events import make_schema
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import BoundQuery, bind
from simulator.workloads.queries import Query
from simulator.workloads.schema import Column, ColumnType, Schema
from simulator.workloads.temperature import Temperature

from ..contract.aql import AqlError, execute

SCHEMA = make_schema(
    "order",
    Column("heat", ColumnType.FLOAT32, decimals=2, nullable=True),
    Column("exact", ColumnType.FLOAT32),
    Column("size", ColumnType.INT64),
    device="thing",
)
ROWS = [
    {"at": 1, "thing": "a", "heat": None, "exact": 0.100000001, "size": 4},
    {"at": 2, "thing": "a", "heat": 12.34, "exact": 0.200000003, "size": 3},
    {"at": 3, "thing": "a", "heat": None, "exact": 0.300000012, "size": 2},
    {"at": 2, "thing": "b", "heat": None, "exact": 0.400000006, "size": 1},
]


def compile_for(schema: Schema = SCHEMA, **values: Any) -> str:
    return compile_query(bind(Query.model_validate({"name": "q", **values}), 0), schema)


def ask(**values: Any) -> list[Any]:
    """The answer from the events above."""
    return execute(compile_for(**values), {}, {"order": ROWS})


@pytest.mark.parametrize(
    ("name", "clauses"),
    [
        ("count-events", ["RETURN [LENGTH(`events`)]"]),
        (
            "newest-per-device",
            [
                "FOR e IN `events`",
                "COLLECT device = e.`device_id` AGGREGATE newest = MAX([e.`timestamp`, e.`temperature`])",
                "RETURN [device, newest[1]]",
            ],
        ),
        (
            "temperature-min-max",
            [
                "FOR e IN `events`",
                "COLLECT AGGREGATE value0 = MIN(e.`temperature`), value1 = MAX(e.`temperature`)",
                "RETURN [value0, value1]",
            ],
        ),
    ],
)
def test_texts(name: str, clauses: list[str]) -> None:
    query = Temperature.schema.description(name)
    assert query is not None
    assert compile_query(bind(query, 0), Temperature.schema).split("\n") == clauses


def test_the_newest_of_one_device_can_come_from_an_index() -> None:
    query = Cpu.schema.description("last-value")
    assert query is not None
    text = compile_query(BoundQuery(query, ("w0",)), Cpu.schema)
    assert 'FILTER e.`tags`.`hostname` == "w0"\nSORT e.`ts` DESC\nLIMIT 1\n' in text


def test_tags_are_joined_where_they_are_read() -> None:
    schema = Cpu(tags="table").schema
    find = 'LET deviceIds = (FOR t IN `cpu_tags` FILTER t.`tags`.`hostname` == "w0" RETURN t.`tags_id`)'
    join = ["FOR t IN `cpu_tags`", "FILTER t._key == TO_STRING(e.`tags_id`)"]
    text = compile_for(schema, events=["ts"], devices=["w0"])
    begin = [find, "FOR e IN `cpu`", "FILTER e.`tags_id` == deviceIds[0]"]
    assert text.split("\n") == [*begin, "RETURN [e.`ts`]"]
    text = compile_for(schema, events=["ts"], devices=["w0"], newest=True)
    end = "RETURN [t.`tags`.`hostname`, e.`ts`]"
    # Only for the event that was found.
    assert text.split("\n") == [*begin, "SORT e.`ts` DESC", "LIMIT 1", *join, end]
    text = compile_for(schema, compute=[{"function": "count"}], per=["tags"])
    assert text.split("\n") == [
        "FOR e IN `cpu`",
        "COLLECT id = e.`tags_id` AGGREGATE value0 = COUNT(1)",
        "FOR t IN `cpu_tags`",
        "FILTER t._key == TO_STRING(id)",
        "RETURN [t.`tags`.`hostname`, value0]",
    ]


def test_missing_values_are_in_no_condition() -> None:
    """Though `null` is less than any number."""
    assert ask(events=["at"], where={"column": "heat", "below": 20}) == [[2]]
    assert ask(events=["at"], where={"column": "heat", "above": -20}) == [[2]]
    assert "null" not in compile_for(events=["at"], where={"column": "size", "below": 20})


def test_missing_values_are_in_no_figure() -> None:
    every = [{"function": name, "column": "heat"} for name in ("min", "max", "avg", "sum", "last")]
    answer = ask(compute=[{"function": "count"}, *every], per=["thing"])
    assert answer == [["a", 3, 12.34, 12.34, 12.34, 12.34, None], ["b", 1, *[None] * 5]]
    nothing = ask(compute=[{"function": "count"}, *every[:4]], devices=["c"])
    assert nothing == [[0, None, None, None, None]]


def test_nothing_comes_last_either_way() -> None:
    for descending in (False, True):
        answer = ask(events=["at", "heat"], order={"by": 1, "descending": descending}, limit=2)
        assert answer[0] == [2, 12.34]
        assert answer[1][1] is None
    assert "== null" not in compile_for(events=["at"], order={"by": 0})


@pytest.mark.parametrize("column", ["heat", "exact"])
@pytest.mark.parametrize("limit", [0.1, 12.34, 12.3399999, 12.345, 0.2, 0.3000001, 1e10, 7.0])
def test_conditions_compare_in_32_bits(column: str, limit: float) -> None:
    """Though documents have the decimal fractions that were sent, in 64 bits."""
    single = np.float32(limit)
    near = (np.nextafter(single, np.float32(-1e30)), single, np.nextafter(single, np.float32(1e30)))
    farther = (np.float32(limit - 0.01), np.float32(limit + 0.01))
    form = text_format(SCHEMA.column(column))
    sent = {float(form % float(value)) for value in (*near, *farther)}
    rows = [{"at": 1, "thing": "a", column: value} for value in sorted(sent)]
    for above in (True, False):
        side = {"above": limit} if above else {"below": limit}
        text = compile_for(events=[column], where={"column": column, **side})
        matching = [value for (value,) in execute(text, {}, {"order": rows})]
        singles = {value: np.float32(value) for value in sent}
        right = [v for v, s in sorted(singles.items()) if (s > single if above else s < single)]
        assert matching == right


def test_devices_are_quoted() -> None:
    names = ('say "a"', "back\\slash", "Grüße\n", "`", "'")
    rows = [{"thing": name, "at": place} for place, name in enumerate(names)]
    text = compile_for(events=["thing"], devices=list(names[1:]))
    assert execute(text, {}, {"order": rows}) == [[name] for name in names[1:]]


@pytest.mark.parametrize(
    "query",
    [
        "FOR e IN events RETURN",
        "FOR e IN events COLLECT AGGREGATE m = MEDIAN(e.x) RETURN m",
        "FOR e IN events RETURN f",
        "FOR e IN events RETURN e.x e.y",
        "FOR e IN events FILTER e.x = 1 RETURN e",
        "FOR e IN events COLLECT d = e.x RETURN e",
        "FOR e IN events COLLECT d = e.x AGGREGATE d = MAX(e.x) RETURN d",
        "FOR e IN events FOR e IN events RETURN e",
        "FOR e IN events SORT RETURN e",
        "FOR e IN events SORT e.x NULLS LAST RETURN e",
        "FOR e IN events LIMIT e.x RETURN e",
        "FOR e IN events RETURN e.limit",
        "FOR sort IN events RETURN sort",
        "FOR e IN events FILTER e.x == 'a' RETURN e",
        'FOR e IN events FILTER e.x == "\\q" RETURN e',
        "FOR e IN events FILTER e.x > 01 RETURN e",
        "RETURN null ? 1",
        "RETURN SQRT(2)",
        "FOR e IN events LET e = 1 RETURN e",
        "LET x = (FOR e IN events RETURN e.x) FOR e IN x RETURN e",
        "FOR e IN events RETURN (FOR f IN events FILTER f.x == e.x RETURN f)",
        "RETURN (FOR e IN events RETURN e.x",
        "RETURN TO_STRING(1.5)",
    ],
)
def test_the_stand_in_is_strict_about_aql(query: str) -> None:
    with pytest.raises((AqlError, KeyError)):
        execute(query, {}, {"events": [{"x": 1}]})


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("null < -1", True), ("null < false", True), ("true < 0", True), ("9 < \"\"", True),
        ("\"z\" < []", True), ("[1, 2] < [1, 3]", True), ("[null, 9] < [0]", True),
        ("1 == 1.0", True), ("null == 0", False), ("-7 % 3", -1), ("7 % 0", None),
        ("1 + 2 * 3 - 4", 3), ("(1 + 2) * 3", 9), ("\"\" ? 1 : 2", 2), ("[] ? 1 : 2", 1),
        ("null + 1", 1), ("[1, 2][1]", 2), ("[1][5]", None), ("\"a\\\"\\u00fc\"", 'a"ü'),
        ("TO_STRING(7000042)", "7000042"), ("TO_STRING(null)", ""), ("TO_STRING(\"a\")", "a"),
        ("-1.5e2", -150), ("1 IN [1.0]", True), ("null AND true", None),
    ],
)  # fmt: skip
def test_the_stand_in_knows_types_and_their_order(expression: str, value: object) -> None:
    (result,) = execute(f"RETURN {expression}", {}, {})
    assert result == value
    assert (result is None) == (value is None)


def test_subqueries_are_lists() -> None:
    rows = {"t": [{"k": 1}, {"k": 3}], "u": [{"k": 3, "v": 5}]}
    text = "LET ks = (FOR e IN u RETURN e.k) FOR e IN t FILTER e.k IN ks FOR f IN u RETURN [ks, e.k, f.v]"
    assert execute(text, {}, rows) == [[[3], 3, 5]]


def test_groups_and_order() -> None:
    rows = [{"k": k, "v": v} for k, v in ((1, 5), (None, 1), (1.0, None), ("a", 2), (True, 3))]
    query = (
        "FOR e IN t COLLECT k = e.k AGGREGATE n = COUNT(1), low = MIN(e.v), s = SUM(e.v)"
        " SORT k RETURN [k, n, low, s]"
    )
    groups = execute(query, {}, {"t": rows})
    assert groups == [
        [None, 1, 1, 1], [True, 1, 3, 3], [1, 2, 5, 5], ["a", 1, 2, 2],
    ]  # fmt: skip
    assert execute("FOR e IN t SORT e.v DESC, e.k LIMIT 2 RETURN e.v", {}, {"t": rows}) == [5, 3]
