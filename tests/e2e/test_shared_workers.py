"""Workers that several executors share: here two launchers, as if each were on a machine of its own."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import yaml

from .tool import Running, Tool, standard_error


def share(tool: Tool, address: str) -> None:
    """The embedded database as a target with two executors, and one without a database."""
    document = yaml.safe_load(tool.config.read_text())
    document["executors"] = {"east": {"executor": "local"}, "west": {"executor": "local"}}
    embedded = {
        name: key for name, key in document["targets"]["embedded"].items() if name != "executor"
    }
    more = {"executors": ["east", "west"], "collector_address": address}
    document["targets"]["shared"] = embedded | more
    document["targets"]["hole"] = {"module": "blackhole", "delay_ms": 10} | more
    tool.config.write_text(yaml.safe_dump(document, sort_keys=False))


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_one_barrier_and_one_result(tool: Tool) -> None:
    share(tool, f"http://127.0.0.1:{find_port()}")
    tool.run(
        "mixed", "-t", "shared", "-w", 3, "--readers", 1, "--batch", 10, "--rate", 1000,
        "--query-rate", 5, "--queries", "count-events", "--duration", "2s", "--runs", 1,
    ).ok()  # fmt: skip
    (run,), result = tool.runs(), tool.result()
    assert run["valid"]
    assert run["workers"] == 3
    assert run["verification"]["stored"] == run["count"]
    assert result["environment"]["executors"] == {"east": {"workers": 2}, "west": {"workers": 2}}
    assert list_logs(tool.folder(), "west") == ["worker-1.log", "worker-3.log"]
    assert list_logs(tool.folder(), "run-01") == [
        "collector.log", "worker-0.log", "worker-1.log", "worker-2.log", "worker-3.log",
    ]  # fmt: skip


def list_logs(folder: Path, below: str) -> list[str]:
    """The names of the logs in folders called `below`."""
    return sorted(path.name for path in folder.rglob("*.log") if below in path.parts)


def test_a_port_that_is_taken(tool: Tool) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        share(tool, f"http://127.0.0.1:{port}")
        done = tool.run("insert", "-t", "shared", "-w", 2, "--runs", 1, "--num-inserts", 100)
    assert f"can't listen at port {port}" in done.error(1)


def start_endless(tool: Tool) -> Running:
    """A run of two workers that is under way."""
    share(tool, f"http://127.0.0.1:{find_port()}")
    running = tool.start("insert", "-t", "hole", "-w", 2, "-r", 1, "--num-inserts", 10_000_000)
    running.await_err(": running")
    return running


def test_a_worker_of_another_executor_that_is_killed(tool: Tool) -> None:
    running = start_endless(tool)
    (worker,) = [
        process for process in tool.processes() if standard_error(process).name == "worker-1.log"
    ]
    worker.kill()
    error = running.wait().error(1)
    assert "executor west: worker 1 was killed by SIGKILL during the run" in error


def test_ctrl_c_ends_all(tool: Tool) -> None:
    running = start_endless(tool)
    running.send(signal.SIGINT)
    assert running.wait().status == 128 + signal.SIGINT


def test_one_executor_instead_of_all(tool: Tool) -> None:
    """--executor is for a try on this machine."""
    share(tool, "http://127.0.0.1:9")
    tool.run_here(
        "insert", "-t", "shared", "--executor", "local", "-w", 2, "--runs", 1, "--duration", "2s",
    ).ok()  # fmt: skip
    assert "executors" not in tool.result()["environment"]
