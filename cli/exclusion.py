"""One command, or campaign with all its jobs, at a time for each database: on this machine by a locked file,
on Kubernetes by a Lease. Where a database has locks of its own, the collector of each run takes one as well
(`Module.lock`), which keeps off other machines and namespaces."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

from simulator.documents import printable_line

from .cluster import Place, explain_errors, pass_over
from .errors import ConfigError, RunFailed
from .installation import describe_user
from .output import note
from .results.store import now

SHARED = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - see `_open_lock`
"""Locks are in the first that is for all users; not in $TMPDIR, which may be each user's own."""
OWN = Path("~/.cache/iot-database-benchmark/locks")
_FOR_ALL = stat.S_ISVTX | stat.S_IWOTH
_LONGEST = 4096
"""Bytes of a holder's name: a path is no longer."""
LEASE_S = 20.0
"""A Lease that nobody has renewed for so long is free."""
RENEW_S, LOOK_S = 5.0, 1.0


@dataclass(frozen=True)
class Claim:
    """A database, by one of its addresses."""

    target: str = field(compare=False)
    address: str
    place: Place | None
    """The namespace from which it is reached; None: from this machine."""

    @property
    def key(self) -> str:
        """Names its file or Lease: the same for whoever means this database."""
        return f"iotb-{hashlib.sha256(self.address.encode()).hexdigest()[:16]}"

    def __str__(self) -> str:
        return f"the database of target {self.target} ({self.address})"

    def refuse(self, holder: str) -> ConfigError:
        """The error of whoever finds that somebody else holds it."""
        who = holder or "another run"
        return ConfigError(f"{who} is using {self}: wait for it to end, or use another database")


_held: ContextVar[frozenset[Claim]] = ContextVar("held", default=frozenset())
"""What a campaign holds: its jobs need not claim it again."""


@contextmanager
def claim_databases(claims: Iterable[Claim], who: str) -> Iterator[list[Lease]]:
    """Keep these for a command or a campaign, which messages to others call `who`; ConfigError if somebody
    else has one. Gives the Leases, which somebody may take all the same: they are to be checked."""
    holder = f"{who} of {describe_user()}"
    wanted = [claim for claim in dict.fromkeys(claims) if claim not in _held.get()]
    leases = [Lease(claim, claim.place, holder) for claim in wanted if claim.place is not None]
    with ExitStack() as stack:
        for claim in wanted:
            if claim.place is None:
                stack.enter_context(hold_lock(claim, holder))
        taken = [lease for lease in leases if stack.enter_context(lease.hold())]
        stack.callback(_held.reset, _held.set(_held.get().union(wanted)))
        yield taken


@contextmanager
def hold_lock(claim: Claim, holder: str) -> Iterator[None]:
    """Keep a database by a locked file; ConfigError if somebody else has it, whichever user. The kernel drops
    the lock of a process that is killed. Where nothing can be locked, a warning says so."""
    path = _choose_folder() / claim.key
    with ExitStack() as stack:
        try:
            links = 0
            while not links:  # its last holder may have removed it since it was opened
                file = stack.enter_context(_open_lock(path))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                links = os.fstat(file.fileno()).st_nlink
        except BlockingIOError as error:
            name = (file.read(_LONGEST) or b"").decode(errors="replace")
            raise claim.refuse(printable_line(name)) from error
        except OSError as error:
            problem = f"{path} can't be locked ({error.strerror})"
            note(f"warning: {problem}: a second run on {claim} would not be noticed")
        else:
            stack.callback(_remove_lock, path)
            stack.callback(file.truncate, 0)
            with suppress(OSError):  # without room for a name the lock holds all the same
                file.truncate(0)
                file.write(holder.encode()[:_LONGEST])
        yield


def _choose_folder() -> Path:
    for folder in SHARED:
        with suppress(OSError):
            if folder.stat().st_uid == 0 and folder.stat().st_mode & _FOR_ALL == _FOR_ALL:
                return folder
    note(
        f"warning: neither {' nor '.join(map(str, SHARED))} is a folder for all users (owned by root, mode"
        " 1777): runs of other users on this machine would not be noticed"
    )
    return OWN.expanduser()


