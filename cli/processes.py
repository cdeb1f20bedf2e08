"""Processes that other processes have started, and their end whatever state they are in."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

_POLL_S = 0.2


def run_program(
    command: Sequence[str | Path],
    text: str | None = None,
    *,
    in_a_hurry: Callable[[], bool],
    timeout_s: float | None = None,
    hurried_timeout_s: float = 0.0,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in a session of its own, with `text` as its standard input.

    If it takes longer than `timeout_s`, or than `hurried_timeout_s` once the user is in a hurry, it is
    killed with all that it has started, and `subprocess.TimeoutExpired` is raised.
    """
    began = time.monotonic()
    limit_s = timeout_s
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, cwd=folder, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            if process.stdin is not None:
                # By a thread: after a timeout, `communicate` would never send the rest.
                threading.Thread(target=_feed, args=(process.stdin, text), daemon=True).start()
                process.stdin = None
            while True:
                with suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=_POLL_S)
                    return subprocess.CompletedProcess(command, process.returncode, out, err)
                passed_s = time.monotonic() - began
                if in_a_hurry() and limit_s == timeout_s:
                    limit_s = min(passed_s + hurried_timeout_s, timeout_s or float("inf"))
                if limit_s is not None and passed_s >= limit_s:
                    raise subprocess.TimeoutExpired(command, passed_s)
        except BaseException:
            kill_group(process.pid)
            raise


def _feed(stdin: IO[str], text: str) -> None:
    """Write all of it, unless the program ends before; then close."""
    with suppress(BrokenPipeError), stdin:
        stdin.write(text)


def kill_group(leader: int) -> None:
    """SIGKILL to a process group, stopped members included. The caller has not yet waited for its
    leader, so that the number can't belong to anybody else by now."""
    with suppress(ProcessLookupError, PermissionError):  # macOS: only a zombie is left of it
        os.killpg(leader, signal.SIGKILL)


def kill_tree(root: int) -> None:
    """SIGKILL to a child that has not been waited for, and to all that descend from it."""
    for process in list_tree(root):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def list_tree(root: int) -> list[psutil.Process]:
    """A process's children, their children and so on, and itself at last."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        return [*process.children(recursive=True), process]
    return []
