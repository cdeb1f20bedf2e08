"""The collector: its HTTP interface, the barrier, deadlines, and how a run ends."""

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
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from simulator.collector.http import application
from simulator.collector.run import Collector
from simulator.contract import (
    RUN_HEADER,
    TOKEN_HEADER,
    Carried,
    Failure,
    GivenAnswer,
    Go,
    Load,
    Machine,
    Message,
    Phase,
    Progress,
    QueryRun,
    Ready,
    Report,
    Role,
    RunSettings,
    Stage,
    Status,
    WorkerAnswers,
    WorkerQueries,
    WorkerResult,
    make_groups,
)
from simulator.errors import Retryable, SimulatorError
from simulator.modules.base import AnyModule, Capabilities, Job, Query, Support
from simulator.modules.options import Options
from simulator.modules.sending import Encoder, Writer
from simulator.workloads.temperature import Temperature

from ..helpers import settings, worker_result

LIMIT_S = 10


class FakeDatabase(AnyModule):
    """A database of the test's making."""

    name = "fake"
    options_model = encoding_options_model = Options
    CAPABILITIES = Capabilities({}, {}, Support.FULL, {}, Support.FULL, {})
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
    def encoder(cls, options: Options, job: Job, batch: int) -> Encoder:
        raise NotImplementedError

    def writer(self, batch: int, prefill: bool = False) -> Writer:
        raise NotImplementedError


class Run:
    """A collector at work, as its workers and its executor see it."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.ended = False
        """Whether somebody has said that the collector is not needed any more."""

        def end() -> None:
            self.ended = True

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
        """All workers ready, all released."""
        workers = range(self.collector.settings.workers)
        await asyncio.gather(*(self.ready(worker, Stage.PREPARED) for worker in workers))
        return await asyncio.gather(*(self.ready(w, prefilled=prefilled) for w in workers))

    async def result(self, worker: int, **changes: Any) -> httpx.Response:
        return await self.post("/result", worker_result(worker, **changes))

    async def report(self) -> httpx.Response:
        return await self.http.get("/report")

    async def status(self) -> Status:
        return Status.model_validate_json((await self.http.get("/status")).content)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> FakeDatabase:
    """The database of the collectors of this test."""
    fake = FakeDatabase()
    monkeypatch.setattr("simulator.collector.run.build", lambda _: (Temperature(), fake))
    return fake


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
    """Let the others go on until something is so."""
    while not found():
        await asyncio.sleep(0.001)


def asked(executions: list[QueryRun]) -> WorkerQueries:
    return WorkerQueries(start_s=0.0, end_s=1.0, executions=executions)


def pending(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(coroutine)


# --- a run that goes well -------------------------------------------------------------------------


def test_a_run_from_start_to_report(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        released = await run.start()
        assert all(go.go and go.failure is None for go in released)
        assert (await run.status()).phase is Phase.RUN
        for worker in range(2):
            answer = await run.result(worker)
            assert (answer.status_code, answer.text) == (200, "taken")
        answer = await run.report()
        assert answer.status_code == 200
        report = Report.model_validate_json(answer.content)
        assert report.insert is not None
        assert report.insert.valid, report.invalid_reasons
        assert report.insert.events == 200
        assert report.insert.queryable is None
        assert report.carried == Carried(next_event=100, stored=200)
        assert report.environment["database"] == {"version": "1.0", "settings": {}}
        assert report.environment["client"]["cpus"]
        assert set(report.phases_s) == {"start", "prepare", "barrier", "run", "verify"}
        assert report.insert.phases_s == report.phases_s
        assert (await run.status()).phase is Phase.DONE

    play(story)
    assert database.calls == ["open", "lock", "prepare", "count", "unlock", "close"]


def test_a_run_is_told_by_the_wall_clock_with_its_machines(database: FakeDatabase) -> None:
    """To the millisecond, so that it can be laid beside what a dashboard shows."""

    async def story(run: Run) -> None:
        began = datetime.now(UTC)
        await run.start()
        machines = [Machine(node="b", busy_share=0.5), Machine(node="a", busy_share=0.9)]
        for worker in range(2):
            insert = worker_result(worker).insert
            assert insert is not None
            times = {"start_s": 1.0 + worker, "end_s": 31.5 - worker}
            answer = worker_result(worker).model_copy(
                update={"insert": insert.model_copy(update=times), "machine": machines[worker],
                        "elapsed_s": 60.0},
            )  # fmt: skip
            await run.post("/result", answer)
        report = Report.model_validate_json((await run.report()).content)
        assert report.insert is not None
        assert report.insert.machines == [machines[1], machines[0]]
        assert report.insert.began_at is not None
        assert report.insert.ended_at is not None
        first, last = map(datetime.fromisoformat, (report.insert.began_at, report.insert.ended_at))
        assert last - first == timedelta(seconds=30.5)
        assert timedelta(seconds=1) <= first - began < timedelta(seconds=6)
        assert first.utcoffset() == timedelta(0)

    play(story)


def test_the_barrier_holds_until_all_are_ready(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.ready(0, Stage.PREPARED)
        early = [pending(run.ready(number)) for number in (0, 2)]
        await until(lambda: len(run.collector.barrier.ready) == 2)
        status = await run.status()
        assert (status.phase, status.workers_ready, status.waiting_for) == (Phase.BARRIER, 2, [1])
        assert not any(task.done() for task in early)
        released = await asyncio.gather(run.ready(1), *early)
        assert all(go.go for go in released)
        assert (await run.status()).phase is Phase.RUN

    play(story, workers=3)


def test_workers_are_told_what_is_left_until_the_common_start(database: FakeDatabase) -> None:
    """Not a wall-clock time, and not the same to each: the last answer goes out later than the first."""

    async def story(run: Run) -> None:
        await run.start()
        # Far enough off for a busy machine.
        start_at = run.collector.barrier.start_at = time.monotonic() + 5
        for _ in range(3):
            asked = time.monotonic()
            go = await run.ready(0)
            assert asked <= start_at - go.start_in_s <= time.monotonic()
            await asyncio.sleep(0.01)
        run.collector.barrier.start_at = time.monotonic() - 1
        assert (await run.ready(0)).start_in_s == 0

    play(story)


def test_nobody_connects_before_the_tables_are_there(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        database.may_prepare.clear()
        asked = pending(run.ready(0, Stage.PREPARED))
        await until(lambda: 0 in run.collector.barrier._heard)
        assert (await run.status()).phase is Phase.PREPARE
        assert not asked.done()
        database.may_prepare.set()
        assert (await asked).go

    play(story)


def test_a_held_worker_is_asked_to_come_again(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No proxy on the way keeps a request open for ever."""
    monkeypatch.setattr("simulator.collector.run.HOLD_S", 0.01)
    monkeypatch.setattr("simulator.collector.http.HOLD_S", 0.01)

    async def story(run: Run) -> None:
        for _ in range(2):
            assert await run.ready(0) == Go(go=False)
        answer = await run.report()
        assert answer.status_code == 202

    play(story)


