"""Locks by which commands on one machine notice each other, whichever user started them.

Each is a locked file in a folder that all users can write to and where nobody can remove what is another's.
The kernel drops the lock of a process that is killed. Whoever may write there can put something else under
a lock's name: nothing is followed, and nothing but a plain file with this one name is written to.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..output import note
from .addresses import Claim, refuse

SHARED = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - see above
"""The first that is for all users; not $TMPDIR, which may be each user's own."""
OWN = Path("~/.cache/iot-database-benchmark/locks")

_FOR_ALL = stat.S_ISVTX | stat.S_IWOTH
_LONGEST = 4096
"""Bytes of a holder's name: a path is no longer."""


@contextmanager
def hold_lock(claim: Claim, holder: str) -> Iterator[None]:
    """Keep it for this holder; ConfigError if somebody else has it. Where that can't be found out, a
    warning says so."""
    path = _choose_folder() / f"iotb-{claim.key}"
    try:
        file = _take(path, claim)
    except OSError as error:
        note(
            f"warning: {path} can't be locked ({error.strerror}): a second run on {claim} would not be"
            " noticed"
        )
        yield
        return
    try:
        # Without room for it the lock holds all the same.
        with suppress(OSError):
            os.truncate(file, 0)
            os.pwrite(file, holder.encode()[:_LONGEST], 0)
        yield
    finally:
        _give_back(file, path)


def _choose_folder() -> Path:
    for folder in SHARED:
        with suppress(OSError):
            found = folder.stat()
            if found.st_uid == 0 and found.st_mode & _FOR_ALL == _FOR_ALL:
                return folder
    note(
        f"warning: neither {' nor '.join(map(str, SHARED))} is a folder for all users (owned by root, mode"
        " 1777): runs of other users on this machine would not be noticed"
    )
    return OWN.expanduser()


def _take(path: Path, claim: Claim) -> int:
    """The locked file; OSError if there can't be one."""
    while True:
        file = _open(path)
        with ExitStack() as stack:
            stack.callback(os.close, file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(file, _LONGEST, 0).decode(errors="replace")
                shown = "".join(one if one.isprintable() else "?" for one in holder)
                raise refuse(claim, shown) from error
            # Its last holder may have removed it since it was opened.
            if _is_there(file, path):
                stack.pop_all()
                return file


def _open(path: Path) -> int:
    """A file that all users can write to. OSError if something else has the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # For everybody from the moment it can be found: too late if its mode were changed afterwards.
    before = os.umask(0)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except FileExistsError:
        # Without O_CREAT, with which Linux refuses to open what is another user's in such a folder
        # (https://docs.kernel.org/admin-guide/sysctl/fs.html#protected-regular).
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    finally:
        os.umask(before)
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(file)
        raise OSError(0, "it is no plain file")
    return file


def _is_there(file: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), path.lstat())
    return False


def _give_back(file: int, path: Path) -> None:
    try:
        os.truncate(file, 0)
        # Another user's stays: only its owner may remove it.
        with suppress(PermissionError):
            path.unlink(missing_ok=True)
    finally:
        os.close(file)
