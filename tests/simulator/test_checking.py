"""Readers' answers compared with the right ones: what is kept, checked, left out and reported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.contract import Answers, Go, GroupResult, Load, Role, StoredPart
from simulator.contract.messages import WorkerAnswers
from simulator.machine import free_memory_bytes
from simulator.modules.base import Job, Query
from simulator.modules.blackhole import Blackhole
from simulator.modules.sending import Received
from simulator.oracle.answers import answer
from simulator.oracle.checking import Checker, add_answers, describe_parameters
from simulator.oracle.survey import (
    DeviceInventory,
    RecognizedEvents,
    UnknownEvents,
    recognize_devices,
    recognize_events,
    survey_devices,
)
from simulator.worker.questions import FirstAnswers, Questions
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import BoundQuery, Stored, bind, unite
from simulator.workloads.queries import Shape
from simulator.workloads.temperature import Temperature

WORKLOAD = Temperature(seed=2, device_spread=3)
PARTS = [StoredPart(0, 0, 5000), StoredPart(1, 0, 300)]
KNOWN = RecognizedEvents(WORKLOAD, PARTS)
EVERYTHING = ["count-events", "temperature-stats-per-device", "range", "aggregate"]


class Generated(Blackhole):
    """A database that answers from the generator, unless a test has spoilt it."""

    CAPABILITIES = replace(Blackhole.CAPABILITIES, shapes=frozenset(Shape))
    held: Workload = WORKLOAD
    parts: Sequence[StoredPart] = PARTS

    def workload_queries(self) -> Mapping[str, Query]:
        own = [self.job.schema.description(name) for name in self.job.schema.queries]
        queries = {
            query.name: self.compile(bind(query, WORKLOAD.schema.epoch_ms))
            for query in own
            if query
        }
        return queries | {"count-events-tuned": lambda: [(5300,)], "undescribed": lambda: [(1,)]}

    def compile(self, bound: BoundQuery) -> Query:
        return lambda: answer(bound, Stored(self.held, self.parts)).rows


def make_module(*queries: str, workload: Workload = WORKLOAD) -> Generated:
    load = Load(role=Role.READ, queries=list(queries) or None)
    return Generated(Generated.options_model(), Job(workload.schema, load))


def ask(
    reader: int, *queries: str, spoilt: Mapping[str, Sequence[tuple[Any, ...]]] | None = None
) -> WorkerAnswers:
    """What a reader hands in after it asked each query twice; `spoilt`: first answers that aren't right."""
    module = make_module(*queries)
    stored = PARTS
    asker = module.asker()
    questions = Questions(module, asker, WORKLOAD, Go(go=True, stored=stored), reader)
    first_answers = FirstAnswers(questions, wanted=True)
    for execution in range(2):
        for name in questions.names:
            received = asker.ask(questions.make(name))
            if not execution and name in (spoilt or {}):
                rows = (spoilt or {})[name]
                received = Received(len(rows), 0, rows)
            first_answers.note(name, execution, received)
    handed_in = first_answers.hand_in(reader, module.job.schema)
    # As it arrives.
    return WorkerAnswers.model_validate_json(handed_in.model_dump_json())


def check(*messages: WorkerAnswers, known: RecognizedEvents | str = KNOWN, **more: Any) -> Answers:
    checker = Checker(make_module())
    for message in messages:
        checker.add(message)
    return checker.check(known, **more)


# --- what readers keep ----------------------------------------------------------------------------


def test_the_first_answer_to_each_query_is_kept_and_no_other() -> None:
    replies = {reply.query: reply for reply in ask(0, *EVERYTHING).answers}
    assert set(replies) == set(EVERYTHING)
    assert replies["count-events"].columns == [[5300]]
    module = make_module("range")
    first = Questions(
        module,
        module.asker(),
        WORKLOAD,
        Go(
            go=True,
            stored=PARTS,
        ),
        0,
    ).bind("range", 0)
    assert first is not None
    assert (replies["range"].start_ms, replies["range"].end_ms) == (first.start_ms, first.end_ms)
    assert replies["range"].devices == list(first.devices or ())


def test_long_answers_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.worker.questions.KEPT_VALUES", 20)
    message = ask(0, *EVERYTHING)
    # 1 and 4 values; 24 and 120 are too many.
    assert {reply.query for reply in message.answers} == {"count-events", "aggregate"}
    answers = check(message)
    assert answers.unchecked == len(message.unchecked) > 0
    assert list(answers.reasons) == ["answers of more than 20 values are too long to keep"]


def test_nothing_is_kept_that_nobody_wants() -> None:
    module = make_module("count-events")
    questions = Questions(module, module.asker(), WORKLOAD, Go(go=True), 0)
    first_answers = FirstAnswers(questions, wanted=False)
    first_answers.note("count-events", 0, Received(1, 0, [(1,)]))
    assert not first_answers.hand_in(0, WORKLOAD.schema).answers


