"""What held a run back, and the evidence for it. Pure.

The first matching rule counts: a client without spare CPU says nothing about the database; otherwise the
rules look at the database's CPU, then its disk and the network. If nothing was busy, requests were waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from simulator.contract import (
    BOUND_PAUSE_SHARE,
    LEAST_OWN_DELAY_MS,
    GroupResult,
    Resources,
    Role,
    RunResult,
)
from simulator.units import format_digits

from .caveats import Place, find_place
from .model import GroupRun, Result
from .rules import is_judged


class Limit(StrEnum):
    """What held a run back."""

    CLIENT = "client CPU"
    GENERATOR = "load generator"
    """It was late, or stalled, although it had spare CPU."""
    DATABASE = "database CPU"
    MACHINE = "the machine's CPU"
    DISK = "database disk"
    NETWORK = "network"
    WAITING = "waiting"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Bottleneck:
    """What held a run back, and the evidence."""

    limit: Limit
    evidence: str


def find_bottleneck(run: RunResult, role: Role = Role.WRITE) -> Bottleneck | None:
    """What held back the writers (or the readers) of a run; None for a run without valid figures of them, and
    for readers that can't be judged."""
    group = run.group(role)
    if group is None or not group.valid or group.rate_per_s is None or group.client is None:
        return None
    if not is_judged(group):
        return None
    database = describe_database(run.resources, group.window_s)
    worker = "worker" if role is Role.WRITE else "reader"
    use = f"{database}; the busiest {worker} {group.client.cpu_share:.0%} of a CPU"
    if group.client.bound:
        reason = group.client.bound_reason or "the workers had no CPU left"
        known = run.resources is not None and run.resources.cpu_s is not None
        limit = Limit.GENERATOR if _was_late(group) else Limit.CLIENT
        return Bottleneck(limit, f"{reason}; {database}" if known else reason)
    if group.offered is not None and not group.offered.saturated:
        unit = "events" if role is Role.WRITE else "queries"
        rate = f"kept up with {group.offered.rate_per_s:,.10g} {unit}/s"
        return Bottleneck(Limit.NOTHING, f"{rate}; {use}")
    for limit, threshold, measure in _RULES:
        share, found = measure(run, group)
        if share is not None and share >= threshold:
            return Bottleneck(limit, f"{found}; {use}" if found else use)
    if _is_waiting(run):
        causes = "commits" if role is Role.WRITE else "disks"
        text = f"for {causes}, locks, or the network; {use}"
        if group.client.in_flight == 1:
            text += f"; more {worker}s, or more requests in flight, may help"
        return Bottleneck(Limit.WAITING, text)
    return Bottleneck(Limit.UNKNOWN, use)


_CLIENT_CPU = 0.5
"""From this share, a limiting client lacked CPU."""


def _was_late(group: GroupResult) -> bool:
    """Whether the load generator was late, paused or stalled although it had spare CPU."""
    client, offered = group.client, group.offered
    if client is None or client.cpu_share >= _CLIENT_CPU or client.throttled_share:
        return False
    was_late = offered is not None and (offered.own_delay_p99_ms or 0.0) >= LEAST_OWN_DELAY_MS
    return was_late or (client.pause_share or 0.0) >= BOUND_PAUSE_SHARE or bool(group.stalls)


_Found = tuple[float | None, str]
"""A share (None if unknown), and what to say about it."""


def _measure_database(run: RunResult, _: GroupResult) -> _Found:
    """The CPU share of all pods or processes, or of the busiest pod if higher: one at its limit holds the
    others back."""
    used = run.resources
    shares = (used.cpu_share or 0.0, used.busiest_share or 0.0) if used else (0.0,)
    return max(shares), ""


def _measure_network(run: RunResult, _: GroupResult) -> _Found:
    """Looks at links of known speed: those of the database's pods and of the workers' machines."""
    links = [(machine.link_share or 0.0, f"the link of {machine.node}") for machine in run.machines]
    if run.resources is not None:
        links.append((run.resources.link_share or 0.0, "the database's busiest link"))
    share, name = max(links, default=(0.0, ""))
    return share, f"{name} carried {share:.0%} of its capacity"


