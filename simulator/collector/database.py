"""The database as the collector sees it: calls that may take long run in a thread, with a deadline."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np

from ..contract import CarriedState, Role, RunSettings, StoredPart, Tables, Timestamps
from ..encoding.columns import bounds
from ..errors import Retryable, SimulatorError
from ..modules import check_versions
from ..modules.base import AnyModule, await_count, connect_again
from ..modules.kit.module import CreateIndices, IndexedModule
from ..oracle.survey import (
    Beginning,
    OtherEvents,
    RecognizedEvents,
    UnknownEvents,
    find_stored,
    resume_history,
)
from ..workloads.base import Workload
from ..workloads.drawing import Stored, bind
from ..workloads.queries import Aggregate, Function, Query

_log = logging.getLogger(__name__)
_RESULT = TypeVar("_RESULT")

_TRIES = 5
"""How often a call is tried, at least, before the last try."""

_CLOSE_PATIENCE_S = 5.0
"""How long the end of a run waits for a call in progress."""


class CallThread:
    """Makes one call at a time in a daemon thread: a call that hangs must not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while call := self._calls.get():
            call()

    async def call(
        self, function: Callable[[], _RESULT], timeout_s: float | None = None, action: str = ""
    ) -> _RESULT:
        """The function's result; SimulatorError if it takes longer than `timeout_s`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_RESULT] = loop.create_future()

        def hand_over(setter: Callable[[Any], None], value: object) -> None:
            if not future.done():
                setter(value)

        def work() -> None:
            try:
                answer: tuple[Callable[[Any], None], object] = (future.set_result, function())
            except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
                answer = (future.set_exception, error)
            loop.call_soon_threadsafe(hand_over, *answer)

        self._calls.put(work)
        try:
            # Not `wait_for`, which loses the end of its task if the answer arrives at the same time.
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise SimulatorError(
                f"{action} has taken more than {timeout_s:g} s: check what the database is waiting"
                " for, or raise database_timeout_s"
            ) from None

    def end(self) -> bool:
        """Wait for the call in progress. False if it doesn't return."""
        self._calls.put(None)
        self._thread.join(_CLOSE_PATIENCE_S)
        return not self._thread.is_alive()


def ask(question: Callable[[], _RESULT], settings: RunSettings) -> _RESULT:
    """Ask a database whose connections may have broken since the last call: then it is asked again, for as
    long as a request of the run would be retried. Raises as `question`."""
    until = time.monotonic() + settings.patience_s
    attempt = 0
    while True:
        try:
            return question()
        except Retryable as error:
            if attempt >= _TRIES and time.monotonic() >= until:
                raise
            _log.warning("polling failed: %s", error)
            time.sleep(0.1 * 2 ** min(attempt, _TRIES))
            attempt += 1


