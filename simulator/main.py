"""Entry point of the processes: `python -m simulator.main collector|worker|launcher`.

Run settings come from a file (in a pod: a mounted Secret), never from an argument or an environment
variable, since they may hold passwords.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import socket
import sys
import time
from pathlib import Path

from pydantic import TypeAdapter

from . import __version__
from .contract import Carried, RunSettings
from .logs import configure_logging
from .series import run_series

COLLECTOR_PORT = 5000


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulator", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    roles = parser.add_subparsers(dest="role", required=True)
    collector = roles.add_parser("collector", help="prepare, hold the barrier, merge, report")
    collector.add_argument("--port", type=int, default=COLLECTOR_PORT)
    collector.add_argument("--host", default="0.0.0.0")  # noqa: S104 - a pod's neighbours must reach it
    collector.add_argument(
        "--announce", action="store_true", help="print progress and report to standard output"
    )
    worker = roles.add_parser("worker", help="insert or query")
    worker.add_argument("--collector", required=True, metavar="URL")
    worker.add_argument(
        "--number", type=int, default=os.environ.get("JOB_COMPLETION_INDEX"),
        help="this worker's number (default: $JOB_COMPLETION_INDEX)",
    )  # fmt: skip
    for role in (collector, worker):
        role.add_argument("--settings", type=Path, required=True, metavar="FILE")
        role.add_argument(
            "--credentials", type=Path, metavar="FOLDER",
            help="each file in it that is called like an option of the database module is one, over those of"
            " the settings",
        )  # fmt: skip
    roles.add_parser("launcher", help="start collector and workers of the local executor")
    arguments = parser.parse_args()
    if arguments.role == "worker" and arguments.number is None:
        parser.error("--number is missing, and so is $JOB_COMPLETION_INDEX")
    return arguments


def credentials(folder: Path) -> dict[str, str]:
    """A mounted Secret: file name -> content. Kubernetes' own links in it begin with a dot."""
    return {
        path.name: path.read_text(errors="replace").strip()
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    }


def read_settings(path: Path) -> list[RunSettings]:
    """The runs of a settings file: a `RunSettings`, or a list of them that have one worker count."""
    text = path.read_bytes()
    if text.lstrip().startswith(b"["):
        return TypeAdapter(list[RunSettings]).validate_json(text)
    return [RunSettings.model_validate_json(text)]


def main() -> int:
    """Run one role; its exit status."""
    born = time.monotonic()
    arguments = _arguments()
    if arguments.role == "launcher":
        # All that it imports stays: to look for garbage among it would cost a tenth of its start.
        gc.disable()
        from .launcher import run_launcher

        return run_launcher()
    configure_logging()
    # Without a handler, a container's first process ignores the signal.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    series = read_settings(arguments.settings)
    if arguments.credentials:
        for settings in series:
            settings.secret = credentials(arguments.credentials)
    if arguments.role == "worker":
        from .worker import run_worker

        number, url = int(arguments.number), arguments.collector
        return run_series(series, lambda settings: (run_worker(settings, number, url), None))
    from .collector import run_collector

    # One listener for all runs: nobody who connects between two of them is refused.
    listener = socket.create_server((arguments.host, arguments.port), backlog=4096)

    def collect(settings: RunSettings) -> tuple[int, Carried | None]:
        began = born if len(series) == 1 or settings is series[0] else time.monotonic()
        return run_collector(settings, listener, began, arguments.announce)

    return run_series(series, collect)


if __name__ == "__main__":
    sys.exit(main())
