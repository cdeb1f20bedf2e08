"""Entry point of the processes: `python -m simulator.main collector|worker|launcher`.

Run settings come from a file (in a pod: a mounted Secret), never from an argument or an environment
variable, since they may hold passwords.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from pydantic import TypeAdapter

from . import __version__
from .contract import CarriedState, RunSettings
from .logs import configure_logging
from .machine import allow_files
from .modules import build

COLLECTOR_PORT = 5000


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulator", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    roles = parser.add_subparsers(dest="role", required=True)
    collector = roles.add_parser("collector", help="prepare, hold the barrier, merge, report")
    collector.add_argument("--port", type=int, default=COLLECTOR_PORT)
    collector.add_argument("--host", default="", help="address to listen at (default: all)")
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
            help="folder of files named like options of the database module; they override those"
            " of the settings",
        )  # fmt: skip
    roles.add_parser("launcher", help="start collector and workers of the local executor")
    arguments = parser.parse_args()
    if arguments.role == "worker" and arguments.number is None:
        parser.error("--number is missing, and so is $JOB_COMPLETION_INDEX")
    return arguments


def credentials(folder: Path) -> dict[str, str]:
    """A mounted Secret: file name -> content. Kubernetes' own links in it begin with a dot."""
    return {
        path.name: path.read_text(encoding="utf-8", errors="replace").strip()
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    }


def read_settings(path: Path) -> list[RunSettings]:
    """The runs of a settings file: a `RunSettings`, or a list of them that have one worker count."""
    text = path.read_bytes()
    if text.lstrip().startswith(b"["):
        return TypeAdapter(list[RunSettings]).validate_json(text)
    return [RunSettings.model_validate_json(text)]


# --- imports, once for all ------------------------------------------------------------------------

# In the process from which others are forked. Otherwise each of 1,000 workers would have it all in memory for
# itself, and they would import it at the same time.

_USED_LATER = {
    "collector": ("uvicorn.lifespan.off", "uvicorn.loops.auto", "uvicorn.protocols.http.auto",
                  "uvicorn.protocols.websockets.auto"),
    "worker": ("httpcore", "numpy.random"),
}  # fmt: skip
"""What the roles' libraries import only when they are first used: up to 0.1 s of CPU."""


def import_all(settings: RunSettings, roles: Iterable[str] = tuple(_USED_LATER)) -> None:
    """Import what runs like this one need in these roles."""
    for role in roles:
        for name in _USED_LATER[role]:
            import_module(name)
    with suppress(Exception):  # the run itself says what is wrong with them
        build(settings)


# --- several runs in one pod ----------------------------------------------------------------------

# The runs of one worker count, each in a new process forked from one that has imported everything and
# connected to nothing. Starting pods costs seconds for each run; a forked process is as clean as a new
# pod's, and equal for each run.

Work = Callable[[RunSettings], tuple[int, str]]
"""Does a run; returns its exit status, and what the next one goes on from, as JSON; empty: there is none."""


def run_series(series: Sequence[RunSettings], role: str, work: Work) -> int:
    """Do the runs one after the other; ends with the first that fails. Returns the exit status."""
    if len(series) == 1:
        return work(series[0])[0]
    import_all(series[0], [role])
    for number, settings in enumerate(series):
        status, after = _run_in_child(work, settings)
        if status or not after:
            return status
        if series[number + 1 :]:
            series[number + 1].after = TypeAdapter(CarriedState | None).validate_json(after)
    return 0


def _run_in_child(work: Work, settings: RunSettings) -> tuple[int, str]:
    """`work` in a child process."""
    read, write = os.pipe()
    # What Python itself runs at a fork drops exceptions: with one of them a SIGTERM would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    pid = os.fork()
    if not pid:
        os.close(read)
        _become_child(work, settings, write)
    os.close(write)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        with os.fdopen(read) as pipe:
            after = pipe.read()
        _, status = os.waitpid(pid, 0)
    except SystemExit:
        # SIGTERM: the child goes with us.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise
    exit_status = os.waitstatus_to_exitcode(status)
    # A shell reports signal n as 128 + n.
    exit_status = 128 - exit_status if exit_status < 0 else exit_status
    return exit_status, after


def _become_child(work: Work, settings: RunSettings, pipe: int) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        status, after = work(settings)
        os.write(pipe, after.encode())
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - nothing of a child may run on in its parent's code
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


# --- the process ----------------------------------------------------------------------------------


def main() -> int:
    """Run one role; returns its exit status."""
    born = time.monotonic()
    arguments = _arguments()
    allow_files()
    if arguments.role == "launcher":
        # All that it imports stays: to look for garbage among it would cost a tenth of its start.
        gc.disable()
        from .launcher import run_launcher

        return run_launcher(import_all)
    configure_logging()
    # Without a handler, a container's first process ignores the signal.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    series = read_settings(arguments.settings)
    if arguments.credentials:
        for settings in series:
            settings.secret = credentials(arguments.credentials)
    if arguments.role == "worker":
        from .worker import run_worker

        number = int(arguments.number)
        url = arguments.collector
        return run_series(
            series, arguments.role, lambda settings: (run_worker(settings, number, url), "null")
        )
    from .collector import listen, run_collector

    # One listener for all runs: nobody who connects between two of them is refused.
    listener = listen(arguments.host, arguments.port)

    def collect(settings: RunSettings) -> tuple[int, str]:
        began = born if len(series) == 1 or settings is series[0] else time.monotonic()
        return run_collector(settings, listener, began, arguments.announce)

    return run_series(series, arguments.role, collect)


if __name__ == "__main__":
    sys.exit(main())
