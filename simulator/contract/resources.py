"""What was seen beside a run: what the database used, and takes on disk, how busy the workers' machines were,
when the load generator stood still, and what was done to the database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pydantic import Field

from .message import Count, Instant, Message, Seconds


class Resources(Message):
    """Use in the measured window, of all processes or pods together. None for what could not be seen."""

    source: str = ""
    """By what they were seen: the kubelets, the metrics API, this machine's processes."""
    names: list[str] = Field(default_factory=list)
    """The pods, or the processes."""
    nodes: list[str] = Field(default_factory=list)
    """Of the pods. Empty: the processes are on the workers' machine."""
    covered_share: float | None = None
    """Share of the window of which the figures of pods tell; the rest is taken to be like it."""
    cpu_s: float | None = None
    cpus: float | None = None
    """What they may use: the sum of their limits, or the CPUs of their machines."""
    cpu_share: float | None = None
    """CPU seconds ÷ (window × `cpus`)."""
    busiest: str | None = None
    busiest_share: float | None = None
    """Of several pods the one that used most of what it may, and how much of it."""
    cpu_us_per_event: float | None = None
    """CPU ÷ events acknowledged in the window."""
    memory_peak_bytes: int | None = None
    memory_bytes: int | None = None
    """What they may use: the memory of their machine, caches included; None for pods."""
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    disk_busy_share: float | None = None
    """Share of the window in which the busiest of their disks was at work."""
    received_bytes: int | None = None
    sent_bytes: int | None = None
    """By the network: of pods by their interfaces, of processes by TCP connections to where they listen."""
    link_share: float | None = None
    """Bytes in the busier direction ÷ what a link of known speed could carry, of the busiest pod."""
    restarts: int = 0
    """How often one of them began anew meanwhile: its counters began at 0 again."""
    timeline: list[tuple[int, float, int]] = Field(default_factory=list)
    """(second since the common start, CPUs in use, bytes of memory). Of each `step_s` of the run: the mean of
    the looks at the CPUs, and the most memory."""
    reason: str | None = None
    """Why there is nothing here."""


class Machine(Message):
    """How busy a machine on which workers ran was meanwhile. Shares are of the CPU time of all its
    CPUs; None for what could not be seen."""

    node: str
    cpus: int | None = None
    load_average_1m: float | None = None
    """Over the minute before the run's start: what the tool itself did then is in it."""
    busy_share: float | None = None
    """By whomever. This and `steal_share`: from the common start on, warm-up and all."""
    steal_share: float | None = None
    """Given to other machines by the hypervisor, while this one had work."""
    others_share: float | None = None
    """By processes (on Kubernetes: pods) that are neither of the run nor of the database, in the
    measured window."""
    others: dict[str, float] = Field(default_factory=dict)
    """Those of them that took most, by name."""
    link_share: float | None = None
    """Bytes by whomever over the busiest of its links of known speed, in the busier direction, ÷ what that
    could carry."""


class Mark(Message):
    """Something that was done to the database during the run."""

    at_s: float
    """When it began, since the common start."""
    ended_s: float | None = None
    """When it was done; None if it was still under way at the run's end."""
    action: str
    """What was asked for, as in `30s delete-pods app=postgresql`."""
    ok: bool = True
    said: str | None = None
    """What it said if it failed, or how it was ended."""


class SkippedFault(Message):
    """Something that was to be done to the database during the run, and wasn't."""

    due_s: float
    """Since the common start."""
    action: str
    """As in `Mark`."""
    reason: str


class Outage(Message):
    """What a mark did to the rate of acknowledged events."""

    gap_s: float
    """The longest time after it without an acknowledged event."""
    gap_began_s: float
    """When that began, since the common start."""
    recovered_after_s: float | None
    """From the mark until 90 % of the rate before it (median of the ten seconds before) was reached again;
    None if it never was."""
    shared_with: int | None = None
    """The place in `marks` of another one to which the gap is put down: the last that came before it."""


# --- times in which a process of the load generator stood still ------------------------------------

STALL_S = 0.25
"""A process that stands still for less isn't told from one that waits its turn on a busy machine."""
MOST_STALLED_SHARE = 0.02
"""Up to this share of its window, a run keeps its figures: a rate is then too low by as much at most."""


class Stall(Message):
    """A time in which a worker or the collector did nothing at all."""

    worker: Count | None
    """Which worker; None: the collector."""
    begins_s: Instant
    """Since the common start."""
    length_s: Seconds
    asleep_s: Seconds = 0.0
    """For how long of this the machine slept: no clock by which requests are measured went on."""
    cpu_s: Seconds = 0.0
    """CPU time of the process meanwhile: if it is most of the time, it didn't stop but computed."""
    waited_s: Seconds = 0.0
    """For how long of this it was ready to go on, and others had the CPU; 0 where only Linux would tell."""

    @property
    def stood_s(self) -> float:
        """For how long it stood still for another reason than a busy machine, which is told by who used its
        CPUs, and on which a local database has its share of them."""
        return max(0.0, self.length_s - self.waited_s)

    def cut(self, late_s: float, began_s: float, ended_s: float) -> Stall | None:
        """The part of it within a window; None if that is too short to count. `late_s`: how late this process
        started."""
        begins_s = self.begins_s + late_s
        ends_s = begins_s + self.length_s - self.asleep_s
        awake_s = min(ends_s, ended_s) - max(begins_s, began_s)
        if awake_s < 0 or awake_s + self.asleep_s < STALL_S:
            return None
        length_s = awake_s + self.asleep_s
        changes = {
            "begins_s": max(begins_s, began_s),
            "length_s": length_s,
            "waited_s": min(self.waited_s, length_s),
        }
        return self.model_copy(update=changes)