def _open_lock(path: Path) -> FileIO:
    """A file that all users can write to, where nobody can remove what is another's. Whatever somebody has
    put there instead: nothing is followed, and nothing but a plain file of one name is written to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = os.umask(0)  # for everybody from the moment it can be found
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    except FileExistsError:
        # Without O_CREAT, with which Linux refuses to open what is another user's in such a folder
        # (https://docs.kernel.org/admin-guide/sysctl/fs.html#protected-regular).
        number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    finally:
        os.umask(mask)
    file = FileIO(number, "r+")
    if not stat.S_ISREG(os.fstat(number).st_mode) or os.fstat(number).st_nlink > 1:
        file.close()
        raise OSError(0, "it isn't a regular file")
    return file


def _remove_lock(path: Path) -> None:
    with suppress(PermissionError):  # another user's stays: only its owner may remove it
        path.unlink(missing_ok=True)


class Lease:
    """A database's Lease (https://kubernetes.io/docs/concepts/architecture/leases/)."""

    def __init__(self, claim: Claim, place: Place, holder: str) -> None:
        from .kubeclient import LEASE

        self._claim, self._place, self._holder = claim, place, holder
        self._where = LEASE, place.namespace, claim.key
        self._client = place.make_client()
        self._renewed_at, self._lost_to = 0.0, ""

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Take it, renew it in a thread, and give it back; whether the user may. ConfigError if somebody else
        has it."""
        ended = threading.Event()

        def keep_renewing() -> None:
            with suppress(RunFailed):  # whoever checks it hears of that
                while not ended.wait(RENEW_S):
                    self.check()

        thread = threading.Thread(target=keep_renewing, daemon=True)
        if not self._take():
            note(
                "warning: a second run on the same database would not be noticed: no permission for"
                " leases, see Permissions in docs/how-to/private-clusters.md"
            )
            yield False
            return
        thread.start()
        try:
            yield True
        finally:
            ended.set()
            self._client.break_off()
            thread.join(RENEW_S)
            self._give_back()

    def check(self) -> None:
        """Show that the holder is still at work. RunFailed if somebody else has taken it, as they may after a
        machine's sleep or when the API server was out of reach; as long as it is, nothing is known."""
        with suppress(RunFailed), explain_errors("can't renew a Lease"):
            holder, version = self._read()
            if not holder and time.time() - self._renewed_at > LEASE_S:
                holder = "a run that has ended since"  # else it was a person who has deleted it
            if holder not in ("", self._holder):
                self._lost_to = self._lost_to or holder
            elif not self._lost_to:
                self._write(version)
        if self._lost_to:
            raise RunFailed(
                f"{self._lost_to} has taken {self._claim}\nThis campaign was asleep or cut off for"
                f" more than {LEASE_S:g} s: run it again when the other has ended."
            )

    def _take(self) -> bool:
        """Whether the user may. Whoever has it is watched for as long as one is valid, so that clocks needn't
        agree."""
        before, version, looks = "", "", 0
        with explain_errors(f"can't take Lease {self._claim.key}"), pass_over(401, 403):
            while not self._write(version):
                holder, version = self._read()
                if holder in ("", self._holder):
                    continue  # given back just now, or left by this very campaign
                if before not in ("", version):
                    raise self._claim.refuse(holder)
                if looks * LOOK_S <= LEASE_S:
                    if not looks:
                        note(f"waiting to see whether this is still running: {holder}")
                    before, version, looks = version, "", looks + 1
                    time.sleep(LOOK_S)
            return True
        return False

    def _give_back(self) -> None:
        left = f"Lease {self._claim.key} is left in the cluster: it expires in {LEASE_S:g} s"
        try:
            with closing(self._place.make_client()) as self._client, explain_errors(left):
                if self._read()[0] == self._holder:
                    self._client.delete(*self._where)
        except RunFailed:
            note(left)

    def _read(self) -> tuple[str, str]:
        """Holder and version; both are empty if there is none."""
        with pass_over(404):
            lease = self._client.get(*self._where)
            holder = (lease.get("spec") or {}).get("holderIdentity") or "a run without a name"
            return holder, lease["metadata"]["resourceVersion"]
        return "", ""

    def _write(self, version: str) -> bool:
        """Make it, or renew it if it still has this version; False if it is there already, or has another."""
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"resourceVersion": version} if version else {"name": self._claim.key},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": round(LEASE_S),
                "renewTime": now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        with pass_over(409):
            if version:
                self._client.patch(*self._where, body)
            else:
                self._client.create(*self._where[:2], body)
            self._renewed_at = time.time()  # which goes on while the machine sleeps
            return True
        return False
