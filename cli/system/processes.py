"""Signals: the first ends the work, a second hurries the clean-up, none skips it. And other processes:
running them, ending them in any state, and excluding them by locked files."""

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
from types import FrameType
from typing import IO

import psutil

# SIGHUP: the terminal was closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

END_PATIENCE_S = 10.0
"""How long a program started by the tool has after SIGTERM to undo what it did."""


def end_at_signals() -> None:
    """Let a signal end the process at once, until `Interrupts` takes over. For the time of imports: nothing
    has started yet, and an exception could strike in the middle of any module."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os._exit(_exit_code(number)))


def _exit_code(number: int) -> int:
    """The shell's convention for a process ended by a signal."""
    return 128 + number


class Interrupted(BaseException):
    """The user or the system wants the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.left = "nothing is left running"
        """What the user is told about unfinished work."""

    @property
    def exit_code(self) -> int:
        """The exit status of the command."""
        return _exit_code(self.number)


class Flag:
    """Like `threading.Event` for polling, but without its lock, on which a signal handler that interrupts
    itself would deadlock."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


class Interrupts:
    """Turns the first signal into `Interrupted`, raised in the main thread outside of shields. A context
    manager around a command. Every further signal sets `hurry`: code that waits for an orderly end then ends
    at once. A signal that was already ignored (nohup, a script's background job) stays ignored.
    """

    def __init__(self) -> None:
        self.hurry = Flag()
        self._shields = 0
        self._pending: int | None = None
        self._raised = False
        self._number = 0

    def __enter__(self) -> Interrupts:
        self._before = {
            number: signal.signal(number, self._handle)
            for number in _SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def ignore(self) -> None:
        """Ignore signals from now on: nothing is left for them to end, and a late one must not change the
        exit status."""
        # Python complains about a pending signal that becomes ignored before its handler has run, so none
        # may arrive in between.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._before)
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._before.clear()

    def insist(self) -> None:
        """Raise again in code still working after a further signal: the first exception was lost where Python
        ignores them, as in a finalizer or a weak reference's callback."""
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and self.hurry.is_set() and not self._shields:
            raise Interrupted(self._number)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._raised or self._pending is not None:
            self.hurry.set()
        elif self._shields:
            self._number = self._pending = number
        else:
            self._raised = True
            self._number = number
            raise Interrupted(number)

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Delay a signal's exception to the end of the block: for starting and for cleaning up. Only the main
        thread needs it, since others get no exception."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
            if not self._shields and self._pending is not None and not self._raised:
                self._raised = True
                raise Interrupted(self._pending)


_POLL_S = 0.2
_END_POLL_S = 0.05
_FOR_ALL = stat.S_ISVTX | stat.S_IWOTH
_LONGEST = 4096
"""Bytes of a lock's holder: the longest path."""


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
    """Run a program to its end, in its own session, with `text` as its standard input. If it exceeds
    `timeout_s`, or `hurried_timeout_s` once the user is in a hurry, or outlasts its purpose (`is_over`), it
    is ended with everything it started, and `subprocess.TimeoutExpired` is raised. Any exception also ends
    it. `end_patience_s`: as in `end_group`.
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
                # In a thread: after a timeout, `communicate` would never send the rest.
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
    """Write everything, unless the program ends first; then close."""
    with suppress(BrokenPipeError), stdin:
        stdin.write(text)


def end_group(leader: int, patience_s: float, in_a_hurry: Callable[[], bool]) -> None:
    """End a process group: with SIGTERM, so that a script can undo what it did, and after `patience_s`, or as
    soon as the user is in a hurry, with SIGKILL. The caller must not have waited for its leader."""
    until = time.monotonic() + patience_s
    try:
        if not in_a_hurry():
            _signal_group(leader, signal.SIGTERM)
            # Nothing signals that the last process of a group has ended: its leader may have ended earlier.
            while _is_at_work(leader) and time.monotonic() < until and not in_a_hurry():
                time.sleep(_END_POLL_S)
    finally:
        kill_group(leader)


def _is_at_work(leader: int) -> bool:
    """Whether any process of the group is alive."""
    for pid in psutil.pids():
        with suppress(OSError, psutil.Error):
            if os.getpgid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def kill_group(leader: int) -> None:
    """SIGKILL to a process group, including stopped members. The caller must not have waited for its leader,
    so that the number can't have been reused."""
    _signal_group(leader, signal.SIGKILL)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS: only a zombie is left of it
        os.killpg(leader, number)


def kill_tree(root: int) -> None:
    """SIGKILL to a child that has not been waited for, and to all its descendants."""
    for process in list_tree(root):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def list_tree(root: int) -> list[psutil.Process]:
    """The descendants of a process, then itself."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(root)
        return [*process.children(recursive=True), process]
    return []


@contextmanager
def lock_file(path: Path, holder: str = "", for_all: bool = False) -> Iterator[None]:
    """Lock a file against other processes, with `for_all` also those of other users. BlockingIOError if it is
    locked, with the `holder` as its text; another OSError if it can't be locked. The kernel releases the lock
    of a killed process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        links = 0
        while not links:  # the last holder may have removed it after we opened it
            file = stack.enter_context(_open_lock(path, for_all))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                name = (file.read(_LONGEST) or b"").decode(errors="replace")
                raise BlockingIOError(errno.EWOULDBLOCK, name) from error
            links = os.fstat(file.fileno()).st_nlink
        try:
            with suppress(OSError):  # the lock holds even if there is no space for a name
                file.truncate(0)
                file.write(holder.encode()[:_LONGEST])
            yield
        finally:
            file.truncate(0)
            with suppress(
                PermissionError
            ):  # another user's file stays: only its owner may remove it
                path.unlink(missing_ok=True)


def is_for_all(folder: Path) -> bool:
    """Whether all users can create files in a folder, and only remove their own."""
    with suppress(OSError):
        found = folder.stat()
        return found.st_uid == 0 and found.st_mode & _FOR_ALL == _FOR_ALL
    return False


def _open_lock(path: Path, for_all: bool) -> FileIO:
    """A file that the user, or all users, can write to. Guards against planted files: links aren't followed,
    and only a regular file with one name is written to."""
    mask = os.umask(0) if for_all else None  # for everyone from the moment it exists
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except FileExistsError:
        # Without O_CREAT, with which Linux refuses to open other users' files in such a folder
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
