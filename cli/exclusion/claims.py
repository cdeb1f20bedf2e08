"""Databases that a command, or a campaign with all its jobs, keeps for itself.

On this machine each database is a locked file, on Kubernetes a Lease of the namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from ..cluster import describe_user
from ..errors import RunFailed
from .addresses import Claim
from .leases import LEASE_S, Lease, keep_renewing
from .locks import hold_lock

_held: ContextVar[frozenset[Claim]] = ContextVar("held", default=frozenset())
"""What a campaign holds: its jobs need not claim it again."""


class Holding:
    """The databases that are held."""

    def __init__(self, leases: Iterable[Lease]) -> None:
        self._leases = list(leases)

    def check(self) -> None:
        """RunFailed if somebody else has taken a database meanwhile, as they may after a machine's sleep or
        when the API server was out of reach."""
        for lease in self._leases:
            lease.renew()
            if lease.lost_to is not None:
                raise RunFailed(
                    f"{lease.lost_to} has taken {lease.claim}\nThis campaign was asleep or cut off for"
                    f" more than {LEASE_S:g} s: run it again when the other has ended."
                )


@contextmanager
def claim_databases(claims: Iterable[Claim], who: str) -> Iterator[Holding]:
    """Keep these for a command or a campaign, which messages to others call `who`; ConfigError if somebody
    else has one of them."""
    holder = f"{who} of {describe_user()}"
    wanted = [claim for claim in claims if claim not in _held.get()]
    with ExitStack() as stack:
        leases = []
        for claim in wanted:
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
        stack.callback(_held.reset, _held.set(_held.get().union(wanted)))
        yield Holding(held)
