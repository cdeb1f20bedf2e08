"""Requests of CrateDB, taken apart again by json."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pytest

from simulator.contract import Load, PrimaryKey, Tables
from simulator.encoding.columns import client_keys
from simulator.errors import OptionError, Retryable, SimulatorError
from simulator.modules.base import Job
from simulator.modules.cratedb import Cratedb
from simulator.modules.cratedb.encoding import MODES, CratedbOptions, Part, StatementEncoder
from simulator.modules.cratedb.server import CratedbWriter
from simulator.modules.kit.http_answer import Answer
from simulator.modules.options import InsertMode, parse_options
from simulator.modules.sending import Request
from simulator.testing.events import Row, normalise, rows_of
from simulator.workloads.base import Workload
from simulator.workloads.schema import ColumnType
from simulator.workloads.temperature import Temperature

from .encoded import each_kind, make_events

_STATEMENT = re.compile(r'INSERT INTO "(\w+)" \(([^()]+)\) (?:VALUES|\(SELECT \* FROM UNNEST)(.+)')


def values_of(mode: InsertMode, part: Part) -> tuple[str, list[str], list[list[Any]]]:
    """Table, columns and rows of a statement."""
    request = json.loads(part.body)
    match = _STATEMENT.fullmatch(request.pop("stmt"))
    assert match
    names = [name.strip('"') for name in match[2].split(", ")]
    assert match[3].count("?") == len(names)
    ((form, values),) = request.items()
    assert form == ("bulk_args" if mode is InsertMode.BULK else "args")
    if mode is InsertMode.UNNEST:
        values = [list(row) for row in zip(*values, strict=True)]
    return match[1], names, [values] if mode is InsertMode.SINGLE else values


def to_values(workload: Workload, names: list[str], row: list[Any]) -> Row:
    """A row as the workload has it: a JSON document that isn't an object was sent as text."""
    values = dict(zip(names, row, strict=True))
    for column in workload.schema.columns:
        if column.type is ColumnType.JSON and column.name != workload.schema.device:
            values[column.name] = json.loads(values[column.name])
    (event,) = normalise(workload.schema, [[values[c.name] for c in workload.schema.columns]])
    return event


@each_kind
@pytest.mark.parametrize("key", [PrimaryKey.NONE, PrimaryKey.CLIENT])
@pytest.mark.parametrize("tables", Tables)
@pytest.mark.parametrize("mode", MODES)
def test_statements_hold_the_events(
    kind: type[Workload], key: PrimaryKey, tables: Tables, mode: InsertMode
) -> None:
    batch = 0 if mode is InsertMode.SINGLE else 10
    workload, block, job = make_events(kind, primary_key=key, tables=tables, batch=batch)
    encoder = StatementEncoder(job, mode)
    payloads = encoder.encode(block)
    assert [p.events for p in payloads] == ([1] * 91 if not batch else [10] * 9 + [1])
    rows, keys = rows_of(block), client_keys(block)
    seen = []
    for payload in payloads:
        assert len({part.table for part in payload.data}) == len(payload.data)
        for part in payload.data:
            table, names, values = values_of(mode, part)
            assert table == job.table_names[part.table]
            first = payload.last + 1 - payload.events
            for number, row in zip((first + row for row in part.rows), values, strict=True):
                assert part.table == (block.first + number) % len(job.table_names)
                assert to_values(workload, names, row) == rows[number]
                if key is PrimaryKey.CLIENT:
                    assert row[0] == keys[number].decode()
                seen.append(number)
        assert max(number for part in payload.data for number in part.rows) + 1 == payload.events
    assert sorted(seen) == list(range(91))


@pytest.mark.parametrize("mode", [InsertMode.BULK, InsertMode.UNNEST])
def test_what_is_sent_again_is_the_rest(mode: InsertMode) -> None:
    workload = Temperature()
    block = workload.block(0, 5, 20)
    encoder = StatementEncoder(Job(block.schema, Load(batch=10)), mode)
    payload = encoder.encode(block)[1]
    part = payload.data[0]
    part.keep([2, 9], payload)
    assert list(part.rows) == [2, 9]
    _, names, values = values_of(mode, part)
    rows = rows_of(block)
    assert [to_values(workload, names, row) for row in values] == [rows[12], rows[19]]


class Answers:
    """An HTTP layer that has one answer to everything."""

    def __init__(self, status: int, body: object) -> None:
        self._answer = Answer(status, json.dumps(body, separators=(",", ":")).encode(), [])

    def begin(self, *_: object) -> None:
        """Nothing is sent."""

    def finish(self, *_: object) -> Answer:
        return self._answer


