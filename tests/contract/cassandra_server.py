"""A node of the tests' own, started like the one under test but with other settings.

For what must not be done to a server that others use: ask for passwords and certificates, stop it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

_PATIENCE_S = 110.0
_CONFIG = "-Dcassandra.config=file://"
_FOLDER_KEYS = (
    "commitlog_directory", "saved_caches_directory", "hints_directory", "cdc_raw_directory",
)  # fmt: skip


class OwnNode:
    """A node that listens on an address of its own, at the usual port."""

    def __init__(self, like: psutil.Process, folder: Path, settings: Mapping[str, Any]) -> None:
        command = like.cmdline()
        [config] = [word.removeprefix(_CONFIG) for word in command if word.startswith(_CONFIG)]
        values = yaml.safe_load(Path(config).read_text())
        self.port: int = values["native_transport_port"]
        self.host = _free_address(self.port, values["storage_port"])
        values |= {name: str(folder / name) for name in _FOLDER_KEYS}
        values |= {
            "listen_address": self.host,
            "rpc_address": self.host,
            "data_file_directories": [str(folder / "data")],
            **settings,
        }
        values["seed_provider"][0]["parameters"][0]["seeds"] = self.host
        (folder / "cassandra.yaml").write_text(yaml.safe_dump(values))
        changed = {
            _CONFIG: f"{_CONFIG}{folder}/cassandra.yaml",
            "-Dcassandra.storagedir=": f"-Dcassandra.storagedir={folder}",
            "-Dcassandra.logdir=": f"-Dcassandra.logdir={folder}",
            "-XX:ErrorFile=": f"-XX:ErrorFile={folder}/hs_err.log",
        }
        self._command = [
            next((new for start, new in changed.items() if word.startswith(start)), word)
            for word in command
        ]
        # The first role is there at once, and not after ten seconds.
        self._command.insert(1, "-Dcassandra.superuser_setup_delay_ms=0")
        self._environment = like.environ()
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._log.parent,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with (
                suppress(ConnectionRefusedError),
                socket.create_connection((self.host, self.port), timeout=5),
            ):
                return
            tail = self._log.read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"the node ended: {tail}"
            assert time.monotonic() < deadline, f"the node does not answer: {tail}"
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop in good order and wait."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def hang(self, seconds: float) -> None:
        """Suspend it for this long, in the background."""
        assert self._process is not None
        process = psutil.Process(self._process.pid)
        process.suspend()
        threading.Timer(seconds, process.resume).start()


@contextmanager
def own_node(host: str, port: int, **settings: Any) -> Iterator[OwnNode]:
    """A node like the one at that address, with other settings; stopped and removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="own-node-", dir=_memory()))
    try:
        node = OwnNode(listening(host, port), folder, settings)
        try:
            node.start()
            yield node
        finally:
            node.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def listening(host: str, port: int) -> psutil.Process:
    """The process of this machine that listens there."""
    for connection in psutil.net_connections("tcp"):
        # Java listens on IPv6 sockets, as ::ffff:127.0.0.1.
        here = connection.laddr and (connection.laddr.ip.rpartition(":")[2], connection.laddr.port)
        if connection.status == psutil.CONN_LISTEN and here == (host, port) and connection.pid:
            return psutil.Process(connection.pid)
    raise AssertionError(f"no process of this machine listens on {host}:{port}")


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _free_address(*ports: int) -> str:
    """A loopback address on which the ports are free; each process of the tests has its own range."""
    for number in range(1, 255):
        address = f"127.1.{os.getpid() % 250}.{number}"
        with suppress(OSError):
            for port in ports:
                socket.create_server((address, port)).close()
            return address
    raise AssertionError("no free loopback address")
