"""Entry point of the processes: `python -m simulator.main collector|worker|launcher`.

Run settings come from a file (in a pod: a mounted Secret), never from an argument or an environment
variable, since they may hold passwords.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from pydantic import TypeAdapter

from . import __version__
from . import collector as collector_module
from . import worker as worker_module
from .contract import CarriedState, RunSettings
from .errors import configure_logging, one_line, redact
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
    """A mounted Secret: file name -> content. Links made by Kubernetes begin with a dot."""
    return {
        path.name: path.read_text(encoding="utf-8", errors="replace").strip()
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    }


def read_settings(path: Path) -> list[RunSettings]:
    """The runs of a settings file: a `RunSettings`, or a list of them with the same worker count."""
    text = path.read_bytes()
    if text.lstrip().startswith(b"["):
        return TypeAdapter(list[RunSettings]).validate_json(text)
    return [RunSettings.model_validate_json(text)]


# --- imports, once for all ------------------------------------------------------------------------

# In the process from which others are forked. Otherwise each of 1,000 workers would have everything in memory
# for itself, and all would import at the same time.

_USED_LATER = {
    "collector": ("uvicorn.lifespan.off", "uvicorn.loops.auto", "uvicorn.protocols.http.auto",
                  "uvicorn.protocols.websockets.auto"),
    "worker": ("httpcore", "numpy.random"),
}  # fmt: skip
"""What the roles' libraries import only on first use: up to 0.1 s of CPU."""


def import_all(settings: RunSettings, roles: Iterable[str] = tuple(_USED_LATER)) -> None:
    """Import what runs like this one need in these roles."""
    for role in roles:
        for name in _USED_LATER[role]:
            import_module(name)
    with suppress(Exception):  # the run itself says what is wrong with them
        build(settings)


# --- several runs in one pod ----------------------------------------------------------------------

# The runs of one worker count, each in a new process forked from one that has imported everything and
# connected to nothing. Starting pods costs seconds for each run; a forked process is as clean as a new pod's,
# and the same for each run.

Work = Callable[[RunSettings], tuple[int, str]]
"""Does a run. Returns its exit status and the state from which the next one continues, as JSON; empty: there
is none."""


def run_series(series: Sequence[RunSettings], role: str, work: Work) -> int:
    """Do the runs one after the other; stop at the first that fails. Returns the exit status."""
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
    # What Python itself runs at a fork drops exceptions: a SIGTERM would be lost with one of them.
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
        # SIGTERM: the child ends with this process.
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


# --- the launcher ------------------------------------------------------------------------------------
# Starts collector and workers of the local executor by forking one process that has imported everything.
#
# Starting a Python process that imports numpy, pydantic, httpx and a driver takes about 0.4 s of CPU; for 16
# workers on two cores that is three seconds of each run. A fork takes milliseconds. It runs the same
# functions as a pod's `python -m simulator.main collector|worker`.
#
# The executor talks to it in lines of JSON. In, one request a line (settings, and so passwords, only pass
# through this pipe and never touch a disk):
#
#     {"launch": "collector", "settings": {…}, "log": "FILE"}
#     {"launch": "worker", "number": 3, "collector": "URL", "settings": {…}, "log": "FILE"}
#     {"signal": 15, "pid": 123}
#     {"ping": true}
#
# Out: {"launched": pid, "port": …} or {"refused": reason} in answer to a launch, {"exited": pid, "status": …}
# for each end (negative: the signal), {"pong": true} for a ping. When its standard input ends, as it does
# however the executor dies, it ends its children and itself. When it dies itself, its children see the end of
# a pipe.


_END_PATIENCE_S = 1.0


def run_launcher() -> int:
    """Serve requests until standard input ends."""
    # The executor ends this process by closing the pipe; a terminal's Ctrl-C is not meant for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _Launcher().run()