def after(
    answer: object,
    monkeypatch: pytest.MonkeyPatch,
    *,
    status: int = 200,
    sent_before: bool = False,
    first: bool = True,
) -> Part:
    """A bulk statement of three events after this answer, which no server gives at will."""
    answers = Answers(status, answer)
    monkeypatch.setattr("simulator.modules.cratedb.server.Connection.begin", answers.begin)
    monkeypatch.setattr("simulator.modules.cratedb.server.Connection.finish", answers.finish)
    options = parse_options(CratedbOptions, {"endpoint": "http://nowhere"}, str)
    job = Job(Temperature.schema, Load(batch=3))
    writer = CratedbWriter(Cratedb(options, job))
    monkeypatch.setattr("simulator.modules.cratedb.server.Connection.check", lambda _: None)
    writer.open()
    if not first:
        writer.send(Request([], 0, Temperature().block(0, 0, 1), 0))
    (payload,) = writer.encoder.encode(Temperature().block(0, 0, 3))
    (part,) = payload.data
    assert isinstance(part, Part)
    part.sent_before = sent_before
    with suppress(Retryable):
        assert writer.send(payload) == 3
    return part


STORED = {"rowcount": 1}
FULL = {"rowcount": -2, "error": {"code": 5000, "message": "rejected execution of write"}}
DUPLICATE = {"rowcount": -2, "error": {"code": 4091, "message": "DuplicateKeyException[…]"}}
OLDER_DUPLICATE = {"rowcount": -2, "error_message": "DuplicateKeyException[…]"}
UNEXPLAINED = {"rowcount": -2}
OUT_OF_RANGE = {
    "rowcount": -2,
    "error": {
        "code": 5000,
        "message": "Value 9223372036854775807 exceeds allowed range for column of type bigint",
    },
}
WRONG = {"rowcount": -2, "error": {"code": 4003, "message": "Cannot cast"}}


@pytest.mark.parametrize(
    ("results", "sent_before", "kept"),
    [
        ([STORED, STORED, STORED], False, []),
        ([STORED, FULL, STORED], False, [1]),
        ([FULL, STORED, UNEXPLAINED], False, [0, 2]),
        ([DUPLICATE, STORED, OLDER_DUPLICATE], True, []),
        ([DUPLICATE, FULL, STORED], True, [1]),
    ],
)
def test_only_rows_that_were_refused_are_sent_again(
    results: list[Any], sent_before: bool, kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    part = after({"cols": [], "results": results}, monkeypatch, sent_before=sent_before)
    assert list(part.rows) == kept
    # Each try again begins with a look at what is stored.
    assert part.in_doubt == bool(kept)


def test_a_row_that_is_there_unexpectedly_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may have sent its part again itself. Not so before anything of this run is stored."""
    answer = {"cols": [], "results": [STORED, DUPLICATE, OLDER_DUPLICATE]}
    part = after(answer, monkeypatch, first=False)
    assert (list(part.rows), part.in_doubt) == ([1, 2], True)
    single = {"error": {"code": 4091, "message": "DuplicateKeyException[…]"}}
    part = after(single, monkeypatch, first=False, status=409)
    assert (list(part.rows), part.in_doubt) == ([0, 1, 2], True)
    with pytest.raises(SimulatorError, match="an earlier run has stored the event"):
        after(single, monkeypatch, status=409)


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ([STORED, OUT_OF_RANGE, STORED], "exceeds allowed range"),
        ([STORED, DUPLICATE, STORED], "an earlier run has stored the event"),
        ([STORED, OLDER_DUPLICATE, STORED], "an earlier run has stored the event"),
        ([STORED, FULL, WRONG], "4003 Cannot cast"),
    ],
)
def test_rows_that_are_refused_for_good_end_the_run(
    results: list[Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SimulatorError, match=text):
        after({"cols": [], "results": results}, monkeypatch)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"endpoint": "crate:4200"}, "option endpoint: must be a URL like http://"),
        ({"endpoint": "http://me:hush@host"}, "must not contain a user or password"),
        ({"endpoint": "http://host", "replicas": "many"}, "option replicas:"),
        ({"endpoint": "http://host", "default_schema": "x-y"}, "option default_schema:"),
    ],
)
def test_options_that_can_not_work(values: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_options(CratedbOptions, values, lambda _: "target x")
    assert problem in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("replicas", [0, "1", "0-1", "0-all"])
def test_replicas_are_a_number_or_a_range(replicas: object) -> None:
    options = parse_options(CratedbOptions, {"endpoint": "http://host", "replicas": replicas}, str)
    assert options.replicas == str(replicas)


def test_a_batch_has_a_limit() -> None:
    options = parse_options(CratedbOptions, {"endpoint": "http://host"}, str)
    assert options.mode(Load(batch=20_000)) is InsertMode.BULK
    with pytest.raises(OptionError, match="at most 20,000 with CrateDB"):
        options.mode(Load(batch=20_001))
