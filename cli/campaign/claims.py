"""Databases that a campaign keeps for itself: two at work on one would drop each other's tables.

On this machine each database is a locked file, on Kubernetes a Lease of the namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..cluster import describe_user
from ..errors import RunFailed
from .addresses import Claim
from .leases import LEASE_S, Lease, keep_renewing
from .locks import hold_lock


class Holding:
    """What a campaign keeps for itself."""

    def __init__(self, leases: Iterable[Lease]) -> None:
        self._leases = list(leases)

    def check(self) -> None:
        """RunFailed if another campaign has taken a database meanwhile, as it may after a machine's sleep or
        when the API server was out of reach."""
        for lease in self._leases:
            lease.renew()
            if lease.lost_to is not None:
                raise RunFailed(
                    f"another campaign has taken {lease.claim}: {lease.lost_to}\nThis one was asleep or"
                    f" cut off for more than {LEASE_S:g} s: run it again when the other has ended."
                )


@contextmanager
def claim_databases(claims: Iterable[Claim], campaign: Path) -> Iterator[Holding]:
    """Keep these for the campaign of that folder; ConfigError if another one has one of them."""
    holder = f"{describe_user()}:{campaign.resolve()}"
    with ExitStack() as stack:
        leases = []
        for claim in claims:
            if claim.place is None:
                stack.enter_context(hold_lock(claim, holder))
            else:
                leases.append(Lease(claim, claim.place, holder))
        held = []
        for lease in leases:
            if lease.take():
                stack.callback(lease.give_back)
                held.append(lease)
        stack.enter_context(keep_renewing(held))
        yield Holding(held)
