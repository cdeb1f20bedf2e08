"""Databases that a campaign keeps for itself: two at work on one would drop each other's tables.

On this machine each database is a locked file, which a process that is killed lets go. On Kubernetes it is
a Lease of the namespace, renewed while the campaign is at work; one that isn't renewed any more is free.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from simulator.errors import one_line

from ..cluster import Place, describe_user
from ..config import ExecutorName
from ..errors import ConfigError, RunFailed
from ..output import note
from ..session import Session

FOLDER = Path("~/.cache/iot-database-benchmark/campaigns")
"""Of the user: campaigns of other users on this machine aren't noticed."""

_HOST = re.compile(r"\b(?:host|hostaddr)\s*=\s*(?:'([^']*)'|(\S+))")
_PORT = re.compile(r"\bport\s*=\s*'?(\d+)")
_LOOPBACK = re.compile(r"^(?:127\.[\d.]+|\[?::1\]?)(?=:\d|$)")

_LEASE_S = 20
"""A Lease that nobody has renewed for so long is free."""
_RENEW_S = 5.0
_LOOK_S = 1.0


@dataclass(frozen=True)
class Claim:
    """A database, by one of its addresses."""

    target: str
    address: str
    place: Place | None
    """The namespace from which it is reached; None: from this machine."""

    @property
    def key(self) -> str:
        """The same for whoever means this database."""
        return hashlib.sha256(self.address.encode()).hexdigest()[:16]


def list_claims(sessions: Iterable[Session]) -> list[Claim]:
    """The databases of these, each address once."""
    found: dict[tuple[str, Place | None], Claim] = {}
    for session in sessions:
        place = session.place if session.executor is ExecutorName.KUBERNETES else None
        for address in _find_addresses(session):
            found.setdefault((address, place), Claim(session.target.name, address, place))
    return list(found.values())


def _find_addresses(session: Session) -> list[str]:
    if session.target.data_dir is not None:
        return [str(Path(session.target.data_dir).expanduser().resolve())]
    return read_addresses(session.values.get(session.module.options_model.ADDRESSES))


def read_addresses(value: Any) -> list[str]:
    """`host`, `host:port` or a socket's folder, of each server that an option names."""
    texts = value if isinstance(value, list) else [] if value is None else [value]
    found: list[str] = []
    for text in map(str, texts):
        found += _read_connection(text) if "=" in text.partition("://")[0] else _read_list(text)
    return list(dict.fromkeys(filter(None, map(_normalize, found))))


def _read_connection(text: str) -> list[str]:
    """Of libpq's `host=a,b port=5432`."""
    host, port = _HOST.search(text), _PORT.search(text)
    names = (host[1] or host[2]).split(",") if host else ["localhost"]
    return [f"{name}:{port[1] if port else 5432}" for name in names]


def _read_list(text: str) -> list[str]:
    scheme, mark, rest = text.partition("://")
    if mark and scheme.startswith("postgres"):
        # libpq's URLs have several hosts in one: a@h1:1,h2:2/db
        return rest.partition("/")[0].rpartition("@")[2].split(",")
    return [urlsplit(one).netloc.rpartition("@")[2] if "://" in one else one
            for one in map(str.strip, text.split(","))]  # fmt: skip


def _normalize(address: str) -> str:
    return _LOOPBACK.sub("localhost", address.strip().lower())


@contextmanager
def claim_databases(claims: Iterable[Claim], campaign: Path) -> Iterator[Holding]:
    """Keep these for the campaign of that folder; ConfigError if another one has one of them."""
    holder = f"{describe_user()}:{campaign.resolve()}"
    with ExitStack() as stack:
        leases = []
        for claim in claims:
            if claim.place is None:
                _lock(claim, holder, stack)
            else:
                leases.append(_Lease(claim, claim.place, holder))
        for lease in leases:
            if lease.take():
                stack.callback(lease.give_back)
        held = [lease for lease in leases if lease.held]
        yield stack.enter_context(_renew(held))


def _refuse(claim: Claim, holder: str) -> ConfigError:
    return ConfigError(
        f"another campaign is at work on the database of target {claim.target} ({claim.address}):"
        f" {holder or 'unknown'}\nWait for its end: they would drop each other's tables."
    )


def _lock(claim: Claim, holder: str, stack: ExitStack) -> None:
    folder = FOLDER.expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file: IO[str] = stack.enter_context((folder / claim.key).open("a+"))
    except OSError as error:
        note(
            f"warning: {folder} can't be written ({error.strerror}): a second campaign on the same"
            " database would not be noticed"
        )
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        raise _refuse(claim, file.read()) from error
    file.truncate(0)
    file.write(holder)
    file.flush()


