"""How the collector of a release is heard by its log, and told that its next run may begin."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from cli.run.executors import Event, Failed, PartChanged, ReportArrived, asking
from cli.run.executors.kubernetes import access
from cli.run.executors.kubernetes.access import CollectorAccess
from cli.run.kubeclient import KubeClient
from simulator.contract import (
    FAILURE_PREFIX,
    REPORT_PREFIX,
    STATUS_PREFIX,
    CarriedState,
    Phase,
    Report,
    Status,
)

from ....helpers import make_report, settings
from ....kubernetes.proxy import Proxy
from ...api_server import Api

POD: dict[str, Any] = {
    "metadata": {"name": "iotb-1-collector-x", "labels": {"app.kubernetes.io/component": "collector"}},
    "status": {
        "phase": "RunContext",
        # As a service mesh injects it: the first of two.
        "containerStatuses": [
            {"name": "mesh", "state": {"running": {}}},
            {"name": "collector", "state": {"running": {}}},
        ],
    },
}  # fmt: skip


def write_status(run: str = "test", age_s: float = 1.0) -> str:
    return STATUS_PREFIX + Status(run_id=run, phase=Phase.RUN, age_s=age_s).model_dump_json()


def make(stored: int = 7) -> Report:
    carried = CarriedState(next_event=stored, stored=stored)
    return make_report(stored=7).model_copy(update={"carried": carried})


def write_report(stored: int = 7) -> str:
    return REPORT_PREFIX + make(stored).model_dump_json()


LOG = [write_status(), write_report()]


@contextmanager
def way_to(
    api: Api, pod: dict[str, Any] = POD
) -> Iterator[tuple[CollectorAccess, SimpleQueue[Event]]]:
    """The way to a collector, whose log is followed."""
    events: SimpleQueue[Event] = SimpleQueue()
    way = CollectorAccess(
        KubeClient(api.configuration), "here", "iotb-1", settings(linger_s=600), events, lambda: pod
    )
    work = threading.Thread(target=way.follow)
    work.start()
    try:
        yield way, events
    finally:
        way.stop()
        work.join(10)


@contextmanager
def heard(api: Api, pod: dict[str, Any] = POD) -> Iterator[SimpleQueue[Event]]:
    with way_to(api, pod) as (_, events):
        yield events


def next_of(events: SimpleQueue[Event], kind: type[Event]) -> Any:
    while not isinstance(event := events.get(timeout=20), kind):
        pass
    return event


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Of a tool that asks often, and soon loses patience."""
    monkeypatch.setattr(access, "POLL_S", 0.01)
    monkeypatch.setattr(access, "LOG_PATIENCE_S", 0.2)
    monkeypatch.setattr(access, "GO_ON_PATIENCE_S", 0.2)
    monkeypatch.setattr(asking, "TOLD_AFTER_S", 0.1)
    with Api() as api:
        yield api


Answer = Callable[[str, str], tuple[int, bytes]]


def with_log(*lines: str, proxy: tuple[int, bytes] = (502, b"no tunnel to the node")) -> Answer:
    """An API server with a log of the collector, and this in front of its services."""

    def answer(method: str, path: str) -> tuple[int, bytes]:
        if "/proxy/" in path:
            return proxy
        if "/log" in path:
            # Of several containers the API server wants one to be named.
            named = "container=collector" in path
            text = "\n".join(lines).encode()
            return (200, text) if named else (400, b"a container name must be specified")
        return 200, b'{"gitVersion": "v1"}'

    return answer


def in_turn(*logs: list[str]) -> Answer:
    """One that has one log after the other; the last stays."""
    left = list(logs)

    def answer(method: str, path: str) -> tuple[int, bytes]:
        lines = left.pop(0) if len(left) > 1 else left[0]
        return with_log(*lines)(method, path)

    return answer


@pytest.mark.parametrize("status", [403, 404, 502, 503, 504])
def test_the_collector_is_heard_whatever_the_service_proxy_answers(api: Api, status: int) -> None:
    api.answer = with_log("noise", *LOG, proxy=(status, b"{}"))
    with heard(api) as events:
        assert next_of(events, Status).age_s == 1.0
        assert next_of(events, ReportArrived).report == make()


def test_a_log_that_is_read_again_tells_nothing_twice(api: Api) -> None:
    """And of several runs each report counts for its own."""
    api.answer = in_turn(
        [write_status("a"), write_status("a", 2)],
        [write_status("a"), write_status("a", 2), write_status("a", 3), write_report(1)],
        [write_status("a", 3), write_report(1), write_status("b"), write_report(2)],
    )
    with heard(api) as events:
        told = [events.get(timeout=20) for _ in range(6)]
        assert [event.age_s for event in told if isinstance(event, Status)] == [1, 2, 3, 1]
        reports = [event.report for event in told if isinstance(event, ReportArrived)]
        assert reports == [make(1), make(2)]
        assert events.empty()


