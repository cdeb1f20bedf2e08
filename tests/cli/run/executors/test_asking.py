"""How a collector is asked: until there is a report, or can't be one, whatever comes in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from cli.run.executors import (
    Event,
    Failed,
    PartChanged,
    ReportArrived,
    RunUnderWay,
    asking,
    await_report,
)
from cli.run.executors.asking import CollectorAsker, Silence, find_patience_s
from cli.system.errors import RunFailed
from simulator.contract import GroupStatus, Phase, Role, Status

from ....helpers import make_report, settings
from ...stand_in import QuietHandler, StandIn

REPORT = make_report(stored=7)
STATUS = Status(run_id="test", phase=Phase.RUN, age_s=1.0)
NOTHING = -1
"""Not a status: the connection is cut."""


class Collector(StandIn):
    """Answers as it is told: path -> status and body."""

    def __init__(self, answer: Callable[[str], tuple[int, str]]) -> None:
        class Handler(QuietHandler):
            def do_GET(self) -> None:  # noqa: N802
                status, body = answer(self.path)
                if status == NOTHING:
                    # Half an answer, too.
                    self.wfile.write(body.encode())
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

        super().__init__(Handler)


@contextmanager
def heard(answer: Callable[[str], tuple[int, str]], **changes: Any) -> Iterator[SimpleQueue[Event]]:
    """What the executor of this machine hears of a collector that answers so."""
    events: SimpleQueue[Event] = SimpleQueue()
    with Collector(answer) as collector:
        asker = CollectorAsker(collector.url, settings(**changes), events)
        works = [
            threading.Thread(target=asker.ask_for_report),
            threading.Thread(target=asker.ask_for_status),
        ]
        for work in works:
            work.start()
        try:
            yield events
        finally:
            asker.stop()
            for work in works:
                work.join(10)


def next_of(events: SimpleQueue[Event], kind: type[Event]) -> Any:
    while not isinstance(event := events.get(timeout=20), kind):
        assert not isinstance(event, Failed), event
    return event


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked often, and told soon."""
    monkeypatch.setattr(asking, "POLL_S", 0.02)
    monkeypatch.setattr(asking, "_RETRY_S", 0.02)
    monkeypatch.setattr(asking, "TOLD_AFTER_S", 0.1)
    monkeypatch.setattr(asking, "_REFUSAL_PATIENCE_S", 0.2)


def test_a_report_is_asked_for_until_it_is_there() -> None:
    answers = iter(
        [
            (NOTHING, ""),
            (NOTHING, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + REPORT.model_dump_json()),
            (500, "Internal Server Error"),
            (425, "busy with another run"),
            (202, "the run has not ended"),
            (200, "a page of somebody else"),
            (200, REPORT.model_dump_json()),
        ]
    )

    def answer(path: str) -> tuple[int, str]:
        return next(answers) if path == "/report" else (200, STATUS.model_dump_json())

    with heard(answer) as events:
        assert next_of(events, ReportArrived).report == REPORT


def test_a_run_that_failed_says_why() -> None:
    with heard(lambda path: (410, "the database is full")) as events:
        assert next_of(events, Failed) == Failed("the database is full")


def test_a_report_that_is_refused_again_and_again_ends_the_run() -> None:
    """Though the collector says how far it is: it would be asked for ever."""

    def answer(path: str) -> tuple[int, str]:
        return (500, "a defect") if path == "/report" else (200, STATUS.model_dump_json())

    with heard(answer) as events:
        while not isinstance(event := events.get(timeout=20), Failed):
            assert isinstance(event, Status)
    assert event.reason == "no report can be had: it answers 500: a defect"


def test_a_collector_out_of_reach_is_told_of_waited_for_and_given_up() -> None:
    with heard(lambda path: (NOTHING, ""), linger_s=1.0) as events:
        told = next_of(events, PartChanged).news
        assert told.startswith("the collector has been unreachable for 0 s (")
        assert told.endswith("its report is waited for, for another 1 s at most")
        given_up = next_of(events, Failed).reason
        assert given_up.startswith("the collector has been unreachable for 1 s: ")


def test_a_collector_that_answers_again_is_told_of() -> None:
    is_there = threading.Event()

    def answer(path: str) -> tuple[int, str]:
        if path == "/report" or not is_there.is_set():
            return NOTHING, ""
        return 200, STATUS.model_dump_json()

    with heard(answer) as events:
        next_of(events, PartChanged)
        is_there.set()
        assert next_of(events, PartChanged).news.startswith("the collector answers again, after ")
        assert next_of(events, Status) == STATUS


def test_time_in_which_nobody_asked_is_no_silence() -> None:
    """As when this process was stopped while it waited for an answer."""
    events: SimpleQueue[Event] = SimpleQueue()
    silence = Silence(events)
    assert not silence.has_lasted(1000.0, "timed out", 5.0)
    assert silence.has_lasted(1006.0, "timed out", 5.0)
    assert silence.is_told  # nothing more is asked of who is given up
    assert events.get_nowait() == Failed("the collector has been unreachable for 6 s: timed out")


def test_patience_lasts_to_the_end_of_the_run_and_as_long_as_its_report_is_kept() -> None:
    assert find_patience_s(600.0, None) == 600.0
    filling = STATUS.model_copy(update={"phase": Phase.PREFILL, "duration_s": 3600.0})
    assert find_patience_s(600.0, filling) == 4200.0
    running = STATUS.model_copy(update={"elapsed_s": 600.0, "duration_s": 3600.0})
    assert find_patience_s(600.0, running) == 3600.0
    group = GroupStatus(role=Role.WRITE, done=100, total=600, rate_per_s=5.0)
    assert find_patience_s(600.0, STATUS.model_copy(update={"groups": [group]})) == 700.0


class Nothing(RunUnderWay):
    def notice(self, news: Any) -> None: ...

    def describe_start(self) -> str:
        return ""


def crash() -> None:
    raise KeyError("status")


def test_a_thread_that_fails_unforeseen_ends_the_run_with_its_reason() -> None:
    run = Nothing()
    run.begin(crash)
    with pytest.raises(RunFailed, match="crash failed: unexpected KeyError: 'status'; a defect"):
        await_report(run, "test", None, lambda _: None)


def test_one_that_the_run_can_do_without_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    run = Nothing()
    run.begin(crash, vital=False)
    run.end_threads(lambda: None, 60.0)
    run.events.put(ReportArrived(REPORT))
    assert await_report(run, "test", None, lambda _: None).report == REPORT
    assert capsys.readouterr().err == (
        "warning: crash failed: unexpected KeyError: 'status'; a defect; the run continues\n"
    )
