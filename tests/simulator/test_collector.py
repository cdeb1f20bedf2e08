"""The collector: a run from the barrier to the report."""

from __future__ import annotations

import asyncio
import math
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from simulator.collector.http import leave_database
from simulator.contract import (
    CarriedState,
    Failure,
    GivenAnswer,
    Go,
    Load,
    Machine,
    Offered,
    Phase,
    Progress,
    Report,
    Role,
    Stage,
    WorkerAnswers,
    WorkerResult,
    make_groups,
)
from simulator.errors import SimulatorError
from simulator.machine import read_clock_s
from simulator.modules.base import Support
from simulator.workloads.numbering import add_history
from simulator.workloads.queries import Shape
from simulator.workloads.temperature import Temperature

from ..helpers import histogram_of, worker_result
from .collecting import LIMIT_S, FakeDatabase, Run, asked, pending, play, until

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
        assert report.run.writers is not None
        assert report.run.writers.valid, report.run.invalid_reasons
        assert report.run.writers.count == 200
        assert report.run.writers.queryable is None
        assert report.carried == CarriedState(next_event=100, stored=200)
        assert report.environment["database"] == {
            "version": "1.0",
            "settings": {},
            "schema": {"tables": ["events"], "tags": "row", "primary_key": "db"},
        }
        assert report.environment["client"]["cpus"]
        assert set(report.run.phases_s) == {"start", "prepare", "barrier", "run", "verify"}
        assert (await run.status()).phase is Phase.DONE

    play(story)
    assert database.calls == ["open", "lock", "prepare", "count", "unlock", "close"]


def test_the_database_is_free_before_anybody_has_asked_for_the_report(
    database: FakeDatabase,
) -> None:
    """Whoever began the run may have been killed."""

    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            assert "unlock" not in database.calls
            await run.result(worker)
        await leave_database(run.collector)
        assert database.calls[-2:] == ["unlock", "close"]
        assert (await run.report()).status_code == 200

    play(story)
    assert database.calls.count("unlock") == database.calls.count("close") == 1


def test_a_run_is_told_by_the_wall_clock_with_its_machines(database: FakeDatabase) -> None:
    """To the millisecond, so that it can be laid beside what a dashboard shows. The executor gets the same by
    a clock that nobody sets."""

    async def story(run: Run) -> None:
        began, began_s = datetime.now(UTC), read_clock_s()
        await run.start()
        machines = [Machine(node="b", busy_share=0.5), Machine(node="a", busy_share=0.9)]
        for worker in range(2):
            answer = worker_result(worker, start_s=1.0 + worker, end_s=31.5 - worker)
            changes = {"machine": machines[worker], "elapsed_s": 60.0}
            await run.post("/result", answer.model_copy(update=changes))
        report = Report.model_validate_json((await run.report()).content)
        assert report.run.writers is not None
        assert report.run.machines == [machines[1], machines[0]]
        assert report.run.began_at is not None
        assert report.run.ended_at is not None
        first, last = map(datetime.fromisoformat, (report.run.began_at, report.run.ended_at))
        assert last - first == timedelta(seconds=30.5)
        assert timedelta(seconds=1) <= first - began < timedelta(seconds=6)
        assert first.utcoffset() == timedelta(0)
        assert report.window_s is not None
        assert report.window_s[1] - report.window_s[0] == pytest.approx(30.5)
        assert report.window_s[0] - began_s == pytest.approx(
            (first - began).total_seconds(), abs=0.1
        )

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
    """Not a wall-clock time, and not the same for each: the last answer goes out later than the first."""

    async def story(run: Run) -> None:
        await run.start()
        # Far enough off for a busy machine.
        start_at = run.collector.barrier.start_at = time.monotonic() + 5
        for _ in range(3):
            sent_s = time.monotonic()
            go = await run.ready(0)
            assert sent_s <= start_at - go.start_in_s <= time.monotonic()
            await asyncio.sleep(0.01)
        run.collector.barrier.start_at = time.monotonic() - 1
        assert (await run.ready(0)).start_in_s == 0

    play(story)


