"""Mutual exclusion: only one command, or campaign with all its jobs, uses a database at a time. On this
machine a locked file ensures that, on Kubernetes a Lease. The database's own locks (`Module.lock`) also
exclude other machines."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from simulator.errors import printable_line
from simulator.machine import read_clock_s

from ..results.store import now
from ..system.errors import ConfigError, RunFailed
from ..system.installation import describe_user
from ..system.output import note
from ..system.processes import is_for_all, lock_file
from .cluster import Place, explain_errors, pass_over

SHARED = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - see `lock_file`
"""Locks are in the first of these folders that all users share; not in $TMPDIR, which may be private."""
OWN = Path("~/.cache/iot-database-benchmark/locks")
LEASE_S = 20.0
"""A Lease that was not renewed for this long is free."""
RENEW_S, LOOK_S = 5.0, 1.0


@dataclass(frozen=True)
class Claim:
    """A database, identified by one of its addresses."""

    target: str = field(compare=False)
    address: str
    place: Place | None
    """The namespace it is reached from; None means this machine."""

    @property
    def key(self) -> str:
        """The name of its file or Lease: the same for everyone who uses this database."""
        return f"iotb-{hashlib.sha256(self.address.encode()).hexdigest()[:16]}"

    def __str__(self) -> str:
        return f"the database of target {self.target} ({self.address})"

    def refuse(self, holder: str) -> ConfigError:
        """The error if someone else holds it."""
        return ConfigError(f"{holder} is using {self}: wait for it to end, or use another database")


_held: ContextVar[frozenset[Claim]] = ContextVar("held", default=frozenset())
"""The claims of a campaign, which its jobs need not repeat."""


@contextmanager
def claim_databases(claims: Iterable[Claim], who: str) -> Iterator[list[Lease]]:
    """Hold these for a command or a campaign, called `who` in messages to others. ConfigError if someone else
    holds one. Yields the Leases, which the caller must check, since they can be lost."""
    holder = f"{who} of {describe_user()}"
    wanted = [claim for claim in dict.fromkeys(claims) if claim not in _held.get()]
    leases = []
    with ExitStack() as stack:
        for claim in wanted:
            if claim.place is None:
                stack.enter_context(hold_lock(claim, holder))
            elif (lease := Lease(claim, claim.place, holder)).take():
                stack.callback(lease.give_back)
                leases.append(lease)
        stack.callback(_held.reset, _held.set(_held.get().union(wanted)))
        yield leases


@contextmanager
def hold_lock(claim: Claim, holder: str) -> Iterator[None]:
    """Hold a database by a locked file. ConfigError if anyone else, of any user, holds it. Warns if locking
    is impossible."""
    shared = next(filter(is_for_all, SHARED), None)
    if shared is None:
        note(
            f"warning: neither {' nor '.join(map(str, SHARED))} is a folder for all users (owned by root,"
            " mode 1777): runs of other users on this machine would not be noticed"
        )
    path = (shared or OWN.expanduser()) / claim.key
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_file(path, holder, for_all=True))
        except BlockingIOError as error:
            raise claim.refuse(printable_line(error.args[1]) or "another run") from error
        except OSError as error:
            problem = f"{path} can't be locked ({error.strerror})"
            note(f"warning: {problem}: a second run on {claim} would not be noticed")
        yield


class Lease:
    """A database's Lease (https://kubernetes.io/docs/concepts/architecture/leases/)."""

    def __init__(self, claim: Claim, place: Place, holder: str) -> None:
        from .kubeclient import LEASE

        self._claim, self._holder = claim, holder
        self._where = LEASE, place.namespace, claim.key
        self._client = place.make_client()
        self._renewed_at, self._lost_to = 0.0, ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_renewing, daemon=True)

    def take(self) -> bool:
        """Take it and keep renewing it. Returns whether the user is permitted to. ConfigError if someone else
        holds it: their Lease is watched until it would expire, so clocks needn't agree."""
        with explain_errors(f"can't take Lease {self._claim.key}"), pass_over(401, 403):
            holder, version = self._read()
            if holder not in ("", self._holder):  # this same campaign may have left it
                note(f"waiting to see whether this is still running: {holder}")
                seen, until = version, time.monotonic() + LEASE_S
                while holder and time.monotonic() < until:
                    time.sleep(LOOK_S)
                    holder, version = self._read()
                    if version not in ("", seen):
                        raise self._claim.refuse(holder)
            if not self._write(version):
                raise self._claim.refuse("another run")
            self._thread.start()
            return True
        note(
            "warning: a second run on the same database would not be noticed: no permission for leases,"
            " see Permissions in docs/how-to/private-clusters.md"
        )
        return False

    def _keep_renewing(self) -> None:
        while not self._ended.wait(RENEW_S):
            try:
                self.check()
            except RunFailed:  # `check` reports it
                return
            except Exception as error:  # noqa: BLE001 - if this thread ended, the Lease would expire
                note(f"warning: Lease {self._claim.key} can't be renewed: {error!r}")

    def check(self) -> None:
        """Renew it. RunFailed if someone else has taken it, which may happen while the machine sleeps or the
        API server is unreachable. Until then nothing is known."""
        with suppress(RunFailed), explain_errors("can't renew a Lease"):
            holder, version = self._read()
            if not holder and read_clock_s() - self._renewed_at > LEASE_S:
                holder = "a run that has ended since"  # otherwise a person deleted it
            if holder != self._holder:
                self._lost_to = self._lost_to or holder
            if not self._lost_to:
                self._write(version)
        if self._lost_to:
            raise RunFailed(
                f"{self._lost_to} has taken {self._claim}\nThis campaign was asleep or cut off for"
                f" more than {LEASE_S:g} s: run it again when the other has ended."
            )

    def give_back(self) -> None:
        """Stop renewing it, and delete it unless someone else has taken it."""
        self._ended.set()
        self._client.break_off()
        self._thread.join(RENEW_S)
        try:
            with explain_errors("can't release a Lease"):
                if self._read()[0] == self._holder:
                    self._client.delete(*self._where)
        except RunFailed:
            note(f"Lease {self._claim.key} is left in the cluster: it expires in {LEASE_S:g} s")

    def _read(self) -> tuple[str, str]:
        """Holder and version; both empty if there is none."""
        with pass_over(404):
            lease = self._client.get(*self._where)
            holder = (lease.get("spec") or {}).get("holderIdentity") or "a run without a name"
            return holder, lease["metadata"]["resourceVersion"]
        return "", ""

    def _write(self, version: str) -> bool:
        """Create it, or renew the version that was read. False if someone has changed it since."""
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._claim.key, "resourceVersion": version},
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
            self._renewed_at = read_clock_s()
            return True
        return False
