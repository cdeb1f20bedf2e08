"""The contract of a database module. A module is a package with one class. It declares what it can do

(`CAPABILITIES`) and its options (`options_model`), prepares tables, counts, compiles queries, and provides a

`Writer`, which builds and sends payloads (`sending`).
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, Self, TypeVar

from numpy.typing import NDArray

from ..conditions import Condition
from ..contract import PrimaryKey, Role, Storage
from ..errors import OptionError, Retryable, SimulatorError, did_you_mean
from ..machine import find_version
from ..workloads.drawing import BoundQuery, bind
from ..workloads.queries import Query as Description
from .capabilities import (
    Ageing,
    Capabilities,
    Client,
    Durability,
    Encoding,
    Needed,
    OwnSchema,
    RefusedText,
    Support,
    find_refused_texts,
    require,
    support_keys,
)
from .options import LEAN, TABLE_COUNT, InsertMode, Job, OptionsT
from .own_statements import (
    check_own_schema,
    check_own_statements,
    find_own,
    find_own_statement,
    refuse_statements,
)
from .sending import CALLING, Asker, Encoder, Rows, Writer

__all__ = [
    "TABLE_COUNT",
    "TUNED",
    "Ageing",
    "AnyModule",
    "Capabilities",
    "Client",
    "Durability",
    "Encoding",
    "Job",
    "Module",
    "Needed",
    "OwnSchema",
    "Query",
    "RefusedText",
    "Support",
    "await_count",
    "connect",
    "require",
    "support_keys",
]

_COUNT_INTERVAL_S = 0.25

TUNED = "-tuned"
"""Suffix of a query variant that suits the database best."""

Query = Callable[[], Rows]
"""A statement of a `CallingAsker`: runs the query and decodes."""


class Module(ABC, Generic[OptionsT]):
    """A database. The collector prepares, counts and describes; workers write and query."""

    name: ClassVar[str]
    CAPABILITIES: ClassVar[Capabilities]
    PACKAGES: ClassVar[tuple[str, ...]] = ()
    """Distributions that this module uses to talk to its database; the result stores their versions."""
    IMPORTED_LATE: ClassVar[tuple[str, ...]] = ()
    """Imported only to connect and to write, since it takes 0.1 s of CPU or more and isn't needed to list
    capabilities. `load_module` makes sure that it is installed."""
    OLDEST: ClassVar[Mapping[str, str]] = {}
    """Product that the server is, or contains -> its oldest supported version."""
    UPGRADE: ClassVar[str] = "upgrade it"
    """The remedy for an older one."""
    CLIENTS: ClassVar[Mapping[str, Client]]
    """The values of `Options.client`: `lean`, which each module has, `official`, and other vendor clients."""
    options: OptionsT
    options_model: type[OptionsT]
    ENCODINGS: ClassVar[Sequence[Encoding]]
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {}
    """Setting reported by `server_info` -> what it affects; the others only describe the database."""
    settle_s: float = 0.0
    """For a database that acknowledges events before they are queryable: how long a count must remain below
    the expected number before it is believed."""

    own_names: Sequence[str] = ()
    """Cache of `list_own_names`."""
    own_tables: Sequence[str] = ()
    """The workload's own statements that create the tables; empty: the module creates them."""

    _fetcher: Asker | None = None
    """Runs queries that aren't measured; created on first use."""

    def __init__(self, options: OptionsT, job: Job) -> None:
        """Connects to nothing. Raises OptionError for a combination that can't work."""
        self.options = options
        self.own_names = self.list_own_names()
        self.own_tables = find_own(self.own_names, job.schema.statements) or ()
        if self.own_tables:
            check_own_schema(self.own_tables, self.name, self.CAPABILITIES.own_schema, options, job)
            # A key, if there is one, is the database's affair.
            job = job.change(primary_key=PrimaryKey.NONE)
        self.job = job
        self.mode: InsertMode = options.mode(job.load)
        """How the job's events are sent."""
        self._check_client()
        self._check_in_flight()
        self.CAPABILITIES.require_tags(job.schema, self.name)
        if any(query.statement for query in job.schema.descriptions):
            check_own_statements(
                self.own_names,
                self.name,
                job.schema,
                self.CAPABILITIES.statements is not None,
                options.secrets(),
            )
        if job.retention is not None:
            self.CAPABILITIES.ageing.require(job.retention, self.name)

    def list_own_names(self) -> list[str]:
        """The names under which a workload may have its own statements for the module, its own name before
        that of the module it extends."""
        return [vars(kind)["name"] for kind in type(self).__mro__ if "name" in vars(kind)]

    @property
    def packages(self) -> tuple[str, ...]:
        """PACKAGES, and those of the client that the options name."""
        return tuple(dict.fromkeys((*self.PACKAGES, *self.client.packages)))

    @property
    def client(self) -> Client:
        """The client that the options name."""
        return self.CLIENTS[self.options.client]

    @classmethod
    def official_clients(cls) -> dict[str, Client]:
        """All clients but the lean path."""
        return {name: client for name, client in cls.CLIENTS.items() if name != LEAN}

    def _check_client(self) -> None:
        """OptionError if the client in the options can't do what the load does."""
        name, load = self.options.client, self.job.load
        if name not in self.CLIENTS:
            raise OptionError(
                f"module {self.name} has no client={name}{did_you_mean(name, self.CLIENTS)}"
                f" (known: {', '.join(self.CLIENTS)})"
            )
        if name == LEAN:
            return
        client = self.client
        if absent := [package for package in client.packages if not find_version(package)]:
            raise OptionError(
                f"client={name} needs packages that are not installed here: pip install"
                f" {' '.join(absent)}"
            )
        if load.role is Role.READ:
            if not client.asker:
                raise OptionError(
                    f"client={name} can't query in module {self.name}: use client={LEAN} for that"
                )
            return
        mode, ways = self.mode, client.ways
        if mode not in ways:
            alternatives = f"{' or '.join(ways)}, or " if ways else ""
            raise OptionError(
                f"client={name} can't insert in mode {mode}: use {alternatives}client={LEAN}"
            )
        if found := list(find_refused_texts(client.refused_texts, self.job.schema)):
            raise OptionError(
                *(f"client={name} can't insert these events: there is {each}" for each in found)
            )
        if not client.in_flight and self.options.in_flight(load) > 1:
            raise OptionError(
                f"client={name} holds one request in flight, not {self.options.in_flight(load)}: use more"
                " workers instead"
            )

    def _check_in_flight(self) -> None:
        """OptionError if the load has more requests in flight than the module can handle."""
        load = self.job.load
        if load.role is Role.READ:
            if (load.in_flight or 1) > 1 and self.client.asker == CALLING:
                raise OptionError(
                    f"module {self.name} runs one query at a time, not {load.in_flight}: use more readers"
                    " instead"
                )
            return
        in_flight = self.options.in_flight(load)
        if in_flight == 1:
            return
        if self.CAPABILITIES.in_flight.get(self.mode) is not Support.FULL:
            raise OptionError(
                f"module {self.name} holds one request in flight in insert mode {self.mode}, not"
                f" {in_flight}: use more workers instead"
            )

    @classmethod
    def find_durability(cls, version: str) -> Durability | None:
        """Durability facts of this version, as reported by `server_info`; empty: as declared by the
        module."""
        return cls.CAPABILITIES.durability

    @classmethod
    @abstractmethod
    def encoder(cls, options: OptionsT, job: Job) -> Encoder:
        """An encoder for the job's requests. It only needs the options marked with `PAYLOAD`."""

    @abstractmethod
    def open(self) -> None:
        """Connect, for everything but writing."""

    def close(self) -> None:
        """Disconnect; must not fail on a broken connection. A module's own `close` calls this one, too."""
        self.close_fetcher()

    def check(self) -> None:
        """SimulatorError, with a remedy, if the server can't do what a run needs, or denies it: before a run
        creates its tables, and for `doctor`. Changes nothing."""

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude other runs from the same database meanwhile, if the database supports it. SimulatorError if

        another run holds it.
        """
        yield

    @abstractmethod
    def prepare(self) -> None:
        """Drop the tables if `job.clean`, then create missing ones. May be repeated. Anything created by
        others is neither dropped nor written to: SimulatorError if it is in the way."""

    def claim_tables(self) -> list[str]:
        """The job's existing tables, if this tool created them. SimulatorError if someone else did: they must
        not be changed."""
        return []

    def times_taken(self) -> tuple[int, int] | None:
        """The first and the last event time, in ms since 1970, that the database stores now; None: any.
        Events outside would be dropped silently. Called after `open`."""
        return None

    @abstractmethod
    def prepare_queries(self) -> None:
        """Check that there is something to query; create the indexes if the options require them."""

    @property
    def must_have_events(self) -> bool:
        """Whether tables must exist: in a run with writers there may be none yet."""
        return self.job.load.role is Role.READ

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        """Insert rows of the tags' table (columns as in `Schema.tags_row`, some thousand rows at a time); one
        that is there stays. Called by each worker before its events, after `open`."""
        raise OptionError(f"module {self.name} has no tags table")

    def count_devices(self) -> int | None:
        """The number of rows in the tags' table; None if there is none."""
        return None

    @abstractmethod
    def count(self) -> int | None:
        """The number of events in the job's tables, after making them visible. None for a module that stores

        nothing: then nothing can be verified.
        """

    def list_kept_apart(self) -> Sequence[str]:
        """The columns whose values the database stores separately from the rest of their event, so that one
        may be lost alone: each is counted and looked up. Such a module compiles COUNT with a column."""
        return ()

    def make_visible(self) -> None:
        """Make acknowledged events visible, as `count` does, for counting by a query."""

    def storage(self) -> Storage:
        """Disk space of the job's tables, after whatever makes that figure accurate (a flush, a checkpoint);
        the caller fills in `events`. Raises Retryable or SimulatorError if the
        database doesn't say."""
        return Storage(reason=f"module {self.name} can't measure it yet")

    def storage_during(self) -> Storage:
        """Disk space of the job's tables during writes, without disturbing them, as a flush would. The caller
        fills in `level` unless the database counts the events in the figures."""
        return Storage(reason="this database can't report its size during a run without a flush")

    def compact(self) -> bool:
        """Run the database's long-term maintenance (compaction) for the job's tables, and wait for it; False
        if there is none."""
        return False

    def delete_older(self, before_ms: int) -> None:
        """Delete all events of the job's tables that are older, in ms since 1970, and wait until they are
        gone: in the way declared in `CAPABILITIES.ageing`, while others
        insert. `before_ms` is one of the limits of
        `Job.retention`; may be repeated. Raises Retryable or SimulatorError."""
        raise OptionError(f"module {self.name} doesn't delete by age")

    def describe_schema(self) -> list[str]:
        """The statements of `prepare`, for people to read; empty: nothing is created before the events. Needs
        no connection. OptionError if the module can't show them."""
        raise OptionError(f"module {self.name} can't show what it creates")

    @abstractmethod
    def server_info(self) -> dict[str, Any]:
        """Version, and the settings that affect a result: durability, replication, consistency."""

    def read_versions(self) -> Mapping[str, str]:
        """Product of `OLDEST` -> its version, if present and reported. Called after `open`."""
        return {product: self.server_info()["version"] for product in self.OLDEST}

    def for_prefill(self) -> Self:
        """The module for inserts before a run, in the fastest way."""
        return type(self)(self.options.for_prefill(), self.job.for_prefill())

    def writer(self) -> Writer:
        """A writer for the job's requests, using the client in the options."""
        writer: Writer = resolve_name(self.client.writer)(self)
        return writer

    # --- queries: which ones, their statements, and who sends them

    def workload_queries(self) -> Mapping[str, Any]:
        """Statements of queries of the job's workload that aren't compiled from a description: the module's
        own texts, or variants that suit the database better."""
        return {}

    def compile(self, bound: BoundQuery) -> Any:
        """The statement for a bound query, in the form that the module's asker takes. Only called for queries
        within `CAPABILITIES.shapes`."""
        raise OptionError(f"module {self.name} compiles no queries")

    def take_statement(self, text: str, bound: BoundQuery) -> Any:
        """A workload's own statement with bound parameters, in the form that the module's asker takes. Only
        called with the language of `CAPABILITIES.statements`."""
        raise OptionError(refuse_statements(self.name))

    def make_statement(self, bound: BoundQuery) -> Any:
        """The statement for a bound query: the workload's own, or else from `compile`."""
        text = find_own_statement(self.own_names, bound.query)
        return self.compile(bound) if text is None else self.take_statement(text, bound)

    def describe_statement(self, statement: Any) -> str:
        """The result of `compile` as sent, for people to read. Needs no connection. OptionError if the module
        can't show it."""
        if isinstance(statement, str):
            return statement
        if isinstance(statement, dict | list):
            return json.dumps(statement, indent=2, ensure_ascii=False)
        raise OptionError(f"module {self.name} can't show what it sends")

    def answer(self, statement: Any) -> Rows:
        """Run and decode the result of `compile`: for a module without its own asker."""
        rows: Rows = statement()
        return rows

    def asker(self, in_flight: int = 1, client: str | None = None) -> Asker:
        """The asker for a reader's queries, with this many in flight. `client`: None: the one in the
        options."""
        name = self.CLIENTS[client or self.options.client].asker
        asker: Asker = resolve_name(name)(self, in_flight)
        return asker

    def fetch(self, statement: Any) -> Rows:
        """The decoded rows of a statement's answer, outside of measurements. After `open`. Retryable if the
        database has gone away since then, or SimulatorError."""
        try:
            if self._fetcher is None:
                self._fetcher = self.asker(client=LEAN)
                connect_again(self._fetcher.open)
            return self._fetcher.fetch(statement)
        except Retryable:
            self.close_fetcher()
            raise

    def close_fetcher(self) -> None:
        """Disconnect the asker of `fetch`."""
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None

    def queries(self) -> Mapping[str, Any]:
        """The statements that are the same in each execution. OptionError for an unknown name."""
        own = self.workload_queries()
        statements = {}
        for name in self.choose_queries(own):
            description = self._described().get(name)
            if name in own:
                statements[name] = own[name]
            elif description is not None and not description.is_drawn:
                statements[name] = self.make_statement(bind(description, self.job.schema.epoch_ms))
        return statements

    def drawn_queries(self) -> Mapping[str, Description]:
        """The queries whose parameters are drawn for each execution; OptionError as for `queries`."""
        drawn = {name: query for name, query in self._described().items() if query.is_drawn}
        # Without any, `workload_queries` isn't needed, which may have to query the database.
        return (
            {name: drawn[name] for name in self.choose_queries() if name in drawn} if drawn else {}
        )

    def choose_queries(self, own: Collection[str] | None = None) -> list[str]:
        """Names of all queries to run: those of the workload, or those in the job's load. `own`: names of

        `workload_queries`, if the caller has them. OptionError for a name that is unknown, or that the module

        can't run.
        """
        schema, described = self.job.schema, self._described()
        own_names = self.workload_queries() if own is None else own
        own = dict.fromkeys(
            name for name in schema.queries if name in own_names or name in described
        )
        own |= dict.fromkeys(own_names)
        available = [*own, *(name for name in described if name not in own)]
        chosen = self.job.load.queries
        if chosen is None:
            if own:
                return list(own)
            hint = f", except with --queries {','.join(available)}" if available else ""
            raise OptionError(f"module {self.name} has no queries for this workload{hint}")
        for name in chosen:
            if name not in available:
                raise OptionError(f"option queries: {self.explain_query(name, available)}")
        return [name for name in available if name in chosen]

    def describe_query(self, name: str) -> Description | None:
        """The description of a query, or of the plain query if it's a variant; None if there is none."""
        schema = self.job.schema
        return schema.description(name) or schema.description(name.removesuffix(TUNED))

    def _described(self) -> dict[str, Description]:
        """The described queries that can be run."""
        return {query.name: query for query in self.job.schema.descriptions if self.can_ask(query)}

    def can_ask(self, query: Description) -> bool:
        """Whether it can be compiled, or has the workload's own statement."""
        if find_own_statement(self.own_names, query) is not None:
            return True
        return self.job.schema.shapes_of(query) <= frozenset(self.CAPABILITIES.shapes)

    def explain_query(self, name: str, available: Sequence[str]) -> str:
        """Why a query can't be run; `available`: the queries that can."""
        schema = self.job.schema
        hint = f"(known: {', '.join(available)})"
        description = schema.description(name)
        if description is None:
            return f"there is no query {name!r}{did_you_mean(name, available)} {hint}"
        return f"{self.refuse_query(description)} {hint}"

    def refuse_query(self, query: Description) -> str:
        """Why a described query can't be run."""
        lacking = self.job.schema.shapes_of(query) - frozenset(self.CAPABILITIES.shapes)
        if impossible := lacking & frozenset(self.CAPABILITIES.impossible_shapes):
            return (
                f"module {self.name} can't run {query.name}: the database has no queries with"
                f" {', '.join(sorted(impossible))}"
            )
        return (
            f"module {self.name} can't run {query.name} yet: it supports no queries with"
            f" {', '.join(sorted(lacking))}"
        )


def connect_again(connect: Callable[[], None]) -> None:
    """Reconnect to a server that was reachable before: since it may come back, a SimulatorError becomes
    Retryable."""
    try:
        connect()
    except SimulatorError as error:
        raise Retryable("connection_lost", str(error)) from error


def await_count(count: Callable[[], int | None], expected: int, settle_s: float) -> int | None:
    """Count until `expected` events are visible, or no more have appeared for `settle_s` seconds."""
    stored = count()
    grown = time.monotonic()
    while stored is not None and stored < expected and time.monotonic() < grown + settle_s:
        # No database tells when the last of its events has become visible.
        time.sleep(_COUNT_INTERVAL_S)
        before, stored = stored, count()
        if stored != before:
            grown = time.monotonic()
    return stored


AnyModule = Module[Any]
"""A module, whichever it is."""

ConnectedT = TypeVar("ConnectedT", bound=AnyModule | Asker | Writer)


@contextmanager
def connect(client: ConnectedT) -> Iterator[ConnectedT]:
    """Connect a module, an asker or a writer, and close it at the end."""
    try:
        client.open()
        yield client
    finally:
        client.close()
