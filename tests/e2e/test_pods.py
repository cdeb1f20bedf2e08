"""Collector and workers started by hand, as pods are: from a file of settings, over the network."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from simulator.contract import Role

from ..helpers import settings as run_settings
from .server import Server
from .test_runs import PHASES, WAITED, check_keys, check_run, check_stored, is_flag
from .test_runs import RUN as RUN_KEYS
from .tool import PASSWORD, ROOT, Running, Tool, eventually, flatten

RUN, TOKEN = "by-hand", "token-of-this-run"
REPORT = {"run", "environment", "carried", "failure", "window_s"}


class Pods:
    """A collector and its workers, yet to be started."""

    def __init__(self, tool: Tool, *series: Mapping[str, Any], **settings: Any) -> None:
        """Prepare one run with these settings, or several with changes to them."""
        defaults = {
            "run_id": RUN,
            "token": TOKEN,
            "target": "by-hand",
        }
        runs = [run_settings(**{**defaults, **settings, **changes}) for changes in series or [{}]]
        self.settings = runs[0]
        self._tool = tool
        self._file = tool.temporary / "settings.json"
        self._file.touch(mode=0o600)
        texts = [run.model_dump_json() for run in runs]
        self._file.write_text(f"[{','.join(texts)}]" if series else texts[0])
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.collector: Running | None = None
        self.workers: list[Running] = []

    def start(self) -> None:
        """Start the collector and all workers."""
        self.start_collector()
        for number in range(self.settings.workers):
            self.start_worker(number)

    def start_collector(self) -> Running:
        """Start the collector."""
        self.collector = self._start(
            "collector", "--settings", self._file, "--port", self.port, "--host", "127.0.0.1"
        )
        return self.collector

    def start_worker(self, number: int) -> Running:
        """Start a worker, which is told its number as Kubernetes tells it."""
        worker = self._start(
            "worker", "--settings", self._file, "--collector", self.url,
            env={"JOB_COMPLETION_INDEX": str(number)},
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def _start(self, *arguments: object, env: Mapping[str, str] | None = None) -> Running:
        program = (sys.executable, "-m", "simulator.main")
        return self._tool.start(*arguments, env=env, program=program, cwd=ROOT)

    def get(
        self, path: str, token: str = TOKEN, run: str = RUN, after: str = "null"
    ) -> httpx.Response:
        """One request, as soon as the collector listens."""
        headers = {"X-Run-Token": token, "X-Run-Id": run, "X-After": after}

        def asked() -> httpx.Response | None:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(self.url + path, headers=headers, timeout=30, trust_env=False)
            return None

        answer = eventually(asked, "an answer of the collector")
        assert answer is not None
        return answer

    def report(self, run: str = RUN) -> dict[str, Any]:
        """The report, which the collector holds back until there is one."""

        def asked() -> httpx.Response | None:
            answer = self.get("/report", run=run)
            # 425: it is busy with another run of the series.
            return None if answer.status_code in (httpx.codes.ACCEPTED, 425) else answer

        answer = eventually(asked, "the report")
        assert answer is not None
        assert answer.status_code == httpx.codes.OK, answer.text
        report = answer.json()
        assert isinstance(report, dict)
        return report

    def end(self) -> None:
        """End them as Kubernetes does: SIGTERM, then wait for the end."""
        parts = [*self.workers, *([self.collector] if self.collector else [])]
        for part in parts:
            if part.process.poll() is None:
                part.send(signal.SIGTERM)
        for part in parts:
            part.wait(60)
        self._file.unlink()


@contextlib.contextmanager
def pods(tool: Tool, *series: Mapping[str, Any], **settings: Any) -> Iterator[Pods]:
    """A run's pods, started, and ended afterwards."""
    running = Pods(tool, *series, **settings)
    try:
        running.start()
        yield running
    finally:
        running.end()


