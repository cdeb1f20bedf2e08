"""Other processes: run to their end, ended whatever state they are in, and kept off by locked files."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import IO

import psutil

from .signals import END_PATIENCE_S

_POLL_S = 0.2
_END_POLL_S = 0.05
_FOR_ALL = stat.S_ISVTX | stat.S_IWOTH
_LONGEST = 4096
"""Bytes of a lock's holder: a path is no longer."""


def run_program(
    command: Sequence[str | Path],
    text: str | None = None,
    *,
    in_a_hurry: Callable[[], bool],
    is_over: Callable[[], bool] = lambda: False,
    timeout_s: float | None = None,
    hurried_timeout_s: float = 0.0,
    end_patience_s: float = END_PATIENCE_S,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, in a session of its own, with `text` as its standard input.

    If it takes longer than `timeout_s`, or than `hurried_timeout_s` once the user is in a hurry, or outlasts
    what it is for (`is_over`), it is ended with all that it has started, and `subprocess.TimeoutExpired` is
    raised. So is it by any exception. `end_patience_s`: as in `end_group`.
    """
    began = time.monotonic()
    limit_s = timeout_s
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
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
                if is_over() or (limit_s is not None and passed_s >= limit_s):
                    raise subprocess.TimeoutExpired(command, passed_s)
        except BaseException:
            end_group(process.pid, end_patience_s, in_a_hurry)
            raise


def _feed(stdin: IO[str], text: str) -> None:
    """Write all of it, unless the program ends before; then close."""
    with suppress(BrokenPipeError), stdin:
        stdin.write(text)


def end_group(leader: int, patience_s: float, in_a_hurry: Callable[[], bool]) -> None:
    """End a process group: by SIGTERM, at which a script may undo what it did, and after `patience_s`, or as
    soon as the user is in a hurry, by SIGKILL. The caller has not yet waited for its leader."""
    until = time.monotonic() + patience_s
    try:
        if not in_a_hurry():
            _signal_group(leader, signal.SIGTERM)
            # Nothing tells that the last of a group has ended: its leader may have ended before.
            while _is_at_work(leader) and time.monotonic() < until and not in_a_hurry():
                time.sleep(_END_POLL_S)
    finally:
        kill_group(leader)


def _is_at_work(leader: int) -> bool:
    """Whether a process of the group has not ended."""
    for pid in psutil.pids():
        with suppress(OSError, psutil.Error):
            if os.getpgid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def kill_group(leader: int) -> None:
    """SIGKILL to a process group, stopped members included. The caller has not yet waited for its
    leader, so that the number can't belong to anybody else by now."""
    _signal_group(leader, signal.SIGKILL)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS: only a zombie is left of it
        os.killpg(leader, number)


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


@contextmanager
def lock_file(path: Path, holder: str = "", for_all: bool = False) -> Iterator[None]:
    """Keep other processes out of what this file stands for, with `for_all` those of other users, too.
    BlockingIOError if one has
    locked it, with its `holder` as the text; another OSError if it can't be locked. The kernel drops the lock
    of a process that is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        links = 0
        while not links:  # its last holder may have removed it since it was opened
            file = stack.enter_context(_open_lock(path, for_all))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                name = (file.read(_LONGEST) or b"").decode(errors="replace")
                raise BlockingIOError(errno.EWOULDBLOCK, name) from error
            links = os.fstat(file.fileno()).st_nlink
        try:
            with suppress(OSError):  # without room for a name the lock holds all the same
                file.truncate(0)
                file.write(holder.encode()[:_LONGEST])
            yield
        finally:
            file.truncate(0)
            with suppress(PermissionError):  # another user's stays: only its owner may remove it
                path.unlink(missing_ok=True)


def is_for_all(folder: Path) -> bool:
    """Whether all users can make files in a folder, and nobody remove what is another's."""
    with suppress(OSError):
        found = folder.stat()
        return found.st_uid == 0 and found.st_mode & _FOR_ALL == _FOR_ALL
    return False


def _open_lock(path: Path, for_all: bool) -> FileIO:
    """A file that the user, or all users, can write to. Whatever somebody has put there instead: nothing is
    followed, and nothing but a plain file of one name is written to."""
    mask = os.umask(0) if for_all else None  # for everybody from the moment it can be found
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except FileExistsError:
        # Without O_CREAT, with which Linux refuses to open what is another user's in such a folder
        # (https://docs.kernel.org/admin-guide/sysctl/fs.html#protected-regular).
        number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    finally:
        if mask is not None:
            os.umask(mask)
    file = FileIO(number, "r+")
    if not stat.S_ISREG(os.fstat(number).st_mode) or os.fstat(number).st_nlink > 1:
        file.close()
        raise OSError(errno.EINVAL, "it isn't a regular file")
    return file
