"""The contract of a database module.

A module is a package with one class. It says what it can do (`CAPABILITIES`), which options it takes
(`options_model`), prepares tables, counts, compiles queries (`querying`), and hands out a `Writer`, which
builds payloads and sends them (`sending`).
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Any, ClassVar, Generic, TypeVar

from numpy.typing import NDArray

from ..conditions import Condition
from ..contract import Load, Retention, Role, RunSettings, Storage, Tables
from ..errors import OptionError, did_you_mean
from ..machine import find_version
from ..workloads import name_events
from ..workloads.schema import Schema, Tags
from .asking import Asker, CallingAsker
from .capabilities import (
    Ageing,
    Capabilities,
    OfficialClient,
    Support,
    require,
    support_keys,
)
from .options import LEAN, Options
from .own_statements import check_own_statements
from .querying import TUNED, Query, QueryingModule
from .sending import Encoder, Writer

__all__ = [
    "TABLE_COUNT",
    "TUNED",
    "Ageing",
    "AnyModule",
    "Capabilities",
    "Encoding",
    "Job",
    "Module",
    "OfficialClient",
    "Query",
    "Support",
    "await_count",
    "require",
    "support_keys",
]

_COUNT_INTERVAL_S = 0.25

TABLE_COUNT = 4
"""How many tables `--tables multiple` writes to."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a run asks of a module, apart from the module's own options."""

    schema: Schema
    load: Load = field(default_factory=Load)
    """The writers' load, with the readers' queries; in a run without writers, the readers' load."""
    run_id: str = "none"
    clean: bool = True
    target: str = "TARGET"
    """The target's name, for commands that messages advise."""
    workload: str = "WORKLOAD"
    """What follows --workload in those commands."""
    program: str = "python run.py"
    """How those commands begin."""
    reads_by_clock: bool = False
    """Whether readers ask in an open loop."""
    retention: Retention | None = None
    """How long events are kept; None: nothing is deleted."""

    @classmethod
    def of(cls, settings: RunSettings, schema: Schema, retention: Retention | None = None) -> Job:
        """The job of a run's settings."""
        writing = settings.groups_of(Role.WRITE, Role.FILL)
        load = (writing or settings.groups)[0].load
        for group in settings.groups_of(Role.READ):
            load = load.model_copy(update={"queries": group.load.queries})
        data = settings.data
        return cls(
            schema,
            load,
            settings.run_id,
            data.clean,
            settings.target,
            name_events(data),
            settings.program,
            any(group.load.rate_per_s is not None for group in settings.groups_of(Role.READ)),
            retention,
        )

    @property
    def stamps_arrivals(self) -> bool:
        """Whether the kernel is to say when answers arrive (`modules/sending.py`)."""
        return self.reads_by_clock or self.load.rate_per_s is not None

    @property
    def table_names(self) -> list[str]:
        """The tables written to; event i goes to table i modulo their number."""
        if self.load.tables is Tables.MULTIPLE:
            return [f"{self.schema.table}{number}" for number in range(TABLE_COUNT)]
        return [self.schema.table]

    @property
    def all_table_names(self) -> list[str]:
        """All tables that any run may have left."""
        numbered = [f"{self.schema.table}{number}" for number in range(TABLE_COUNT)]
        return [*numbered, self.schema.table]

    @property
    def tags_tables(self) -> list[str]:
        """The table of the tags, if they have one of their own."""
        return [self.schema.tags_table] if self.schema.tags is Tags.TABLE else []


@dataclass(frozen=True)
class Encoding:
    """One way in which a module can build payloads, for the ceiling."""

    label: str
    options: Mapping[str, str]
    batched: bool = True


OptionsT = TypeVar("OptionsT", bound=Options)
EncodingT = TypeVar("EncodingT", bound=Options)


