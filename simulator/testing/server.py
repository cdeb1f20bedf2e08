"""What the contract suite needs to know about a database in addition to its module, and the servers it runs
on."""

from __future__ import annotations

import json
import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import Any, ClassVar, Literal

import pytest

from ..contract import Load, PrimaryKey, Tables
from ..encoding.columns import KEY_COLUMN, quote_name
from ..errors import OptionError, did_you_mean
from ..modules import load_module
from ..modules.base import AnyModule, Encoding, Job, Support, connect
from ..modules.kit.sql_queries import quote_text
from ..modules.options import parse_options
from ..workloads.schema import ColumnType, EventBlock, Schema, Tags
from .events import TESTED, Losses, Row, normalise


@dataclass(frozen=True)
class FaultHandle:
    """A prepared failure: if `trigger()` is called right before a request, that request suffers it."""

    trigger: Callable[[], object]
    options: Mapping[str, Any] = field(default_factory=dict)
    """For the writer's module, for example the address of a proxy."""
    abort: Callable[[], object] = lambda: None
    """The loop's `abort`, called before each retry."""


@dataclass(frozen=True)
class Fault:
    """A kind of failure that the server under test can really produce. The loop must count exactly `errors`,
    and each of them except the last as the reason of a retry."""

    name: str
    errors: Mapping[str, int]
    prepare: Callable[[Any, Job], AbstractContextManager[FaultHandle]]
    """(server, the writer's job) -> the failure; undone when the context ends."""
    thorough: bool = False
    """Whether to try it in every primary key mode and with several tables, not only in every encoding."""
    once: bool = False
    """Whether it affects the connection, or something that all encodings share: the first encoding is
    enough."""
    reconnects: bool | None = None
    """Whether an existing connection ends; None: if one is counted as lost."""

    @property
    def ends_a_connection(self) -> bool:
        """Whether the writer must continue on another connection."""
        return "connection_lost" in self.errors if self.reconnects is None else self.reconnects

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Refusal:
    """Options that are refused by the server, and what the error must and must not say."""

    options: Mapping[str, Any]
    names: str
    """How the error names the server."""
    remedy: str
    """Part of the remedy."""
    secret: str