def test_prefill_ends_when_all_is_prefilled(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.ready(0, Stage.PREPARED)
        assert (await run.status()).phase is Phase.PREFILL
        await run.post("/progress", Progress(worker=0, stage="prefill", elapsed_s=1, done=30))
        (group,) = (await run.status()).groups
        assert (group.role, group.done, group.total) == (Role.FILL, 30, 101)
        first = pending(run.ready(0, prefilled=51))
        await until(lambda: 0 in run.collector.barrier.ready)
        assert (await run.status()).phase is Phase.PREFILL
        await asyncio.gather(first, run.ready(1, prefilled=50))
        for worker in range(2):
            await run.result(worker)
        report = Report.model_validate_json((await run.report()).content)
        assert report.insert is not None
        assert report.insert.fill_level == 101
        assert report.insert.valid, report.invalid_reasons
        # Behind the worker that used the most numbers.
        assert report.carried.next_event == 51 + 100

    database.counts = [301]
    play(story, prefill=101)


def test_a_run_on_existing_data_begins_behind_them(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        assert (await run.ready(0, Stage.PREPARED)).first_event == 700
        await run.start()
        for worker in range(2):
            await run.result(worker)
        report = Report.model_validate_json((await run.report()).content)
        assert report.insert is not None
        assert report.insert.fill_level == 700
        assert report.insert.valid
        assert report.carried == Carried(next_event=800, stored=900)

    database.counts = [700, 900]
    play(story, clean=False)


def test_who_knows_what_is_stored_need_not_count(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        assert (await run.ready(0, Stage.PREPARED)).first_event == 55
        assert "count" not in database.calls

    play(story, clean=False, after=Carried(next_event=55, stored=700))


def test_progress_is_summed_over_workers(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for worker, done, retries in ((0, 10, 1), (1, 20, 0), (0, 30, 2)):
            message = Progress(worker=worker, stage="run", elapsed_s=1, done=done, retries=retries)
            assert (await run.post("/progress", message)).status_code == 200
        (group,) = (await run.status()).groups
        assert (group.done, group.total, group.retries) == (50, 200, 2)
        await run.result(0, events=100)
        assert (await run.status()).groups[0].done == 120

    play(story)


def test_queries_are_counted_and_merged(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        assert (await run.status()).groups[0].total == 2 * 3 * 2
        for worker in range(2):
            ran = QueryRun(query="a", run=1, worker=worker, duration_s=0.1, rows=worker)
            answer = WorkerResult(worker=worker, node="n", elapsed_s=1, queries=asked([ran]))
            await run.post("/result", answer)
        report = Report.model_validate_json((await run.report()).content)
        assert report.queries is not None
        assert [query.rows for query in report.queries] == [0, 1]
        assert report.invalid_reasons == ["query a gave 0 to 1 rows: the data changed meanwhile"]
        assert report.insert is None
        assert report.fill_level == 200

    play(story, role=Role.READ, runs=3)
    assert "prepare" not in database.calls
    assert database.calls.index("prepare_queries") < database.calls.index("count")


READERS: dict[str, Any] = {"role": Role.READ, "runs": 1}


async def hand_in_results(run: Run) -> None:
    """Both readers have asked, and have answers to be checked."""
    await run.start()
    for worker in range(2):
        ran = QueryRun(query="a", run=1, worker=worker, duration_s=0.1, rows=1)
        await run.post(
            "/result",
            WorkerResult(
                worker=worker, node="n", elapsed_s=1, queries=asked([ran]), answers_follow=True
            ),
        )


def test_answers_are_collected_when_all_is_measured_and_counted(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        database.may_count.clear()
        early = pending(run.ready(0, Stage.CHECK))
        await hand_in_results(run)
        await until(lambda: run.collector._course.phase is Phase.VERIFY)
        assert not early.done()
        database.may_count.set()
        assert (await early).go
        assert (await run.status()).phase is Phase.CHECK
        given = GivenAnswer(query="count-events", columns=[[200]])
        for worker in range(2):
            handed_in = WorkerAnswers(worker=worker, answers=[given], unchecked={"b": "too long"})
            assert (await run.post("/answers", handed_in)).text == "taken"
        report = Report.model_validate_json((await run.report()).content)
        # This database can't say which events it has.
        assert report.answers is not None
        assert (report.answers.checked, report.answers.unchecked) == (0, 4)
        assert report.answers.reasons["too long"] == ["b"]
        assert any("can't ask which events" in reason for reason in report.answers.reasons)
        assert report.invalid_reasons == []
        assert "check" in report.phases_s

    play(story, **READERS)


@pytest.mark.parametrize("fails", [True, False])
def test_a_reader_that_hands_in_no_answers_costs_no_figures(
    database: FakeDatabase, fails: bool
) -> None:
    async def story(run: Run) -> None:
        await hand_in_results(run)
        assert (await run.ready(0, Stage.CHECK)).go
        await run.post("/answers", WorkerAnswers(worker=0, answers=[]))
        if fails:
            await run.post("/failure", Failure(worker=1, reason="no memory"))
        report = Report.model_validate_json((await run.report()).content)
        assert report.queries is not None
        assert len(report.queries) == 2
        said = "no memory" if fails else "it fell silent"
        assert report.answers is not None
        assert report.answers.reasons == {f"worker 1: {said}": ["a", "b"]}
        assert report.invalid_reasons == []

    play(story, **READERS, silence_timeout_s=60 if fails else 0.2)


def test_nobody_waits_for_answers_that_nobody_wants(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            ran = QueryRun(query="a", run=1, worker=worker, duration_s=0.1, rows=1)
            await run.post(
                "/result",
                WorkerResult(worker=worker, node="n", elapsed_s=1, queries=asked([ran])),
            )
        report = Report.model_validate_json((await run.report()).content)
        assert report.answers is None
        assert "check" not in report.phases_s

    play(story, **READERS, check=False)


def test_readers_begin_when_they_can_see_what_was_prefilled(database: FakeDatabase) -> None:
    """A database may acknowledge events before they can be queried."""

    async def story(run: Run) -> None:
        await asyncio.gather(*(run.ready(worker, Stage.PREPARED) for worker in range(2)))
        database.may_count.clear()
        ready = [pending(run.ready(worker, prefilled=5)) for worker in range(2)]
        await until(lambda: len(run.collector.barrier.ready) == 2)
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in ready)
        database.may_count.set()
        assert all(go.go for go in await asyncio.gather(*ready))
        assert database.calls.count("count") == 2

    database.settle_s = 5
    database.counts = [7, 10]
    filling, readers = Load(role=Role.FILL), Load(role=Role.READ)
    play(story, groups=make_groups(filling, readers), prefill=10)


def test_queries_count_even_if_the_events_can_not_be_counted(database: FakeDatabase) -> None:
    database.counts = [SimulatorError("too many")]

    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            ran = QueryRun(query="a", run=1, worker=worker, duration_s=0.1, rows=1)
            answer = WorkerResult(worker=worker, node="n", elapsed_s=1, queries=asked([ran]))
            await run.post("/result", answer)
        report = Report.model_validate_json((await run.report()).content)
        assert report.queries is not None
        assert (len(report.queries), report.fill_level) == (2, None)

    play(story, role=Role.READ, runs=1)


def test_a_check_changes_nothing(database: FakeDatabase) -> None:
    """It must be possible beside a run."""

    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            answer = WorkerResult(worker=worker, node="n", elapsed_s=0)
            assert (await run.post("/result", answer)).status_code == 200
        report = Report.model_validate_json((await run.report()).content)
        assert (report.insert, report.queries, report.invalid_reasons) == (None, None, [])
        assert report.environment["database"]["version"] == "1.0"

    play(story, role=Role.CHECK)
    assert database.calls == ["open", "close"]


def test_a_worker_that_started_late_is_found_out(database: FakeDatabase) -> None:
    """By the least difference seen between its clock and the collector's: what is more than that
    was the message's way."""

    async def story(run: Run) -> None:
        await run.start()
        start_at = run.collector.barrier.start_at
        assert start_at is not None
        for late in (3.0, 2.0, 4.0):
            elapsed = time.monotonic() - start_at - late
            message = Progress(worker=1, stage="run", elapsed_s=elapsed, done=1)
            await run.post("/progress", message)
        result = worker_result(1)
        result.elapsed_s = time.monotonic() - start_at - 5
        await run.post("/result", result)
        await run.result(0)
        report = Report.model_validate_json((await run.report()).content)
        assert report.insert is not None
        assert report.insert.per_worker[1].clock_offset_s == pytest.approx(2.0, abs=0.2)
        apart, too_late = report.invalid_reasons
        assert apart.startswith("the workers overlapped in only 66.")
        assert too_late.startswith("worker 1 started up to 2.")

    play(story)


# --- a database that doesn't answer ---------------------------------------------------------------


def test_a_database_that_hangs_while_it_is_prepared_ends_the_run(database: FakeDatabase) -> None:
    """As a DROP that waits for somebody's lock."""
    database.may_prepare.clear()
    database.options = Options(database_timeout_s=0.05)

    async def story(run: Run) -> None:
        answer = await run.report()
        assert answer.status_code == 410
        assert answer.text == (
            "preparing the database has taken more than 0.05 s: see what the database waits for,"
            " or raise database_timeout_s"
        )
        database.may_prepare.set()

    play(story)


def test_a_count_that_hangs_ends_the_run(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        database.options = Options(database_timeout_s=0.05)
        database.may_count.clear()
        for worker in range(2):
            await run.result(worker)
        answer = await run.report()
        assert answer.status_code == 410
        assert answer.text.startswith("counting the events has taken more than 0.05 s")
        database.may_count.set()

    play(story)


def test_it_is_said_for_how_long_nothing_has_come_back(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        await run.post("/progress", Progress(worker=0, stage="run", elapsed_s=0.1, done=5))
        await asyncio.sleep(0.05)
        # A worker that lives but has nothing to tell is no sign of the database.
        await run.post("/progress", Progress(worker=0, stage="run", elapsed_s=0.2, done=5))
        assert (await run.status()).quiet_s > 0.04
        before = time.monotonic()
        await run.post("/progress", Progress(worker=0, stage="run", elapsed_s=0.3, done=6))
        assert (await run.status()).quiet_s <= time.monotonic() - before

    play(story)


def test_queries_on_empty_tables_are_an_error_that_says_what_to_insert(
    database: FakeDatabase,
) -> None:
    database.counts = [0]

    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            ran = QueryRun(query="a", run=1, worker=worker, duration_s=0.1, rows=0)
            answer = WorkerResult(worker=worker, node="n", elapsed_s=1, queries=asked([ran]))
            await run.post("/result", answer)
        failed = await run.report()
        assert failed.status_code == 410
        assert failed.text == (
            "there is nothing to query: the tables of workload cpu are empty; run insert first:"
            " python run.py insert --target somewhere --workload cpu"
        )

    play(story, role=Role.READ, runs=1, workload="cpu")


# --- writers and readers in one run ---------------------------------------------------------------


def test_groups_of_both_roles_can_share_a_run(database: FakeDatabase) -> None:
    """Adding a command is all that is needed: no message changes for it."""
    both = make_groups(Load(workers=1, events=100), Load(role=Role.READ, workers=1, runs=2))
    database.counts = [100, 100]

    async def story(run: Run) -> None:
        await run.start()
        await run.result(0)
        ran = QueryRun(query="a", run=1, worker=1, duration_s=0.1, rows=1)
        reader = WorkerResult(worker=1, node="n", elapsed_s=1, queries=asked([ran]))
        await run.post("/result", reader)
        report = Report.model_validate_json((await run.report()).content)
        assert report.insert is not None
        assert (report.insert.workers, report.insert.events, report.insert.valid) == (1, 100, True)
        assert report.queries == [ran]
        assert report.carried == Carried(next_event=100, stored=100)

    play(story, groups=both)
    assert database.calls.index("prepare") < database.calls.index("prepare_queries")


def test_a_result_that_was_long_on_its_way_makes_no_late_start(database: FakeDatabase) -> None:
    """The worker knows its bound: the round trip in which it was told when to start."""

    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            result = worker_result(worker).model_copy(
                update={"elapsed_s": -3.0, "late_at_most_s": 0.002}
            )
            await run.post("/result", result)
        report = Report.model_validate_json((await run.report()).content)
        assert report.insert is not None
        assert [span.clock_offset_s for span in report.insert.per_worker] == [0.002, 0.002]
        assert report.insert.valid

    play(story)


@pytest.mark.parametrize("silent", [False, True])
def test_a_worker_that_gives_up_ends_the_run_and_all_hand_in_what_they_have(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    monkeypatch.setattr("simulator.collector.run._OTHERS_PATIENCE_S", 0.2 if silent else LIMIT_S)

    async def story(run: Run) -> None:
        await run.start()
        given_up = worker_result(1, events=60).model_copy(update={"failure": "gave up after 2 s"})
        assert (await run.post("/result", given_up)).status_code == 200
        told = await run.post("/progress", Progress(worker=0, stage="run", elapsed_s=1, done=9))
        assert (told.status_code, told.text) == (410, "worker 1: gave up after 2 s")
        # One that has nothing to hand in changes nothing.
        await run.post("/failure", Failure(worker=0, reason="something else"))
        if not silent:
            await run.result(0)
        answer = await run.report()
        assert answer.status_code == 200
        report = Report.model_validate_json(answer.content)
        assert report.failure == "worker 1: gave up after 2 s"
        assert report.insert is not None
        assert report.insert.invalid_reasons == [report.failure]
        assert report.insert.valid is False
        assert report.insert.events == (60 if silent else 160)
        # All events were asked for, so these have no rate.
        assert report.insert.inserts_per_s is None
        assert report.insert.verification is None
        assert run.collector.status().phase is Phase.DONE

    play(story)
    # Nothing was counted.
    assert database.counts == [200]


# --- verification ---------------------------------------------------------------------------------


def test_a_count_that_does_not_match_is_no_failure_but_invalid(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            await run.result(worker)
        answer = await run.report()
        assert answer.status_code == 200
        report = Report.model_validate_json(answer.content)
        assert report.invalid_reasons == ["the database holds 199 events, 200 were expected"]

    database.counts = [199]
    play(story)


def test_events_that_appear_later_are_waited_for(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            await run.result(worker)
        report = Report.model_validate_json((await run.report()).content)
        assert report.insert is not None
        assert report.insert.valid
        # One wait between two counts, on a run that took 10 s by what its workers say.
        assert report.insert.queryable is not None
        assert report.insert.queryable.events_per_s == pytest.approx(
            200 / (10 + report.insert.queryable.lag_s)
        )

    database.settle_s = 30
    database.counts = [150, 200]
    play(story)


def test_counting_is_tried_again(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            await run.result(worker)
        report = Report.model_validate_json((await run.report()).content)
        assert report.carried.stored == 200

    database.counts = [Retryable("connection_lost", "gone"), 200]
    play(story)


@pytest.mark.parametrize("error", [SimulatorError("no such table"), ZeroDivisionError("what?")])
def test_a_count_that_fails_ends_the_run(database: FakeDatabase, error: Exception) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            await run.result(worker)
        answer = await run.report()
        assert answer.status_code == 410
        assert str(error) in answer.text

    database.counts = [error]
    play(story)


# --- who may say what -----------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "", "the-token ", "another"])
def test_without_the_token_nothing_is_said(database: FakeDatabase, token: str | None) -> None:
    async def story(run: Run) -> None:
        run.http.headers.pop(TOKEN_HEADER)
        headers = {} if token is None else {TOKEN_HEADER: token}
        for path in ("/ready", "/progress", "/result", "/failure"):
            answer = await run.http.post(path, json={"worker": 0, "reason": "x"}, headers=headers)
            assert answer.status_code == 401, path
        for path in ("/status", "/report", "/over"):
            assert (await run.http.get(path, headers=headers)).status_code == 401, path
        assert run.collector.failure is None
        assert not run.ended
        # A probe knows no token, and learns nothing.
        for path in ("/healthz", "/readyz"):
            answer = await run.http.get(path, headers=headers)
            assert (answer.status_code, answer.text) == (200, "ok")

    play(story)


def test_a_worker_of_another_run_is_told_to_wait(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        run.http.headers[RUN_HEADER] = "another"
        answer = await run.post("/failure", Failure(worker=0, reason="not yours"))
        assert answer.status_code == 425
        assert run.collector.failure is None

    play(story)


def test_the_executor_says_when_it_is_over(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        assert (await run.http.get("/over")).status_code == 200
        assert run.ended

    play(story)


@pytest.mark.parametrize("worker", [-1, 2, 99_999])
def test_unknown_workers_are_refused(database: FakeDatabase, worker: int) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for path, message in (
            ("/ready", Ready(worker=worker, stage=Stage.RUN)),
            ("/progress", Progress(worker=worker, stage="run", elapsed_s=1, done=1)),
            ("/result", worker_result(worker)),
            ("/failure", Failure(worker=worker, reason="so it is")),
        ):
            answer = await run.post(path, message)
            assert (answer.status_code, answer.text) == (404, f"there is no worker {worker}"), path
        assert run.collector.failure is None

    play(story)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"worker": "first"}',
        b'{"worker": 0, "stage": "run", "hush": "hush-hush"}',
        b'{"worker": 0, "stage": "hush-hush"}',
    ],
)
def test_invalid_messages_are_refused(database: FakeDatabase, body: bytes) -> None:
    async def story(run: Run) -> None:
        for path in ("/ready", "/progress", "/result", "/failure"):
            answer = await run.http.post(path, content=body)
            assert answer.status_code == 422, path
            assert "hush-hush" not in answer.text

    play(story)


def test_a_result_is_taken_once(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        assert (await run.result(0)).status_code == 200
        # The worker never got the answer, and says it again; only its clock has gone on.
        again = worker_result(0)
        again.elapsed_s += 1
        assert (await run.post("/result", again)).status_code == 200
        other = await run.result(0, events=99)
        assert other.status_code == 409
        assert "worker 0" in other.text
        await run.result(1)
        report = Report.model_validate_json((await run.report()).content)
        assert report.insert is not None
        assert report.insert.events == 200

    play(story)


def test_a_result_before_the_start_is_refused(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.ready(0, Stage.PREPARED)
        answer = await run.result(0)
        assert (answer.status_code, answer.text) == (409, "the run has not begun")

    play(story)


# --- how runs fail --------------------------------------------------------------------------------


async def is_over(run: Run, reason: str) -> None:
    """Everybody who asks is told why."""
    for answer in (
        await run.report(),
        await run.post("/ready", Ready(worker=0, stage=Stage.RUN)),
        await run.post("/progress", Progress(worker=0, stage="run", elapsed_s=1, done=1)),
        await run.result(0),
    ):
        assert answer.status_code == 410
        assert answer.text == reason
    status = await run.status()
    assert (status.phase, status.failure) == (Phase.FAILED, reason)


def test_a_failure_reaches_everybody(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        held = pending(run.ready(0))
        report = pending(run.report())
        await until(lambda: 0 in run.collector.barrier.ready)
        await run.post("/failure", Failure(worker=1, reason="disk full"))
        assert await held == Go(go=False, failure="worker 1: disk full")
        assert (await report).text == "worker 1: disk full"
        # The first reason counts.
        await run.post("/failure", Failure(worker=0, reason="me too"))
        await is_over(run, "worker 1: disk full")

    play(story)


def test_the_executor_can_tell_of_a_failure(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.post("/failure", Failure(worker=None, reason="worker 1 was killed"))
        await is_over(run, "worker 1 was killed")

    play(story)


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        ("open", SimulatorError("can't connect to db:5432"), "can't connect to db:5432"),
        ("lock", SimulatorError("another run is using it"), "another run is using it"),
        ("prepare", Retryable("connection_lost", "it is gone"), "the database failed: it is gone"),
        (
            "prepare",
            ZeroDivisionError("what?"),
            "unexpected ZeroDivisionError: what? (see the collector's log)",
        ),
    ],
)
def test_a_preparation_that_fails_ends_the_run(
    database: FakeDatabase, call: str, error: Exception, reason: str
) -> None:
    async def story(run: Run) -> None:
        await until(lambda: run.collector.failure is not None)
        await is_over(run, reason)

    database.fails[call] = error
    play(story)
    # What was opened is closed.
    assert (database.calls[-1] == "close") == (call != "open")


def test_a_failure_during_the_preparation_stays_one(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        database.may_prepare.clear()
        await until(lambda: "lock" in database.calls)
        await run.post("/failure", Failure(worker=0, reason="out of memory"))
        database.may_prepare.set()
        await until(lambda: "prepare" in database.calls)
        await asyncio.sleep(0.02)  # whatever it still does
        await is_over(run, "worker 0: out of memory")

    play(story)


def test_the_deadline_names_the_missing_workers(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        held = pending(run.ready(1))
        await until(lambda: run.collector.failure is not None)
        assert (await held).failure == "workers 0, 2 not ready after 0.15 s"

    play(story, workers=3, ready_timeout_s=0.15)


def test_one_missing_worker_is_named_in_the_singular(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.ready(0, Stage.PREPARED)
        await until(lambda: run.collector.failure is not None)
        await is_over(run, "worker 1 not ready after 0.1 s")

    play(story, ready_timeout_s=0.1)


def test_many_missing_workers_are_counted(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await until(lambda: run.collector.failure is not None)
        assert run.collector.failure is not None
        assert run.collector.failure.startswith("workers 0, 1, 2, ")
        assert " 19 and 80 more not ready" in run.collector.failure
        assert len((await run.status()).waiting_for) == 20

    play(story, workers=100, ready_timeout_s=0.05)


def test_a_worker_that_falls_silent_is_found(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        began = time.monotonic()

        async def talk() -> None:
            while True:
                message = Progress(worker=0, stage="run", elapsed_s=1, done=1)
                await run.post("/progress", message)
                await asyncio.sleep(0.02)

        talking = pending(talk())
        await until(lambda: run.collector.failure is not None)
        talking.cancel()
        assert time.monotonic() - began >= 0.4
        await is_over(run, "no word from worker 1 for 0.5 s")

    play(story, silence_timeout_s=0.5)


def test_a_worker_that_is_done_may_be_silent(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        await run.result(0)
        until_s = time.monotonic() + 0.6
        while time.monotonic() < until_s:
            await run.post("/progress", Progress(worker=1, stage="run", elapsed_s=1, done=1))
            await asyncio.sleep(0.02)
        assert run.collector.failure is None
        await run.result(1)
        assert (await run.report()).status_code == 200

    play(story, silence_timeout_s=0.4)
