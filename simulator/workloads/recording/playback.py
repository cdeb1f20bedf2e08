"""How many devices play a recording repeatedly: which events each worker has, in which order, and when.

One repetition is all rows of the recording, once for each copy of a device. Copies start at other places in
it, as if they were shifted in time: copy c of F begins at the fraction c/F, and what comes before that
follows at the end, a period later. To find what is due when, a period is cut into slots of equal length, by
which copies are shifted: slot s of all copies has the rows of slots s + shift, in the order of sending. So an
event is a function of (worker, number), and no memory grows with the number of events.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import OptionError
from .store import Recording, chunks

Rows = NDArray[np.int64]

_SLOT_EVENTS = 8_192
"""About how many events of all devices a slot has."""
_MOST_SLOTS = 1 << 20
_FINEST = 64
"""The least milliseconds of a slot: a period is rounded up to whole slots of whole milliseconds, which
stretches it by less than one part in this many."""
MOST_MERGED = 16_000_000
"""The most events of a slot: with more, events are so close together that slots can't separate them."""
_KEPT_EVENTS = 1_000_000
"""About how many events of merged slots are kept."""
_NONE = np.empty(0, np.int32)


class Events(NamedTuple):
    """Events: row of the recording, device among all, and time (and when it is due) in ms since the
    recording's first event."""

    rows: Any
    """An array; or a slice, for consecutive rows."""
    devices: NDArray[np.integer[Any]]
    times: Rows
    due: Rows

    def delay(self, by_ms: Rows | int) -> Events:
        """The same events, later by this much."""
        return self._replace(times=self.times + by_ms, due=self.due + by_ms)

    def take(self, places: Rows | slice) -> Events:
        """Some of the events."""
        return Events(self.rows[places], self.devices[places], self.times[places], self.due[places])


@dataclass(frozen=True)
class _Part:
    """Whole copies of some of the recorded devices: those numbered from `low`, below `high`."""

    copies: range
    low: int
    high: int
    rows: NDArray[np.int32] | None
    """Their rows, in order; None: all."""

    def find_rows(self, places: Rows) -> Rows:
        """The rows at these positions of the part."""
        return places if self.rows is None else self.rows[places].astype(np.int64)


@dataclass(frozen=True)
class Share:
    """The events of one worker."""

    group: int
    """The number of the first device of all workers that share them."""
    first: int
    """Its first device, numbered copy by copy."""
    names: NDArray[np.bytes_]
    parts: tuple[_Part, ...]
    bounds: tuple[Rows, ...]
    """For each part, the position of its first row in each slot, and its end."""
    ends: Rows
    """How many events a repetition has before each slot, and in total."""

    @property
    def events(self) -> int:
        """How many events a repetition has."""
        return int(self.ends[-1])