def test_a_variant_is_checked_as_the_plain_query_and_what_is_not_described_is_not() -> None:
    message = ask(0, "count-events-tuned", "undescribed")
    assert [reply.query for reply in message.answers] == ["count-events-tuned"]
    answers = check(message)
    assert (answers.checked, answers.unchecked, answers.wrong) == (1, 1, [])
    assert answers.reasons == {"no description of the right answer": ["undescribed"]}


# --- what is checked ------------------------------------------------------------------------------


def test_right_answers_of_all_readers() -> None:
    progress: list[tuple[int, int]] = []
    answers = check(
        *(ask(reader, *EVERYTHING) for reader in range(3)), note=lambda *at: progress.append(at)
    )
    assert answers == Answers(checked=12)
    # Once, though three readers asked for all events.
    assert progress[-1] == (5300, 5300)


def test_a_wrong_answer_names_query_worker_parameters_and_row() -> None:
    wrong = check(ask(0), ask(1, spoilt={"count-events": [(5299,)]})).wrong
    assert len(wrong) == 1
    assert (wrong[0].query, wrong[0].workers) == ("count-events", [1])
    assert wrong[0].parameters == "all devices, all time"
    assert wrong[0].difference == "count is 5299 instead of 5300"
    for spoilt, difference in (
        ([(math.nan,) * 3], "instead of"),
        ([], "0 rows instead of 1"),
        ([(1.0, 2.0)], "row 1 has 2 values instead of 3"),
        ([("x", 1.0, 2.0)], "row 1, ('x', 1.0, 2.0): could not convert"),
    ):
        (wrong_answer,) = check(ask(0, spoilt={"temperature-stats": spoilt})).wrong
        assert difference in wrong_answer.difference


def test_the_same_wrong_answer_is_one_with_all_who_got_it() -> None:
    answers = check(*(ask(reader, spoilt={"count-events": [(1,)]}) for reader in range(3)))
    assert [wrong.workers for wrong in answers.wrong] == [[0, 1, 2]]
    readers = GroupResult(role=Role.READ, workers=3)
    add_answers(readers, answers)
    assert not readers.valid
    (reason,) = readers.invalid_reasons
    assert reason == (
        "query count-events gave a wrong answer to worker 0 (all devices, all time): count is 1 instead"
        " of 5300 (and 2 more wrong answers)"
    )
    assert readers.answers == answers


def test_parameters_in_words() -> None:
    query = WORKLOAD.schema.descriptions[0]
    assert describe_parameters(BoundQuery(query, ("a", "b", "c", "d", "e"), 0, 3_600_500)) == (
        "a, b, c and 2 more, from 1970-01-01T00:00:00.000+00:00 to before 1970-01-01T01:00:00.500+00:00"
    )


# --- what is left out -----------------------------------------------------------------------------


def test_unknown_events() -> None:
    answers = check(ask(0, *EVERYTHING), ask(1, *EVERYTHING), known="they are of another tool")
    assert (answers.checked, answers.unchecked) == (0, 8)
    assert answers.reasons == {"they are of another tool": EVERYTHING}


def test_what_grows_meanwhile() -> None:
    message = ask(0, *EVERYTHING)
    (end,) = [reply.end_ms for reply in message.answers if reply.query == "range"]
    assert end is not None
    for frontier_ms, checked in ((end, {"range"}), (end - 1, set[str]())):
        answers = check(message, frontier_ms=frontier_ms)
        unchecked = {name for names in answers.reasons.values() for name in names}
        assert set(EVERYTHING) - unchecked >= checked
        assert ("range" in unchecked) is not bool(checked)
        assert {"count-events", "temperature-stats-per-device"} <= unchecked
        assert list(answers.reasons) == ["rows were being added during the query"]


def test_too_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that need few events are checked all the same, and only those events are generated."""
    monkeypatch.setattr("simulator.oracle.checking.MOST_EVENTS", 5000)
    monkeypatch.setattr(Temperature, "disorder", 100)
    totals: list[int] = []
    answers = check(ask(0, "count-events", "point"), note=lambda _, total: totals.append(total))
    assert (answers.checked, answers.unchecked) == (1, 1)
    assert answers.reasons == {
        "right answers are computed from at most 5,000 events": ["count-events"]
    }
    assert 1 <= max(totals) < 500


def test_no_more_memory_is_taken_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that is killed takes the run's figures with it."""
    monkeypatch.setattr("simulator.oracle.checking.free_memory_bytes", lambda: 3000)
    answers = check(ask(0, "count-events", "temperature-stats-per-device", "range"))
    assert (answers.checked, answers.unchecked) == (2, 1)
    (reason,) = answers.reasons
    assert reason == "right answers for 6 devices need more memory than the collector has"
    assert answers.reasons[reason] == ["temperature-stats-per-device"]


def test_free_memory_is_that_of_the_machine_or_of_the_container(tmp_path: Path) -> None:
    meminfo, limit, used = (tmp_path / name for name in ("meminfo", "max", "current"))
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:  5 kB\n")
    used.write_text("100\n")
    for text, free in (("max\n", 5120), ("1100\n", 1000), ("50\n", 0), ("99999\n", 5120)):
        limit.write_text(text)
        assert free_memory_bytes(meminfo, [(limit, used)]) == free
    assert free_memory_bytes(tmp_path / "none", []) is None


