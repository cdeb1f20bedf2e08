"""Entry point of the processes: `python -m simulator.main collector|worker|launcher`.

Run settings come from a file (in a pod: a mounted Secret), never from an argument or an environment
variable, since they may hold passwords.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
import time
from pathlib import Path

from . import __version__
from .contract import RunSettings

COLLECTOR_PORT = 5000


def configure_logging() -> None:
    """One line per event on standard error."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    # They report each request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulator", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    roles = parser.add_subparsers(dest="role", required=True)
    collector = roles.add_parser("collector", help="prepare, hold the barrier, merge, report")
    collector.add_argument("--port", type=int, default=COLLECTOR_PORT)
    collector.add_argument("--host", default="0.0.0.0")  # noqa: S104 - a pod's neighbours must reach it
    worker = roles.add_parser("worker", help="insert or query")
    worker.add_argument("--collector", required=True, metavar="URL")
    worker.add_argument(
        "--number", type=int, default=os.environ.get("JOB_COMPLETION_INDEX"),
        help="this worker's number (default: $JOB_COMPLETION_INDEX)",
    )  # fmt: skip
    for role in (collector, worker):
        role.add_argument("--settings", type=Path, required=True, metavar="FILE")
    roles.add_parser("launcher", help="start collector and workers of the local executor")
    arguments = parser.parse_args()
    if arguments.role == "worker" and arguments.number is None:
        parser.error("--number is missing, and so is $JOB_COMPLETION_INDEX")
    return arguments


def main() -> int:
    """Run one role; its exit status."""
    born = time.monotonic()
    arguments = _arguments()
    if arguments.role == "launcher":
        from .launcher import run_launcher

        return run_launcher()
    configure_logging()
    settings = RunSettings.model_validate_json(arguments.settings.read_bytes())
    if arguments.role == "worker":
        from .worker import run_worker

        return run_worker(settings, int(arguments.number), arguments.collector)
    from .collector import run_collector

    listener = socket.create_server((arguments.host, arguments.port), backlog=4096)
    return run_collector(settings, listener, born)


if __name__ == "__main__":
    sys.exit(main())