class Playback:
    """Which events are due when, if this many devices play a recording: the first ones as recorded, the
    others as copies."""

    def __init__(self, recording: Recording, used: int, in_all: int, sharing: int) -> None:
        """`used`: how many recorded devices are used. `in_all`: how many devices, copies included. `sharing`:
        how many workers share them."""
        self.recording = recording
        self.used = used
        self.copies = -(-in_all // used)
        """How often each device is there at most, including itself."""
        self._in_all, self._sharing = in_all, sharing
        self._cut_slots()
        self._shares: dict[int, Share] = {}
        self._merged: OrderedDict[tuple[int, int, int], Events] = OrderedDict()
        self._merged_events = 0

    # --- slots ------------------------------------------------------------------------------------

    def _cut_slots(self) -> None:
        """Cut the period into slots, by which copies are shifted."""
        due = self.recording.due_ms
        self.period_ms = int(due[-1] - due[0]) + max(1, round(self.recording.header.interval_ms))
        if self.copies == 1:
            # Nothing to merge: numbers are positions.
            self._slots, self._turn, self._shifts = 1, 1, 1
            self._slot_ms = self.period_ms
            return
        most = min(_MOST_SLOTS, max(1, self.period_ms // _FINEST))
        self._shifts = min(self.copies, most)
        """How many different shifts there are: copy c has shift c modulo this."""
        wanted = len(self.recording) * self.copies // _SLOT_EVENTS
        self._turn = max(1, min(wanted, most) // self._shifts)
        """How many slots one shift is."""
        self._slots = self._turn * self._shifts
        self._slot_ms = -(-self.period_ms // self._slots)
        self.period_ms = self._slot_ms * self._slots

    @cached_property
    def _slot_rows(self) -> Rows:
        """The first row of each slot, and the end."""
        due = self.recording.due_ms
        begins = due[0] + self._slot_ms * np.arange(1, self._slots, dtype=np.int64)
        return np.concatenate([[0], np.searchsorted(due, begins), [len(due)]])

    def find_disorder(self) -> int:
        """The most events between two that are out of time order."""
        header = self.recording.header
        if self.copies == 1 or not header.late:
            return header.disorder
        most = int(np.diff(self._slot_rows).max()) * self.copies
        return most * (2 + header.latest_ms // self._slot_ms)

    # --- the events of a worker -------------------------------------------------------------------

    def share(self, worker: int) -> Share:
        """The events of a worker."""
        share = self._shares.get(worker)
        if share is None:
            if len(self._shares) >= 4:
                self._shares.clear()
            share = self._shares[worker] = self._deal(worker)
        return share

    def own(self, worker: int) -> tuple[int, int, int]:
        """The number of the first device of all workers that share them; then the worker's first device and
        end. Workers beyond those that share them send other devices of the same recording."""
        group, place = divmod(worker, self._sharing)
        start, stop = (self._in_all * border // self._sharing for border in (place, place + 1))
        return group * self.copies * self.used, start, stop

    def _deal(self, worker: int) -> Share:
        group, first, end = self.own(worker)
        parts, at = [], first
        while at < end:
            copy, low = divmod(at, self.used)
            if low or end - at < self.used:
                high = min(self.used, low + end - at)
                parts.append(self._make_part(range(copy, copy + 1), low, high))
                at += high - low
            else:
                until = end // self.used
                parts.append(self._make_part(range(copy, until), 0, self.used))
                at = until * self.used
        bounds = tuple(
            self._slot_rows if part.rows is None else np.searchsorted(part.rows, self._slot_rows)
            for part in parts
        )
        counted = sum(
            self._count_by_slot(part, np.diff(bound))
            for part, bound in zip(parts, bounds, strict=True)
        )
        ends = np.concatenate([[0], np.cumsum(counted)])
        if self.copies > 1 and np.max(counted) > MOST_MERGED:
            raise OptionError(
                f"{np.max(counted):,} recorded events are due within {self._slot_ms} ms, too many to be sent"
                " by one worker: use fewer devices, or more workers"
            )
        names = self._name(group + first, group + end)
        return Share(group, group + first, names, tuple(parts), bounds, ends)

    def _make_part(self, copies: range, low: int, high: int) -> _Part:
        if low == 0 and high == self.recording.header.devices:
            return _Part(copies, low, high, None)
        numbers = self.recording.device_numbers
        # They may be more than memory should hold, and are mapped like the recording.
        with TemporaryFile(dir=self.recording.folder.parent) as file:
            for rows in chunks(len(numbers)):
                own = np.asarray(numbers[rows])
                chosen = np.flatnonzero((own >= low) & (own < high)) + rows.start
                file.write(chosen.astype(np.int32).tobytes())
            file.flush()
            found = np.asarray(np.memmap(file, np.int32, "r")) if file.tell() else _NONE
        return _Part(copies, low, high, found)

    def _count_by_slot(self, part: _Part, counts: Rows) -> Rows:
        """How many events all copies of a part have in each slot, from the number of its rows by slot."""
        whole, rest = divmod(len(part.copies), self._shifts)
        # Shifts of consecutive copies are `turn` slots apart, so sums over a row of these are differences.
        by_turn = counts.reshape(self._shifts, self._turn)
        twice = np.concatenate([by_turn, by_turn])
        sums = np.concatenate([np.zeros((1, self._turn), np.int64), np.cumsum(twice, axis=0)])
        first = part.copies.start % self._shifts
        begins = (np.arange(self._shifts) + first) % self._shifts
        summed = sums[begins + rest] - sums[begins] + whole * by_turn.sum(axis=0)
        counted: Rows = summed.reshape(-1)
        return counted

    def _name(self, first: int, stop: int) -> NDArray[np.bytes_]:
        """Names of devices: recorded ones, and copies, whose number follows the name."""
        names = self.recording.devices
        numbers = np.arange(first, stop)
        copies, places = np.divmod(numbers, self.used)
        if not copies.any():
            return names[places]
        texts = names[places].tolist()
        return np.array(
            [
                b"%s~%d" % (name, copy) if copy else name
                for name, copy in zip(texts, copies.tolist(), strict=True)
            ]
        )

    @cached_property
    def _rows_until(self) -> Rows:
        """How many rows come before each used device's, and in total."""
        numbers, counts = self.recording.device_numbers, np.zeros(self.used, dtype=np.int64)
        for some in chunks(len(numbers)):
            counts += np.bincount(numbers[some], minlength=self.used)[: self.used]
        return np.concatenate([[0], np.cumsum(counts)])

    def turn(self, worker: int) -> int:
        """How many events a worker has in a repetition."""
        until = self._rows_until
        start, stop = (divmod(device, self.used) for device in self.own(worker)[1:])
        return int((stop[0] - start[0]) * until[-1] + until[stop[1]] - until[start[1]])

    # --- events -----------------------------------------------------------------------------------

    def list_events(self, worker: int, place: int, until: int) -> Events:
        """Consecutive events of a worker in the first repetition."""
        share = self.share(worker)
        if self.copies == 1:
            [part] = share.parts
            rows: Rows | slice = slice(place, until)
            if part.rows is not None:
                rows = part.rows[place:until].astype(np.int64)
            return self._take(rows, share.group)
        slots = np.searchsorted(share.ends, [place, until - 1], side="right") - 1
        low, high = int(slots[0]), int(slots[1]) + 1
        events = self._merge(worker, share, low, high)
        own = slice(place - int(share.ends[low]), until - int(share.ends[low]))
        return events.take(own)

    def find_events(self, worker: int, numbers: Rows) -> Events:
        """Events of a worker by number."""
        share = self.share(worker)
        repetitions, places = np.divmod(numbers, share.events)
        if self.copies == 1:
            [part] = share.parts
            rows, devices, times, due = self._take(part.find_rows(places), share.group)
        else:
            slots = np.searchsorted(share.ends, places, side="right") - 1
            rows, devices, times, due = (np.empty(len(numbers), np.int64) for _ in range(4))
            for slot in np.unique(slots).tolist():
                own = np.flatnonzero(slots == slot)
                merged = self._merge(worker, share, slot, slot + 1)
                at = places[own] - int(share.ends[slot])
                for target, source in zip((rows, devices, times, due), merged, strict=True):
                    target[own] = source[at]
        return Events(rows, devices, times, due).delay(repetitions * self.period_ms)

    def _take(self, rows: Rows | slice, ahead: int = 0) -> Events:
        """Rows of the recording itself. `ahead`: the number of its first device."""
        begin = int(self.recording.due_ms[0])
        times = self.recording.times_ms[rows] - begin
        due = self.recording.due_ms[rows] - begin if self.recording.header.late else times
        devices = self.recording.device_numbers[rows]
        return Events(rows, devices + ahead if ahead else devices, times, due)

    def _merge(self, worker: int, share: Share, low: int, high: int) -> Events:
        """All events of these slots, in the order of sending."""
        key = worker, low, high
        if (known := self._merged.get(key)) is not None:
            self._merged.move_to_end(key)
            return known
        slots = np.arange(low, high, dtype=np.int64)[:, None]
        found: list[Events] = []
        for part, bounds in zip(share.parts, share.bounds, strict=True):
            copies = np.array(part.copies, dtype=np.int64)[None, :]
            sources = (slots + copies % self._shifts * self._turn) % self._slots
            starts, counts = bounds[sources], np.diff(bounds)[sources]
            counts, starts = counts.reshape(-1), starts.reshape(-1)
            before = np.cumsum(counts) - counts
            places = np.repeat(starts - before, counts) + np.arange(counts.sum())
            events = self._take(part.find_rows(places))
            shifts = np.repeat(((slots - sources) * self._slot_ms).reshape(-1), counts)
            whose = np.repeat(np.broadcast_to(copies, sources.shape).reshape(-1), counts)
            found.append(
                Events(
                    events.rows,
                    share.group + whose * self.used + events.devices,
                    events.times + shifts,
                    events.due + shifts,
                )
            )
        rows, devices, times, due = map(np.concatenate, zip(*found, strict=True))
        joined = Events(rows, devices, times, due)
        order = np.argsort(joined.due, kind="stable")
        merged = joined.take(order)
        self._merged[key] = merged
        self._merged_events += len(merged.due)
        while self._merged_events > _KEPT_EVENTS and len(self._merged) > 1:
            _, oldest = self._merged.popitem(last=False)
            self._merged_events -= len(oldest.due)
        return merged