def test_when_checking_fails_nothing_counts_as_checked() -> None:
    checker = Checker(make_module())
    checker.add(ask(0, "count-events", "undescribed"))
    checker.check(KNOWN)
    answers = checker.give_up("no memory")
    assert (answers.checked, answers.unchecked) == (0, 2)


# --- which events are generated -------------------------------------------------------------------


@pytest.mark.parametrize(
    "workload",
    [Temperature(1, device_spread=7), Cpu(device_spread=3),
     load_workload("machines")(device_spread=50, late=0.3)],
    ids=["temperature", "cpu", "machines"],
)  # fmt: skip
def test_ranges_have_all_events_of_a_time(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload.disorder = min(workload.disorder, 3000)
    # All tests share the class.
    monkeypatch.setattr(type(workload), "window", 3000, raising=False)
    stored = Stored(workload, [StoredPart(0, 100, 20_000), StoredPart(1, 0, 9)])
    first, end = stored.span_ms
    for start_ms, end_ms in (
        (first, first + 1),
        (end - 1, end),
        ((first + end) // 2, (first + end) // 2 + 60_000),
        (first - 5, end + 5),
        (end + 1000, end + 2000),
        (first - 2000, first - 1000),
    ):
        ranges = unite(stored.find_between(start_ms, end_ms))
        held = {
            (event_range.part, number)
            for event_range in ranges
            for number in range(event_range.start, event_range.stop)
        }
        for place, part in enumerate(stored.parts):
            times = workload.block(part.worker, part.first, part.count).columns[
                workload.schema.time
            ]
            inside = (times >= start_ms) & (times < end_ms)
            for number in range(part.count):
                assert not inside[number] or (place, part.first + number) in held
    middle = unite(stored.find_between((first + end) // 2, (first + end) // 2 + 1))
    assert sum(event_range.stop - event_range.start for event_range in middle) < 15_000


# --- which events are stored ----------------------------------------------------------------------


def survey(workload: Workload, parts: Sequence[StoredPart]) -> Generated:
    module = make_module(workload=workload)
    module.held, module.parts = workload, parts
    return module


def test_events_of_another_seed_are_told_by_their_values() -> None:
    """Events of `cpu` have the same devices and times, whatever the seed."""
    module = survey(Cpu(seed=3), PARTS)
    inventory = survey_devices(module, Cpu(seed=3))
    assert recognize_events(module, Cpu(seed=3), inventory).parts == PARTS
    with pytest.raises(UnknownEvents, match="other values than events of seed 4"):
        recognize_events(module, Cpu(seed=4), inventory)


def test_an_event_with_another_value_does_not_make_them_another_seeds() -> None:
    """That would keep the wrong answer from being found."""
    module = survey(Cpu(seed=3), PARTS)
    right = module.compile
    bounds = []

    def compile_wrong_at_first(bound: BoundQuery) -> Query:
        bounds.append(bound)
        return (lambda: [(1,) * 10]) if len(bounds) == 1 else right(bound)

    inventory = survey_devices(module, Cpu(seed=3))
    module.compile = compile_wrong_at_first  # type: ignore[method-assign]
    assert recognize_events(module, Cpu(seed=3), inventory).parts == PARTS
    assert len(bounds) == 2


def test_a_module_that_can_not_ask_says_what_it_lacks() -> None:
    module = make_module()
    module.CAPABILITIES = replace(Blackhole.CAPABILITIES)  # type: ignore[misc]
    with pytest.raises(UnknownEvents, match=r"supports no queries with a row per device, computed"):
        survey_devices(module, WORKLOAD)


@pytest.mark.parametrize("late", [0, 0.1])
def test_how_many_workers_shared_the_devices_is_found_out(late: float) -> None:
    machines = load_workload("machines")
    inserted = machines(5, devices=50, late=late, sharing_workers=3)
    parts = [StoredPart(worker, 0, count) for worker, count in enumerate((1000, 1007, 333))]
    module = survey(inserted, parts)
    inventory = survey_devices(module, inserted)
    recognized = recognize_devices(machines(5, devices=50, late=late), inventory)
    assert (recognized.sharing_workers, recognized.parts) == (3, parts)
    # Whoever says how many is taken at their word.
    with pytest.raises(UnknownEvents):
        recognize_devices(machines(5, devices=50, late=late, sharing_workers=2), inventory)


def test_missing_and_doubled_events_are_noticed() -> None:
    whole = survey_devices(make_module(), WORKLOAD)
    rows = list(zip((name.decode() for name in whole.names.tolist()), whole.counts.tolist(),
                    whole.first_ms.tolist(), whole.last_ms.tolist(), strict=True))  # fmt: skip
    assert recognize_devices(WORKLOAD, DeviceInventory.of(rows)).parts == PARTS
    for change in (-1, 1):
        name, count, first, last = rows[0]
        with pytest.raises(UnknownEvents, match="have other times than"):
            recognize_devices(
                WORKLOAD, DeviceInventory.of([(name, count + change, first, last), *rows[1:]])
            )
