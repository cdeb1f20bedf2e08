"""The way to the collector when the service proxy doesn't lead to it: by its log."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from cli.run.executors import asking
from cli.run.executors.base import Event, Failed, PartChanged, ReportArrived
from cli.run.executors.kubernetes import access
from cli.run.executors.kubernetes.access import CollectorAccess, read_log
from cli.run.kubeclient import KubeClient
from simulator.contract import (
    FAILURE_PREFIX,
    REPORT_PREFIX,
    STATUS_PREFIX,
    CarriedState,
    Phase,
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
REPORT = make_report(stored=7)


def write_status(run: str) -> str:
    return STATUS_PREFIX + Status(run_id=run, phase=Phase.RUN, age_s=1.0).model_dump_json()


def write_report(stored: int = 7) -> str:
    carried = CarriedState(next_event=stored, stored=stored)
    return REPORT_PREFIX + REPORT.model_copy(update={"carried": carried}).model_dump_json()


LOG = "\n".join([write_status("r1"), write_report()]).encode()


@contextmanager
def heard(
    api: Api, by_log: bool = False, pod: dict[str, Any] = POD
) -> Iterator[SimpleQueue[Event]]:
    """What is heard of the run r1."""
    events: SimpleQueue[Event] = SimpleQueue()
    client = KubeClient(api.configuration)
    way = CollectorAccess(client, "here", "iotb-1", settings(), events, lambda: pod, by_log)
    works = [
        threading.Thread(target=way.ask_for_report, args=("r1",)),
        threading.Thread(target=way.ask_for_status),
    ]
    for work in works:
        work.start()
    try:
        yield events
    finally:
        way.stop()
        for work in works:
            work.join(10)


def next_of(events: SimpleQueue[Event], kind: type[Event]) -> Any:
    while not isinstance(event := events.get(timeout=20), kind):
        pass
    return event


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Of a tool that has no patience with proxies, but with a busy machine."""
    monkeypatch.setattr(access, "POLL_S", 0.01)
    monkeypatch.setattr(access, "PROXY_PATIENCE_S", 0.05)
    with Api() as api:
        yield api


def answering(proxy: Callable[[], tuple[int, bytes]]) -> Callable[[str, str], tuple[int, bytes]]:
    """An API server with a log of the collector, and this in front of its services."""

    def answer(method: str, path: str) -> tuple[int, bytes]:
        if "/proxy/" in path:
            return proxy()
        if "/log" in path:
            # Of several containers the API server wants one to be named.
            named = "container=collector" in path
            return (200, LOG) if named else (400, b"a container name must be specified")
        return 200, b"{}"

    return answer


@pytest.mark.parametrize("status", [502, 503, 504, 404])
def test_a_proxy_that_does_not_lead_to_the_collector_is_given_up_for_its_log(
    api: Api, status: int
) -> None:
    api.answer = answering(lambda: (status, b'{"message": "no tunnel to the node"}'))
    with heard(api) as events:
        news = next_of(events, PartChanged).news
        assert news == (
            f"the API server's service proxy answers {status}: no tunnel to the node;"
            " the collector's log is read instead"
        )
        assert next_of(events, ReportArrived).report == REPORT


def test_a_page_of_somebody_in_between_is_no_report(api: Api) -> None:
    api.answer = answering(lambda: (200, b"<html>Please log in</html>"))
    with heard(api) as events:
        assert "isn't from the collector: <html>Please log in" in next_of(events, PartChanged).news
        assert next_of(events, ReportArrived).report == REPORT


def test_a_collector_of_another_version_ends_the_run(api: Api) -> None:
    """Its report was asked for again and again until the run's time was over."""
    other = json.dumps({**json.loads(REPORT.model_dump_json()), "figure_to_come": 1}).encode()
    api.answer = answering(lambda: (200, other))
    with heard(api) as events:
        reason = next_of(events, Failed).reason
    assert (
        "figure_to_come: Extra inputs are not permitted): its image has another version" in reason
    )