class ServerUnderTest(ABC):
    """A database or keyspace of this process's own, on a server that others may be using. Values that are
    read back are normalised."""

    FAULTS: ClassVar[Sequence[Fault]] = ()
    column_types: ClassVar[Mapping[ColumnType, str]]
    """The database's type for each of ours, as `columns` reports it."""
    joins: ClassVar[bool] = True
    """Whether it supports joins, if the module does: one of several models may not."""
    tables_come_with_events: ClassVar[bool] = False
    """A table exists only once it has an event."""
    tells_missing_tables: ClassVar[bool] = True
    """A table that was never prepared differs from one without events."""
    reconnects_unasked: ClassVar[bool] = False
    """The driver notices a closed connection before it sends, and opens another: no error."""
    in_process: ClassVar[bool] = False
    """The database is a library in the worker's process: there is no connection to lose."""
    locks: ClassVar[bool] = True
    """A run can lock out other runs."""
    extensible: ClassVar[bool] = True
    """It supports extensions, if the module has an option for them."""
    keyless: ClassVar[frozenset[PrimaryKey]] = frozenset({PrimaryKey.NONE})
    """Modes in which the tables have no key except the events' own columns."""

    time_column: ClassVar[str | None] = None
    """The name of the time column in tables, if it differs from the workload's."""
    takes_statements: ClassVar[bool] = True
    """A workload may have its own statements, if the module allows them."""
    tells_size: ClassVar[bool] = True
    """It reports, like the database, what a table takes on disk."""
    events_for_size: ClassVar[int] = 20_000
    """This many events make a table visibly larger."""
    compacts: ClassVar[bool] = True
    """The tests' user may have tables compacted."""
    unfit: ClassVar[str | None] = None
    """A pattern of the module's message if a way of sending doesn't fit this server and workload."""
    marks: ClassVar[bool] = True
    """Tables can hold a mark of who made them."""
    false_refusals: ClassVar[Sequence[str]] = ()
    """Patterns of refusals that the server sends now and then, but not always: the test is repeated."""

    def __init__(self, module: str, options: Mapping[str, Any]) -> None:
        self.module_type = load_module(module)
        self.options = dict(options)
        """How to reach it, as for a target in config.yaml."""

    @classmethod
    def queries_of(cls, module: type[AnyModule]) -> list[str]:
        """The queries that the module supports on this server, in order."""
        return full(module.CAPABILITIES.queries)

    @classmethod
    def faults_in_flight(cls) -> list[Fault]:
        """The faults to try with several requests in flight: one that loses a connection."""
        lost = [fault for fault in cls.FAULTS if fault.thorough and fault.ends_a_connection]
        return lost[:1]

    def module(
        self, job: Job, encoding: Encoding | None = None, options: Mapping[str, Any] | None = None
    ) -> AnyModule:
        """The module with the target's options, an encoding's and others; the latter take precedence."""
        values = self.options | dict(encoding.options if encoding else {}) | dict(options or {})
        parsed = parse_options(self.module_type.options_model, values, str)
        try:
            return self.module_type(parsed, job)
        except OptionError as error:
            if self.unfit and re.search(self.unfit, str(error)):
                pytest.skip(str(error))
            raise

    @contextmanager
    def prepare(
        self, job: Job, encoding: Encoding | None = None, options: Mapping[str, Any] | None = None
    ) -> Iterator[AnyModule]:
        """The connected module of the process that prepares and counts, after making the job's tables."""
        with connect(self.module(as_observer(job), encoding, options)) as observer:
            observer.prepare()
            yield observer

    def can_hold(self, schema: Schema) -> bool:
        """Whether a schema's events can be stored, according to the module."""
        can = self.module_type.CAPABILITIES.workload(schema)
        return can is Support.FULL and (self.joins or schema.tags is Tags.ROW)

    def rows(self, schema: Schema, *tables: str) -> list[Row]:
        """The tables' rows in the schema's order of columns, normalised and sorted."""
        rows = [row for table in tables for row in self.read_back(schema, table)]
        return sorted(normalise(schema, rows))

    @abstractmethod
    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        """All rows of a table, values in the schema's order of columns, JSON documents parsed."""

    @abstractmethod
    def keys(self, table: str) -> list[str]:
        """The primary keys of a table's rows, except the events' own columns, as text."""

    @abstractmethod
    def tables(self) -> set[str]:
        """The existing tables."""

    @abstractmethod
    def columns(self, table: str) -> dict[str, str]:
        """Name -> type of a table's columns, in order."""

    def expected_columns(self, schema: Schema) -> dict[str, str]:
        """What `columns` should return for a schema's table, except for a key of its own."""
        return {column.name: self.column_types[column.type] for column in schema.columns}

    @abstractmethod
    def indices(self, table: str) -> set[str]:
        """Names of a table's indexes, except the primary key's."""

    def lose_values(self, job: Job, block: EventBlock, losses: Losses) -> None:
        """Delete all values of these devices in these columns, in a database that stores values separately
        (`Module.list_kept_apart`). `block`: all stored events; they may be stored again without these
        values."""
        raise NotImplementedError

    def extensions(self, which: Literal["available", "installed"]) -> list[str]:
        """Extensions of the server, if it has any."""
        return []

    def size_on_disk(self, table: str) -> int | None:
        """A table's bytes with its indexes, measured independently of the module; None if that is
        impossible."""
        return None

    @abstractmethod
    def clear(self) -> None:
        """Drop everything that tests have made."""

    @abstractmethod
    def make_neighbour(self, name: str) -> object:
        """Make a table of this name as someone else would, with columns that no workload has, and a row.
        Returns what `read_neighbour` returns."""

    @abstractmethod
    def read_neighbour(self, name: str) -> object:
        """Everything in that table."""

    def connections(self, run_id: str) -> set[str]:
        """Identifiers of that run's connections."""
        return {"the library in this process"}

    def kill_connections(self, run_id: str) -> int:
        """End all connections of that run, as an administrator would. Returns how many."""
        return 0

    def refusals(self) -> Sequence[Refusal]:
        """Options that the server refuses."""
        return ()


class SqlServerUnderTest(ServerUnderTest):
    """A database that is queried in SQL, without the module."""

    TABLES: ClassVar[str]
    """Statement for the names of the tables."""
    COLUMNS: ClassVar[str]
    """Statement for name and type of the columns of {table}, a text."""

    @abstractmethod
    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """All rows of a statement's answer; none if it has none."""

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        names = ", ".join(quote_name(column.name) for column in schema.columns)
        is_json = [column.type is ColumnType.JSON for column in schema.columns]
        return [
            [
                json.loads(value) if parse and isinstance(value, str) else value
                for value, parse in zip(row, is_json, strict=True)
            ]
            for row in self.ask(f"SELECT {names} FROM {quote_name(table)}")
        ]

    def keys(self, table: str) -> list[str]:
        if KEY_COLUMN not in self.columns(table):
            return []
        return [str(key) for (key,) in self.ask(f"SELECT {KEY_COLUMN} FROM {quote_name(table)}")]

    def tables(self) -> set[str]:
        return {name for (name,) in self.ask(self.TABLES)}

    def columns(self, table: str) -> dict[str, str]:
        return dict(self.ask(self.COLUMNS.format(table=quote_text(table))))

    def indices(self, table: str) -> set[str]:
        return set()

    def clear(self) -> None:
        for table in self.tables():
            self.ask(f"DROP TABLE {quote_name(table)}")

    def make_neighbour(self, name: str) -> object:
        self.ask(f"CREATE TABLE {quote_name(name)} (serial_number INTEGER, note TEXT)")
        self.ask(f"INSERT INTO {quote_name(name)} VALUES (7, 'keep me')")
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self.ask(f"SELECT serial_number, note FROM {quote_name(name)}")


