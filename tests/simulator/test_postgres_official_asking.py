"""What psycopg2 and psycopg 3 are given to ask: the statements of the lean path, with parameters apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.contract import Load, Role
from simulator.errors import OptionError
from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.kit.sql_queries import quote_text
from simulator.modules.options import parse_options
from simulator.modules.postgres import Postgres
from simulator.modules.postgres.official import DriverAsker, Question
from simulator.workloads import WORKLOADS
from simulator.workloads.drawing import BoundQueries
from simulator.workloads.queries import Query
from simulator.workloads.schema import Schema, Tags

NAMES = ["one", "two's", "100 %s", "zwölf%%"]


def make_module(schema: Schema, module: str = "postgres", **values: Any) -> Postgres:
    kind = load_module(module)
    settings = {"connection_string": "host=none", "client": "official", **values}
    options = parse_options(kind.options_model, settings, str)
    database = kind(options, Job(schema, Load(role=Role.READ)))
    assert isinstance(database, Postgres)
    return database


def bind_twice(query: Query) -> BoundQueries:
    """Two executions of a query, with names that could be taken for something else."""
    count = query.devices if isinstance(query.devices, int) else 0
    names: NDArray[np.bytes_] | None
    if isinstance(query.devices, tuple):
        names = np.array([[name.encode() for name in query.devices]] * 2)
    else:
        chosen = [
            [NAMES[(first + place) % len(NAMES)] for place in range(count)] for first in (0, 2)
        ]
        names = np.array([[name.encode() for name in own] for own in chosen]) if count else None
    if query.instant:
        names = np.array([[name.encode()] for name in NAMES[1:3]])
    start = end = None
    if query.instant or query.window is not None:
        start = np.array([1_704_067_200_000, 1_704_067_234_567])
        end = start + (1 if query.instant else 3_600_000)
    return BoundQueries(query, 2, names, start, end)


def fill(question: Question) -> str:
    """The statement as a driver that writes parameters into it sends it."""
    if question.values is None:
        return question.text
    constants = [
        quote_text(value) if isinstance(value, str) else str(value) for value in question.values
    ]
    return question.text % tuple(constants)


@pytest.mark.parametrize("client", ["official", "psycopg3"])
@pytest.mark.parametrize("tags", list(Tags))
@pytest.mark.parametrize("module", ["postgres", "timescaledb"])
@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_questions_are_the_lean_paths_statements_with_parameters(
    workload: str, module: str, tags: Tags, client: str
) -> None:
    schema = WORKLOADS[workload](tags=str(tags)).schema
    built = make_module(schema, module, client=client, create_indices="before")
    asker = built.asker(1)
    assert isinstance(asker, DriverAsker)
    with_values = 0
    for query in schema.descriptions:
        bounds = bind_twice(query)
        questions = list(asker.encode(bounds))
        assert [fill(question) for question in questions] == [
            built.compile(bound) for bound in bounds
        ]
        with_values += questions[0].values is not None
        for value in questions[0].values or ():
            assert isinstance(value, str | int)
    assert with_values


def test_a_statement_of_ones_own_has_no_parameters() -> None:
    asker = make_module(WORKLOADS["temperature"]().schema).asker(1)
    assert asker.encode_statement("SELECT 5 % 3") == Question("SELECT 5 % 3", None)


def test_readers_may_use_a_client_that_has_no_way_to_insert_as_asked() -> None:
    schema = WORKLOADS["temperature"]().schema
    make_module(schema, client="psycopg3", insert_mode="single")
    with pytest.raises(OptionError, match="has no client=psycopg4"):
        make_module(schema, client="psycopg4")
