"""Starts collector and workers of the local executor by forking one process that has imported all.

A Python process that imports numpy, pydantic, httpx and a driver costs about 0.4 s of CPU; for 16
workers on two cores that is three seconds of each run. Forked from here it costs milliseconds. The
functions that run are those of a pod's `python -m simulator.main collector|worker`.

The executor talks to it by lines of JSON. In, one request a line (settings, and so passwords, travel
in this pipe alone, and touch no disk):

    {"launch": "collector", "settings": {…}, "log": "FILE"}
    {"launch": "worker", "number": 3, "collector": "URL", "settings": {…}, "log": "FILE"}
    {"signal": 15, "pid": 123}
    {"ping": true}

Out: {"launched": pid, "port": …} or {"refused": reason} in answer to a launch, {"exited": pid, "status": …}
for each end (negative: the signal), {"pong": true} for a ping. When its standard input ends, as it does
when the executor dies however hard, it ends its children and itself; when it dies itself, its children see
the end of a pipe.
"""

from __future__ import annotations

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
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, NoReturn

from . import collector as collector_module
from . import worker as worker_module
from .contract import RunSettings
from .errors import one_line
from .logs import configure_logging, redact

_END_PATIENCE_S = 1.0


def run_launcher(import_all: Callable[[RunSettings], None]) -> int:
    """Serve requests until standard input ends. `import_all` imports what a run needs."""
    # The executor ends this process by closing the pipe; a terminal's Ctrl-C is not for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _Launcher(import_all).run()


class _Launcher:
    def __init__(self, import_all: Callable[[RunSettings], None]) -> None:
        self._import_all = import_all
        self._children: set[int] = set()
        self._lifeline_read, self._lifeline_write = os.pipe()
        self._wakeup_read, self._wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_write, False)
        os.set_blocking(self._wakeup_read, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup_write)
        self._input = b""
        self._known = ""
        """The last run for whose processes everything has been imported."""

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
            # Until a child is reaped, its number can't belong to another process.
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
            self._import_all(settings)
            self._known = settings.run_id
        with ExitStack() as stack:
            listener = None
            if request["launch"] == "collector":
                # Made before the fork: workers can connect at once, and no port is ever guessed.
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
            # There is no garbage among what the launcher has imported.
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
    # Nobody may be listening any more: then the end of standard input is on its way.
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")
