"""What is looked at once a second for as long as a run goes on, in little memory. Pure."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

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
        for one in seen:
            self.append(one)

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
            older = [one for pack in packs[:2] for one in self._unpack(pack)]
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
        found: list[_Seen] = pickle.loads(zlib.decompress(pack))  # noqa: S301 - our own, from memory
        return found

    def __iter__(self) -> Iterator[_Seen]:
        for packs in reversed(self._ages):
            for pack in packs:
                yield from self._unpack(pack)
        yield from self._latest

    def __len__(self) -> int:
        return self._length

    @property
    def first(self) -> _Seen:
        """The earliest look; IndexError if there is none."""
        found = list(islice(self, 1))
        return found[0]

    def last(self, count: int) -> list[_Seen]:
        """The latest looks, two at most."""
        return self._latest[-count:]


def _pack(looks: list[_Seen]) -> bytes:
    # Names and keys are the same in all of them.
    return zlib.compress(pickle.dumps(looks, pickle.HIGHEST_PROTOCOL), 1)
