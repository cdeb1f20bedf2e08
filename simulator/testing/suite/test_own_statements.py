"""Statements of a workload's own: their parameters arrive, and a wrong one is found out."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from ...contract import StoredPart
from ...errors import OptionError
from ...oracle.answers import answer_all, compare_answers
from ...workloads import load_workload
from ...workloads.drawing import Stored, draw_block
from ...workloads.queries import Query
from ...workloads.schema import Schema
from ..server import ServerUnderTest, new_job
from .test_queries import SEED, fill, prepare_queries

EXECUTIONS = 4
PARTS = ((0, 0, 300), (1, 0, 100))
WORKLOAD = load_workload("machines")(seed=SEED, device_spread=4)
FIELD = WORKLOAD.schema.fields[0]

_SQL = (
    'SELECT "{field}" FROM :table WHERE "{device}" = :device AND "{time}" >= :start AND "{time}" < :end'
    ' AND "{field}" > :above'
)
TEXTS = {
    "SQL": _SQL,
    "CQL": f"{_SQL} ALLOW FILTERING;",
    "AQL": "FOR e IN :table FILTER e.`{device}` == :device AND e.`{time}` >= :start AND e.`{time}` < :end"
    " AND e.`{field}` > :above RETURN [e.`{field}`]",
    "KQL": ":table | where ['{time}'] >= :start and ['{time}'] < :end | where ['{device}'] == :device"
    " | where ['{field}'] > :above | project v0 = ['{field}']",
}
"""Language -> a statement that asks the same as the description below."""


def write_text(server: ServerUnderTest, schema: Schema) -> str:
    """Such a statement for the server's module."""
    language = server.module_type.CAPABILITIES.statements
    assert language is not None
    time = server.time_column or schema.time
    return TEXTS[language].format(field=FIELD, device=schema.device, time=time)


def describe(module: str, text: str) -> Query:
    """A query with a statement of the workload's own."""
    return Query.model_validate(
        {
            "name": "own",
            "devices": 1,
            "window": {"span": "10m"},
            "where": {"column": FIELD, "above": 45.1},
            "events": [FIELD],
            "statement": {module: text},
        }
    )


def ask(server: ServerUnderTest, query: Query, stored: Stored) -> list[str | None]:
    """What is wrong with the answer of each execution: asked as a reader does, and then by itself."""
    bounds = draw_block(query, stored, 0, 0, EXECUTIONS)
    rights = answer_all(list(bounds), stored)
    assert any(len(right) for right in rights)
    with prepare_queries(server, WORKLOAD) as module, closing(module.make_asker(1)) as asker:
        requests = list(asker.encode(bounds))
        asker.open()
        prepared = [asker.decode(asker.send(request)) for request in requests]
        alone = [module.fetch(module.make_statement(bound)) for bound in bounds]
    return [
        compare_answers(right, rows)
        for answers in (prepared, alone)
        for right, rows in zip(rights, answers, strict=True)
    ]


def test_a_workloads_own_statement(server: ServerUnderTest) -> None:
    can, name = server.module_type.CAPABILITIES, server.module_type.name
    if can.statements is None or not server.takes_statements:
        query = describe(name, "SELECT 1")
        schema = replace(WORKLOAD.schema, descriptions=(query,))
        with pytest.raises(OptionError, match="query own: statement: "):
            server.module(new_job(schema))
        return
    if not server.can_hold(WORKLOAD.schema):
        pytest.skip("the module doesn't store it")
    fill(server, WORKLOAD, PARTS)
    stored = Stored(WORKLOAD, [StoredPart(*part) for part in PARTS])
    text = write_text(server, WORKLOAD.schema)
    assert ask(server, describe(name, text), stored) == [None] * 2 * EXECUTIONS
    wrong = text.replace(":end", ":start")
    assert any(ask(server, describe(name, wrong), stored))
