"""What readers ask, and for which events it is drawn."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any, ClassVar

import pytest

from simulator.contract import (
    DataSet,
    Go,
    LatencyMs,
    Load,
    Role,
    RunSettings,
    StoredPart,
    Timestamps,
)
from simulator.contract.settings import make_groups
from simulator.errors import OptionError, SimulatorError
from simulator.modules.base import Job, Query
from simulator.modules.blackhole import Blackhole
from simulator.modules.sending import Asker, CallingAsker
from simulator.oracle.answers import answer
from simulator.oracle.survey import Beginning, find_stored
from simulator.worker.measure import Recorder
from simulator.worker.questions import Questions
from simulator.worker.reading import QueryLoop
from simulator.worker.schedule import OpenLoop
from simulator.workloads import load_workload
from simulator.workloads.drawing import BoundQueries, BoundQuery, Stored, draw
from simulator.workloads.queries import Shape
from simulator.workloads.temperature import Temperature

WORKLOAD = Temperature(seed=2, device_spread=3)
HELD = [StoredPart(0, 0, 500), StoredPart(1, 0, 300)]


class Generated(Blackhole):
    """A database that answers by the generator, and notes what it is asked."""

    CAPABILITIES = replace(Blackhole.CAPABILITIES, shapes=frozenset(Shape) - {Shape.WHERE})
    asked: ClassVar[list[BoundQuery]] = []

    def workload_queries(self) -> Mapping[str, Query]:
        return {"count-events": lambda: [(800,)]}

    def compile(self, bound: BoundQuery) -> Query:
        self.asked.append(bound)
        return lambda: answer(bound, Stored(WORKLOAD, HELD)).rows


def make_module(*queries: str) -> Generated:
    Generated.asked.clear()
    load = Load(role=Role.READ, queries=list(queries) or None)
    return Generated(Generated.options_model(), Job(WORKLOAD.schema, load))


def make_settings(*loads: Load, **data: Any) -> RunSettings:
    return RunSettings(
        run_id="r",
        token="t",
        target="t",
        module="blackhole",
        options={},
        data=DataSet(**data),
        groups=make_groups(*loads),
    )


def events(*parts: tuple[int, int, int]) -> list[StoredPart]:
    return [StoredPart(*part) for part in parts]


def told(*parts: tuple[int, int, int]) -> Go:
    return Go(go=True, stored=events(*parts))


def make_questions(
    module: Generated, go: Go, reader: int = 0, redraw: bool = True
) -> tuple[Questions, Asker]:
    asker = module.asker()
    return Questions(module, asker, WORKLOAD, go, reader, redraw), asker


def test_a_reader_asks_own_queries_by_default_and_others_by_name() -> None:
    own, _ = make_questions(make_module(), Go(go=True))
    assert own.names == ["count-events", "temperature-min-max",
        "temperature-stats", "temperature-stats-per-device", "newest-per-device"]  # fmt: skip
    named, _ = make_questions(
        make_module("range", "last-values", "count-events"), told((0, 0, 500))
    )
    assert named.names == ["count-events", "range", "last-values"]


def test_each_execution_of_each_reader_is_drawn_anew_over_what_is_stored() -> None:
    go = told((0, 0, 500), (1, 0, 300))
    bounds = []
    for reader in (0, 0, 1):
        module = make_module("point")
        questions, asker = make_questions(module, go, reader)
        for _ in range(100):
            assert asker.ask(questions.make("point")).rows
        bounds.append(module.asked[:100])
    first, again, other = bounds
    assert first == again
    assert first != other
    assert len(set(first)) > 80
    stored = Stored(WORKLOAD, HELD)
    query = WORKLOAD.schema.description("point")
    assert query is not None
    assert first == [draw(query, stored, 0, execution) for execution in range(100)]


@pytest.mark.parametrize("punctual", [False, True])
def test_requests_are_encoded_by_the_sender_some_ahead(punctual: bool) -> None:
    """Each once, in the order of the executions; what is due by the clock is drawn in a thread, since that
    takes longer than the time between two of them."""
    encoded: list[BoundQuery] = []
    threads: set[int] = set()

    class Late(CallingAsker):
        def encode(self, bounds: BoundQueries) -> Iterator[Any]:
            threads.add(threading.get_ident())
            for bound in bounds:
                encoded.append(bound)
                yield bound

    module = make_module("point")
    asker, go = Late(module), told((0, 0, 500))
    questions = Questions(module, asker, WORKLOAD, go, 0)
    most_ahead = 127 if punctual else 16
    requests = []
    with questions.feed(punctual):
        assert encoded, "the first are made before anything is measured"
        for _ in range(1200):
            requests.append(questions.make("point"))
            while questions.make_ahead():
                pass
            assert 0 < len(encoded) - len(requests) <= most_ahead
    assert encoded[:1200] == requests
    assert threads == {threading.get_ident()}
    stored = Stored(WORKLOAD, [HELD[0]])
    query = WORKLOAD.schema.description("point")
    assert query is not None
    assert requests == [draw(query, stored, 0, execution) for execution in range(1200)]
    always = Questions(module, asker, WORKLOAD, go, 0, redraw=False)
    with always.feed(punctual):
        assert [always.make("point") for _ in range(3)] == requests[:1] * 3


def test_drawing_tells_its_cost_apart_from_encoding() -> None:
    module = make_module("point")
    questions, _ = make_questions(module, told((0, 0, 500)))
    with questions.feed():
        drawn_s, encoded_s = questions.generate_s, questions.encode_s
        assert drawn_s > 0
        assert encoded_s > 0
        for _ in range(20):
            questions.make("point")
        assert questions.generate_s > drawn_s
        assert questions.encode_s > encoded_s
        questions.forget_costs()
        assert questions.generate_s == questions.encode_s == 0


def test_a_reader_that_can_not_make_requests_in_time_is_late_for_its_own_reasons() -> None:
    """One is due each ms, and making one takes 10."""

    class Slow(CallingAsker):
        def encode_statement(self, statement: Any) -> Any:
            until_s = time.thread_time() + 0.01
            while time.thread_time() < until_s:
                pass
            return statement

    module = make_module("point")
    asker = Slow(module)
    questions = Questions(module, asker, WORKLOAD, told((0, 0, 500)), 0)
    schedule = OpenLoop(0.001, duration_s=60)
    recorder = Recorder(schedule)
    with questions.feed(punctual=True):
        questions.forget_costs()
        recorder.begin(time.perf_counter())
        # The first 64 are there already.
        QueryLoop(questions, asker, recorder, schedule).ask(repeat("point", 80))
        recorder.end()
    figures = recorder.result(encode_s=questions.encode_s)
    assert figures.encode_s > 0.1
    assert figures.offered is not None
    late = LatencyMs.of(figures.offered.own_delay)
    assert late is not None
    assert late.p90 > 9


def test_or_all_executions_are_as_the_first() -> None:
    module = make_module("range")
    questions, _ = make_questions(module, told((0, 0, 500)), redraw=False)
    with questions.feed():
        requests = {id(questions.make("range")) for _ in range(3)}
    assert len(requests) == len(module.asked) == 1


def test_what_is_due_by_the_clock_is_drawn_in_a_thread_and_is_the_same() -> None:
    go = told((0, 0, 500), (1, 0, 300))
    bounds = []
    for punctual in (False, True):
        module = make_module("point", "last-value")
        questions, asker = make_questions(module, go)
        with questions.feed(punctual):
            counts = {name: len(module.asked) for name in ("point",)}
            assert counts["point"], "the first are made before anything is measured"
            for _ in range(300):
                assert asker.ask(questions.make("point")).rows == 1
            asker.ask(questions.make("last-value"))
        assert "encode" not in " ".join(thread.name for thread in threading.enumerate())
        bounds.append([bound for bound in module.asked if bound.query.name == "point"][:300])
    assert bounds[0] == bounds[1]


def test_an_answer_that_is_too_short_is_known_by_its_rows() -> None:
    questions, _ = make_questions(make_module("range", "point"), told((0, 0, 500)))
    assert questions.find_shortfall("point", 1) is None
    assert questions.find_shortfall("point", 0) == ("the answer has 0 rows instead of 1")
    assert questions.find_shortfall("range", 0) is None


def test_what_can_not_be_compiled_is_refused_by_its_shape() -> None:
    text = r"can't run threshold yet: it supports no queries with a condition on a value \(known: count"
    with pytest.raises(OptionError, match=text):
        make_module("threshold").queries()


def test_the_database_is_asked_which_events_it_has() -> None:
    settings = make_settings(Load(role=Role.READ))
    recognized = find_stored(Beginning(settings, WORKLOAD), make_module("range"))
    assert recognized.parts == events((0, 0, 500), (1, 0, 300))


def test_while_others_write_what_they_prefill_is_known() -> None:
    loads = Load(workers=2), Load(role=Role.READ)
    settings = make_settings(*loads, prefill=25)
    module = make_module("range")
    recognized = find_stored(Beginning(settings, WORKLOAD, 100), module)
    assert recognized.parts == events((0, 100, 13), (1, 100, 12))
    assert not module.asked


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "set --prefill"),
        ({"prefill": 25, "timestamps": Timestamps.RESTART}, "--timestamps restart"),
    ],
)
def test_or_it_is_said_why_it_is_not(data: dict[str, Any], said: str) -> None:
    settings = make_settings(Load(), Load(role=Role.READ), **data)
    with pytest.raises(SimulatorError, match=said):
        find_stored(Beginning(settings, WORKLOAD, 100), make_module("range"))


@pytest.mark.parametrize("measured", [Role.WRITE, Role.FILL])
def test_what_is_drawn_beside_writers_lies_before_late_events(measured: Role) -> None:
    """Answers about what is being added couldn't be checked; the baseline's runs draw the same."""
    workload = load_workload("machines")(seed=1, devices=50, late=0.2)
    settings = make_settings(
        Load(role=measured, workers=2), Load(role=Role.READ), prefill=4000, workload="machines"
    )
    before_ms = Beginning(settings, workload).find_frontier()
    assert before_ms is not None
    parts = [StoredPart(0, 0, 2000), StoredPart(1, 0, 2000)]
    assert Stored(workload, parts).span_ms[1] > before_ms
    stored = Stored(workload, parts, before_ms)
    added = workload.block(0, 2000, 5000).columns[workload.schema.time]
    assert int(added.min()) >= before_ms
    for query in workload.schema.descriptions:
        if query.is_drawn and (query.window or query.instant):
            ends = [draw(query, stored, 0, execution).end_ms or 0 for execution in range(20)]
            assert max(ends) <= before_ms, query.name


def test_drawing_goes_on_where_nothing_is_certain() -> None:
    """With a prefill that is shorter than the time by which events may be late."""
    begin, end = Stored(WORKLOAD, HELD).span_ms
    assert Stored(WORKLOAD, HELD, begin).span_ms == (begin, end)
    assert Stored(WORKLOAD, HELD, end + 1).span_ms == (begin, end)
    assert Stored(WORKLOAD, HELD, begin + 1).span_ms == (begin, begin + 1)
