"""What several tests need: waiting, ready messages."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from textwrap import indent
from typing import Any

import pytest

from simulator.contract import (
    CarriedState,
    Client,
    DataSet,
    GroupResult,
    LatencyMs,
    Load,
    Report,
    Role,
    RunResult,
    RunSettings,
    Verification,
    WorkerFigures,
    WorkerResult,
    make_groups,
)
from simulator.histograms import Histogram
from simulator.modules.options import Job
from simulator.modules.sending import Channel, Encoder, Request
from simulator.workloads.schema import EventBlock
from simulator.workloads.temperature import Temperature

SECRET = "hush-hush"
"""What nobody may be shown."""


def eventually(condition: Callable[[], Any], event: str, patience_s: float = 30.0) -> Any:
    """What `condition` returns once it is true: for what a server has no event to wait for."""
    deadline = time.monotonic() + patience_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"no {event} within {patience_s} s"
        time.sleep(0.003)
    return result


@contextmanager
def swallowing() -> Iterator[socket.socket]:
    """A listener that drops what comes, as its queue of connections is full."""
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(2):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener


def submit(channel: Channel, data: Any, name: str = "") -> None:
    """Have a request sent; its completion has the name as its query's."""
    request = Request(data, query=name)
    request.sent_s = time.perf_counter()
    channel.submit(request)


def begin_definition(
    name: str,
    device: str,
    about: str = "About",
    devices: int = 1,
    interval: str = "1s",
    more: str = "",
) -> str:
    """The beginning of a workload's definition: what follows are more columns than those of time and device.
    `more`: lines before the columns."""
    return f"""\
name: {name}
about: {about}
table: {name}
time: at
device: {device}
devices: {devices}
interval: {interval}
{more}columns:
  - {{name: at, type: timestamp_ms}}
  - {{name: {device}, type: text}}
"""


def configure_definition(definition: str) -> str:
    """The definition as it stands below `workloads` in a config file, where its name is the key."""
    name, _, rest = definition.removeprefix("name: ").partition("\n")
    return f"  {name}:\n" + indent(rest, "    ")


def make_room_later(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, hang_up: bool = False
) -> list[float]:
    """Let the second attempt to connect to a swallowing listener come through; the limits of all attempts, as
    they are made. `hang_up`: the connection is ended at once."""
    limits_s: list[float] = []
    connect = socket.create_connection

    def attempt(address: tuple[str, int], timeout_s: float) -> socket.socket:
        limits_s.append(timeout_s)
        if len(limits_s) == 1:
            return connect(address, timeout_s)
        # One of those that wait, or an attempt before that came after its time.
        while select.select([listener], [], [], 0)[0]:
            listener.accept()[0].close()
        stream = connect(address, timeout_s)
        while hang_up:
            accepted, peer = listener.accept()
            accepted.close()
            if peer == stream.getsockname():
                break
        return stream

    monkeypatch.setattr(socket, "create_connection", attempt)
    return limits_s


class NumberEncoder(Encoder):
    """Payloads whose data are the numbers of their events: what was sent can be read at a glance."""

    def __init__(self, batch: int = 0) -> None:
        super().__init__(Job(Temperature.schema, Load(batch=batch)))

    def encode(self, block: EventBlock) -> list[Request]:
        size = self.size
        return [
            Request(
                list(range(block.first + start, block.first + min(start + size, len(block)))),
                min(size, len(block) - start),
                block,
                min(start + size, len(block)) - 1,
            )
            for start in range(0, len(block), size)
        ]


# --- messages -------------------------------------------------------------------------------------


def settings(**changes: Any) -> RunSettings:
    """Settings of a run of two workers into a black hole; `changes`: of load, data set, or the rest."""
    values: dict[str, Any] = {
        "run_id": "test",
        "token": "the-token",
        "target": "somewhere",
        "module": "blackhole",
        "options": {},
    }
    load: dict[str, Any] = {"workers": 2, "events": 100}
    for model, part in ((Load, load), (DataSet, values.setdefault("data", {}))):
        part |= {name: changes.pop(name) for name in model.model_fields if name in changes}
    values["groups"] = make_groups(Load(**load))
    return RunSettings(**(values | changes))


def histogram_of(*latencies_us: float) -> Histogram:
    """A histogram of these latencies."""
    return Histogram.of([(latency + 0.5) / 1e6 for latency in latencies_us])


def worker_figures(**changes: Any) -> WorkerFigures:
    """What a worker says that stored 100 events in 10 s, hardly working itself."""
    values: dict[str, Any] = {
        "start_s": 0.0,
        "end_s": 10.0,
        "count": 100,
        "cpu_s": 0.5,
        "generate_s": 0.1,
        "encode_s": 0.2,
        "ceiling_per_s": 1e6,
        "histogram": histogram_of(1000, 2000),
        "timeline": [(0, 60), (9, 40)],
    }
    values |= changes
    return WorkerFigures(**({"measured": values["count"]} | values))


def worker_result(worker: int, **changes: Any) -> WorkerResult:
    """A writer's result; `changes` are those of `worker_figures`."""
    figures = worker_figures(**changes)
    return WorkerResult(worker=worker, node=f"node-{worker}", elapsed_s=10.0, figures=figures)


def counted(expected: int, stored: int | None = None) -> dict[str, Any]:
    """What a result says of the events that should be stored, and are: all, if nothing else is given."""
    stored = expected if stored is None else stored
    verification = Verification(expected=expected, stored=stored, ok=stored == expected)
    return verification.model_dump(mode="json")


def insert_run(**changes: Any) -> RunResult:
    """A valid run of 4 workers and 1,000 events in 2 s; `changes`: of the run, or of its writers."""
    run: dict[str, Any] = {"fill_level": 0}
    run |= {name: changes.pop(name) for name in RunResult.model_fields if name in changes}
    writers: dict[str, Any] = {
        "role": Role.WRITE,
        "workers": 4,
        "count": 1000,
        "window_s": 2.0,
        "rate_per_s": 500.0,
        "rate_per_s_mean_duration": 510.0,
        "overlap": 0.98,
        "latency_ms": LatencyMs(p50=1.0, p90=2.0, p99=3.0, p99_9=4.0, max=5.0),
        "client": Client(
            cpu_s=1.0, cpu_share=0.125, generate_s=0.1, encode_s=0.2, ceiling_share=0.01,
            throttled_share=None, bound=False,
        ),
        "verification": Verification(expected=1000, stored=1000, ok=True),
    }  # fmt: skip
    return RunResult(groups=[GroupResult(**(writers | changes))], **run)


def make_report(run: RunResult | None = None, stored: int = 0, **changes: Any) -> Report:
    """The report on a run: that of `insert_run`, if no other is given."""
    carried = CarriedState(next_event=stored, stored=stored)
    return Report(run=run or insert_run(), environment={}, carried=carried, **changes)
