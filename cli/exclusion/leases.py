"""Leases by which commands on one namespace of Kubernetes notice each other.

One that isn't renewed any more is free (https://kubernetes.io/docs/concepts/architecture/leases/).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from simulator.errors import one_line

from ..cluster import Place
from ..errors import RunFailed
from ..output import note
from .addresses import Claim, refuse

LEASE_S = 20.0
"""A Lease that nobody has renewed for so long is free."""
RENEW_S = 5.0
LOOK_S = 1.0

_GONE = "a run that has ended since"


class Lease:
    """A database's Lease."""

    def __init__(
        self, claim: Claim, place: Place, holder: str, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock`: one that goes on while the machine sleeps."""
        self.claim = claim
        self.client = place.make_client()
        self.lost_to: str | None = None
        """Who has taken it meanwhile."""
        self._place = place
        self._holder = holder
        self._clock = clock
        self._name = f"iotb-{claim.key}"
        self._renewed_at = 0.0
        # Of whoever renews it: two at once would take each other for somebody else.
        self._renewing = threading.Lock()

    def take(self) -> bool:
        """Take it; False, with a warning, if that can't be done here. ConfigError if somebody else has it,
        who is watched for as long as a Lease is valid, so that clocks needn't agree."""
        from kubernetes.client.exceptions import ApiException

        from ..kubeclient import LEASE, UNREACHABLE

        ended = threading.Event()
        seen, looks = "", 0
        try:
            while True:
                try:
                    self._create()
                    return True
                except ApiException as error:
                    if error.status != 409:
                        raise
                try:
                    found = self.client.get(LEASE, self._place.namespace, self._name)
                except ApiException as error:
                    if error.status != 404:
                        raise
                    continue  # given back just now
                other = _read_holder(found)
                renewed = str(found["metadata"].get("resourceVersion"))
                if other != self._holder and seen and renewed != seen:
                    raise refuse(self.claim, other)
                if other == self._holder or looks * LOOK_S > LEASE_S:
                    self._patch(found)
                    return True
                if not looks:
                    note(f"waiting until it is known whether this is still at work: {other}")
                seen, looks = renewed, looks + 1
                ended.wait(LOOK_S)
        except ApiException as error:
            if error.status == 409:
                raise refuse(self.claim, "a run that has just begun") from error
            if error.status in (401, 403):
                note(
                    "warning: a second run on the same database would not be noticed: no"
                    " permission for leases, see Permissions in docs/kubernetes.md"
                )
                return False
            raise RunFailed(
                f"can't take Lease {self._name}: {error.status} {error.reason}"
            ) from error
        except UNREACHABLE as error:
            raise RunFailed(f"the API server can't be reached: {one_line(error)}") from error

    def renew(self) -> None:
        """Show that the holder is still at work, or find out who has taken it. A server that is away is
        asked again later."""
        from kubernetes.client.exceptions import ApiException

        from ..kubeclient import LEASE, UNREACHABLE

        with self._renewing:
            if self.lost_to is not None:
                return
            try:
                found = self.client.get(LEASE, self._place.namespace, self._name)
                if (other := _read_holder(found)) == self._holder:
                    self._patch(found)
                else:
                    self.lost_to = other
            except UNREACHABLE:
                return
            except ApiException as error:
                if error.status == 404:
                    self._take_anew()

    def _take_anew(self) -> None:
        """Somebody has deleted it: a person, or whoever has taken it when it was free and has ended since."""
        from kubernetes.client.exceptions import ApiException

        from ..kubeclient import UNREACHABLE

        if self._clock() - self._renewed_at > LEASE_S:
            self.lost_to = _GONE
            return
        try:
            self._create()
        except (ApiException, *UNREACHABLE):
            return  # the next look tells

    def give_back(self) -> None:
        """Delete it, if it is still this holder's."""
        from kubernetes.client.exceptions import ApiException

        from ..kubeclient import LEASE, UNREACHABLE

        client = self._place.make_client()
        try:
            if _read_holder(client.get(LEASE, self._place.namespace, self._name)) == self._holder:
                client.delete(LEASE, self._place.namespace, self._name)
        except (ApiException, *UNREACHABLE) as error:
            if isinstance(error, ApiException) and error.status == 404:
                return
            note(f"Lease {self._name} is left in the cluster: it ends by itself in {LEASE_S:g} s")
        finally:
            client.close()

    def _create(self) -> None:
        from ..kubeclient import LEASE

        self.client.create(LEASE, self._place.namespace, self._describe())
        self._renewed_at = self._clock()

    def _patch(self, found: Mapping[str, Any]) -> None:
        """Renew it, unless somebody has changed it since it was read."""
        from ..kubeclient import LEASE

        version = found["metadata"]["resourceVersion"]
        body = self._describe()
        body["metadata"] = {"resourceVersion": version}
        self.client.patch(LEASE, self._place.namespace, self._name, body)
        self._renewed_at = self._clock()

    def _describe(self) -> dict[str, Any]:
        from ..results.store import now

        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": round(LEASE_S),
                "renewTime": now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }


def _read_holder(lease: Mapping[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


@contextmanager
def keep_renewing(leases: Sequence[Lease]) -> Iterator[None]:
    """Renew them in a thread."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(RENEW_S):
            for lease in leases:
                lease.renew()

    thread = threading.Thread(target=go_on, daemon=True)
    try:
        if leases:
            thread.start()
        yield
    finally:
        ended.set()
        for lease in leases:
            lease.client.break_off()
        if thread.is_alive():
            thread.join(RENEW_S)
