"""A load generator that stands still is noticed, whichever of its processes does."""

from __future__ import annotations

import signal
import time

import pytest

from .tool import Running, Tool

RUN = (
    "insert", "-t", "blackhole", "-w", 2, "-r", 1, "--duration", "2500ms", "--extra-option", "delay_ms=1",
)  # fmt: skip


def freeze(running: Running, name: str) -> float:
    """Stop a process of the first run for more than a second; returns for how long it was."""
    process = running.part(name)
    running.await_err(": running")
    time.sleep(0.3)
    began = time.monotonic()
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.1)
    process.send_signal(signal.SIGCONT)
    return time.monotonic() - began


@pytest.mark.parametrize(("name", "worker"), [("worker-1", 1), ("collector", None)])
def test_a_closed_loop_is_invalid(tool: Tool, name: str, worker: int | None) -> None:
    """One of two workers is enough: its share of the load was missing."""
    running = tool.start(*RUN)
    stood_s = freeze(running, name)
    done = running.wait()
    assert done.status == 1
    (run,) = tool.runs()
    (stall,) = run["stalls"]
    assert stall["worker"] == worker
    # As exact as its thread wakes often.
    assert stall["length_s"] == pytest.approx(stood_s, abs=0.15)
    assert 0 < stall["begins_s"] < run["window_s"] - stall["length_s"]
    process = f"worker {worker}" if worker is not None else "the collector"
    (reason,) = run["invalid_reasons"]
    assert reason == (
        f"the load generator stalled for {stall['length_s']:.1f} s of {run['window_s']:.3g} s"
        f" ({process}: stopped, or left without CPU)"
    )
    assert reason in done.out


def test_an_open_loop_is_client_bound(tool: Tool) -> None:
    running = tool.start(*RUN, "--rate", 200)
    freeze(running, "worker-0")
    done = running.wait().ok()
    (run,) = tool.runs()
    assert [stall["worker"] for stall in run["stalls"]] == [0]
    assert run["valid"]
    assert run["client"]["bound"]
    assert "client-bound: 2 workers, run 1: the load generator stalled for 1." in done.out
    assert "this is your client's speed" in done.out
