"""The collector deletes what has become too old while workers insert, and counts what must be left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.collector.retention import REST_S
from simulator.contract import Progress, Report, Retention, RunResult, StoredPart
from simulator.errors import SimulatorError
from simulator.workloads.drawing import Stored
from simulator.workloads.numbering import find_time_ms
from simulator.workloads.temperature import Temperature

from .collecting import FakeDatabase, Run, play, until

# The hundred events of each of two workers span 45 s.
RETENTION = Retention(period_ms=20_000, step_ms=1_000)


class AgeingDatabase(FakeDatabase):
    """A database that deletes what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.job = replace(self.job, retention=RETENTION)
        self.limits: list[int] = []

    def delete_older(self, before_ms: int) -> None:
        self._called("delete")
        self.limits.append(before_ms)


@pytest.fixture
def ageing(monkeypatch: pytest.MonkeyPatch) -> AgeingDatabase:
    database = AgeingDatabase()
    monkeypatch.setattr(
        "simulator.collector.run.build",
        lambda settings: (Temperature(seed=settings.data.seed), database),
    )
    return database


def _find_limit(number: int) -> int:
    return RETENTION.find_limit(find_time_ms(Temperature(), 0, number))


def _count_kept() -> int:
    parts = [StoredPart(worker, 0, 100) for worker in range(2)]
    return Stored(Temperature(), parts).count_since(_find_limit(100))


def _play(database: AgeingDatabase, at_work: bool = True) -> RunResult:
    """A run whose workers report once, if they are seen `at_work`, and then are done."""
    reports: list[Report] = []

    async def story(run: Run) -> None:
        await run.start()
        for worker, done in ((0, 90), (1, 70)) if at_work else ():
            progress = Progress(worker=worker, stage="run", elapsed_s=1.0, done=done)
            await run.post("/progress", progress)
            # Nothing is deleted as long as a writer may send what is older.
            if worker == 0:
                assert database.limits == []
            run.collector._deleter.looked_at_s = -1e9  # type: ignore[union-attr]
        if at_work:
            await run.post("/progress", progress)
            await until(lambda: bool(database.limits))
        reports.append(await run.finish_well())

    play(story, retention_s=20)
    return reports[0].run


def test_it_goes_by_the_writer_that_is_furthest_behind(ageing: AgeingDatabase) -> None:
    ageing.counts = [_count_kept()]
    run = _play(ageing)
    assert ageing.limits == [_find_limit(70), _find_limit(100)]
    assert run.valid, run.invalid_reasons
    retention = run.retention
    assert retention is not None
    assert [deletion.before_ms for deletion in retention.deletions] == [_find_limit(70)]
    assert (retention.kept_from_ms, retention.deleted) == (_find_limit(100), 200 - _count_kept())
    assert run.writers is not None
    assert run.writers.verification is not None
    assert run.writers.verification.expected == _count_kept()
    assert run.writers.deletion_cost is not None


def test_there_are_seconds_without_a_deletion(ageing: AgeingDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        deleter = run.collector._deleter
        assert deleter is not None
        for done in (70, 100):
            deleter.looked_at_s = -1e9
            for worker in range(2):
                progress = Progress(worker=worker, stage="run", elapsed_s=1.0, done=done)
                await run.post("/progress", progress)
            deleter.looked_at_s = -1e9
            await run.post("/progress", progress)
            await until(lambda: len(deleter.deletions) == 1)
        # The second would have been due at once.
        assert deleter.find_due() == _find_limit(100)
        assert deleter.find_due_in_run() is None
        deleter.deletions[-1].ended_s -= REST_S
        assert deleter.find_due_in_run() == _find_limit(100)

    play(story, retention_s=20)


@pytest.mark.parametrize("wrong", [1, -1])
def test_what_is_left_over_or_missing_makes_it_invalid(ageing: AgeingDatabase, wrong: int) -> None:
    ageing.counts = [_count_kept() + wrong]
    run = _play(ageing, at_work=False)
    assert ageing.limits == [_find_limit(100)]
    assert run.invalid_reasons == [
        f"the database holds {_count_kept() + wrong} events, {_count_kept()} were expected"
    ]


def test_a_deletion_that_fails_ends_the_run(ageing: AgeingDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        answer = await run.finish()
        assert "no right to" in answer.text

    ageing.fails = {"delete": SimulatorError("no right to delete")}
    play(story, retention_s=20)