class Module(QueryingModule, Generic[OptionsT, EncodingT]):
    """A database. The collector prepares, counts and describes; workers write and query."""

    PACKAGES: ClassVar[tuple[str, ...]] = ()
    """Distributions by which this module talks to its database; the result keeps their versions."""
    IMPORTED_LATE: ClassVar[tuple[str, ...]] = ()
    """What is imported only to connect and to write, since it takes 0.1 s of CPU and more: whoever asks what
    modules can do has no use for it. `load_module` makes sure that it is installed."""
    options: OptionsT
    options_model: type[OptionsT]
    encoding_options_model: type[EncodingT]
    """The part of the options that `encoder` needs; `OptionsT` extends it."""
    ENCODINGS: ClassVar[Sequence[Encoding]]
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {}
    """Setting that `server_info` tells -> what it changes; the others are of the database alone."""
    settle_s: float = 0.0
    """For a database that acknowledges events before they can be queried: how long a count must have
    stood still below the expected number before it is believed."""

    def __init__(self, options: OptionsT, job: Job) -> None:
        """Connects to nothing. Raises OptionError for a combination that can't work."""
        self.job = job
        self.options = options
        self._check_client()
        self._check_in_flight()
        self.CAPABILITIES.require_tags(job.schema, self.name)
        if any(query.statement for query in job.schema.descriptions):
            check_own_statements(self)
        if job.retention is not None:
            self.CAPABILITIES.ageing.require(job.retention, self.name)
        options.mode(job.load.batch)

    @property
    def packages(self) -> tuple[str, ...]:
        """PACKAGES, and those of the client that inserts go by."""
        client = self.CAPABILITIES.clients.get(self.options.client)
        return tuple(dict.fromkeys((*self.PACKAGES, *(client.packages if client else ()))))

    def official_writer(self, batch: int, prefill: bool) -> Writer | None:
        """The writer of the vendor's client that the options name; None: they name none, or it is a prefill,
        which goes by the fastest way."""
        if self.options.client == LEAN or prefill:
            return None
        make = resolve_name(self.CAPABILITIES.clients[self.options.client].writer)
        writer: Writer = make(self, batch)
        return writer

    def _check_client(self) -> None:
        """OptionError if what the load does can't go by the client that the options name."""
        name, load = self.options.client, self.job.load
        if name == LEAN:
            return
        offered = self.CAPABILITIES.clients
        if name not in offered:
            names = [LEAN, *offered]
            raise OptionError(
                f"module {self.name} has no client={name}{did_you_mean(name, names)}"
                f" (known: {', '.join(names)})"
            )
        if absent := [package for package in offered[name].packages if not find_version(package)]:
            raise OptionError(
                f"client={name} needs packages that are not installed here: pip install"
                f" {' '.join(absent)}"
            )
        if load.role is Role.READ:
            if offered[name].asker is None:
                raise OptionError(
                    f"client={name} asks no queries in module {self.name}: use client={LEAN} for"
                    " them"
                )
            return
        mode, ways = self.options.mode(load.batch), offered[name].ways
        if mode not in ways:
            alternatives = f"{' or '.join(ways)}, or " if ways else ""
            raise OptionError(
                f"client={name} has no way to insert in mode {mode}: use {alternatives}client={LEAN}"
            )
        if not offered[name].in_flight and self.options.in_flight(load) > 1:
            raise OptionError(
                f"client={name} holds one request in flight, not {self.options.in_flight(load)}: use more"
                " workers instead"
            )

    def _check_in_flight(self) -> None:
        """OptionError if more requests are to be in flight than the module can hold."""
        load = self.job.load
        if load.role is Role.READ:
            if (load.in_flight or 1) > 1 and type(self).make_asker is Module.make_asker:
                raise OptionError(
                    f"module {self.name} asks one question at a time, not {load.in_flight}: use more readers"
                    " instead"
                )
            return
        in_flight = self.options.in_flight(load)
        if in_flight == 1:
            return
        mode = self.options.mode(load.batch)
        if self.CAPABILITIES.in_flight.get(mode) is not Support.FULL:
            raise OptionError(
                f"module {self.name} holds one request in flight in insert mode {mode}, not {in_flight}:"
                " use more workers instead"
            )

    @classmethod
    @abstractmethod
    def encoder(cls, options: EncodingT, job: Job, batch: int) -> Encoder:
        """An encoder for requests of `batch` events (0: one each); `options`: an `encoding_options_model`."""

    @abstractmethod
    def open(self) -> None:
        """Connect, for everything but writing."""

    def close(self) -> None:
        """Disconnect; must not fail on a broken connection. A module's own `close` calls this one, too."""
        self.close_fetcher()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs off the same database meanwhile, where the database has a way to.

        Raises SimulatorError if another run holds it.
        """
        yield

    @abstractmethod
    def prepare(self) -> None:
        """Drop the tables if `job.clean`, then make those that don't exist. May be repeated."""

    def times_taken(self) -> tuple[int, int] | None:
        """The first and the last time of an event, in ms since 1970, that the database stores now; None: any.
        Events of other times would be dropped without a word. Called after `open`."""
        return None

    @abstractmethod
    def prepare_queries(self) -> None:
        """Check that there is something to query; create the indices if the options ask for them."""

    @property
    def must_have_events(self) -> bool:
        """Whether there must be some to query: in a run with writers there may be none yet."""
        return self.job.load.role is Role.READ

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        """Insert rows of the tags' table (columns as in `Schema.tags_row`, some thousand rows at a time); one
        that is there stays. Called by each worker before its events, after `open`."""
        raise OptionError(f"module {self.name} has no tags table")

    def count_devices(self) -> int | None:
        """Rows of the tags' table; None if there is none."""
        return None

    @abstractmethod
    def count(self) -> int | None:
        """Events stored in the job's tables, after whatever makes them visible.

        None from a module that stores nothing: then nothing can be verified.
        """

    def keeps_order(self) -> bool:
        """Whether writers store events in the order of their numbers: then it is known which are stored when
        a run ends by the clock."""
        return True

    def storage(self) -> Storage:
        """What the job's tables take on disk, after whatever makes that figure true (a flush, a
        checkpoint); `events` is filled in by the caller. Raises Retryable or SimulatorError if the
        database doesn't say."""
        return Storage(reason=f"module {self.name} can't measure it yet")

    def storage_during(self) -> Storage:
        """What the job's tables take while others write, without anything that would disturb them, such as a
        flush. `level` is filled in by the caller unless the database counts the events in the figures."""
        return Storage(reason="this database can't report its size during the run without a flush")

    def compact(self) -> bool:
        """Have the database do what a night would do for the job's tables, and wait for it; False if
        there is nothing of the kind."""
        return False

    def delete_older(self, before_ms: int) -> None:
        """Delete all events of the job's tables that are older, in ms since 1970, and wait until they are
        gone: as `CAPABILITIES.ageing` says, while others insert. `before_ms` is one of the limits of
        `Job.retention`; may be repeated. Raises Retryable or SimulatorError."""
        raise OptionError(f"module {self.name} doesn't delete by age")

    def describe_schema(self) -> list[str]:
        """What `prepare` makes, as it is sent, for a person to read; none: nothing is made before the events.
        Needs no connection. OptionError if the module can't show it."""
        raise OptionError(f"module {self.name} can't show what it creates")

    def make_asker(self, in_flight: int) -> Asker:
        """An asker by the lean way."""
        return CallingAsker(self)

    @abstractmethod
    def server_info(self) -> dict[str, Any]:
        """Version, and the settings that change a result: durability, replication, consistency."""

    @abstractmethod
    def writer(self, batch: int, prefill: bool = False) -> Writer:
        """A writer for requests of `batch` events (0: one each); `prefill`: by the fastest way. That
        of `official_writer`, if there is one."""


def await_count(count: Callable[[], int | None], expected: int, settle_s: float) -> int | None:
    """Count until `expected` events are there, or no more have appeared for `settle_s` seconds."""
    stored = count()
    grown = time.monotonic()
    while stored is not None and stored < expected and time.monotonic() < grown + settle_s:
        # No database tells when the last of its events has become visible.
        time.sleep(_COUNT_INTERVAL_S)
        before, stored = stored, count()
        if stored != before:
            grown = time.monotonic()
    return stored


AnyModule = Module[Any, Any]
"""A module, whichever it is."""