def test_a_line_that_is_cut_off_is_read_again(api: Api) -> None:
    api.answer = in_turn([write_status(), write_report()[:-40]], LOG)
    with heard(api) as events:
        assert next_of(events, ReportArrived).report == make()


def test_a_failure_is_told_in_the_collectors_words(api: Api) -> None:
    api.answer = with_log(FAILURE_PREFIX + json.dumps("no such host"))
    with heard(api) as events:
        assert next_of(events, Failed) == Failed("no such host")


def test_a_collector_of_another_version_ends_the_run(api: Api) -> None:
    """Its report was asked for again and again until the run's time was over."""
    other = json.dumps({**json.loads(make().model_dump_json()), "figure_to_come": 1})
    api.answer = with_log(write_status(), REPORT_PREFIX + other)
    with heard(api) as events:
        reason = next_of(events, Failed).reason
    assert (
        "figure_to_come: Extra inputs are not permitted): its image has another version" in reason
    )


def test_a_collector_that_has_not_begun_is_waited_for(api: Api) -> None:
    """Until its container runs, there is no log."""
    requests = iter(range(1000))

    def answer(method: str, path: str) -> tuple[int, bytes]:
        if next(requests) < 30:
            return 400, b'{"message": "container is waiting to start"}'
        return with_log(*LOG)(method, path)

    api.answer = answer
    with heard(api, {**POD, "status": {"phase": "Pending"}}) as events:
        while not isinstance(event := events.get(timeout=20), ReportArrived):
            assert isinstance(event, Status)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda *_: (500, b'{"message": "dial kubelet: timeout"}'), "500 dial kubelet: timeout"),
        (lambda *_: (200, b"<html>Please log in</html>"), "its log says nothing"),
    ],
)
def test_a_collector_that_can_not_be_heard_at_all_ends_the_run(
    api: Api, answer: Answer, said: str
) -> None:
    api.answer = answer
    with heard(api) as events:
        reason = next_of(events, Failed).reason
    assert reason == f"the collector has been unreachable for 0 s: {said}"


def test_an_api_server_that_is_back_in_time_costs_no_report(api: Api) -> None:
    """The collector keeps it for ten minutes; runs were given up after half a minute."""
    api.answer = with_log(write_status())
    with Proxy("127.0.0.1", api.server.server_port) as proxy:
        api.configuration.host = f"http://127.0.0.1:{proxy.port}"
        with heard(api) as events:
            next_of(events, Status)
            proxy.cut()
            told = next_of(events, PartChanged).news
            assert told.startswith("the collector has been unreachable for 0 s (no answer from")
            assert told.endswith("its report is waited for, for another 10 min at most")
            api.answer = with_log(*LOG)
            proxy.mend()
            assert "the collector answers again, after" in next_of(events, PartChanged).news
            assert next_of(events, ReportArrived) == ReportArrived(make())


def test_an_api_server_that_stays_away_ends_the_run(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "find_patience_s", lambda *_: 0.2)
    with heard(api) as events:
        api.server.socket.close()
        api.server.shutdown()
        reason = next_of(events, Failed).reason
    assert "has been unreachable for 0 s: no answer from the API server" in reason


def test_the_collector_is_told_to_go_on_until_it_has_heard(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """A proxy that answers 5xx for a while is asked again; so is one whose answer was lost."""
    answers = iter([(502, b""), (503, b""), (425, b"busy with another run")])

    def answer(method: str, path: str) -> tuple[int, bytes]:
        return next(answers) if "/proxy/over" in path else with_log(*LOG)(method, path)

    api.answer = answer
    with way_to(api) as (way, _):
        assert way.go_on("test", CarriedState(next_event=7, stored=7, values={"größe": 2}))
    assert not capsys.readouterr().err


@pytest.mark.parametrize(("status", "is_told"), [(403, False), (502, True)])
def test_a_collector_that_can_not_be_told_makes_no_other_run(
    api: Api, capsys: pytest.CaptureFixture[str], status: int, is_told: bool
) -> None:
    api.answer = with_log(*LOG, proxy=(status, b'{"message": "no tunnel"}'))
    with way_to(api) as (way, _):
        assert not way.go_on("test", None)
    said = "the API server's service proxy answers 502: no tunnel; the next run gets new pods\n"
    assert capsys.readouterr().err == (said if is_told else "")