def test_pods_report_the_same_as_the_local_executor(tool: Tool) -> None:
    # Runs of 2 s: on a busy machine a worker may begin 0.3 s after the other.
    options = {"delay_ms": 100}
    with pods(
        tool, module="blackhole", options=options, events=1000, batch=50, prefill=10
    ) as by_hand:
        report = by_hand.report()
        for worker in by_hand.workers:
            assert worker.wait(60).status == 0
        assert by_hand.get("/report").json() == report
        assert by_hand.get("/over").status_code == httpx.codes.OK
        assert by_hand.collector is not None
        assert by_hand.collector.wait(60).status == 0
    assert set(report) == REPORT
    run = report["run"]
    assert set(run["phases_s"]) == (PHASES | {"prefill"}) - {"clean_up"}
    assert report["carried"] == {
        "next_event": 1005, "stored": None, "values": {}, "next_events": None,
        "is_certain": True,
    }  # fmt: skip
    tool.run_here(
        "insert", "-t", "blackhole", "-w", 2, "-r", 1, "--batch", 50, "--num-inserts", 1000,
        "--extra-option", "delay_ms=100", "--prefill", 10,
    ).ok()  # fmt: skip
    (local,) = tool.result()["runs"]
    assert shape(run) == shape(local)
    # What only an executor sees is missing; everything else can be checked in the same way.
    run["phases_s"]["clean_up"] = 0.0
    check_run(flatten(run), 1000, 50)
    environment = tool.result()["environment"]
    assert shape(report["environment"]["client"]) == shape(environment["client"])


_SEEN_BY_EXECUTORS = {"others", "others_share", "link_share", "resources"}


def shape(value: Any) -> Any:
    """Names and types, without phases and timelines, whose length differs from run to run, and without
    what only an executor sees of others."""
    if isinstance(value, dict):
        return {
            key: shape(entry)
            for key, entry in value.items()
            if key not in _SEEN_BY_EXECUTORS | {"phases_s", "timeline", "errors"}
        }
    if isinstance(value, list):
        return [shape(entry) for entry in value]
    return "number" if isinstance(value, int | float) else type(value).__name__


def test_pods_insert_and_query_a_database(tool: Tool, server: Server) -> None:
    dsn = str(server.slow_target()["connection_string"]).replace("${E2E_PASSWORD}", PASSWORD)
    options = {"connection_string": dsn}
    with pods(
        tool, module="postgres", options=options, events=500, batch=50, prefill=301
    ) as by_hand:
        processes = tool.processes()
        assert len(processes) == 3
        for process in processes:
            assert PASSWORD not in " ".join(process.cmdline())
        report = by_hand.report()
        assert PASSWORD not in str(report)
    own = {
        "groups": lambda groups: len(groups) == 1,
        "valid": is_flag,
        # A busy machine may keep a worker waiting.
        "invalid_reasons": lambda reasons: all(map(WAITED.match, reasons)),
    }
    check_keys(report["run"], RUN_KEYS | own)
    check_stored(flatten(report["run"]), 301)
    assert server.value("SELECT count(*) FROM events") == 1301
    assert report["carried"] == {
        "next_event": 651, "stored": 1301, "values": {}, "next_events": None,
        "is_certain": True,
    }  # fmt: skip
    with pods(tool, module="postgres", options=options, role=Role.READ, runs=2) as by_hand:
        report = by_hand.report()
    read = flatten(report["run"], "read")
    assert [len(query["each"]) for query in read["queries"]] == [2 * 2] * 5
    assert (read["fill_level"], read["valid"]) == (1301, True)


def test_pods_do_several_runs(tool: Tool, server: Server) -> None:
    dsn = str(server.slow_target(0.06)["connection_string"]).replace("${E2E_PASSWORD}", PASSWORD)
    series: list[dict[str, Any]] = [
        {"run_id": "first"},
        {"run_id": "second", "clean": False},
        {"run_id": "third", "clean": False},
    ]
    with pods(
        tool, *series, module="postgres", options={"connection_string": dsn}, events=200,
        batch=20,
    ) as by_hand:  # fmt: skip
        for number, run in enumerate(series):
            report = by_hand.report(run["run_id"])
            report["run"]["phases_s"]["clean_up"] = 0.0
            flattened = flatten(report["run"])
            check_run(flattened, 200, 20)
            check_stored(flattened, 400 * number)
            after = json.dumps(report["carried"]) if number else "null"
            answer = by_hand.get("/over", run=run["run_id"], after=after)
            assert answer.status_code == httpx.codes.OK
        for part in (*by_hand.workers, by_hand.collector):
            assert part is not None
            assert part.wait(60).status == 0
    assert server.value("SELECT count(DISTINCT (device_id, sequence_number)) FROM events") == 1200