def test_nobody_connects_before_the_tables_are_there(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        database.may_prepare.clear()
        held = pending(run.ready(0, Stage.PREPARED))
        await until(lambda: 0 in run.collector.barrier._heard)
        assert (await run.status()).phase is Phase.PREPARE
        assert not held.done()
        database.may_prepare.set()
        assert (await held).go

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
        report = await run.finish_well()
        assert report.run.writers is not None
        assert report.run.fill_level == 101
        assert report.run.writers.valid, report.run.invalid_reasons
        # Behind the worker that used the most numbers.
        assert report.carried.next_event == 51 + 100

    database.counts = [301]
    play(story, prefill=101)


def test_a_run_on_existing_data_begins_behind_them(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        assert (await run.ready(0, Stage.PREPARED)).first_event == 700
        await run.start()
        report = await run.finish_well()
        assert report.run.writers is not None
        assert report.run.fill_level == 700
        assert report.run.writers.valid
        assert report.carried == CarriedState(next_event=800, stored=900)

    database.counts = [700, 900]
    play(story, clean=False)


@pytest.mark.parametrize(("unit_events", "next_event"), [(0, 800), (300, 1000)])
def test_the_next_run_begins_behind_a_chunk_of_sorted_events(
    database: FakeDatabase,
    monkeypatch: pytest.MonkeyPatch,
    unit_events: int,
    next_event: int,
) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            message = worker_result(worker).model_copy(update={"chunk": (700, 300)})
            await run.post("/result", message)
        report = Report.model_validate_json((await run.report()).content)
        assert report.carried.next_event == next_event

    encoder = SimpleNamespace(unit_events=unit_events)
    monkeypatch.setattr(database, "writer", lambda: SimpleNamespace(encoder=encoder))
    database.counts = [700, 900]
    play(story, clean=False)


@pytest.mark.parametrize(("unit_events", "begins"), [(0, 90), (300, 201)])
def test_a_run_after_another_commands_begins_behind_a_chunk_of_sorted_events(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch, unit_events: int, begins: int
) -> None:
    """90 events are stored, the latest of them in the second of two tables."""
    workload = Temperature(device_spread=6)
    [newest_ms] = workload.block(0, 200, 1).columns["timestamp"].tolist()
    answers = [[("a", newest_ms - 9000)], [("b", newest_ms), ("c", newest_ms - 450)]]

    async def story(run: Run) -> None:
        first = (await run.ready(0, Stage.PREPARED)).first_event
        assert first is not None
        assert 0 <= first - begins <= (110 if unit_events else 0)

    encoder = SimpleNamespace(unit_events=unit_events)
    monkeypatch.setattr(database, "writer", lambda: SimpleNamespace(encoder=encoder))
    shapes = {Shape.NEWEST: Support.FULL}
    monkeypatch.setattr(database, "CAPABILITIES", replace(database.CAPABILITIES, shapes=shapes))
    monkeypatch.setattr(database, "compile", lambda bound: bound.query)
    monkeypatch.setattr(database, "fetch", lambda query: answers.pop(0))
    tables = [database, database]
    monkeypatch.setattr("simulator.collector.database.open_tables", lambda module: tables)
    monkeypatch.setattr("simulator.collector.run.build", lambda given: (workload, database))
    database.counts = [90]
    play(story, clean=False)


@pytest.mark.parametrize(
    ("unit_events", "next_events", "is_certain"),
    [(0, {0: 160, 1: 160}, True), (300, {0: 360, 1: 360}, False)],
)
def test_behind_a_history_such_a_chunk_leaves_gaps(
    database: FakeDatabase,
    monkeypatch: pytest.MonkeyPatch,
    unit_events: int,
    next_events: dict[int, int],
    is_certain: bool,
) -> None:
    async def story(run: Run) -> None:
        await run.start(prefilled=60)
        for worker in range(2):
            message = worker_result(worker).model_copy(update={"chunk": (60, 300)})
            await run.post("/result", message)
        carried = Report.model_validate_json((await run.report()).content).carried
        assert carried.next_events == next_events
        assert carried.is_certain is is_certain

    encoder = SimpleNamespace(unit_events=unit_events)
    monkeypatch.setattr(database, "writer", lambda: SimpleNamespace(encoder=encoder))
    workload = Temperature(device_spread=6)
    monkeypatch.setattr(
        "simulator.collector.run.build", lambda given: (add_history(workload, given.data), database)
    )
    database.counts = [320]
    play(story, prefill_span_s=600.0, prefill_every_s=60.0)


def test_who_knows_what_is_stored_need_not_count(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        assert (await run.ready(0, Stage.PREPARED)).first_event == 55
        assert "count" not in database.calls

    play(story, clean=False, after=CarriedState(next_event=55, stored=700))


def test_progress_is_summed_over_workers(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for worker, done, retries in ((0, 10, 1), (1, 20, 0), (0, 30, 2)):
            message = Progress(worker=worker, stage="run", elapsed_s=1, done=done, retries=retries)
            assert (await run.post("/progress", message)).status_code == 200
        (group,) = (await run.status()).groups
        assert (group.done, group.total, group.retries) == (50, 200, 2)
        await run.result(0, count=100)
        assert (await run.status()).groups[0].done == 120

    play(story)


def test_queries_are_counted_and_merged(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        assert (await run.status()).groups[0].total == 2 * 3 * 2
        for worker in range(2):
            await run.post("/result", asked(worker, rows=worker))
        report = Report.model_validate_json((await run.report()).content)
        assert report.run.readers is not None
        [query] = report.run.readers.queries
        assert [execution.rows for execution in query.each] == [0, 1]
        assert report.run.invalid_reasons == [
            "query a returned 0 to 1 rows: the data changed during the run"
        ]
        assert report.run.writers is None
        assert report.run.fill_level == 200

    play(story, role=Role.READ, runs=3)
    assert "prepare" not in database.calls
    assert database.calls.index("prepare_queries") < database.calls.index("count")


READERS: dict[str, Any] = {"role": Role.READ, "runs": 1}


async def hand_in_results(run: Run) -> None:
    """Both readers have asked, and have answers to be checked."""
    await run.start()
    for worker in range(2):
        await run.post("/result", asked(worker, answers_follow=True))


def test_what_is_no_number_arrives_as_such() -> None:
    sent = WorkerAnswers(
        worker=0, answers=[GivenAnswer(query="q", columns=[[math.nan, -math.inf, None]])]
    )
    taken = WorkerAnswers.model_validate_json(sent.model_dump_json())
    nan, *others = taken.answers[0].columns[0]
    assert math.isnan(nan)
    assert others == [-math.inf, None]


def test_answers_are_collected_when_all_is_measured_and_counted(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        database.may_count.clear()
        early = pending(run.ready(0, Stage.CHECK))
        await hand_in_results(run)
        await until(lambda: run.collector._phases.phase is Phase.VERIFY)
        assert not early.done()
        database.may_count.set()
        assert (await early).go
        assert (await run.status()).phase is Phase.CHECK
        answer = GivenAnswer(query="count-events", columns=[[200]])
        for worker in range(2):
            handed_in = WorkerAnswers(worker=worker, answers=[answer], unchecked={"b": "too long"})
            assert (await run.post("/answers", handed_in)).text == "taken"
        report = Report.model_validate_json((await run.report()).content)
        # This database can't say which events it has.
        assert report.run.readers is not None
        answers = report.run.readers.answers
        assert answers is not None
        assert (answers.checked, answers.unchecked) == (0, 4)
        assert answers.reasons["too long"] == ["b"]
        assert any("can't find out which events" in reason for reason in answers.reasons)
        assert report.run.invalid_reasons == []
        assert "check" in report.run.phases_s

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
        assert report.run.readers is not None
        assert report.run.readers.count == 2
        reason = "no memory" if fails else "it fell silent"
        assert report.run.readers.answers is not None
        assert report.run.readers.answers.reasons == {f"worker 1: {reason}": ["a", "b"]}
        assert report.run.invalid_reasons == []

    play(story, **READERS, silence_timeout_s=60 if fails else 0.6)


def test_nobody_waits_for_answers_that_nobody_wants(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            await run.post("/result", asked(worker))
        report = Report.model_validate_json((await run.report()).content)
        assert report.run.readers is not None and report.run.readers.answers is None
        assert "check" not in report.run.phases_s

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
            await run.post("/result", asked(worker))
        report = Report.model_validate_json((await run.report()).content)
        assert report.run.readers is not None
        assert (report.run.readers.count, report.run.fill_level) == (2, None)

    play(story, role=Role.READ, runs=1)


def test_a_check_changes_nothing(database: FakeDatabase) -> None:
    """It must be possible during a run."""

    async def story(run: Run) -> None:
        await run.start()
        for worker in range(2):
            answer = WorkerResult(worker=worker, node="n", elapsed_s=0)
            assert (await run.post("/result", answer)).status_code == 200
        report = Report.model_validate_json((await run.report()).content)
        assert (report.run.groups, report.run.valid) == ([], True)
        assert report.environment["database"]["version"] == "1.0"

    play(story, role=Role.CHECK)
    assert database.calls == ["open", "close"]


def test_a_worker_that_started_late_is_found_out(database: FakeDatabase) -> None:
    """By the least difference seen between its clock and the collector's: anything beyond that
    is how long the message took."""

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
        assert report.run.writers is not None
        assert report.run.writers.per_worker[1].clock_offset_s == pytest.approx(2.0, abs=0.5)
        apart, too_late = report.run.invalid_reasons
        assert re.match(r"the workers overlapped in only [567]\d\.", apart)
        assert re.match(r"worker 1 started up to [12]\.", too_late)

    play(story)


# --- writers and readers in one run ---------------------------------------------------------------


def test_groups_of_both_roles_can_share_a_run(database: FakeDatabase) -> None:
    """Adding a command is all that is needed: no message changes for it."""
    groups = make_groups(Load(workers=1, events=100), Load(role=Role.READ, workers=1, runs=2))
    database.counts = [100, 100]

    async def story(run: Run) -> None:
        await run.start()
        await run.result(0)
        await run.post("/result", asked(1))
        report = Report.model_validate_json((await run.report()).content)
        assert report.run.writers is not None
        writers, readers = report.run.writers, report.run.readers
        assert (writers.workers, writers.count, writers.valid) == (1, 100, True)
        assert readers is not None
        assert (readers.workers, readers.count, readers.valid) == (1, 1, True)
        assert report.carried == CarriedState(next_event=100, stored=100)

    play(story, groups=groups)
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
        assert report.run.writers is not None
        assert [span.clock_offset_s for span in report.run.writers.per_worker] == [0.002, 0.002]
        assert report.run.writers.valid

    play(story)


@pytest.mark.parametrize("silent", [False, True])
def test_a_worker_that_gives_up_ends_the_run_and_all_hand_in_what_they_have(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    monkeypatch.setattr("simulator.collector.run._OTHERS_PATIENCE_S", 0.5 if silent else LIMIT_S)

    async def story(run: Run) -> None:
        await run.start()
        given_up = worker_result(1, count=60).model_copy(update={"failure": "gave up after 2 s"})
        assert (await run.post("/result", given_up)).status_code == 200
        reply = await run.post("/progress", Progress(worker=0, stage="run", elapsed_s=1, done=9))
        assert (reply.status_code, reply.text) == (410, "worker 1: gave up after 2 s")
        # One that has nothing to hand in changes nothing.
        await run.post("/failure", Failure(worker=0, reason="something else"))
        if not silent:
            await run.result(0)
        answer = await run.report()
        assert answer.status_code == 200
        report = Report.model_validate_json(answer.content)
        assert report.failure == "worker 1: gave up after 2 s"
        assert report.run.writers is not None
        assert report.run.writers.invalid_reasons == [report.failure]
        assert report.run.writers.valid is False
        assert report.run.writers.count == (60 if silent else 160)
        # All events were asked for, so these have no rate.
        assert report.run.writers.rate_per_s is None
        assert report.run.writers.verification is None
        assert run.collector.status().phase is Phase.DONE

    play(story)
    # Nothing was counted.
    assert database.counts == [200]


def test_what_was_due_until_the_last_worker_gave_up_is_told(database: FakeDatabase) -> None:
    offer = Offered(due=200, unsent=0, due_timeline=[(0, 200)], own_delay=histogram_of(5))

    async def story(run: Run) -> None:
        await run.start()
        for worker, end_s in ((0, 8.0), (1, 10.0)):
            result = worker_result(worker, end_s=end_s, offered=offer)
            await run.post("/result", result.model_copy(update={"failure": "gave up after 2 s"}))
        report = Report.model_validate_json((await run.report()).content)
        assert report.run.writers is not None
        assert report.run.writers.offered is not None
        assert (report.run.writers.offered.due, report.run.writers.offered.achieved) == (500, 200)

    play(story, rate_per_s=100.0, duration_s=60.0)
