"""A workload's own statements: which module takes which, and how their parameters are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import orjson

from ..conditions import Condition
from ..errors import OptionError, Redactor
from ..workloads.drawing import BoundQuery
from ..workloads.own_schema import makes_tags_table
from ..workloads.queries import Every, Parameter, Query, parse_statement
from ..workloads.schema import Column, Schema, Tags
from .capabilities import OwnSchema
from .options import Job, Options


@dataclass(frozen=True)
class Literals:
    """How a language other than SQL writes drawn values."""

    text: Callable[[str], str]
    """A text as a constant."""
    instant: Callable[[int], str]
    """A time, in ms since 1970, to compare with an event's."""


class Drawn(Protocol):
    """How a language writes drawn values: `Literals`, or an SQL dialect."""

    @property
    def text(self) -> Callable[[str], str]: ...

    @property
    def instant(self) -> Callable[[int], str]: ...


def quote_json(text: str) -> str:
    """A text as JSON."""
    return orjson.dumps(text).decode()


JSON_LITERALS = Literals(quote_json, str)
"""For a language with JSON's texts, and times as numbers."""


_OwnT = TypeVar("_OwnT")


def find_own(names: Sequence[str], own: Mapping[str, _OwnT]) -> _OwnT | None:
    """The workload's entry under the first of these names (`Module.list_own_names`)."""
    return next((own[name] for name in names if name in own), None)


def find_own_statement(names: Sequence[str], query: Query) -> str | None:
    """The workload's own statement for a query. None: the module compiles the description."""
    return find_own(names, query.statement)


def list_own_statements(names: Sequence[str], schema: Schema) -> dict[str, str]:
    """Query -> the workload's own statement for it."""
    texts = {query.name: find_own_statement(names, query) for query in schema.descriptions}
    return {name: text for name, text in texts.items() if text is not None}


def check_own_statements(
    names: Sequence[str], name: str, schema: Schema, taken: bool, secrets: Iterable[str]
) -> None:
    """OptionError if the workload has statements for this module that it can't take. `taken`: whether it
    takes any; `secrets`: texts that must not be in them."""
    redact = Redactor(secrets)
    for query, text in list_own_statements(names, schema).items():
        if not taken:
            raise OptionError(f"query {query}: statement: {refuse_statements(name)}")
        if redact(text) != text:
            raise OptionError(
                f"query {query}: statement: it contains a password of the target, which results"
                " would store: leave it out"
            )


def check_own_schema(
    statements: Sequence[str], name: str, can: OwnSchema, options: Options, job: Job
) -> None:
    """OptionError if the module can't let these statements of the workload create its tables in such a
    run."""
    if not can.language:
        raise OptionError(refuse_schema(name, can))
    if Redactor(options.secrets())("\n".join(statements)) != "\n".join(statements):
        raise OptionError(
            f"schema.{name}: it contains a password of the target, which results would store: leave it out"
        )
    if makes_tags_table(statements) is not (job.schema.tags is Tags.TABLE):
        wanted = Tags.ROW if job.schema.tags is Tags.TABLE else Tags.TABLE
        raise OptionError(
            f"schema.{name}: the workload's own schema is for tags={wanted}: set this workload option, or"
            " write one for the other"
        )
    if job.retention is not None and not can.ages:
        raise OptionError(
            f"module {name} can't do --retention with the workload's own schema: it deletes from partitions"
            " that it creates itself"
        )
    for option, default in list_shaping(type(options), can).items():
        if getattr(options, option) != default:
            raise OptionError(
                f"option {option} shapes the table that module {name} creates, but the workload has its own"
                " schema: leave the option out, and put it in the schema"
            )


def list_shaping(model: type[Options], can: OwnSchema) -> dict[str, object]:
    """The options that shape the tables created by a module, with their defaults."""
    return {
        name: field.default
        for name, field in model.model_fields.items()
        if Condition.SCHEMA in field.metadata or name in can.options
    }


def refuse_schema(module: str, can: OwnSchema) -> str:
    """The error for a workload's own schema for a module that takes none."""
    return (
        f"module {module} takes no schema from a workload: {can.reason}; leave it out, so that the module"
        " creates its own"
    )


def refuse_statements(module: str) -> str:
    """The error for a workload's own statement for a module that takes none."""
    return (
        f"module {module} takes no statements from a workload: leave it out, so that the module"
        " builds one from the description"
    )


def fill_statement(
    text: str,
    bound: BoundQuery,
    schema: Schema,
    literals: Drawn,
    number: Callable[[float, Column], str],
    table: str,
) -> str:
    """A statement with its parameters filled in. `number`: writes a number to compare with a column; `table`:
    the events' table, in the form for statements."""
    values = write_constants(bound.query, schema, number, table)
    if bound.devices is not None:
        names = list(map(literals.text, bound.devices))
        values |= {Parameter.DEVICE: names[0], Parameter.DEVICES: ", ".join(names)}
    if bound.start_ms is not None and bound.end_ms is not None:
        values[Parameter.START] = literals.instant(bound.start_ms)
        values[Parameter.END] = literals.instant(bound.end_ms)
    return parse_statement(text).fill(values)


def write_constants(
    query: Query, schema: Schema, number: Callable[[float, Column], str], table: str
) -> dict[str, str]:
    """The parameters that are the same in each execution."""
    constants: dict[str, str] = {Parameter.TABLE: table}
    where = query.where
    limits: Mapping[str, float | None] = (
        {Parameter.ABOVE: where.above, Parameter.BELOW: where.below} if where else {}
    )
    for name, limit in limits.items():
        if where is not None and limit is not None:
            constants[name] = number(limit, schema.column(where.column))
    if query.limit is not None:
        constants[Parameter.LIMIT] = str(query.limit)
    for part in query.per:
        if isinstance(part, Every):
            constants[Parameter.EVERY] = str(part.every)
    return constants