def test_only_who_has_the_token_gets_the_report(tool: Tool) -> None:
    with pods(tool, module="blackhole", options={}, workers=1, events=10) as by_hand:
        assert by_hand.get("/healthz", "").status_code == httpx.codes.OK
        for path in ("/report", "/status"):
            for token in ("", "guess", TOKEN[:-1]):
                assert by_hand.get(path, token).status_code == httpx.codes.UNAUTHORIZED
        assert flatten(by_hand.report()["run"])["count"] == 10


def test_a_worker_that_never_comes_is_named(tool: Tool) -> None:
    with pods(
        tool, module="blackhole", options={}, workers=2, events=10, ready_timeout_s=6
    ) as by_hand:
        missing = by_hand.workers[1]
        missing.send(signal.SIGKILL)
        missing.wait(60)
        answer = by_hand.get("/report")
        assert answer.status_code == httpx.codes.GONE
        assert "worker 1 not ready after 6 s" in answer.text
        # The other one is told, and doesn't wait forever.
        assert by_hand.workers[0].wait(60).status == 1


def test_a_worker_waits_for_a_collector_that_starts_late(tool: Tool) -> None:
    late = Pods(tool, module="blackhole", options={}, workers=1, events=10)
    try:
        with socket.create_server(("127.0.0.1", late.port)) as nobody:
            nobody.settimeout(10)
            late.start_worker(0)
            nobody.accept()[0].close()
        late.start_collector()
        assert flatten(late.report()["run"])["count"] == 10
        assert late.workers[0].wait(60).status == 0
    finally:
        late.end()


def test_the_reason_of_a_failure_reaches_the_executor(tool: Tool, server: Server) -> None:
    server.stop()
    options = {"connection_string": f"host={server.home}/data user=bench password={PASSWORD}"}
    with pods(tool, module="postgres", options=options, workers=1, events=10) as by_hand:
        answer = by_hand.get("/report")
        assert answer.status_code == httpx.codes.GONE
        assert "can't connect to the database" in answer.text
        assert "check that the server runs" in answer.text
        assert by_hand.workers[0].wait(60).status == 1
        assert "can't connect to the database" in by_hand.workers[0].err


def test_settings_that_cannot_be_read(tool: Tool) -> None:
    file = tool.place / "settings.txt"
    file.write_text('{"run_id": "x", "token": "t", "options": {"password": "hidden-4711"}}')
    file.chmod(0o600)
    program = (sys.executable, "-m", "simulator.main")
    for arguments in (["collector"], ["worker", "--collector", "http://127.0.0.1:9"]):
        done = tool.start(
            *arguments, "--settings", file, program=program, cwd=ROOT,
            env={"JOB_COMPLETION_INDEX": "0"},
        ).wait(60)  # fmt: skip
        assert done.status != 0
        assert "hidden-4711" not in done.out + done.err
    done = tool.start(
        "worker", "--collector", "http://127.0.0.1:9", "--settings", file, program=program, cwd=ROOT
    ).wait(60)
    assert done.status == 2
    assert "JOB_COMPLETION_INDEX" in done.err


def test_terminated_pods_end_within_seconds(tool: Tool) -> None:
    with pods(
        tool, module="blackhole", options={"delay_ms": 50}, workers=1, events=100_000, batch=1
    ) as by_hand:
        eventually(lambda: by_hand.get("/status").json()["phase"] == "run", "the measured run")
        for part in (by_hand.workers[0], by_hand.collector):
            assert part is not None
            part.send(signal.SIGTERM)
            assert part.wait(60).status == 128 + signal.SIGTERM
