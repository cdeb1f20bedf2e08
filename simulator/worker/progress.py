"""How far a worker is: what it tells the collector once a second."""

from __future__ import annotations

from typing import Literal

from ..contract import Progress
from .measure import Recorder


def read_progress(
    worker: int,
    stage: Literal["prefill", "run"],
    recorder: Recorder,
    events_per_request: int = 1,
    most: int | None = None,
    failed: int = 0,
) -> Progress:
    """What the recorder knows by now. Called in a thread beside the one that sends requests, which can't
    go on meanwhile: takes some 20 µs.

    `most`: the events of the whole stage, if it is they that end it; `failed`: requests that were given up,
    which the recorder doesn't count as done.
    """
    running = stage == "run"
    backlog = recorder.backlog(events_per_request, most) if running else None
    return Progress(
        worker=worker,
        stage=stage,
        elapsed_s=recorder.elapsed_s(),
        done=recorder.events,
        retries=recorder.retries,
        failed=failed,
        backlog=None if backlog is None else max(0, backlog - failed),
        latency=recorder.latency_so_far() if running else (0, []),
    )
