"""How the command line brings a recording to pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from cli.run.executors import Event, Failed
from cli.run.executors.kubernetes import recordings
from cli.run.executors.kubernetes.recordings import RecordingSender, find_delivery, find_room
from cli.run.kubeclient import KubeClient
from cli.system.errors import ConfigError
from simulator.contract import OFFSET_HEADER, RUN_HEADER, TOKEN_HEADER, DataSet

from ....helpers import settings
from ...api_server import Api

NAME = "0123456789abcdef"
SIZE = 2 * recordings.PART_BYTES + 500_000
RUNNING = {
    "metadata": {"name": "c", "labels": {"app.kubernetes.io/component": "collector"}},
    "status": {"containerStatuses": [{"name": "collector", "state": {"running": {}}}]},
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of recordings, with one in it."""
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path))
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "recording.json").write_text("{}")
    return tmp_path


DATA = DataSet(definition={"name": "pumps", "recorded": {"file": "pumps.csv", "store": NAME}})


def test_only_a_recording_is_delivered() -> None:
    assert find_delivery(settings(), {}) == (None, None)
    described = DataSet(definition={"name": "pumps"})
    assert find_delivery(settings(data=described), {}) == (None, None)


def test_it_goes_through_the_collector_up_to_a_size(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery, packed = find_delivery(settings(data=DATA), {})
    assert delivery is not None and packed == here / f"{NAME}.tar.zst"
    assert (delivery.name, delivery.source) == (NAME, None)
    assert find_room(delivery) == "64Mi"
    monkeypatch.setattr(recordings, "MOST_PACKED_BYTES", 10)
    with pytest.raises(ConfigError, match=r"packed, and the collector takes") as caught:
        find_delivery(settings(data=DATA), {})
    assert f"copy {packed} to" in caught.value.message
    assert "recordings: source" in caught.value.message
    values = {"recordings": {"source": "https://files.example/iot/"}}
    delivery, _ = find_delivery(settings(data=DATA), values)
    assert delivery is not None
    assert delivery.source == f"https://files.example/iot/{NAME}.tar.zst"


# --- sending it ------------------------------------------------------------------------------------


class Receiving:
    """A collector behind an API server, which keeps what it is sent."""

    def __init__(self, api: Api) -> None:
        self.api, self.got = api, b""
        self.faults: list[tuple[int, bytes]] = []
        """What is answered instead, once each."""
        api.answer = self.answer

    def answer(self, method: str, path: str) -> tuple[int, bytes]:
        if self.faults:
            return self.faults.pop(0)
        assert method == "POST" and path.endswith("/services/release%3Ahttp/proxy/recording")
        if int(self.api.headers[-1][OFFSET_HEADER]) == len(self.got):
            self.got += self.api.bodies[-1]
        return 200, str(len(self.got)).encode()


@pytest.fixture
def collector() -> Iterator[Receiving]:
    with Api() as api:
        yield Receiving(api)


def send(collector: Receiving, packed: Path, pod: Any = RUNNING) -> list[Event]:
    """What the executor is told of it."""
    events: SimpleQueue[Event] = SimpleQueue()
    client = KubeClient(collector.api.configuration)
    sender = RecordingSender(client, "here", "release", settings(), packed, events, lambda: pod)
    try:
        sender.send()
    finally:
        sender.stop()
    return [events.get() for _ in range(events.qsize())]


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    file = tmp_path / "packed"
    file.write_bytes(bytes(range(250)) * (SIZE // 250))
    return file


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "POLL_S", 0.01)


def test_it_is_sent_in_parts(collector: Receiving, packed: Path) -> None:
    assert send(collector, packed) == []
    assert collector.got == packed.read_bytes()
    assert len(collector.api.asked) == 3
    headers = collector.api.headers[0]
    assert (headers[TOKEN_HEADER], headers[RUN_HEADER]) == ("the-token", "test")


def test_what_passes_is_tried_again(collector: Receiving, packed: Path) -> None:
    collector.faults = [(503, b"no endpoints"), (502, b"")]
    assert send(collector, packed) == []
    assert collector.got == packed.read_bytes()


def test_what_is_there_is_not_sent(collector: Receiving, packed: Path) -> None:
    collector.faults = [(200, str(SIZE).encode())]
    assert send(collector, packed) == []
    assert len(collector.api.asked) == 1


@pytest.mark.parametrize(("status", "body"), [(403, b"forbidden"), (413, b"too large")])
def test_who_may_not_is_told_another_way(
    collector: Receiving, packed: Path, status: int, body: bytes
) -> None:
    collector.faults = [(status, body)]
    (event,) = send(collector, packed)
    assert isinstance(event, Failed)
    assert str(status) in event.reason and body.decode() in event.reason
    assert "recordings: source" in event.reason


def test_a_run_that_has_failed_says_so_itself(collector: Receiving, packed: Path) -> None:
    collector.faults = [(410, b"the run has failed")]
    assert send(collector, packed) == []


def test_patience_ends(collector: Receiving, packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "_PATIENCE_S", 0.1)
    collector.api.answer = lambda method, path: (503, b"no endpoints")
    (event,) = send(collector, packed)
    assert isinstance(event, Failed) and "503 no endpoints" in event.reason