class Indexing:
    """What `create_indices` asks for; nothing if the module has no indexes."""

    def __init__(self, settings: RunSettings, module: AnyModule) -> None:
        self._settings = settings
        self._job = module.job
        self._module: IndexedModule[Any] | None = None
        self._when = CreateIndices.NO
        if isinstance(module, IndexedModule):
            self._module = module
            self._when = module.options.create_indices
        self.build_s: float | None = None
        """How long it took to build indexes on existing events."""

    @property
    def builds_before_run(self) -> bool:
        """Whether the indexes are built between the prefill and the start."""
        return self._when is CreateIndices.AFTER and self._settings.loads_by_prefill

    @property
    def builds_after_run(self) -> bool:
        """Whether the indexes are built once the run's own events are loaded."""
        writes = bool(self._settings.groups_of(Role.WRITE))
        return self._when is CreateIndices.AFTER and writes and not self.builds_before_run

    def prepare_inserts(self) -> None:
        """Make the indexes, or make sure that there are none. SimulatorError if existing tables have indexes
        that weren't requested."""
        module = self._module
        if module is None:
            return
        if self._when is CreateIndices.BEFORE:
            module.create_indexes(module.index_names)
        elif present := self._list_indexes(present=True):
            if self.builds_after_run:
                module.drop_indexes(present)
            elif self._when is CreateIndices.NO:
                raise SimulatorError(
                    f"the tables have indexes that create_indices=no does not make ({', '.join(present)}):"
                    " run without --no-clean, or with create_indices=before"
                )

    def prepare_queries(self) -> None:
        """Check tables loaded by an earlier run: SimulatorError if indexes are missing whose cost inserts
        should have included. Indexes of `after` are built."""
        if self._when is CreateIndices.BEFORE and (lacking := self._list_indexes(present=False)):
            raise SimulatorError(
                "the tables were loaded without the indexes of create_indices=before"
                f" ({', '.join(lacking)}), so the inserts did not maintain them: insert again with"
                " create_indices=before, or use create_indices=after to build and time them now"
            )
        if self._when is CreateIndices.AFTER:
            self.build()

    def build(self) -> None:
        """Build missing indexes, and note how long it takes. SimulatorError if the tables belong to someone
        else."""
        if lacking := self._list_indexes(present=False):
            assert self._module is not None
            self._module.claim_tables()
            create = self._module.create_indexes
            began = time.monotonic()
            ask(lambda: create(lacking), self._settings)
            self.build_s = time.monotonic() - began

    def describe_schema(self) -> dict[str, object]:
        """The tables as they are now, in all respects in which runs can differ."""
        schema: dict[str, object] = {
            "tables": self._job.table_names,
            "tags": str(self._job.schema.tags),
        }
        if self._settings.groups_of(Role.WRITE, Role.FILL):
            schema["primary_key"] = str(self._job.load.primary_key)
        if self._module is not None:
            indexes = ask(self._module.list_indexes, self._settings)
            schema["indexes"] = sorted(indexes.values())
        return schema

    def _list_indexes(self, present: bool) -> list[str]:
        """The module's indexes that exist, or those that don't."""
        if self._module is None:
            return []
        there = ask(self._module.list_indexes, self._settings)
        return [name for name in self._module.index_names if (name in there) is present]


