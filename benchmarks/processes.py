"""Collector and workers as the processes that pods run, for benchmarks of them."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx

from simulator.contract import RUN_HEADER, TOKEN_HEADER, DataSet, Load, RunSettings, make_groups

from .support import ROOT


@dataclass(frozen=True)
class SettingsFile:
    """Run settings, and the file that has them."""

    path: Path
    run: RunSettings

    @property
    def environment(self) -> dict[str, str]:
        """Lets `python -m simulator.main` be found from any folder."""
        return os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}

    @property
    def headers(self) -> dict[str, str]:
        """What each request to the collector carries."""
        return {TOKEN_HEADER: self.run.token, RUN_HEADER: self.run.run_id}


def settings_file(
    folder: Path,
    workers: int,
    num_inserts: int,
    batch: int,
    options: Mapping[str, str],
    data: DataSet | None = None,
) -> SettingsFile:
    """Settings of a run on `blackhole`, in a new file that only we can read."""
    run = RunSettings(
        run_id=secrets.token_hex(4),
        token=secrets.token_urlsafe(24),
        target="blackhole",
        module="blackhole",
        options={"encoder": "postgres", **options},
        groups=make_groups(Load(workers=workers, events=num_inserts, batch=batch)),
        data=data or DataSet(),
    )
    path = folder / f"{run.run_id}.json"
    path.touch(mode=0o600)
    path.write_text(run.model_dump_json())
    return SettingsFile(path, run)


@dataclass
class RunningCollector:
    """A collector process that answers."""

    process: subprocess.Popen[bytes]
    url: str

    def peak_mb(self) -> float:
        """Its peak memory so far (VmHWM)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmHWM: not on Linux?")

    def cpu_s(self) -> float:
        """Its CPU time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def start_collector(settings: SettingsFile) -> Iterator[RunningCollector]:
    """A collector on a free port of loopback; ended with the context."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            sys.executable, "-m", "simulator.main", "collector", "--host", "127.0.0.1",
            "--port", str(port), "--settings", settings.path,
        ],
        stderr=subprocess.DEVNULL, env=settings.environment,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 30
        with httpx.Client(trust_env=False) as client:
            while True:
                try:
                    client.get(f"{url}/readyz")
                    break
                except httpx.TransportError:
                    if time.monotonic() > deadline or process.poll() is not None:
                        raise
                    # Nothing tells a client that a server has begun to listen.
                    time.sleep(0.05)
        yield RunningCollector(process, url)
    finally:
        process.terminate()
        process.wait()


_WORKER_THAT_TELLS = """
import sys
from pathlib import Path
from simulator.main import main
status = main()
lines = Path("/proc/self/status").read_text().splitlines()
print(*(line.split()[1] for line in lines if line.startswith(("VmHWM", "RssAnon"))))
sys.exit(status)
"""


class Memory(NamedTuple):
    """Of a process, in MB."""

    peak: float
    """The most that it had in use, with what was mapped from files (VmHWM)."""
    own: float
    """What it had at its end that no file holds (RssAnon)."""


def worker_memory_mb(settings: SettingsFile, collector: RunningCollector) -> Memory:
    """Run a worker to its end; its memory. CalledProcessError if it failed.

    It tells its memory itself: what `wait4` says of a child includes what this process had in use
    when it started the child.
    """
    done = subprocess.run(
        [
            sys.executable, "-c", _WORKER_THAT_TELLS, "worker", "--number", "0",
            "--settings", settings.path, "--collector", collector.url,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env=settings.environment, check=True,
    )  # fmt: skip
    return Memory(*(int(kib) / 1024 for kib in done.stdout.split()))
