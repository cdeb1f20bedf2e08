"""A collector at work on a fake database, as its workers and its executor see it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
)
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar

import httpx

from simulator.collector.http import application
from simulator.collector.run import Collector
from simulator.contract import (
    RUN_HEADER,
    TOKEN_HEADER,
    Execution,
    Go,
    Message,
    QueryResult,
    Ready,
    Report,
    RunSettings,
    Stage,
    Status,
    WorkerResult,
)
from simulator.modules.base import AnyModule, Capabilities, Client, Job, Query, Support
from simulator.modules.options import LEAN, Options
from simulator.modules.sending import CALLING, Encoder
from simulator.workloads.temperature import Temperature

from ..helpers import histogram_of, settings, worker_figures, worker_result

LIMIT_S = 60


class FakeDatabase(AnyModule):
    """A fake database."""

    name = "fake"
    CLIENTS: ClassVar = {LEAN: Client(asker=CALLING)}
    options_model = Options
    CAPABILITIES = Capabilities({}, {}, Support.FULL, {})
    ENCODINGS = ()

    def __init__(self) -> None:
        super().__init__(Options(), Job(Temperature.schema))
        self.calls: list[str] = []
        self.counts: list[int | Exception | None] = [200]
        """Answers of `count`, one after another."""
        self.fails: dict[str, Exception] = {}
        """What a call raises."""
        self.may_prepare = threading.Event()
        self.may_prepare.set()
        self.may_count = threading.Event()
        self.may_count.set()

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise self.fails[name]

    def open(self) -> None:
        self._called("open")

    def close(self) -> None:
        self._called("close")

    @contextmanager
    def lock(self) -> Iterator[None]:
        self._called("lock")
        yield
        self.calls.append("unlock")

    def prepare(self) -> None:
        assert self.may_prepare.wait(LIMIT_S)
        self._called("prepare")

    def prepare_queries(self) -> None:
        self._called("prepare_queries")

    def count(self) -> int | None:
        assert self.may_count.wait(LIMIT_S)
        self._called("count")
        answer = self.counts.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def workload_queries(self) -> Mapping[str, Query]:
        return {"a": list, "b": list}

    def server_info(self) -> dict[str, Any]:
        return {"version": "1.0", "settings": {}}

    @classmethod
    def encoder(cls, options: Options, job: Job) -> Encoder:
        raise NotImplementedError


class Run:
    """A collector at work, as its workers and its executor see it."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.ended = ""
        """What the next run goes on from, once somebody has said that the collector is not needed."""

        def end(after: str) -> None:
            self.ended = after

        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(application(collector, end)),
            base_url="http://collector",
            headers={TOKEN_HEADER: "the-token", RUN_HEADER: "test"},
        )

    async def post(self, path: str, message: Message) -> httpx.Response:
        return await self.http.post(path, content=message.model_dump_json())

    async def ready(self, worker: int, stage: Stage = Stage.RUN, prefilled: int = 0) -> Go:
        message = Ready(worker=worker, stage=stage, prefilled=prefilled)
        return Go.model_validate_json((await self.post("/ready", message)).content)

    async def start(self, prefilled: int = 0) -> list[Go]:
        """Report all workers as ready; returns what releases each of them."""
        workers = range(self.collector.settings.workers)
        await asyncio.gather(*(self.ready(worker, Stage.PREPARED) for worker in workers))
        return await asyncio.gather(*(self.ready(w, prefilled=prefilled) for w in workers))

    async def result(self, worker: int, **changes: Any) -> httpx.Response:
        return await self.post("/result", worker_result(worker, **changes))

    async def finish(self) -> httpx.Response:
        """Tell all workers' results, and ask for the report."""
        for worker in range(self.collector.settings.workers):
            await self.result(worker)
        return await self.report()

    async def finish_well(self) -> Report:
        """The report, after all workers' results."""
        return Report.model_validate_json((await self.finish()).content)

    async def report(self) -> httpx.Response:
        return await self.http.get("/report")

    async def status(self) -> Status:
        return Status.model_validate_json((await self.http.get("/status")).content)


@asynccontextmanager
async def running(given: RunSettings) -> AsyncIterator[Run]:
    """A collector that does its work, as `run_collector` starts it."""
    collector = Collector(given, time.monotonic())
    task = asyncio.create_task(collector.run())
    run = Run(collector)
    try:
        yield run
    finally:
        task.cancel()
        await run.http.aclose()
        collector.close()


def play(story: Callable[[Run], Awaitable[None]], **changes: Any) -> None:
    """Run a story against a collector with these settings; one that hangs fails."""

    async def all_of_it() -> None:
        async with running(settings(**changes)) as run, asyncio.timeout(LIMIT_S):
            await story(run)

    asyncio.run(all_of_it())


async def until(found: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds."""
    while not found():
        await asyncio.sleep(0.001)


def asked(worker: int, rows: int = 1, **changes: Any) -> WorkerResult:
    """The result of a reader that asked query "a" once; `changes`: to the message."""
    query = QueryResult(
        query="a", executions=1, rows_min=rows, rows_max=rows, cold_s=0.1, histogram=histogram_of(100_000),
        each=[Execution(run=1, worker=worker, duration_s=0.1, rows=rows)],
    )  # fmt: skip
    figures = worker_figures(end_s=1.0, count=1, timeline=[(0, 1)], queries=[query])
    return WorkerResult(worker=worker, node="n", elapsed_s=1, figures=figures, **changes)


def pending(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(coroutine)
