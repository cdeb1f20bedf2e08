"""What held a run back, and the evidence for it. Pure.

The first rule that fits counts: a client without CPU left says nothing about the database; if it had some,
the rules look at the database's CPU, then at its disk and at the network. If nobody was busy, requests were
waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from simulator.contract import GroupResult, Resources, Role, RunResult
from simulator.units import format_digits

from .caveats import Place, find_place
from .model import GroupRun, Result
from .rules import is_judged

BUSY_CPU = 0.85
"""From this share on, CPUs hardly give more."""
BUSY_MACHINE = 0.9
"""The same for a machine that client and database share, with what else runs on it."""
BUSY_DISK = 0.85
"""A disk is busy if it was at work for this share of the time."""
BUSY_NETWORK = 0.85
"""Share of what a link of known speed can carry: headers and acknowledgements need the rest."""
SURELY_IDLE_CPU = 0.6
"""Below this share it wasn't the CPU."""


class Limit(StrEnum):
    """What held a run back."""

    CLIENT = "client CPU"
    DATABASE = "database CPU"
    MACHINE = "the machine's CPU"
    DISK = "database disk"
    NETWORK = "network"
    WAITING = "waiting"
    NOTHING = "nothing"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Bottleneck:
    """What held a run back, and how it shows."""

    limit: Limit
    evidence: str


def find_bottleneck(run: RunResult, role: Role = Role.WRITE) -> Bottleneck | None:
    """What held the writers (or the readers) of a run back; None for a run without valid figures of them,
    and for readers that can't be judged."""
    group = run.group(role)
    if group is None or not group.valid or group.rate_per_s is None or group.client is None:
        return None
    if not is_judged(group):
        return None
    if group.offered is not None and not group.offered.saturated and not group.client.bound:
        unit = "events" if role is Role.WRITE else "queries"
        rate = f"kept up with {group.offered.rate_per_s:,.10g} {unit}/s"
        return Bottleneck(Limit.NOTHING, f"{rate}; {_describe_use(run, group)}")
    rules: tuple[Callable[[RunResult, GroupResult], Bottleneck | None], ...] = (
        _find_client,
        _find_database_cpu,
        _find_disk,
        _find_network,
        _find_machine,
        _find_waiting,
    )
    bottleneck = next(
        (bottleneck for rule in rules if (bottleneck := rule(run, group)) is not None), None
    )
    return bottleneck or Bottleneck(Limit.UNKNOWN, _describe_use(run, group))


def find_bottlenecks(result: Result) -> dict[Place, Bottleneck]:
    """What held back the slowest valid run of each worker count, or fill level, where it is known what the
    database used. Empty for searches: their answer says what held back the runs above it."""
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


def _find_client(run: RunResult, group: GroupResult) -> Bottleneck | None:
    if group.client is None or not group.client.bound:
        return None
    reason = group.client.bound_reason or "the workers had no CPU left"
    if run.resources is not None and run.resources.cpu_s is not None:
        reason += f"; {describe_database(run.resources, group.window_s)}"
    return Bottleneck(Limit.CLIENT, reason)


def _find_database_cpu(run: RunResult, group: GroupResult) -> Bottleneck | None:
    used = run.resources
    if used is None or _busiest_share(used) < BUSY_CPU:
        return None
    return Bottleneck(Limit.DATABASE, _describe_use(run, group))


def _busiest_share(used: Resources) -> float:
    """The CPU share of all pods or processes, or that of the busiest pod if it is higher: one that can't do
    more holds the others back."""
    return max(used.cpu_share or 0.0, used.busiest_share or 0.0)


def _find_disk(run: RunResult, group: GroupResult) -> Bottleneck | None:
    used = run.resources
    if used is None or used.disk_busy_share is None or used.disk_busy_share < BUSY_DISK:
        return None
    return Bottleneck(Limit.DISK, _describe_use(run, group))


def _find_network(run: RunResult, group: GroupResult) -> Bottleneck | None:
    """Looks at the links whose speed is known: those of the database's pods and of the workers' machines."""
    links = [(machine.link_share or 0.0, f"the link of {machine.node}") for machine in run.machines]
    if run.resources is not None:
        links.append((run.resources.link_share or 0.0, "the database's busiest link"))
    share, name = max(links, default=(0.0, ""))
    if share < BUSY_NETWORK:
        return None
    return Bottleneck(
        Limit.NETWORK, f"{name} carried {share:.0%} of its capacity; {_describe_use(run, group)}"
    )


def _find_machine(run: RunResult, group: GroupResult) -> Bottleneck | None:
    """Looks at the machine that the database and the workers share, if they share one."""
    shares = [machine.busy_share for machine in run.machines if machine.busy_share is not None]
    if run.resources is None or run.resources.cpu_s is None or len(shares) != 1:
        return None
    if run.resources.nodes not in ([], [run.machines[0].node]):
        return None
    if shares[0] < BUSY_MACHINE:
        return None
    return Bottleneck(
        Limit.MACHINE,
        f"{shares[0]:.0%} busy{_list_shares(run, group)}; {_describe_use(run, group)}",
    )


def _list_shares(run: RunResult, group: GroupResult) -> str:
    """Who used the only machine's CPUs, as far as that is known."""
    machine, client = run.machines[0], group.client
    assert run.resources is not None and run.resources.cpu_s is not None and client is not None
    if not (machine.cpus and group.window_s):
        return ""
    all_s = machine.cpus * group.window_s
    shares = {"database": run.resources.cpu_s / all_s, "workers": client.cpu_s / all_s}
    if machine.others_share is not None:
        shares["others"] = machine.others_share
    return f" ({', '.join(f'{user} {share:.0%}' for user, share in shares.items())})"


def _find_waiting(run: RunResult, group: GroupResult) -> Bottleneck | None:
    """Nobody was busy: requests waited for commits, locks, or the way to the database."""
    used, client = run.resources, group.client
    assert client is not None
    if used is None or used.cpu_share is None or _busiest_share(used) >= SURELY_IDLE_CPU:
        return None
    shares = [machine.busy_share for machine in run.machines if machine.busy_share is not None]
    if max(shares, default=0.0) >= BUSY_MACHINE:
        return None
    causes = "commits" if group.role is Role.WRITE else "disks"
    text = f"for {causes}, locks, or the network; {_describe_use(run, group)}"
    if client.in_flight == 1:
        workers = "workers" if group.role is Role.WRITE else "readers"
        text += f"; more {workers}, or more requests in flight, may help"
    return Bottleneck(Limit.WAITING, text)


def _describe_use(run: RunResult, group: GroupResult) -> str:
    """How busy both sides were."""
    assert group.client is not None
    database = describe_database(run.resources, group.window_s)
    worker = "worker" if group.role is Role.WRITE else "reader"
    return f"{database}; the busiest {worker} {group.client.cpu_share:.0%} of a CPU"


def describe_database(used: Resources | None, window_s: float | None = None) -> str:
    """How busy the database was; `window_s`: for how long."""
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