def _by_process(stalls: Iterable[Stall]) -> Collection[list[Stall]]:
    by_process: dict[int | None, list[Stall]] = {}
    for stall in stalls:
        by_process.setdefault(stall.worker, []).append(stall)
    return by_process.values()


def _find_worst(stalls: Iterable[Stall]) -> list[Stall]:
    """Those of the process that stood still for longest: one of many is enough to hold a run back."""
    return max(_by_process(stalls), key=_sum_s, default=[])


def _sum_s(stalls: Iterable[Stall]) -> float:
    return sum(stall.length_s for stall in stalls)


def _sum_stood_s(stalls: Iterable[Stall]) -> float:
    return sum(stall.stood_s for stall in stalls)


def sum_stalls_s(stalls: Iterable[Stall]) -> float:
    """For how long the process stood still that did for longest."""
    return _sum_s(_find_worst(stalls))


def _measure_whole_s(worst: Iterable[Stall], window_s: float) -> float:
    """How long a window really was: no clock of the run has counted what its machine slept."""
    return window_s + sum(stall.asleep_s for stall in worst)


def is_stalled(stalls: Iterable[Stall], window_s: float) -> bool:
    """Whether a process stood still for so much of a window that the figures are the client's."""
    worst = max(_by_process(stalls), key=_sum_stood_s, default=[])
    return _sum_stood_s(worst) > MOST_STALLED_SHARE * _measure_whole_s(worst, window_s)


def describe_stalls(stalls: Collection[Stall], window_s: float) -> str:
    """For how long the load generator stood still, which process did, and why as far as that shows."""
    worst = _find_worst(stalls)
    stood_s, worker = _sum_s(worst), worst[0].worker
    others = len({stall.worker for stall in stalls}) - 1
    who = "the collector" if worker is None else f"worker {worker}"
    who += f" and {others:,} more" if others else ""
    if sum(stall.asleep_s for stall in worst) >= stood_s / 2:
        why = "the machine slept"
    elif sum(stall.cpu_s for stall in worst) >= stood_s / 2:
        why = "busy with its own computing"
    elif sum(stall.waited_s for stall in worst) >= stood_s / 2:
        why = "left without CPU"
    else:
        why = "stopped, or left without CPU"
    whole_s = _measure_whole_s(worst, window_s)
    return f"the load generator stood still for {stood_s:.1f} s of {whole_s:.3g} s ({who}: {why})"


# --- what a database takes on disk, and what an event takes, told from growth ------------------------

MANY_UNITS = 10
"""Two fill levels tell what an event takes if each is so many units of allocation, and so is what lies
between them: what is allocated ahead, or not yet merged, is then a tenth of the growth at most."""

MOST_ABOVE_MEAN = 1.5
"""All bytes ÷ all events is about the most that an event takes: what doesn't grow is in it, too. Growth that
is so many times as much is what was allocated between the levels for events to come."""

MIB = 1024 * 1024


class Level(Message):
    """A fill level: bytes, and the events in them."""

    size_bytes: int
    events: int


class Allocation(Message, frozen=True):
    """What a database allocates, or writes and merges later, at a time."""

    unit_bytes: int
    """Of one table, in one copy, unless the module reads it from the server."""
    cause: str
    """What goes in such units, as a clause: it is a reason for a figure that is missing."""
    enough_events: int | None = None
    """So many show growth, where the module knows it better than by the unit."""

    def times(self, units: int) -> Allocation:
        """The allocation of so many: tables, shards or copies together."""
        return self.model_copy(update={"unit_bytes": self.unit_bytes * units})


ANY_ALLOCATION = Allocation(
    unit_bytes=MIB, cause="the size of a small table says little about its events"
)
"""The allocation of modules that name none."""


