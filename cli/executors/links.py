"""How much of what its network links can carry this machine used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil

from .neighbours import MIN_COVERED

_BITS_PER_MBIT = 1e6
_INTERFACES = Path("/sys/class/net")


@dataclass(frozen=True)
class Link:
    """An interface whose speed is known. Bytes count from when it was there."""

    bits_per_s: float
    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True)
class LinkLook:
    """All of them at an instant, as seconds since 1970."""

    at: float
    links: Mapping[str, Link]


def read_links(at: float) -> LinkLook:
    """The machine's links now; without those that lead nowhere (loopback) or tell a speed that is made up
    (of bridges and containers), and those that tell none (of most virtual machines)."""
    counters = psutil.net_io_counters(pernic=True)
    return LinkLook(
        at,
        {
            name: Link(one.speed * _BITS_PER_MBIT, counted.bytes_recv, counted.bytes_sent)
            for name, one in psutil.net_if_stats().items()
            if one.isup and 0 < one.speed < 1 << 31 and _has_device(name)
            if (counted := counters.get(name)) is not None
        },
    )


def _has_device(name: str) -> bool:
    return not psutil.LINUX or (_INTERFACES / name / "device").exists()


def find_link_share(looks: Sequence[LinkLook], began: float, ended: float) -> float | None:
    """Of the busiest link, in its busier direction, between two instants; None if no link tells its speed,
    or too little is known of that time. Pure."""
    carried: dict[str, list[float]] = {}
    covered_s = 0.0
    for before, after in pairwise(looks):
        length_s = after.at - before.at
        within_s = min(after.at, ended) - max(before.at, began)
        if within_s <= 0 or length_s <= 0:
            continue
        covered_s += within_s
        for name in before.links.keys() & after.links.keys():
            was, now = before.links[name], after.links[name]
            both = carried.setdefault(name, [0.0, 0.0])
            grown = (now.received_bytes - was.received_bytes, now.sent_bytes - was.sent_bytes)
            for n, size in enumerate(grown):
                both[n] += 8 * max(0, size) * within_s / length_s / now.bits_per_s
    if not carried or covered_s < MIN_COVERED * (ended - began):
        return None
    return max(max(both) for both in carried.values()) / covered_s
