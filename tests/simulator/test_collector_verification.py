"""Counting what is stored: what doesn't match, what comes later, what fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.collector.database import Preparation, ask
from simulator.collector.lookup import look_up
from simulator.contract import Load, Report, Role, StoredPart, Tables
from simulator.errors import Retryable, SimulatorError
from simulator.modules.base import Capabilities, Job, Support
from simulator.modules.options import Options
from simulator.oracle.answers import answer
from simulator.oracle.survey import RecognizedEvents
from simulator.workloads.drawing import BoundQuery, Stored
from simulator.workloads.queries import Shape
from simulator.workloads.temperature import Temperature

from ..helpers import settings
from .collecting import FakeDatabase, Run, play


def test_a_count_that_does_not_match_is_no_failure_but_invalid(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        answer = await run.finish()
        assert answer.status_code == 200
        report = Report.model_validate_json(answer.content)
        assert report.run.invalid_reasons == ["the database holds 199 events, 200 were expected"]

    database.counts = [199]
    play(story)


@pytest.mark.parametrize(
    ("answers", "reason", "verification"),
    [
        ([(200, 200, 200)], None, (200, 0, {})),
        ([(200, 150, 200), (200, 200, 200)], None, (200, 0, {})),
        ([(190, 190, 190)], "the database holds 190 events, 200 were expected", (190, 0, {})),
        (
            [(200, 150, 180)],
            (
                "the database holds 150 whole events and 50 incomplete ones, 200 were expected:"
                " column sequence_number has 150 values instead of 200, column temperature has 180"
                " values instead of 200"
            ),
            (150, 50, {"sequence_number": (150, 200), "temperature": (180, 200)}),
        ),
        (
            [(190, 150, 190)],
            (
                "the database holds 150 whole events and 40 incomplete ones, 200 were expected:"
                " column sequence_number has 150 values instead of 200, column temperature has 190"
                " values instead of 200"
            ),
            (150, 40, {"sequence_number": (150, 200), "temperature": (190, 200)}),
        ),
        (
            [(200, 210, 200)],
            (
                "the database holds 200 events, 200 were expected: column sequence_number has 210"
                " values instead of 200"
            ),
            (200, 0, {"sequence_number": (210, 200)}),
        ),
    ],
)
def test_values_that_are_kept_apart_are_counted_by_column(
    database: FakeDatabase,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[tuple[int, ...]],
    reason: str | None,
    verification: tuple[object, ...],
) -> None:
    """Of the events and two columns."""

    async def story(run: Run) -> None:
        await run.start()
        writers = (await run.finish_well()).run.writers
        assert writers is not None
        assert writers.invalid_reasons == ([] if reason is None else [reason])
        found = writers.verification
        assert found is not None
        assert (found.stored, found.partial, found.columns) == verification
        assert found.ok is (reason is None)

    kept_apart = ["sequence_number", "temperature"]
    monkeypatch.setattr(database, "list_kept_apart", lambda: kept_apart)
    monkeypatch.setattr(database, "compile", lambda bound: bound)
    waiting = list(answers)
    monkeypatch.setattr(database, "fetch", lambda _: [waiting.pop(0)])
    database.settle_s = 30 if len(answers) > 1 else 0
    play(story)


def test_a_missing_event_without_a_nullable_value_is_not_incomplete(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(run: Run) -> None:
        await run.start()
        writers = (await run.finish_well()).run.writers
        assert writers is not None and writers.verification is not None
        assert writers.invalid_reasons[0].startswith(
            "the database holds 190 events, 200 were expected: column sequence_number has 190"
        )
        assert writers.verification.partial == 0

    columns = tuple(
        replace(column, nullable=column.name == "temperature")
        for column in Temperature.schema.columns
    )
    schema = replace(Temperature.schema, columns=columns)
    monkeypatch.setattr(database, "job", replace(database.job, schema=schema))
    kept_apart = ["sequence_number", "temperature"]
    monkeypatch.setattr(database, "list_kept_apart", lambda: kept_apart)
    monkeypatch.setattr(database, "compile", lambda bound: bound)
    # Of ten missing events, three had no temperature.
    monkeypatch.setattr(database, "fetch", lambda _: [(190, 190, 193)])
    play(story)


def test_events_that_appear_later_are_waited_for(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        report = await run.finish_well()
        assert report.run.writers is not None
        assert report.run.writers.valid
        # One wait between two counts, on a run that took 10 s by what its workers say.
        assert report.run.writers.queryable is not None
        assert report.run.writers.queryable.events_per_s == pytest.approx(
            200 / (10 + report.run.writers.queryable.lag_s)
        )

    database.settle_s = 30
    database.counts = [150, 200]
    play(story)


def test_counting_is_tried_again(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        report = await run.finish_well()
        assert report.carried.stored == 200

    database.counts = [Retryable("connection_lost", "gone"), 200]
    play(story)


class FakeTime:
    """Time that passes only where one waits."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize(("patience_s", "least_s", "most_s"), [(None, 3, 4), (60.0, 60, 65)])