def test_a_proxy_that_never_answers_is_given_up_for_the_log(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CollectorAccess, "status_timeout_s", 0.3)
    free = threading.Event()

    def hold() -> tuple[int, bytes]:
        free.wait(20)
        return 503, b""

    api.answer = answering(hold)
    with heard(api) as events:
        assert "no answer through the API server's service proxy" in str(
            next_of(events, PartChanged).news
        )
        assert next_of(events, ReportArrived).report == REPORT
        free.set()


def test_where_the_proxy_is_forbidden_the_log_of_the_collectors_own_container_is_read(
    api: Api,
) -> None:
    api.answer = answering(lambda: (403, b'{"message": "services/proxy is forbidden"}'))
    for by_log in (True, False):
        with heard(api, by_log) as events:
            assert next_of(events, ReportArrived).report == REPORT


def test_a_collector_that_has_not_begun_is_waited_for(api: Api) -> None:
    """Until it listens, the proxy answers 503, too."""
    requests = iter(range(1000))

    def answer() -> tuple[int, bytes]:
        if next(requests) < 30:
            return 503, b"no endpoints available"
        return 200, REPORT.model_dump_json().encode()

    api.answer = answering(answer)
    waiting = {**POD, "status": {"phase": "Pending"}}
    with heard(api, pod=waiting) as events:
        while not isinstance(event := events.get(timeout=20), ReportArrived):
            assert not isinstance(event, PartChanged)


def test_a_collector_that_can_not_be_heard_at_all_ends_the_run_with_both_causes(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOG_PATIENCE_S", 0.2)

    def answer(method: str, path: str) -> tuple[int, bytes]:
        if "/proxy/" in path:
            return 503, b"no tunnel"
        if "/log" in path:
            return 500, b'{"message": "dial kubelet: timeout"}'
        return 200, b"{}"

    api.answer = answer
    with heard(api) as events:
        reason = next_of(events, Failed).reason
    assert "service proxy answers 503: no tunnel" in reason
    assert "its log can't be read either: 500 dial kubelet: timeout" in reason


def test_an_api_server_that_is_away_is_not_taken_for_a_proxy_that_does_not_work(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "find_patience_s", lambda *_: 0.2)
    with heard(api) as events:
        api.server.socket.close()
        api.server.shutdown()
        reason = next_of(events, Failed).reason
    assert reason.startswith("the API server has been out of reach for")


def test_an_api_server_that_is_back_in_time_costs_no_report(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector keeps it for ten minutes; runs were given up after half a minute."""
    monkeypatch.setattr(asking, "TOLD_AFTER_S", 0.1)
    status = Status(run_id="r1", phase=Phase.RUN, age_s=1.0)
    back = threading.Event()

    def answer(method: str, path: str) -> tuple[int, bytes]:
        if path.endswith("/report") and not back.is_set():
            return 202, b""
        report = path.endswith("/report")
        return 200, (REPORT if report else status).model_dump_json().encode()

    api.answer = answer
    with Proxy("127.0.0.1", api.server.server_port) as proxy:
        api.configuration.host = f"http://127.0.0.1:{proxy.port}"
        with heard(api) as events:
            next_of(events, Status)
            proxy.cut()
            told = next_of(events, PartChanged).news
            assert told.startswith("the API server has been out of reach for 0 s (")
            assert told.endswith("its report is waited for, for another 10 min at most")
            back.set()
            proxy.mend()
            news = {type(event): event for event in (events.get(timeout=20) for _ in range(20))}
            assert news[ReportArrived] == ReportArrived(REPORT)
            assert "the API server answers again, after" in str(news[PartChanged])


def test_of_a_log_with_several_runs_only_the_own_report_counts() -> None:
    lines = [write_status("r0"), write_report(1), "noise", write_status("r1"), write_report(2)]
    first, second, report = read_log(lines, "r1")
    assert isinstance(first, Status) and isinstance(second, Status)
    assert isinstance(report, ReportArrived) and report.report.carried
    assert report.report.carried.stored == 2
    [failure] = read_log([FAILURE_PREFIX + json.dumps("no such host")], "r1")
    assert failure == Failed("no such host")