def _measure_machine(run: RunResult, group: GroupResult) -> _Found:
    """Looks at the machine shared by database and workers, if there is one: what used its CPUs, as far as
    known."""
    used, client = run.resources, group.client
    busy = _list_busy(run)
    if used is None or used.cpu_s is None or client is None or len(busy) != 1:
        return None, ""
    machine = run.machines[0]
    if used.nodes not in ([], [machine.node]):
        return None, ""
    shares: dict[str, float | None] = {}
    if machine.cpus and group.window_s:
        all_s = machine.cpus * group.window_s
        shares = {"database": used.cpu_s / all_s, "workers": client.cpu_s / all_s}
        shares["others"] = machine.others_share
    known = [f"{user} {share:.0%}" for user, share in shares.items() if share is not None]
    by = f" ({', '.join(known)})" if known else ""
    return busy[0], f"{busy[0]:.0%} busy{by}"


def _list_busy(run: RunResult) -> list[float]:
    return [machine.busy_share for machine in run.machines if machine.busy_share is not None]


BUSY_MACHINE = 0.9
_RULES: Sequence[tuple[Limit, float, Callable[[RunResult, GroupResult], _Found]]] = (
    (Limit.DATABASE, 0.85, _measure_database),
    (
        Limit.DISK,
        0.85,
        lambda run, _: (run.resources.disk_busy_share if run.resources else None, ""),
    ),
    (Limit.NETWORK, 0.85, _measure_network),
    (Limit.MACHINE, BUSY_MACHINE, _measure_machine),
)
"""What may have been busy, and from which share: above it CPUs yield little more, a disk is always active,
and headers and acknowledgements take the rest of a link. A shared machine also runs other programs."""
SURELY_IDLE_CPU = 0.6
"""Below this share the CPU was not the limit."""


def _is_waiting(run: RunResult) -> bool:
    """Whether nothing was busy, so that requests waited for commits, locks or the network."""
    used = run.resources
    if used is None or used.cpu_share is None:
        return False
    idle = max(used.cpu_share, used.busiest_share or 0.0) < SURELY_IDLE_CPU
    return idle and max(_list_busy(run), default=0.0) < BUSY_MACHINE


def find_bottlenecks(result: Result) -> dict[Place, Bottleneck]:
    """What held back the slowest valid run of each worker count or fill level, where the database's resource
    use is known. Empty for searches, whose answer says it."""
    if result.command in ("capacity", "tune", "clients"):
        return {}
    slowest: dict[Place, GroupRun] = {}
    for group_run in (*result.writers, *result.readers):
        rate = group_run.group.rate_per_s
        if group_run.group.valid and rate:
            place = find_place(result, group_run)
            previous = slowest.get(place)
            if previous is None or rate < (previous.group.rate_per_s or 0):
                slowest[place] = group_run
    bottlenecks = {
        place: find_bottleneck(group_run.run, group_run.group.role)
        for place, group_run in slowest.items()
        if group_run.run.resources
    }
    return {
        place: bottleneck for place, bottleneck in bottlenecks.items() if bottleneck is not None
    }


def describe_database(used: Resources | None, window_s: float | None = None) -> str:
    """How busy the database was during `window_s`."""
    if used is None or used.cpu_s is None:
        return "what the database used is unknown"
    parts = []
    if used.cpu_share is not None and used.cpus:
        parts.append(f"the database used {used.cpu_share:.0%} of {used.cpus:g} CPUs")
    elif used.cpus is None:
        parts.append(f"the database used {used.cpu_s:,.3g} s of CPU (number of CPUs unknown)")
    if used.busiest is not None and used.busiest_share is not None:
        parts.append(f"its busiest pod {used.busiest} {used.busiest_share:.0%} of its own")
    if used.cpu_us_per_event is not None:
        parts.append(f"{format_digits(used.cpu_us_per_event)} µs of CPU per event")
    if used.disk_busy_share is not None:
        parts.append(f"its disk was busy {used.disk_busy_share:.0%} of the time")
    sizes = [size for size in (used.received_bytes, used.sent_bytes) if size is not None]
    if sizes and window_s:
        parts.append(f"{max(sizes) / window_s / 1e6:,.3g} MB/s over its network")
    return ", ".join(parts)