class Preparation:
    """A run's database, prepared: what it held before, and where the run's events begin."""

    def __init__(self, settings: RunSettings, module: AnyModule, workload: Workload) -> None:
        self._settings = settings
        self.module = module
        self.workload = workload
        self._held = ExitStack()
        self.indexing = Indexing(settings, module)
        self.baseline = 0
        """Events stored before this run."""
        self.values_before: Mapping[str, int] = {}
        """How many values each column had then, where values are stored separately."""
        self.begin = Beginning(settings, workload)
        """Where each worker's events begin."""
        self.queries = 0
        """How many queries each reader runs in turn."""
        self.drawn: list[str] = []
        """Queries whose parameters are drawn for each execution."""
        self.known: RecognizedEvents | str = "not yet checked"
        """The events stored when readers begin, or why they aren't known."""
        self.certain_until_ms: int | None = None
        """Events are added from this time on, after those that readers find; None: nobody adds any. It is the
        same for the runs of a baseline, with writers and without."""
        self.server: dict[str, object] = {}
        """What the server reports about itself."""

    def prepare(self) -> None:
        """Connect, and make or check the tables as the groups' roles require."""
        settings, module = self._settings, self.module
        module.open()
        self._held.callback(module.close)
        check_versions(module)
        writers = settings.groups_of(Role.WRITE, Role.FILL)
        readers = settings.groups_of(Role.READ)
        if writers or not readers:
            ask(module.check, settings)
        if writers or readers:
            self._held.enter_context(module.lock())
        if writers:
            module.prepare()
            self.indexing.prepare_inserts()
            if not settings.data.clean:
                self._continue(settings.after)
            self._check_times()
        if readers:
            module.prepare_queries()
            if not writers:
                self.indexing.prepare_queries()
            self.drawn = list(module.drawn_queries())
            self.queries = len(module.queries()) + len(self.drawn)
            if self.drawn or writers:
                self._find_stored()
            if self.drawn and isinstance(self.known, str):
                raise SimulatorError(
                    "queries with drawn parameters need events of the same seed and workload"
                    f" options: {self.known}, or insert again"
                )
        self.server = {**module.server_info(), "schema": self.indexing.describe_schema()}

    @property
    def checks(self) -> bool:
        """Whether any reader's answers will be checked."""
        return any(group.load.check for group in self._settings.groups_of(Role.READ))

    @property
    def frontier_ms(self) -> int | None:
        """Events are added from this time on while readers query; None: none are."""
        return self.certain_until_ms if self._settings.groups_of(Role.WRITE) else None

    def _find_stored(self) -> None:
        try:
            self.known = find_stored(self.begin, self.module)
            self.certain_until_ms = self.begin.find_frontier()
        except OtherEvents as error:
            self.known = (
                f"{error}. Use the --seed and workload options of the insert, and its"
                " --prefill-span and --prefill-every if it had them"
            )
        except UnknownEvents as error:
            self.known = str(error)

    def survey(self) -> None:
        """Find out which events are stored, if that is needed and not known yet. Comes after the queries:
        they would find in the caches what this reads."""
        writers = self._settings.groups_of(Role.WRITE, Role.FILL)
        if self.baseline and writers and not self.begin.has_history:
            self.known = "the events stored before the run are unknown"
        elif isinstance(self.known, str) and not writers:
            try:
                ask(self._find_stored, self._settings)
            except (SimulatorError, Retryable) as error:
                _log.warning("the stored events couldn't be surveyed: %s", error)
                self.known = f"finding out which events are stored failed: {error}"

    def await_prefill(self) -> None:
        """Wait until readers can see the prefilled events: a database may acknowledge events before that."""
        module, expected = self.module, self.baseline + self.begin.prefill
        stored = await_count(module.count, expected, module.settle_s)
        if stored is not None and stored < expected:
            _log.warning("the database stores %d events, but only %d are visible", expected, stored)

    def build_indexes(self) -> None:
        """Build the indexes that were postponed until the events are loaded, before the run's start."""
        self.indexing.build()
        self.server["schema"] = self.indexing.describe_schema()

    def _continue(self, after: CarriedState | None) -> None:
        """Find out how many events are stored, and the first number that none of them can have.

        If runs with this seed stored n events, no worker has used a number of n or more: each run begins at
        the number of events stored, or after the last run.
        """
        if self.module.list_kept_apart():
            self.values_before = (after and after.values) or count_values(self.module)
            self.baseline = max(self.values_before.values())
        else:
            stored = after.stored if after else None
            self.baseline = (self.module.count() or 0) if stored is None else stored
        begin = self.begin
        if not begin.has_history:
            first = after.next_event if after else self.baseline
            self.begin = replace(begin, first_event=first)
            if after is None and self.baseline:
                self._skip_sorted()
        elif after is not None and after.next_events is not None:
            self.begin = replace(begin, next_events=after.next_events, is_certain=after.is_certain)
        elif self.baseline:
            self._resume_history()

    def _skip_sorted(self) -> None:
        """Begin behind all stored events, if an encoder has sorted them: of a run that ended by its duration,
        later numbers are stored than it has events."""
        module, schema = self.module, self.workload.schema
        query = Query(name="newest", newest=True, events=(schema.time,))
        if (
            self._settings.data.timestamps is Timestamps.RESTART
            or schema.shapes_of(query) - frozenset(module.CAPABILITIES.shapes)
            or not module.writer().encoder.unit_events
        ):
            return
        times = [
            int(row[-1])
            for part in open_tables(module)
            for row in part.fetch(part.compile(bind(query, schema.epoch_ms)))
        ]
        if times:
            self.begin = self.begin.skip_to(max(times))

    def _resume_history(self) -> None:
        """Continue where the history, and what runs have added to it, ends. SimulatorError if it isn't
        there."""
        try:
            self.begin = resume_history(self.begin, self.module)
        except UnknownEvents as error:
            raise SimulatorError(
                f"the tables hold {self.baseline:,} events that this run and its history can't"
                f" continue: {error}. Run it once without --no-clean, or with the --seed,"
                " --workers, workload options and history of the previous run"
            ) from error

    def _check_times(self) -> None:
        """SimulatorError if the database would drop events of the run because of their times.

        For a run that ends by the clock, only the events before it and its first one are known.
        """
        taken, settings = self.module.times_taken(), self._settings
        if taken is None:
            return
        load, worker = settings.groups_of(Role.WRITE, Role.FILL)[0].load, next(self.begin.writers)
        count = self.begin.prefill_of(worker)
        if load.role is Role.WRITE:
            count += 1 if load.duration_s else load.events
        part = StoredPart(worker, self.begin.first_of(worker), count)
        first, end = Stored(self.workload, [part]).span_ms
        if first < taken[0] or end - 1 > taken[1]:
            times = [str(np.datetime64(time_ms, "ms"))[:16] for time_ms in (first, end - 1, *taken)]
            raise SimulatorError(
                f"the run's events are from {times[0]} to {times[1]} UTC, but the database keeps"
                f" {times[2]} to {times[3]} and drops all others: extend its retention, or choose"
                " other times (fewer events, or a workload's epoch)"
            )

    def find_lost_devices(self, workers: Sequence[int]) -> list[str]:
        """What is wrong with the rows of these workers' devices in the tags' table, if there is one."""
        stored = self.module.count_devices()
        if stored is None:
            return []
        expected = sum(map(self.workload.device_count, workers))
        table = self.workload.schema.tags_table
        if stored == expected:
            return []
        if stored < expected or self._settings.data.clean:
            return [f"table {table} has {stored:,} devices instead of {expected:,}"]
        # There are more than this run's devices, so their number means nothing: join the events with them
        # instead.
        alone = self._count_alone()
        return [f"{alone:,} events have no row in table {table}"] if alone else []

    def _count_alone(self) -> int:
        """How many events have no row in the tags' table."""
        schema = self.workload.schema
        query = Query(name="joined", compute=(count_of(EVENTS),), per=(schema.device,))
        joined = sum(
            int(row[-1])
            for part in open_tables(self.module)
            for row in part.fetch(part.compile(bind(query, schema.epoch_ms)))
        )
        return (self.module.count() or 0) - joined

    def close(self) -> None:
        """Disconnect from the database."""
        self._held.close()