def test_a_database_that_stays_away_is_waited_for_as_long_as_its_requests(
    monkeypatch: pytest.MonkeyPatch, patience_s: float | None, least_s: float, most_s: float
) -> None:
    fake = FakeTime()
    monkeypatch.setattr("simulator.collector.database.time", fake)

    def count() -> int:
        raise Retryable("connection_lost", "gone")

    with pytest.raises(Retryable, match="gone"):
        ask(count, settings(patience_s=patience_s))
    assert least_s <= fake.now_s <= most_s


def test_events_are_counted_with_the_patience_of_the_writers(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(run: Run) -> None:
        await run.start()
        assert (await run.finish_well()).carried.stored == 200

    monkeypatch.setattr("simulator.collector.database.time", FakeTime())
    database.counts = [*[Retryable("connection_lost", "gone")] * 10, 200]
    play(story, patience_s=60.0)


def test_stored_events_are_asked_for_once_a_database_that_was_away_is_back(
    database: FakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = RecognizedEvents(Temperature(), [StoredPart(0, 0, 100)])
    gone = Retryable("connection_lost", "gone")
    answers: list[Retryable | RecognizedEvents] = [gone, gone, gone, found]

    def find_stored(*_: object) -> RecognizedEvents:
        answer = answers.pop(0)
        if isinstance(answer, Retryable):
            raise answer
        return answer

    monkeypatch.setattr("simulator.collector.database.time", FakeTime())
    monkeypatch.setattr("simulator.collector.database.find_stored", find_stored)
    prepared = Preparation(settings(role=Role.READ), database, Temperature())
    prepared.survey()
    assert prepared.known is found


def test_tables_are_looked_up_once_a_database_that_was_away_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Table(FakeDatabase):
        CAPABILITIES = Capabilities({}, {}, Support.FULL, {}, shapes=tuple(Shape))

        def __init__(self, options: Options, job: Job) -> None:
            super().__init__()
            self.job = job

        def open(self) -> None:
            opened.append(self.job.schema.table)
            if 2 <= len(opened) <= 8:
                raise SimulatorError("connection refused")

        def compile(self, bound: BoundQuery) -> BoundQuery:
            return bound

        def fetch(self, statement: BoundQuery) -> list[tuple[object, ...]]:
            # One table has all events.
            return answer(statement, stored).rows if self.job.schema.table == "events0" else []

    opened: list[str] = []
    monkeypatch.setattr("simulator.collector.database.time", FakeTime())
    workload, parts = Temperature(), [StoredPart(0, 0, 100)]
    stored = Stored(workload, parts)
    module = Table(Options(), Job(workload.schema, Load(tables=Tables.MULTIPLE)))
    lookup = ask(lambda: look_up(module, workload, parts), settings(patience_s=60.0))
    assert (lookup.events, lookup.missing, lookup.doubled) == (100, 0, 0)
    assert opened[:2] == ["events0", "events1"]
    assert opened[-4:] == ["events0", "events1", "events2", "events3"]


@pytest.mark.parametrize("error", [SimulatorError("no such table"), ZeroDivisionError("what?")])
def test_a_count_that_fails_ends_the_run(database: FakeDatabase, error: Exception) -> None:
    async def story(run: Run) -> None:
        await run.start()
        answer = await run.finish()
        assert answer.status_code == 410
        assert str(error) in answer.text

    database.counts = [error]
    play(story)
