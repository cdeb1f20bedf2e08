"""How runs fail: databases that don't answer, failures, deadlines, workers that fall silent."""

from __future__ import annotations

import asyncio
import time

import pytest

from simulator.collector.database import CallThread
from simulator.contract import (
    Failure,
    Go,
    Phase,
    Progress,
    Ready,
    Role,
    Stage,
)
from simulator.errors import Retryable, SimulatorError
from simulator.modules.options import Options

from .collecting import FakeDatabase, Run, asked, pending, play, until

# --- a database that doesn't answer ---------------------------------------------------------------


def test_a_database_that_hangs_while_it_is_prepared_ends_the_run(database: FakeDatabase) -> None:
    """Such as a DROP that waits for somebody's lock."""
    database.may_prepare.clear()
    database.options = Options(database_timeout_s=0.05)

    async def story(run: Run) -> None:
        answer = await run.report()
        assert answer.status_code == 410
        assert answer.text == (
            "preparing the database has taken more than 0.05 s: check what the database is waiting for,"
            " or raise database_timeout_s"
        )
        database.may_prepare.set()

    play(story)


def test_a_count_that_hangs_ends_the_run(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        database.options = Options(database_timeout_s=0.05)
        database.may_count.clear()
        answer = await run.finish()
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
            await run.post("/result", asked(worker, rows=0))
        failed = await run.report()
        assert failed.status_code == 410
        assert failed.text == (
            "there is nothing to query: the tables of workload cpu are empty; run insert first:"
            " python run.py insert --target somewhere --workload cpu"
        )

    play(story, role=Role.READ, runs=1, workload="cpu")


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
        assert (await held).failure == "workers 0, 2 not ready after 0.7 s"

    play(story, workers=3, ready_timeout_s=0.7)


def test_one_missing_worker_is_named_in_the_singular(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.ready(0, Stage.PREPARED)
        await until(lambda: run.collector.failure is not None)
        await is_over(run, "worker 1 not ready after 0.7 s")

    play(story, ready_timeout_s=0.7)


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
        assert time.monotonic() - began >= 0.7
        await is_over(run, "no word from worker 1 for 0.8 s")

    # A busy machine lets worker 0 speak more often than that.
    play(story, silence_timeout_s=0.8)


def test_a_worker_that_is_done_may_be_silent(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        await run.result(0)
        until_s = time.monotonic() + 1.0
        while time.monotonic() < until_s:
            await run.post("/progress", Progress(worker=1, stage="run", elapsed_s=1, done=1))
            await asyncio.sleep(0.02)
        assert run.collector.failure is None
        await run.result(1)
        assert (await run.report()).status_code == 200

    # A busy machine lets worker 1 speak more often than that.
    play(story, silence_timeout_s=0.8)


def test_the_end_is_not_lost_to_an_answer_that_comes_with_it() -> None:
    """What asks the database one thing after the other ends, and doesn't wait for a thread that has."""

    async def ask_twice(thread: CallThread) -> None:
        for _ in range(2):
            await thread.call(int, timeout_s=60.0)

    async def end_meanwhile() -> None:
        thread = CallThread("database")
        task = asyncio.create_task(ask_twice(thread))
        await asyncio.sleep(0)
        assert thread.end()  # the first answer is there, and the loop hasn't seen it
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5.0)

    asyncio.run(end_meanwhile())