# How many events and values are stored: a database that stores the values of an event separately may lose
# some and keep others.

EVENTS = ""
"""Stands for the events themselves among the columns; counted in the module's own way."""

_AT_ONCE = 50
"""Columns counted by one query: VictoriaMetrics takes 16 KiB (-search.maxQueryLen)."""


def list_counted(module: AnyModule) -> list[str]:
    """What is counted and looked up: the events, and the columns that are stored separately."""
    return [EVENTS, *module.list_kept_apart()]


def count_of(name: str) -> Aggregate:
    """The aggregate that counts one of these."""
    return Aggregate(function=Function.COUNT, column=name or None)


def count_values(module: AnyModule) -> dict[str, int]:
    """How many of each of these there are, over all tables. Raises Retryable or SimulatorError."""
    module.make_visible()
    names = list_counted(module)
    counts = dict.fromkeys(names, 0)
    for part in open_tables(module):
        for start, stop in bounds(len(names), _AT_ONCE):
            asked = names[start:stop]
            query = Query(name="values", compute=tuple(map(count_of, asked)))
            [row] = part.fetch(part.compile(bind(query, module.job.schema.epoch_ms)))
            for name, count in zip(asked, row, strict=True):
                counts[name] += int(count)
    return counts


def open_tables(module: AnyModule) -> Iterator[AnyModule]:
    """The module for each table, since its queries cover a single one. Further tables are opened in turn,
    after the given one. Raises Retryable if the database has gone away since."""
    job = module.job
    if job.load.tables is Tables.SINGLE:
        yield module
        return
    load = job.load.model_copy(update={"tables": Tables.SINGLE})
    for name in job.table_names:
        schema = replace(job.schema, table=name, tags_of=job.schema.table)
        own = type(module)(module.options, replace(job, schema=schema, load=load))
        try:
            connect_again(own.open)
            yield own
        finally:
            own.close()
