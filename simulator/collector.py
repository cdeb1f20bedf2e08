"""The collector: prepares the database, holds the barrier, merges, verifies, serves one report.

HTTP with single-segment paths, JSON bodies, and the run's token in `X-Run-Token`. Starlette and not
FastAPI, which is built on it: the messages are validated by their own pydantic models, and FastAPI's
import alone costs 0.2 s of CPU in each collector.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import socket
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from .contract import (
    FAILURE_PREFIX,
    REPORT_PREFIX,
    RUN_HEADER,
    STATUS_PREFIX,
    TOKEN_HEADER,
    TOO_EARLY,
    Carried,
    Failure,
    Go,
    Load,
    Message,
    Phase,
    Progress,
    Ready,
    Report,
    Role,
    RunSettings,
    Stage,
    Status,
    WorkerResult,
)
from .environment import client_environment
from .errors import Retryable, SimulatorError
from .logs import redact
from .merge import merge_inserts, merge_queries, queryable
from .modules.base import AnyModule, settled_count
from .worker import build

_log = logging.getLogger(__name__)

HOLD_S = 20.0
"""How long a request is held at most: short enough for every proxy on the way."""

_RATE_WINDOW_S = 3.0
_ANNOUNCE_INTERVAL_S = 2.0
_MAX_NAMED = 20
_COUNT_TRIES = 5
_MESSAGE = TypeVar("_MESSAGE", bound=Message)
_RESULT = TypeVar("_RESULT")


class Refused(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Collector:
    """State of one run. All methods run in one event loop; the module works in one thread."""

    def __init__(self, settings: RunSettings, born: float) -> None:
        self.settings = settings
        self._born = born
        self._module: AnyModule | None = None
        self._thread = ThreadPoolExecutor(1, "database")
        self._held = ExitStack()
        self.phase = Phase.START
        self._phase_began = born
        self._phases_s: dict[str, float] = {}
        self._changed = asyncio.Event()
        self.failure: str | None = None
        self._prepared = False
        self._first_event = 0
        self._baseline = 0
        self._queries = 0
        self._ready: dict[int, Ready] = {}
        self._start_at: float | None = None
        self._progress: dict[int, Progress] = {}
        self._heard: dict[int, float] = {}
        self._offsets: dict[int, float] = {}
        self._results: dict[int, WorkerResult] = {}
        self._history: deque[tuple[float, int]] = deque()
        self._database: dict[str, object] = {}
        self.report: Report | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- the run ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Prepare, then watch deadlines until the report is there or the run has failed."""
        try:
            self._enter(Phase.PREPARE)
            await self._in_thread(self._prepare)
            if self.failure is not None:
                return  # a worker gave the run up meanwhile
            self._prepared = True
            self._enter(Phase.PREFILL if self.settings.data.prefill else Phase.BARRIER)
            self._notify()
            await self._watch()
        except SimulatorError as error:
            self.fail(str(error))
        except Retryable as error:
            self.fail(f"the database failed: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the executor must be told
            _log.exception("failed unexpectedly")
            self.fail(f"unexpected {type(error).__name__}: {error} (see the collector's log)")

    def _prepare(self) -> None:
        settings = self.settings
        _, module = build(settings)
        self._module = module
        module.open()
        self._held.callback(module.close)
        writers, readers = settings.groups_of(Role.WRITE), settings.groups_of(Role.READ)
        if writers or readers:
            self._held.enter_context(module.lock())
        if writers:
            module.prepare()
            if not settings.data.clean:
                self._continue_on(module)
        if readers:
            module.prepare_queries()
            self._queries = len(module.queries())
        self._database = module.server_info()

    def _continue_on(self, module: AnyModule) -> None:
        """Events stored before, and the number from which on none of ours can be among them.

        If runs with this seed stored n events, no worker has used a number of n or more: each
        run begins at the number of events stored, or behind the last run.
        """
        after = self.settings.after
        stored = after.stored if after else None
        self._baseline = (module.count() or 0) if stored is None else stored
        self._first_event = after.next_event if after else self._baseline

    async def _watch(self) -> None:
        """Wait for the end; fail if a worker doesn't appear in time or falls silent."""
        while self.report is None and self.failure is None:
            changed = self._changed
            deadlines = self._deadlines()
            timeout = min(deadlines.values()) - time.monotonic() if deadlines else None
            try:
                await asyncio.wait_for(changed.wait(), timeout)
            except TimeoutError:
                self._check_deadlines()

    def _deadlines(self) -> dict[int, float]:
        """When each worker without a result must have been heard (again)."""
        appear_by = self._born + self.settings.ready_timeout_s
        silence = self.settings.silence_timeout_s
        return {
            worker: self._heard[worker] + silence if worker in self._heard else appear_by
            for worker in range(self.settings.workers)
            if worker not in self._results
        }

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        late = [worker for worker, deadline in self._deadlines().items() if deadline <= now]
        absent = [worker for worker in late if worker not in self._heard]
        if absent:
            self.fail(f"{_named(absent)} not ready after {self.settings.ready_timeout_s:g} s")
        elif late:
            self.fail(f"no word from {_named(late)} for {self.settings.silence_timeout_s:g} s")

    async def ended(self, patience_s: float) -> None:
        """Wait until there is a report or a failure, `patience_s` at most."""
        until = time.monotonic() + patience_s
        while self.report is None and self.failure is None:
            try:
                await asyncio.wait_for(self._changed.wait(), until - time.monotonic())
            except TimeoutError:
                return

    def fail(self, reason: str) -> None:
        """End the run: whoever asks from now on is told. The first reason counts."""
        if self.failure is None and self.report is None:
            reason = redact(reason)
            _log.error("run failed: %s", reason)
            self.failure = reason
            self._enter(Phase.FAILED)
            self._notify()

    async def finish(self) -> None:
        """Count, merge, and have the report ready."""
        self._enter(Phase.VERIFY)
        try:
            self.report = await self._in_thread(self._verified)
            self._enter(Phase.DONE)
            self.report.phases_s = dict(self._phases_s)
            if self.report.insert:
                self.report.insert.phases_s = dict(self._phases_s)
            self._notify()
        except (SimulatorError, Retryable) as error:
            self.fail(f"the result could not be verified: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the executor must be told
            _log.exception("failed unexpectedly")
            self.fail(f"unexpected {type(error).__name__}: {error} (see the collector's log)")

    def _verified(self) -> Report:
        settings = self.settings
        assert self._module is not None
        report = Report(
            phases_s={},
            environment={
                "client": client_environment(self._module.PACKAGES),
                "database": self._database,
            },
            carried=Carried(next_event=self._first_event, stored=None),
        )
        if settings.groups_of(Role.READ):
            report.queries, report.invalid_reasons = merge_queries(self._results, settings.workers)
            report.fill_level = self._fill_level(self._module)
        for group in settings.groups_of(Role.WRITE):
            self._verify_inserts(report, group.load, self._module)
        return report

    def _verify_inserts(self, report: Report, load: Load, module: AnyModule) -> None:
        prefilled = sum(message.prefilled for message in self._ready.values())
        acknowledged = sum(r.insert.events for r in self._results.values() if r.insert)
        stored = settled_count(
            partial(self._count, module),
            self._baseline + prefilled + acknowledged,
            module.settle_s,
        )
        lag_s = self._since_the_end()
        report.insert = merge_inserts(
            self._results,
            self._offsets,
            load.workers,
            load.events,
            self._baseline + prefilled,
            stored,
            stored is not None,
        )
        if report.insert.inserts_per_s is not None:
            metrics = module.job.schema.metrics
            report.insert.metrics_per_s = report.insert.inserts_per_s * metrics
        if module.settle_s:
            report.insert.queryable = queryable(report.insert, lag_s)
        most_prefilled = max(message.prefilled for message in self._ready.values())
        next_event = self._first_event + most_prefilled + load.events
        report.carried = Carried(next_event=next_event, stored=stored)
        report.invalid_reasons += report.insert.invalid_reasons

    def _fill_level(self, module: AnyModule) -> int | None:
        """Events in the database. Not before the queries: it would read for them what they shall read."""
        try:
            return self._count(module)
        except (SimulatorError, Retryable) as error:
            _log.warning("the events could not be counted: %s", error)
            return None

    def _since_the_end(self) -> float:
        """Seconds since the last worker ended, on this clock."""
        assert self._start_at is not None
        end_s = max(r.insert.end_s for r in self._results.values() if r.insert)
        return max(0.0, time.monotonic() - self._start_at - end_s)

    def _count(self, module: AnyModule) -> int | None:
        """Count, again if the connection broke during the run."""
        for attempt in range(_COUNT_TRIES):
            try:
                return module.count()
            except Retryable as error:
                _log.warning("counting failed: %s", error)
                time.sleep(0.1 * 2**attempt)
        return module.count()

    def close(self) -> None:
        """Disconnect from the database."""
        self._thread.shutdown(cancel_futures=True)
        self._held.close()

    async def _in_thread(self, function: Callable[[], _RESULT]) -> _RESULT:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def _enter(self, phase: Phase) -> None:
        now = time.monotonic()
        spent = now - self._phase_began
        self._phases_s[self.phase] = self._phases_s.get(self.phase, 0.0) + spent
        self.phase, self._phase_began = phase, now
        self._history.clear()
        _log.info("phase %s", phase)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # --- what workers and executor say -----------------------------------------------------------

    async def ready(self, message: Ready) -> Go:
        """Hold the worker until its stage begins (or HOLD_S, then it asks again)."""
        self._hear(message.worker)
        hold_until = time.monotonic() + HOLD_S
        if message.stage is Stage.RUN:
            self._arrived(message)
        while self.failure is None:
            if message.stage is Stage.PREPARED and self._prepared:
                return Go(go=True, first_event=self._first_event)
            if message.stage is Stage.RUN and self._start_at is not None:
                return Go(go=True, start_in_s=max(0.0, self._start_at - time.monotonic()))
            changed = self._changed
            try:
                await asyncio.wait_for(changed.wait(), hold_until - time.monotonic())
            except TimeoutError:
                return Go(go=False)
        return Go(go=False, failure=self.failure)

    def _arrived(self, message: Ready) -> None:
        if message.worker in self._ready:
            return
        self._ready[message.worker] = message
        if self.phase is Phase.PREFILL and self._prefilling_is_done():
            self._enter(Phase.BARRIER)
        if len(self._ready) == self.settings.workers:
            # Long enough that every worker has its answer before the start: answering one takes
            # about 0.3 ms (benchmarks/many_workers.py), and each is told what is left then.
            lead = 0.03 + 0.001 * self.settings.workers
            self._start_at = time.monotonic() + lead
            self._enter(Phase.RUN)
            self._notify()

    def _prefilling_is_done(self) -> bool:
        return sum(ready.prefilled for ready in self._ready.values()) >= self.settings.data.prefill

    def progress(self, message: Progress) -> None:
        """Note how far a worker is."""
        self._hear(message.worker)
        self._progress[message.worker] = message
        if message.stage == "run":
            self._note_offset(message.worker, message.elapsed_s)

    def _note_offset(self, worker: int, elapsed_s: float) -> None:
        """A message can't arrive before it was sent, so the least difference seen between this
        clock and the worker's is an upper bound of how late the worker started."""
        if self._start_at is not None:
            offset = time.monotonic() - self._start_at - elapsed_s
            self._offsets[worker] = min(self._offsets.get(worker, offset), offset)

    def result(self, message: WorkerResult) -> None:
        """Take a worker's result, once."""
        self._hear(message.worker)
        known = self._results.get(message.worker)
        if known is not None:
            if known.model_copy(update={"elapsed_s": message.elapsed_s}) == message:
                return  # the worker repeats itself: the first answer did not reach it
            raise Refused(409, f"worker {message.worker} has handed in another result already")
        if self._start_at is None:
            raise Refused(409, "the run has not begun")
        self._results[message.worker] = message
        self._note_offset(message.worker, message.elapsed_s)
        if len(self._results) == self.settings.workers:
            task = asyncio.create_task(self.finish())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def failed(self, message: Failure) -> None:
        """Give the run up for a worker, or for the executor."""
        who = ""
        if message.worker is not None:
            self._hear(message.worker)
            who = f"worker {message.worker}: "
        self.fail(who + message.reason)

    def _hear(self, worker: int) -> None:
        """Any message shows that a worker lives."""
        if not 0 <= worker < self.settings.workers:
            raise Refused(404, f"there is no worker {worker}")
        self._heard[worker] = time.monotonic()

    def status(self) -> Status:
        """Where the run is, for the executor's progress display."""
        stage = {Phase.PREFILL: "prefill", Phase.RUN: "run"}.get(self.phase)
        messages = [m for m in self._progress.values() if m.stage == stage]
        done = sum(message.done for message in messages)
        finished = [
            r.insert.events if r.insert else len(r.queries or ()) for r in self._results.values()
        ]
        if stage == "run":
            running = [m.done for m in messages if m.worker not in self._results]
            done = sum(running) + sum(finished)
        missing = sorted(set(range(self.settings.workers)) - set(self._ready))
        return Status(
            run_id=self.settings.run_id,
            phase=self.phase,
            age_s=time.monotonic() - self._born,
            done=done,
            total=self._total(),
            rate_per_s=self._rate(done) if stage else None,
            retries=sum(message.retries for message in messages),
            workers_ready=len(self._ready),
            waiting_for=missing[:_MAX_NAMED],
            failure=self.failure,
        )

    def _total(self) -> int:
        if self.phase is Phase.PREFILL:
            return self.settings.data.prefill
        loads = [group.load for group in self.settings.groups]
        writing = sum(load.workers * load.events for load in loads if load.role is Role.WRITE)
        reading = sum(load.workers * load.runs for load in loads if load.role is Role.READ)
        return writing + reading * self._queries

    def _rate(self, done: int) -> float | None:
        """Events per second over the last seconds."""
        now = time.monotonic()
        self._history.append((now, done))
        while now - self._history[0][0] > _RATE_WINDOW_S and len(self._history) > 2:
            self._history.popleft()
        began, before = self._history[0]
        return (done - before) / (now - began) if now - began > 0.5 else None


def _named(workers: list[int]) -> str:
    names = ", ".join(map(str, sorted(workers)[:_MAX_NAMED]))
    more = f" and {len(workers) - _MAX_NAMED} more" if len(workers) > _MAX_NAMED else ""
    return f"worker{'s' if len(workers) > 1 else ''} {names}{more}"


def application(collector: Collector, end: Callable[[], None]) -> Starlette:
    """The collector's HTTP interface; `end` is called when it is not needed any more."""

    def guarded(
        handler: Callable[[Request], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            token = request.headers.get(TOKEN_HEADER, "")
            if not hmac.compare_digest(token.encode(), collector.settings.token.encode()):
                return PlainTextResponse(f"wrong or no {TOKEN_HEADER}", 401)
            if request.headers.get(RUN_HEADER) != collector.settings.run_id:
                return PlainTextResponse("busy with another run: ask again", TOO_EARLY)
            try:
                return await handler(request)
            except Refused as refusal:
                return PlainTextResponse(refusal.text, refusal.status)
            except ValidationError as error:
                return PlainTextResponse(f"not a valid message: {error}", 422)

        return answer

    async def parsed(request: Request, model: type[_MESSAGE]) -> _MESSAGE:
        message = model.model_validate_json(await request.body())
        if collector.failure and model is not Failure:
            raise Refused(410, collector.failure)
        return message

    async def ready(request: Request) -> Response:
        return _json(await collector.ready(await parsed(request, Ready)))

    async def progress(request: Request) -> Response:
        collector.progress(await parsed(request, Progress))
        return PlainTextResponse("noted")

    async def result(request: Request) -> Response:
        collector.result(await parsed(request, WorkerResult))
        return PlainTextResponse("taken")

    async def failure(request: Request) -> Response:
        collector.failed(await parsed(request, Failure))
        return PlainTextResponse("noted")

    async def status(request: Request) -> Response:
        return _json(collector.status())

    async def report(request: Request) -> Response:
        await collector.ended(HOLD_S)
        if collector.failure is not None:
            raise Refused(410, collector.failure)
        if collector.report is None:
            return PlainTextResponse("the run has not ended: ask again", 202)
        return _json(collector.report)

    async def over(request: Request) -> Response:
        end()
        return PlainTextResponse("ends")

    async def alive(request: Request) -> Response:
        # Ready means that workers may ask, which they may even while the database is prepared,
        # and that the executor may, which it must after a failure too.
        return PlainTextResponse("ok")

    return Starlette(
        routes=[
            Route("/healthz", alive),
            Route("/readyz", alive),
            Route("/ready", guarded(ready), methods=["POST"]),
            Route("/progress", guarded(progress), methods=["POST"]),
            Route("/result", guarded(result), methods=["POST"]),
            Route("/failure", guarded(failure), methods=["POST"]),
            Route("/status", guarded(status)),
            Route("/report", guarded(report)),
            # Not a POST: whoever may only get through the API server's proxy must be able to ask.
            Route("/over", guarded(over)),
        ]
    )


def _json(message: Message) -> Response:
    return Response(message.model_dump_json(), media_type="application/json")


async def announce(collector: Collector) -> None:
    """Print progress, then report or failure, to standard output."""
    while collector.report is None and collector.failure is None:
        _print(STATUS_PREFIX + collector.status().model_dump_json())
        await collector.ended(_ANNOUNCE_INTERVAL_S)
    if collector.report:
        _print(REPORT_PREFIX + collector.report.model_dump_json())
    else:
        _print(FAILURE_PREFIX + json.dumps(collector.failure))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_collector(
    settings: RunSettings, listener: socket.socket, born: float, announced: bool = False
) -> tuple[int, Carried | None]:
    """Serve on `listener` until a request or a signal asks for the end, or nobody has for `linger_s`.

    `born`: `time.monotonic()` at the start; `announced`: print progress and report, too. The exit
    status, 0 if there was a report, and what the next run goes on from.
    """

    async def serve() -> tuple[int, Carried | None]:
        collector = Collector(settings, born)

        def end() -> None:
            server.should_exit = True

        server = uvicorn.Server(
            uvicorn.Config(
                application(collector, end),
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
                # Longer than a worker is silent. With the default of 5 s the collector could close
                # a connection in the moment in which the worker sends its result over it.
                timeout_keep_alive=int(settings.silence_timeout_s) * 2,
                backlog=4096,
            )
        )

        async def end_unasked() -> None:
            while collector.report is None and collector.failure is None:
                await collector.ended(HOLD_S)
            await asyncio.sleep(settings.linger_s)
            end()

        tasks = [asyncio.create_task(collector.run()), asyncio.create_task(end_unasked())]
        if announced:
            tasks.append(asyncio.create_task(announce(collector)))
        try:
            await server.serve(sockets=[listener])
        finally:
            for task in tasks:
                task.cancel()
            collector.close()
        report = collector.report
        return (0, report.carried) if report else (1, None)

    return asyncio.run(serve())