class _Launcher:
    def __init__(self) -> None:
        self._children: set[int] = set()
        self._lifeline_read, self._lifeline_write = os.pipe()
        self._wakeup_read, self._wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_write, False)
        os.set_blocking(self._wakeup_read, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup_write)
        self._input = b""
        self._known = ""
        """The last run for which everything has been imported."""

    def run(self) -> int:
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(self._wakeup_read, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd == self._wakeup_read:
                        with suppress(BlockingIOError):
                            os.read(self._wakeup_read, 4096)
                        self._reap()
                    elif not self._read_requests():
                        self._end_children()
                        return 0

    def _read_requests(self) -> bool:
        data = os.read(0, 65536)
        if not data:
            return False
        self._input += data
        *lines, self._input = self._input.split(b"\n")
        for line in lines:
            self._handle(json.loads(line))
        return True

    def _handle(self, request: dict[str, Any]) -> None:
        if "ping" in request:
            _send({"pong": True})
            return
        if "signal" in request:
            # Until a child is reaped, no other process can get its id.
            if request["pid"] in self._children:
                os.kill(request["pid"], request["signal"])
            return
        try:
            answer = self._launch(request)
        except (OSError, ImportError) as error:
            answer = {"refused": f"can't start a {request['launch']}: {one_line(error)}"}
        _send(answer)

    def _launch(self, request: dict[str, Any]) -> dict[str, Any]:
        """Fork a collector or a worker."""
        settings = RunSettings.model_validate(request["settings"])
        if settings.run_id != self._known:
            import_all(settings)
            self._known = settings.run_id
        with ExitStack() as stack:
            listener = None
            if request["launch"] == "collector":
                # Made before the fork: workers can connect at once, and no port is guessed.
                listener = stack.enter_context(collector_module.listen("127.0.0.1", 0))
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            stack.callback(os.close, log)
            pid = os.fork()
            if not pid:
                self._become_child(request, settings, listener, log)
            self._children.add(pid)
            answer = {"launched": pid}
            return answer | {"port": listener.getsockname()[1]} if listener else answer

    def _become_child(
        self,
        request: dict[str, Any],
        settings: RunSettings,
        listener: socket.socket | None,
        log: int,
    ) -> NoReturn:
        status = 1
        try:
            born = time.monotonic()
            # What the launcher has imported contains no garbage.
            gc.freeze()
            gc.enable()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            for end in (self._lifeline_write, self._wakeup_read, self._wakeup_write, log):
                os.close(end)
            threading.Thread(target=self._die_with_launcher, daemon=True).start()
            configure_logging()
            if listener:
                status, _ = collector_module.run_collector(settings, listener, born)
            else:
                status = worker_module.run_worker(settings, request["number"], request["collector"])
        except BaseException:  # noqa: BLE001 - nothing of a child may run on in the launcher's code
            sys.stderr.write(redact(traceback.format_exc()))
        finally:
            # os._exit, not sys.exit: what the launcher has registered must not run in its children.
            with suppress(OSError):
                sys.stderr.flush()
            os._exit(status)

    def _die_with_launcher(self) -> None:
        os.read(self._lifeline_read, 1)
        os._exit(1)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._children.discard(pid)
            _send({"exited": pid, "status": os.waitstatus_to_exitcode(status)})

    def _end_children(self) -> None:
        for number, patience_s in ((signal.SIGTERM, _END_PATIENCE_S), (signal.SIGKILL, None)):
            for pid in self._children:
                os.kill(pid, number)
            deadline = None if patience_s is None else time.monotonic() + patience_s
            while self._children:
                left_s = None if deadline is None else deadline - time.monotonic()
                if left_s is not None and left_s <= 0:
                    break
                with selectors.DefaultSelector() as selector:
                    selector.register(self._wakeup_read, selectors.EVENT_READ)
                    selector.select(left_s)
                with suppress(BlockingIOError):
                    os.read(self._wakeup_read, 4096)
                self._reap()


def _send(message: dict[str, Any]) -> None:
    # If nobody listens any longer, the end of standard input is on its way.
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


# --- the process ----------------------------------------------------------------------------------


def main() -> int:
    """Run one role; returns its exit status."""
    born = time.monotonic()
    arguments = _arguments()
    allow_files()
    if arguments.role == "launcher":
        # Everything it imports stays: looking for garbage would cost a tenth of the start.
        gc.disable()
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