IN_FLIGHT = 8
"""How many requests the suite has in flight in tests with several."""


def holds_several(module: type[AnyModule], encoding: Encoding) -> bool:
    """Whether a worker can have several requests of this encoding in flight."""
    mode = encoding.label.split()[0]
    return module.CAPABILITIES.in_flight.get(mode) is Support.FULL


def batch_of(encoding: Encoding, batch: int) -> int:
    """`batch`, or 0 if the encoding sends each event alone."""
    return batch if encoding.batched else 0


def new_job(schema: Schema, **changes: Any) -> Job:
    """A job of a run of its own; `changes` of the load, or of the job."""
    load = {name: changes.pop(name) for name in Load.model_fields if name in changes}
    return replace(Job(schema, Load(**load), run_id=uuid.uuid4().hex[:8]), **changes)


def as_observer(job: Job) -> Job:
    """The same job for the process that prepares and counts, whose connection is not a writer's."""
    return replace(job, run_id="observer")


def full(supported: Mapping[Any, Any]) -> list[Any]:
    """The fully supported entries, in order."""
    return [name for name, support in supported.items() if support is Support.FULL]


def workloads_of(module: type[AnyModule]) -> list[str]:
    """The workloads of the suite whose events the module can store."""
    can = module.CAPABILITIES
    return [name for name, kind in TESTED.items() if can.workload(kind.schema) is Support.FULL]


def table_modes(module: type[AnyModule]) -> list[Tables]:
    """The values of `--tables` that a module supports."""
    multiple = module.CAPABILITIES.multiple_tables is Support.FULL
    return [Tables.SINGLE, Tables.MULTIPLE] if multiple else [Tables.SINGLE]


def key_modes(module: type[AnyModule]) -> list[PrimaryKey]:
    """The values of `--primary-key` that a module supports."""
    return full(module.CAPABILITIES.primary_keys)


def two_key_modes(module: type[AnyModule]) -> list[PrimaryKey]:
    """The database's own key and the client's, or their substitutes."""
    modes = key_modes(module)
    return [key for key in (PrimaryKey.DB, PrimaryKey.CLIENT) if key in modes] or modes[:1]


ENTRY_POINTS = "iot_database_benchmark.contract"
"""The group in which another package registers an `Entry`, or several, under the name of its module."""


@dataclass(frozen=True)
class Entry:
    """A module on a server. `variables` give the server's location. Without them tests are skipped, or fail
    if `REQUIRE_SERVERS` (names of entries, separated by commas) requires the entry."""

    name: str
    module: str
    adapter: type[ServerUnderTest]
    start: Callable[[pytest.FixtureRequest, list[str]], AbstractContextManager[ServerUnderTest]]
    """(request for fixtures, values of the variables) -> the server, which is cleaned up at the end."""
    variables: Sequence[str] = ()
    thinned: bool = False
    """The same code is tested in all combinations of insert mode, key mode, tables, … on another server: here
    each value of these is tested once."""

    @property
    def is_there(self) -> bool:
        """Whether all variables are set."""
        return all(os.environ.get(name) for name in self.variables)

    def values(self) -> list[str]:
        """The variables' values; skips or fails the test if one isn't set."""
        missing = [name for name in self.variables if not os.environ.get(name)]
        if missing:
            required = os.environ.get("REQUIRE_SERVERS", "").split(",")
            reason = f"no server {self.name}: set {', '.join(missing)}"
            if self.name in [name.strip() for name in required]:
                pytest.fail(f"{reason} (REQUIRE_SERVERS demands it)", pytrace=False)
            pytest.skip(reason)
        return [os.environ[name] for name in self.variables]


CHOSEN = pytest.StashKey[Sequence[Entry]]()


class Choice:
    """A plugin that stores the servers chosen on the command line in pytest's configuration."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def pytest_configure(self, config: pytest.Config) -> None:
        """Called by pytest before it collects."""
        config.stash[CHOSEN] = self._entries


def find_entries(module: str) -> list[Entry]:
    """The servers that another package offers for its module. OptionError if there is none."""
    load_module(module)
    points = entry_points(group=ENTRY_POINTS)
    entries: list[Entry] = []
    for point in points:
        if point.name == module:
            offered = point.load()
            entries += [offered] if isinstance(offered, Entry) else offered
    if not entries:
        raise OptionError(
            f"no installed package offers a server for module {module}"
            f"{did_you_mean(module, points.names)}: name an Entry by an entry point {module!r} of the"
            f" group {ENTRY_POINTS}"
        )
    return entries
