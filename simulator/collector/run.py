"""The course of a run in the collector: prepare, hold the barrier, watch, verify, report."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..contract import (
    Answers,
    EarlyEnd,
    Failure,
    Go,
    GroupResult,
    Lookup,
    Phase,
    Progress,
    ProgressAnswer,
    Ready,
    Report,
    Role,
    RunResult,
    RunSettings,
    Stage,
    Status,
    Storage,
    WorkerAnswers,
    WorkerResult,
)
from ..errors import Retryable, SimulatorError, redact
from ..machine import StallWatch, check_files
from ..modules import build
from ..oracle.checking import Checker, add_answers
from .barrier import HOLD_S, Barrier
from .database import CallThread, Preparation
from .lookup import describe_wrong, look_up_events
from .report import (
    add_long_windows,
    is_amid,
    make_early_report,
    make_report,
    measure_during,
    measure_storage,
    place_amid,
)
from .retention import Deleter, find_last_limit, leave_out_deleted
from .status import NOTICE_S, LimitWatch, PhaseTracker

if TYPE_CHECKING:
    from .recording import ArrivingRecording

_log = logging.getLogger(__name__)
_RESULT = TypeVar("_RESULT")

_OTHERS_PATIENCE_S = 3.0
"""How long a run that is given up waits for the results of the other workers. Workers without results end
with an error: the executor then waits for the report a little longer than this."""


_LOOK_S = 1.0
"""How often to check for late workers. A check that comes later by this much shows that this process itself
was stopped: by SIGSTOP, with its machine, or for lack of CPU."""


class Collector:
    """State of one run. All methods run in one event loop; the module works in one thread."""

    def __init__(self, settings: RunSettings, born: float) -> None:
        self.settings = settings
        self.barrier = Barrier(settings, born)
        self.recording: ArrivingRecording | None = None
        if settings.delivery is not None:
            from .recording import ArrivingRecording  # few runs need it, and zstd

            self.recording = ArrivingRecording(settings.delivery, settings.run_id)
        self._phases = PhaseTracker(settings, born)
        self._database = CallThread("database")
        self._preparation: Preparation | None = None
        self._is_prepared = False
        self._closing = threading.Lock()
        self._changed = asyncio.Event()
        self._answers: Checker | None = None
        """Set once readers may hand in their answers."""
        self.failure: str | None = None
        self.given_up: str | None = None
        """Why a worker gave up during the run; everyone's results are being collected."""
        self.report: Report | None = None
        self._limits = LimitWatch(settings)
        self._early_end: EarlyEnd | None = None
        """Set if the run could no longer keep a limit."""
        self._amid: asyncio.Task[tuple[float, Storage] | None] | None = None
        """What the tables take halfway through the run; measured once."""
        self._stalls: StallWatch | None = None
        """Set while workers are active."""
        self._deleter: Deleter | None = None
        """Set in a run with a retention, once the database is prepared."""
        self._deleting: asyncio.Task[None] | None = None
        """The last deletion while writers are active."""
        self._tasks: set[asyncio.Task[None]] = set()

    # --- the run ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Prepare, then watch deadlines until the report is there or the run has failed."""
        with self.failing():
            check_files(workers=self.settings.workers)
            if self.recording is not None:
                await self.recording.settle()
            self._phases.enter(Phase.PREPARE)
            workload, module = build(self.settings)
            self._preparation = Preparation(self.settings, module, workload)
            await self._ask(self._preparation.prepare, "preparing the database")
            if self.failure is not None:
                return  # a worker has given the run up meanwhile
            if (retention := module.job.retention) is not None:
                self._deleter = Deleter(self.settings, self._preparation, self.barrier, retention)
            self._is_prepared = True
            self._phases.queries = self._preparation.queries
            self._phases.prefill = self._preparation.begin.prefill
            self._phases.enter(Phase.PREFILL if self._phases.prefill else Phase.BARRIER)
            self._notify()
            await self._watch()

    @property
    def _prepared(self) -> Preparation:
        """The run's database."""
        assert self._preparation is not None
        return self._preparation

    async def _ask(self, question: Callable[[], _RESULT], action: str) -> _RESULT:
        """Call the database. SimulatorError if that takes longer than the target allows."""
        timeout_s = self._prepared.module.options.database_timeout_s
        return await self._database.call(question, timeout_s, action)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Turn any error into the end of the run, and tell the executor."""
        try:
            yield
        except SimulatorError as error:
            self.fail(str(error))
        except Retryable as error:
            self.fail(f"the database failed: {error}")
        except Exception as error:  # noqa: BLE001 - nothing of it may be lost
            _log.exception("failed unexpectedly")
            self.fail(f"unexpected {type(error).__name__}: {error} (see the collector's log)")

    async def _watch(self) -> None:
        """Wait for the end. Fail if a worker doesn't appear in time or falls silent."""
        while self.report is None and self.failure is None:
            now, deadline = time.monotonic(), self.barrier.next_deadline()
            due = now + _LOOK_S if deadline is None else min(deadline, now + _LOOK_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), due - now)
            overslept_s = time.monotonic() - due
            if overslept_s > _LOOK_S:
                _log.warning("this process stalled for %.1f s", overslept_s)
                self.barrier.excuse(overslept_s)
            else:
                late = self.barrier.find_late()
                if late and self.barrier.awaited:
                    for worker in self.barrier.list_late():
                        self._give_up_answers(worker, "it fell silent")
                elif late:
                    self.fail(late)

    async def await_end(self, patience_s: float) -> None:
        """Wait until there is a report or a failure, at most `patience_s`."""
        await self._await(lambda: self.report is not None or self.failure is not None, patience_s)

    async def _await(self, is_so: Callable[[], bool], patience_s: float) -> None:
        """Wait until a condition holds, at most `patience_s`."""
        until = time.monotonic() + patience_s
        while not is_so():
            try:
                await asyncio.wait_for(self._changed.wait(), until - time.monotonic())
            except TimeoutError:
                return

    def fail(self, reason: str) -> None:
        """End the run: all later requests are told so. The first reason counts."""
        if self.failure is None and self.report is None:
            reason = redact(reason)
            _log.error("run failed: %s", reason)
            self.failure = reason
            self._phases.enter(Phase.FAILED)
            self._notify()

    async def finish(self) -> None:
        """Count, merge, and publish the report."""
        self._phases.enter(Phase.VERIFY)
        self._note_stalls()
        prepared = self._prepared
        with self.failing():
            if self._deleter is not None:
                # Let the deletion in progress end, and delete what has become too old since.
                if self._deleting is not None:
                    await self._deleting
                await self._ask(self._deleter.delete_rest, "deleting old events")
            report = await self._ask(
                lambda: make_report(
                    self.settings, prepared, self.barrier, self._early_end, self._deleter
                ),
                "counting the events",
            )
            run = report.run
            if run.writers is not None:
                await self._look_up(run.writers)
                await self._build_indexes(run, run.writers)
                await self._measure_storage(run, run.writers)
            if prepared.checks:
                await self._database.call(prepared.survey)
            add_long_windows(run, prepared)
            if self.failure is None and prepared.checks and run.readers is not None:
                add_answers(run.readers, await self._check())
            self._publish(report)

    def _note_stalls(self) -> None:
        if self._stalls is not None:
            self.barrier.stalls = self._stalls.end(self.barrier.elapsed_s())

    async def _finish_early(self) -> None:
        """Report what was measured, after the other workers have handed in their results, or after a short
        time."""
        assert self.given_up is not None
        everybody = self.settings.workers
        await self._await(lambda: len(self.barrier.results) == everybody, _OTHERS_PATIENCE_S)
        self._note_stalls()
        try:
            report = make_early_report(self.settings, self._prepared, self.barrier, self.given_up)
        except Exception:  # noqa: BLE001 - why the run was given up must be told all the same
            _log.exception("reporting what was measured failed")
            self.fail(self.given_up)
        else:
            self._publish(report)

    def _publish(self, report: Report) -> None:
        """Publish the report, unless the run has failed meanwhile."""
        if self.failure is None:
            self._phases.enter(Phase.DONE)
            report.run.phases_s = dict(self._phases.phases_s)
            for group in report.run.groups:
                group.minutes = self._phases.minutes[group.role].result()
            self.report = report
            self._notify()

    async def _look_up(self, writers: GroupResult) -> None:
        if not self.settings.look_up:
            return
        try:
            lookup = await self._ask(
                lambda: look_up_events(self.settings, self._prepared, self.barrier),
                "looking up the events",
            )
        except SimulatorError as error:
            lookup = Lookup(reason=str(error))
        writers.lookup = lookup
        writers.invalid_reasons += describe_wrong(lookup)

    async def _build_indexes(self, run: RunResult, writers: GroupResult) -> None:
        """Build the indexes that wait for the run's own events. If that fails, the measurement is kept."""
        indexing = self._prepared.indexing
        if not indexing.builds_after_run:
            return
        self._phases.enter(Phase.INDEX)
        try:
            await self._ask(indexing.build, "building the indexes")
        except (SimulatorError, Retryable) as error:
            writers.invalid_reasons.append(f"building the indexes failed: {error}")
        run.index_build_s = indexing.build_s

    async def _measure_storage(self, run: RunResult, writers: GroupResult) -> None:
        if self.failure is not None:
            return
        module = self._prepared.module
        try:
            writers.storage, writers.storage_compacted = await self._ask(
                lambda: measure_storage(self.settings, module, writers),
                "measuring the size on disk",
            )
        except SimulatorError as error:
            writers.storage = Storage(reason=str(error))
        amid = await self._amid if self._amid is not None else None
        if self._prepared.indexing.builds_after_run:
            writers.storage_during = Storage(reason="its indexes are built after the run")
        elif self._deleter is not None:
            writers.storage_during = Storage(reason="older events were being deleted")
        elif amid is not None:
            writers.storage_during = place_amid(run, *amid)

    def _measure_during(self) -> None:
        """Measure what the tables take, once, when writers are about halfway through their run. Not while the
        database is disturbed, since it may not answer, nor if events are deleted."""
        writers, prepared = self.settings.groups_of(Role.WRITE), self._preparation
        start_at = self.barrier.start_at
        disturbs = self.settings.look_up or self._deleter is not None
        if self._amid is not None or not writers or disturbs or start_at is None:
            return
        [group] = writers
        workers = range(group.first, group.end)
        reports = [
            report for report in map(self.barrier.progress.get, workers) if report is not None
        ]
        if prepared is not None and is_amid(group.load, reports):
            module = prepared.module
            self._amid = asyncio.create_task(
                self._database.call(lambda: measure_during(module, start_at))
            )

    async def _check(self) -> Answers:
        """Collect the readers' answers, and compare them with the right ones."""
        prepared = self._prepared
        self._phases.enter(Phase.CHECK)
        checker = Checker(prepared.module)
        results = self.barrier.results.items()
        self.barrier.awaited = {worker for worker, result in results if result.answers_follow}
        self._answers = checker
        self._notify()
        while self.barrier.awaited and self.failure is None:
            await self._changed.wait()
        if self.failure is not None:
            return Answers(checked=0)
        try:
            return await CallThread("checks").call(
                lambda: checker.check(
                    prepared.known,
                    prepared.frontier_ms,
                    self._phases.note_check,
                    find_last_limit(prepared),
                )
            )
        except Exception as error:  # noqa: BLE001 - what was measured must not be lost by it
            _log.exception("checking the answers failed")
            return checker.give_up(f"unexpected {type(error).__name__}: {error}")

    def close(self) -> None:
        """Disconnect from the database. May be called again, and by several threads."""
        self._note_stalls()
        with self._closing:
            if self._database.end() and self._preparation is not None:
                self._preparation.close()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- messages of workers and executor --------------------------------------------------------

    async def ready(self, message: Ready) -> Go:
        """Hold the worker until its stage begins (or for HOLD_S; then it asks again)."""
        self.barrier.hear(message.worker)
        stage = message.stage
        if stage is Stage.RUN:
            self._arrive(message)
        has_begun: Callable[[], bool] = {
            Stage.PREPARED: lambda: self._is_prepared,
            Stage.RUN: lambda: self.barrier.start_at is not None,
            Stage.CHECK: lambda: self._answers is not None,
        }[stage]
        await self._await(lambda: self.failure is not None or has_begun(), HOLD_S)
        if self.failure is not None or not has_begun():
            return Go(go=False, failure=self.failure)
        go = Go(go=True)
        if stage is Stage.PREPARED:
            # What a worker must know about the database before it connects.
            prepared = self._prepared
            go.first_event = prepared.begin.first_of(message.worker)
            go.prefill = prepared.begin.prefill_of(message.worker)
            if prepared.drawn and not isinstance(prepared.known, str):
                go.stored = leave_out_deleted(prepared, prepared.known.parts)
                go.sharing_workers = prepared.known.sharing_workers
                go.before_ms = prepared.certain_until_ms
        elif stage is Stage.RUN and self.barrier.start_at is not None:
            go.start_in_s = max(0.0, self.barrier.start_at - time.monotonic())
        return go

    def _arrive(self, message: Ready) -> None:
        complete = self.barrier.arrive(message)
        prefilled = self.barrier.prefilled >= self._phases.prefill
        if self._phases.phase is Phase.PREFILL and prefilled:
            self._phases.enter(Phase.BARRIER)
        if not complete:
            return
        deletes = self._deleter is not None and self.settings.data.prefill > 0
        if self._asks_prefill or deletes or self._prepared.indexing.builds_before_run:
            self._spawn(self._settle())
        else:
            self._start()

    @property
    def _asks_prefill(self) -> bool:
        """Whether readers may query right after the prefill."""
        return bool(self._phases.prefill and self.settings.groups_of(Role.READ))

    async def _settle(self) -> None:
        action = "counting the prefill"
        with self.failing():
            try:
                if self._asks_prefill:
                    await self._ask(self._prepared.await_prefill, action)
                if self._deleter is not None:
                    action = "deleting old events of the prefill"
                    await self._ask(self._deleter.delete_from_prefill, action)
                if self._prepared.indexing.builds_before_run:
                    action = "building the indexes"
                    self._phases.enter(Phase.INDEX)
                    await self._ask(self._prepared.build_indexes, action)
            except (SimulatorError, Retryable) as error:
                raise SimulatorError(f"{action} failed: {error}") from error
            self._start()

    def _start(self) -> None:
        self.barrier.start()
        self._stalls = StallWatch(None)
        self._phases.enter(Phase.RUN)
        self._notify()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def do() -> None:
            with self.failing():
                await work

        task = asyncio.create_task(do())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def progress(self, message: Progress) -> ProgressAnswer:
        """Note how far a worker is. The answer says whether it must end early."""
        self.barrier.hear(message.worker)
        self._phases.take_report(message, self.barrier.advance(message))
        self._measure_during()
        self._delete_old()
        elapsed_s = self.barrier.elapsed_s()
        self._watch_limits(elapsed_s)
        if self._early_end is None:
            return ProgressAnswer()
        return ProgressAnswer(ends_in_s=max(0.0, self._early_end.at_s - elapsed_s))

    def _watch_limits(self, elapsed_s: float) -> None:
        """End the run, at the same instant for all workers, if it can no longer keep a limit."""
        if self._early_end is not None or self._phases.phase is not Phase.RUN:
            return
        places = self._prepared.module.options.in_flight
        lost = self._limits.find_lost(self.barrier.progress.get, places, elapsed_s)
        if lost is not None:
            limit, reason = lost
            at_s = elapsed_s + NOTICE_S
            self._early_end = EarlyEnd(limit=str(limit), at_s=at_s, reason=reason)
            _log.warning("%s", self._early_end)

    def _delete_old(self) -> None:
        """Begin to delete what has become too old, unless a deletion is in progress."""
        deleter, running = self._deleter, self._deleting
        if deleter is None or (running is not None and not running.done()):
            return
        if self._phases.phase is not Phase.RUN or not self.settings.groups_of(Role.WRITE):
            return
        if (limit_ms := deleter.find_due_in_run()) is not None:
            delete = self._ask(lambda: deleter.delete_in_run(limit_ms), "deleting old events")
            self._deleting = self._spawn(delete)

    def result(self, message: WorkerResult) -> None:
        """Take a worker's result, once."""
        self.barrier.hear(message.worker)
        complete = self.barrier.finish(message)
        if message.failure is not None and self.given_up is None:
            self.given_up = redact(f"worker {message.worker}: {message.failure}")
            _log.error("given up: %s", self.given_up)
            self._spawn(self._finish_early())
        elif complete and self.given_up is None:
            self._spawn(self.finish())
        self._notify()

    def take_answers(self, message: WorkerAnswers) -> None:
        """Take a reader's answers, once."""
        self.barrier.hear(message.worker)
        if self._answers is not None and message.worker in self.barrier.awaited:
            self._answers.add(message)
            self.barrier.awaited.discard(message.worker)
            self._notify()

    def _give_up_answers(self, worker: int, reason: str) -> None:
        assert self._answers is not None
        _log.error("worker %d sends no answers: %s", worker, reason)
        self._answers.give_up_worker(worker, redact(reason))
        self.barrier.awaited.discard(worker)
        self._notify()

    def take_failure(self, message: Failure) -> None:
        """Give the run up on behalf of a worker or the executor."""
        prefix = ""
        if message.worker is not None:
            self.barrier.hear(message.worker)
            if message.worker in self.barrier.awaited:
                # Its measurement is there.
                self._give_up_answers(message.worker, message.reason)
                return
            if self.given_up is not None:
                return  # the report will say why
            prefix = f"worker {message.worker}: "
        self.fail(prefix + message.reason)

    def status(self) -> Status:
        """Where the run is, for the executor's progress display."""
        return self._phases.status(self.barrier, self.failure)