class Storage(Message):
    """Bytes on disk as the database reports them, of all its copies together; None for what it doesn't
    tell."""

    total_bytes: int | None = None
    data_bytes: int | None = None
    index_bytes: int | None = None
    """Of what is kept beside the events to find them by, where it is kept apart."""
    indexes: Mapping[str, int] = Field(default_factory=dict)
    """Index, as `Indexing.describe_schema` calls it -> its bytes; none where the database doesn't tell them
    apart."""
    copies: int = 1
    """How many of each event are in these figures."""
    events: int | None = None
    """Stored when the figures were taken."""
    level: Level | None = None
    """What growth is told from, where it isn't `total_bytes` and `events`: files that aren't allocated ahead
    of their events, or parts and the events that the database counts in them."""
    allocation: Allocation | None = None
    """In what units growth comes; None: `ANY_ALLOCATION`."""
    event_bytes: int | None = None
    """An event's values at 8 bytes each: an estimate, by which it is said how many events growth takes."""
    shared: bool = False
    """There are others' data in the figures, so those of separate runs can't be compared."""
    source: str = ""
    """Where they come from, and what they leave out."""
    reason: str | None = None
    """Why there are none."""

    def find_level(self) -> Level | None:
        """What growth is told from, if it is known."""
        if self.level is not None or self.total_bytes is None or self.events is None:
            return self.level
        return Level(size_bytes=self.total_bytes, events=self.events)


def measure_growth(levels: Sequence[Level], allocation: Allocation) -> float | None:
    """Bytes per event between the lowest and the highest level that are large enough; None if there
    aren't two, too little is between them, or more than the events there take."""
    least = MANY_UNITS * allocation.unit_bytes
    large = sorted(
        (level for level in levels if level.size_bytes >= least), key=lambda level: level.events
    )
    if not large:
        return None
    lowest, highest = large[0], large[-1]
    grown, events = highest.size_bytes - lowest.size_bytes, highest.events - lowest.events
    if events <= 0 or grown < least:
        return None
    size = grown / events
    return size if size <= MOST_ABOVE_MEAN * highest.size_bytes / highest.events else None


def estimate_events(storage: Storage, allocation: Allocation) -> int | None:
    """About how many events a run needs to show growth from its middle to its end: each half is many units
    then. An event is assumed to take the smaller of the size of its values and all bytes ÷ all events, which
    is too much where the database allocates ahead."""
    if allocation.enough_events is not None:
        return allocation.enough_events
    estimates = [float(storage.event_bytes)] if storage.event_bytes else []
    if storage.total_bytes and storage.events:
        estimates.append(storage.total_bytes / storage.events)
    return round(2 * MANY_UNITS * allocation.unit_bytes / min(estimates)) if estimates else None


# --- retention ---------------------------------------------------------------------------------------
# Events that are deleted when they have become too old: what a run is asked for, and what that cost it.


STEPS = 20
"""All events of a retention go in this many steps, or a few more."""

_SECOND_MS = 1000
_UNITS_MS = (86_400_000, 3_600_000, 60_000, _SECOND_MS)
"""Days, hours, minutes, seconds: what partitions are cut by."""

SHORTEST_S = STEPS
"""The shortest retention: its steps are of a second."""


class Retention(Message):
    """How long events are kept, by the time that they have. Limits are multiples of the step since 1970."""

    period_ms: int
    step_ms: int
    """How much of event time is deleted at once: an event is kept for the period, and a step more at most."""
    until_ms: int | None = None
    """About where the run's events end; None: that depends on how fast the database is."""

    def find_limit(self, clock_ms: int) -> int:
        """What is older than that is too old, when events of this time are being inserted."""
        return (clock_ms - self.period_ms) // self.step_ms * self.step_ms


def find_step_ms(period_ms: int) -> int:
    """The step of a retention: a twentieth of it or a little less, in whole days if that has one."""
    most = period_ms / STEPS
    unit = next((unit for unit in _UNITS_MS if unit <= most), _SECOND_MS)
    return max(1, int(most // unit)) * unit


class Deletion(Message):
    """One deletion while writers were at work. Times count from the common start."""

    before_ms: int
    """Of the events that it was about, the time that the youngest lies before, in ms since 1970."""
    began_s: Instant
    ended_s: Instant
    """When the database said that they are gone."""

    @property
    def took_s(self) -> float:
        """How long it took."""
        return self.ended_s - self.began_s


class IntervalFigures(Message):
    """What a group did in some whole seconds of its window."""

    seconds: Count
    rate_per_s: float | None = None
    """Events acknowledged, or queries answered; None without such seconds."""
    p99_ms: float | None = None
    """Of the requests that were due in them (in a closed loop: sent); at most 1 % off."""


class DeletionCost(Message):
    """What a group did before the first deletion began, while one ran, and between them."""

    before: IntervalFigures
    during: IntervalFigures
    between: IntervalFigures


class RetentionResult(Message):
    """What was deleted in a run, and whether it is what should have been."""

    period_s: Seconds
    step_s: Seconds
    way: str = ""
    """How the database deletes, in words."""
    clock_factor: Count = 1
    """The workload's option: how many times as fast as by itself events' time passed."""
    deletions: list[Deletion]
    """Those while writers were at work."""
    kept_from_ms: int | None = None
    """After the run's last deletion nothing older should be there; None: nothing became too old."""
    deleted: Count = 0
    """Events that were acknowledged and should be gone."""
    remaining: Count | None = None
    """Events that should be gone and are there; None: that can't be asked."""
