"""What was used over time, how much of it within the window of a run, and how a day of it stays small. Pure.

All probes give steps: what was used between two looks, whatever it is and whoever looked. What happened
meanwhile is shared out evenly over that time.
"""

from __future__ import annotations

import pickle
import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from simulator.contract import RunResult

MIN_COVERED = 0.5
"""The share of a window that steps must cover."""
NAMED, NAMED_SHARE = 5, 0.01
"""How many of those that took most of a machine's CPU are named, and from which share on."""


@dataclass(frozen=True)
class Window:
    """From when to when something was measured, by the clock of whoever looked."""

    began: float
    ended: float
    origin: float
    """The common start: from there on the load was the same."""
    events: int | None = None
    """Acknowledged within."""

    @property
    def length_s(self) -> float:
        return self.ended - self.began


@dataclass(frozen=True)
class Step:
    """What was used between two instants: amounts of whatever the keys say."""

    began: float
    ended: float
    amounts: Mapping[Hashable, float]

    @property
    def length_s(self) -> float:
        return self.ended - self.began

    def within_s(self, began: float, ended: float) -> float:
        """Seconds of it between two instants."""
        return max(0.0, min(self.ended, ended) - max(self.began, began))

    def rate(self, key: Hashable) -> float:
        """How much of this was used in a second."""
        return self.amounts[key] / self.length_s


def merge_steps(earlier: Step, later: Step) -> Step | None:
    """Both as one; None if there is a time between them."""
    if later.began != earlier.ended:
        return None
    amounts = dict(earlier.amounts)
    for key, amount in later.amounts.items():
        amounts[key] = amounts.get(key, 0.0) + amount
    return Step(earlier.began, later.ended, amounts)


def add_up(steps: Iterable[Step], window: Window) -> dict[Hashable, float] | None:
    """What was used in a window; None if the steps tell of less than half of it. What lies outside of all
    steps is taken to be like the rest."""
    amounts: dict[Hashable, float] = defaultdict(float)
    covered_s = 0.0
    for step in steps:
        within_s = step.within_s(window.began, window.ended)
        if within_s > 0:
            covered_s += within_s
            for key, amount in step.amounts.items():
                amounts[key] += amount * within_s / step.length_s
    if covered_s <= 0 or covered_s < MIN_COVERED * window.length_s:
        return None
    return {key: amount * window.length_s / covered_s for key, amount in amounts.items()}


def name_most(shares: Mapping[str, float]) -> dict[str, float]:
    """The shares of a machine's CPU that are worth naming, the largest first."""
    most = sorted(shares.items(), key=lambda pair: -pair[1])[:NAMED]
    return {name: share for name, share in most if share >= NAMED_SHARE}


def find_window(run: RunResult, own: tuple[float, float] | None = None) -> Window | None:
    """The time of a run that is measured; None if nothing was. `own`: its begin and end by the clock of
    whoever looked; None: that is the wall clock, as seconds since 1970."""
    if run.began_at is None or run.ended_at is None:
        return None
    began, ended = own or (
        datetime.fromisoformat(text).timestamp() for text in (run.began_at, run.ended_at)
    )
    events = run.writers.count if run.writers else None
    return Window(began, ended, began - run.groups[0].warm_up_s, events)


# --- a series of looks that coarsens with age

_Seen = TypeVar("_Seen")

_PACKED = 60
"""Looks that are packed together."""
_BLOCKS = 60
"""Packs of one age: an hour of looks stays as it is, of older ones two become one, again and again."""


class AgingSeries(Generic[_Seen]):
    """Looks in their order. Those of the last hour come back as they were; older ones coarsen with age: two
    neighbours become one where `merge` can say both in one."""

    def __init__(
        self, merge: Callable[[_Seen, _Seen], _Seen | None], seen: Iterable[_Seen] = ()
    ) -> None:
        """`merge`: two looks as one; None: both must stay."""
        self._merge = merge
        self._ages: list[list[bytes]] = []
        """By how often they were merged: packs, the oldest first. What was merged more often is older."""
        self._latest: list[_Seen] = []
        self._length = 0
        for look in seen:
            self.append(look)

    def append(self, look: _Seen) -> None:
        """The latest look."""
        # The two latest are always at hand.
        if len(self._latest) >= _PACKED + 2:
            self._add_pack(0, self._latest[:_PACKED])
            del self._latest[:_PACKED]
        self._latest.append(look)
        self._length += 1

    def _add_pack(self, age: int, looks: list[_Seen]) -> None:
        if age == len(self._ages):
            self._ages.append([])
        packs = self._ages[age]
        packs.append(_pack(looks))
        if len(packs) > _BLOCKS:
            older = [look for pack in packs[:2] for look in self._unpack(pack)]
            del packs[:2]
            merged = list(self._merge_pairs(older))
            self._length += len(merged) - len(older)
            self._add_pack(age + 1, merged)

    def _merge_pairs(self, looks: list[_Seen]) -> Iterator[_Seen]:
        place = 0
        while place < len(looks):
            following = looks[place + 1] if place + 1 < len(looks) else None
            merged = None if following is None else self._merge(looks[place], following)
            yield looks[place] if merged is None else merged
            place += 1 if merged is None else 2

    def _unpack(self, pack: bytes) -> list[_Seen]:
        looks: list[_Seen] = pickle.loads(zlib.decompress(pack))  # noqa: S301 - our own, from memory
        return looks

    def __iter__(self) -> Iterator[_Seen]:
        for packs in reversed(self._ages):
            for pack in packs:
                yield from self._unpack(pack)
        yield from self._latest

    def __len__(self) -> int:
        return self._length

    @property
    def first(self) -> _Seen:
        """The earliest look; StopIteration if there is none."""
        return next(iter(self))

    def last(self, count: int) -> list[_Seen]:
        """The latest looks, two at most."""
        return self._latest[-count:]


def _pack(looks: list[_Seen]) -> bytes:
    # Names and keys are the same in all of them.
    return zlib.compress(pickle.dumps(looks, pickle.HIGHEST_PROTOCOL), 1)