class Holding:
    """What a campaign keeps for itself on Kubernetes."""

    def __init__(self, leases: Iterable[_Lease]) -> None:
        self._leases = list(leases)

    def check(self) -> None:
        """RunFailed if another campaign has taken one of them meanwhile, as after a machine's sleep."""
        for lease in self._leases:
            if lease.lost_to is not None:
                error = _refuse(lease.claim, lease.lost_to)
                raise RunFailed(f"this campaign was away for too long: {error.message}")


@contextmanager
def _renew(leases: list[_Lease]) -> Iterator[Holding]:
    """Renew them in a thread."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(_RENEW_S):
            for lease in leases:
                lease.renew()

    thread = threading.Thread(target=go_on, daemon=True)
    if leases:
        thread.start()
    try:
        yield Holding(leases)
    finally:
        ended.set()
        for lease in leases:
            lease.client.break_off()
        if leases:
            thread.join(_RENEW_S)


class _Lease:
    """A Lease by which campaigns in a namespace notice each other
    (https://kubernetes.io/docs/concepts/architecture/leases/)."""

    def __init__(self, claim: Claim, place: Place, holder: str) -> None:
        self.claim = claim
        self.client = place.make_client()
        self.held = False
        self.lost_to: str | None = None
        """Who has taken it meanwhile."""
        self._place = place
        self._holder = holder
        self._name = f"iotb-campaign-{claim.key}"

    def take(self) -> bool:
        """Take it; False, with a warning, if that can't be done here. ConfigError if another campaign has
        it: it is watched for as long as it is valid, so that clocks needn't agree."""
        from kubernetes.client.exceptions import ApiException

        from ..kubeclient import LEASE, UNREACHABLE

        ended = threading.Event()
        seen, looks = "", 0
        try:
            while True:
                try:
                    self.client.create(LEASE, self._place.namespace, self._describe())
                    self.held = True
                    return True
                except ApiException as error:
                    if error.status != 409:
                        raise
                found = self.client.get(LEASE, self._place.namespace, self._name)
                other = _read_holder(found)
                renewed = str(found["metadata"].get("resourceVersion"))
                if other != self._holder and seen and renewed != seen:
                    raise _refuse(self.claim, other)
                if other == self._holder or looks * _LOOK_S > _LEASE_S:
                    self._patch(found)
                    self.held = True
                    return True
                if not looks:
                    note(f"waiting until it is known whether a campaign is at work: {other}")
                seen, looks = renewed, looks + 1
                ended.wait(_LOOK_S)
        except ApiException as error:
            if error.status == 409:
                raise _refuse(self.claim, "one that has just begun") from error
            if error.status in (401, 403):
                note(
                    "warning: a second campaign on the same database would not be noticed: no"
                    " permission for leases, see Permissions in docs/kubernetes.md"
                )
                return False
            raise RunFailed(
                f"can't take Lease {self._name}: {error.status} {error.reason}"
            ) from error
        except UNREACHABLE as error:
            raise RunFailed(f"the API server can't be reached: {one_line(error)}") from error

    def renew(self) -> None:
        """Show that the campaign is still at work. A server that is away is asked again later."""
        from kubernetes.client.exceptions import ApiException

        from ..kubeclient import LEASE, UNREACHABLE

        try:
            found = self.client.get(LEASE, self._place.namespace, self._name)
            if (other := _read_holder(found)) != self._holder:
                self.lost_to = other
            else:
                self._patch(found)
        except (ApiException, *UNREACHABLE):
            return

    def give_back(self) -> None:
        """Delete it, if it is still this campaign's."""
        from kubernetes.client.exceptions import ApiException

        from ..kubeclient import LEASE, UNREACHABLE

        client = self._place.make_client()
        try:
            if _read_holder(client.get(LEASE, self._place.namespace, self._name)) == self._holder:
                client.delete(LEASE, self._place.namespace, self._name)
        except (ApiException, *UNREACHABLE):
            note(f"Lease {self._name} is left in the cluster: it ends by itself in {_LEASE_S} s")
        finally:
            client.close()

    def _patch(self, found: Mapping[str, Any]) -> None:
        """Renew it, unless somebody has changed it since it was read."""
        from ..kubeclient import LEASE

        version = found["metadata"]["resourceVersion"]
        body = self._describe()
        body["metadata"] = {"resourceVersion": version}
        self.client.patch(LEASE, self._place.namespace, self._name, body)

    def _describe(self) -> dict[str, Any]:
        from ..results.store import now

        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": _LEASE_S,
                "renewTime": now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }


def _read_holder(lease: Mapping[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
