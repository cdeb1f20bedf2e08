"""Observations around a run: the database's resource use and disk space, how busy the workers' machines were,
stalls of the load generator, and disturbances of the database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pydantic import Field

from .message import Count, Instant, Message, Seconds


class Resources(Message):
    """Use in the measured window, of all processes or pods together. None for what could not be observed."""

    source: str = ""
    """How they were observed: by the kubelets, the metrics API, or this machine's processes."""
    names: list[str] = Field(default_factory=list)
    """The number of pods or processes."""
    nodes: list[str] = Field(default_factory=list)
    """The pods' nodes. Empty: the processes are on the workers' machine."""
    covered_share: float | None = None
    """Share of the window covered by the pods' figures; the rest is assumed to be alike."""
    cpu_s: float | None = None
    cpus: float | None = None
    """CPUs available to them: the sum of their limits, or the CPUs of their machines."""
    cpu_share: float | None = None
    """CPU seconds ÷ (window × `cpus`)."""
    busiest: str | None = None
    busiest_share: float | None = None
    """Of several pods, the one with the highest CPU share, and that share."""
    cpu_us_per_event: float | None = None
    """CPU ÷ events acknowledged in the window."""
    memory_peak_bytes: int | None = None
    memory_bytes: int | None = None
    """Memory available to them: that of their machine, including caches; None for pods."""
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    disk_busy_share: float | None = None
    """Share of the window in which the busiest of their disks was busy."""
    received_bytes: int | None = None
    sent_bytes: int | None = None
    """Over the network: of pods by interface, of processes by TCP connections to their listening sockets."""
    link_share: float | None = None
    """Bytes in the busier direction ÷ the capacity of a link of known speed, for the busiest pod."""
    restarts: int = 0
    """How often one of them restarted meanwhile, so that its counters began at 0 again."""
    timeline: list[tuple[int, float, int]] = Field(default_factory=list)
    """(second since the common start, CPUs in use, bytes of memory). For each `step_s` of the run: the mean
    of the CPU samples, and the maximum memory."""
    reason: str | None = None
    """Why there are no figures."""


class Machine(Message):
    """How busy a machine of the workers was meanwhile. Shares are of the CPU time of all its CPUs; None for
    what could not be observed."""

    node: str
    cpus: int | None = None
    load_average_1m: float | None = None
    """Over the minute before the run's start, including the tool's own activity."""
    busy_share: float | None = None
    """By all programs. This and `steal_share`: from the common start, including the warm-up."""
    steal_share: float | None = None
    """Given to other machines by the hypervisor while this one had work."""
    others_share: float | None = None
    """By processes (on Kubernetes: pods) other than the run's and the database's, in the measured window."""
    others: dict[str, float] = Field(default_factory=dict)
    """The most active of them, by name."""
    link_share: float | None = None
    """All bytes over the busiest of its links of known speed, in the busier direction, ÷ the link's
    capacity."""


class Mark(Message):
    """A disturbance of the database during the run."""

    at_s: float
    """When it began, since the common start."""
    ended_s: float | None = None
    """When it ended; None if it was still in progress at the end of the run."""
    action: str
    """The disturbance, as in `30s delete-pods app=postgresql`."""
    ok: bool = True
    said: str | None = None
    """Its output if it failed, or how it was ended."""


class SkippedFault(Message):
    """A planned disturbance that was not done."""

    due_s: float
    """Since the common start."""
    action: str
    """As in `Mark`."""
    reason: str


class Outage(Message):
    """The effect of a mark on the rate of acknowledged events."""

    gap_s: float
    """The longest time after it without an acknowledged event."""
    gap_began_s: float
    """When that began, since the common start."""
    recovered_after_s: float | None
    """From the mark until 90 % of the rate before it (median of the ten seconds before) was reached again;
    None if it never was."""
    shared_with: int | None = None
    """The index in `marks` of another one that the gap is attributed to: the last one before it."""


# --- times in which a process of the load generator stalled -----------------------------------------

STALL_S = 0.25
"""Shorter stalls look like waiting for a CPU on a busy machine."""
MOST_STALLED_SHARE = 0.02
"""Up to this share of its window, a run keeps its figures: a rate is then too low by at most this much."""


class Stall(Message):
    """A period in which a worker or the collector did nothing at all."""

    worker: Count | None
    """The worker; None: the collector."""
    begins_s: Instant
    """Since the common start."""
    length_s: Seconds
    asleep_s: Seconds = 0.0
    """How much of this the machine slept: the clocks that measure requests stopped."""
    cpu_s: Seconds = 0.0
    """CPU time of the process meanwhile: if it is most of the time, the process didn't stop but computed."""
    waited_s: Seconds = 0.0
    """How much of this it was runnable while others had the CPU; 0 except on Linux."""

    @property
    def stood_s(self) -> float:
        """How long it stalled for other reasons than a busy machine, which CPU use shows, and on which a
        local database has its share."""
        return max(0.0, self.length_s - self.waited_s)

    def cut(self, late_s: float, began_s: float, ended_s: float) -> Stall | None:
        """The part within a window; None if that is too short to count. `late_s`: how late this process
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
    """The stalls of the process that stalled longest: one of many is enough to hold a run back."""
    return max(_by_process(stalls), key=_sum_s, default=[])


def _sum_s(stalls: Iterable[Stall]) -> float:
    return sum(stall.length_s for stall in stalls)


def _sum_stood_s(stalls: Iterable[Stall]) -> float:
    return sum(stall.stood_s for stall in stalls)


def sum_stalls_s(stalls: Iterable[Stall]) -> float:
    """How long the worst process stalled."""
    return _sum_s(_find_worst(stalls))


def _measure_whole_s(worst: Iterable[Stall], window_s: float) -> float:
    """The real length of a window: the run's clocks don't count the machine's sleep."""
    return window_s + sum(stall.asleep_s for stall in worst)


def is_stalled(stalls: Iterable[Stall], window_s: float) -> bool:
    """Whether a process stalled for so much of a window that the figures show the client."""
    worst = max(_by_process(stalls), key=_sum_stood_s, default=[])
    return _sum_stood_s(worst) > MOST_STALLED_SHARE * _measure_whole_s(worst, window_s)


def describe_stalls(stalls: Collection[Stall], window_s: float) -> str:
    """How long the load generator stalled, which process, and why if known."""
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
    return f"the load generator stalled for {stood_s:.1f} s of {whole_s:.3g} s ({who}: {why})"


# --- what a database takes on disk, and bytes per event, computed from growth ------------------------

MANY_UNITS = 10
"""Two fill levels show bytes per event if each, and their difference, is this many units of allocation:
preallocated or unmerged space is then at most a tenth of the growth."""

MOST_ABOVE_MEAN = 1.5
"""Total bytes ÷ total events is roughly an upper bound on bytes per event, since it includes fixed space.
Growth beyond this multiple of it is space allocated for future events."""

MIB = 1024 * 1024


class Level(Message):
    """A fill level: bytes, and the events they hold."""

    size_bytes: int
    events: int


class Allocation(Message, frozen=True):
    """The unit that a database allocates, or writes and merges later."""

    unit_bytes: int
    """For one copy of one table, unless the module reads it from the server."""
    cause: str
    """What comes in such units, as a clause: it explains a missing figure."""
    enough_events: int | None = None
    """How many events show growth, if the module knows better than by the unit."""

    def times(self, units: int) -> Allocation:
        """The allocation of this many tables, shards or copies together."""
        return self.model_copy(update={"unit_bytes": self.unit_bytes * units})


ANY_ALLOCATION = Allocation(
    unit_bytes=MIB, cause="the size of a small table says little about its events"
)
"""The default allocation of modules."""


class Storage(Message):
    """Bytes on disk as reported by the database, over all copies; None for what it doesn't report."""

    total_bytes: int | None = None
    data_bytes: int | None = None
    index_bytes: int | None = None
    """Bytes of index structures, if stored separately from events."""
    indexes: Mapping[str, int] = Field(default_factory=dict)
    """Index, named as in `Indexing.describe_schema` -> its bytes; empty if the database doesn't report them
    separately."""
    copies: int = 1
    """How many copies of each event these figures include."""
    events: int | None = None
    """Events stored when the figures were taken."""
    level: Level | None = None
    """The basis of growth, if not `total_bytes` and `events`: files without preallocation, or parts with the
    events that the database counts in them."""
    allocation: Allocation | None = None
    """The unit of growth; None: `ANY_ALLOCATION`."""
    event_bytes: int | None = None
    """An event's values at 8 bytes each: an estimate for how many events are needed to see growth."""
    shared: bool = False
    """The figures include others' data, so separate runs can't be compared."""
    source: str = ""
    """The source of the figures, and what they leave out."""
    reason: str | None = None
    """Why there are none."""

    def find_level(self) -> Level | None:
        """The basis of growth, if known."""
        if self.level is not None or self.total_bytes is None or self.events is None:
            return self.level
        return Level(size_bytes=self.total_bytes, events=self.events)


def measure_growth(levels: Sequence[Level], allocation: Allocation) -> float | None:
    """Bytes per event between the lowest and the highest sufficient level; None if there aren't two, or if
    the difference is too small or implausibly large."""
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
    """The approximate number of events a run needs to show growth from its middle to its end, with many units
    in each half. Assumes per event the smaller of the size of its values and total bytes ÷ total events,
    which preallocation inflates."""
    if allocation.enough_events is not None:
        return allocation.enough_events
    estimates = [float(storage.event_bytes)] if storage.event_bytes else []
    if storage.total_bytes and storage.events:
        estimates.append(storage.total_bytes / storage.events)
    return round(2 * MANY_UNITS * allocation.unit_bytes / min(estimates)) if estimates else None


# --- retention ---------------------------------------------------------------------------------------
# Events are deleted when they are too old: the settings of a run, and what that cost.


STEPS = 20
"""All events of a retention are deleted in this many steps, or a few more."""

_SECOND_MS = 1000
_UNITS_MS = (86_400_000, 3_600_000, 60_000, _SECOND_MS)
"""Days, hours, minutes, seconds: the units of partitions."""

SHORTEST_S = STEPS
"""The shortest retention, with steps of a second."""


class Retention(Message):
    """How long events are kept, by their own time. Limits are multiples of the step since 1970."""

    period_ms: int
    step_ms: int
    """How much event time is deleted at once: an event is kept for the period plus at most a step."""
    until_ms: int | None = None
    """Approximate end of the run's events; None: it depends on the database's speed."""

    def find_limit(self, clock_ms: int) -> int:
        """The limit of age while events of this time are being inserted."""
        return (clock_ms - self.period_ms) // self.step_ms * self.step_ms


def find_step_ms(period_ms: int) -> int:
    """The step of a retention: a twentieth of it or a little less, in whole days if that has one."""
    most = period_ms / STEPS
    unit = next((unit for unit in _UNITS_MS if unit <= most), _SECOND_MS)
    return max(1, int(most // unit)) * unit


class Deletion(Message):
    """One deletion while writers were active. Times count from the common start."""

    before_ms: int
    """The limit that all its events are older than, in ms since 1970."""
    began_s: Instant
    ended_s: Instant
    """When the database confirmed it."""

    @property
    def took_s(self) -> float:
        """How long it took."""
        return self.ended_s - self.began_s


class IntervalFigures(Message):
    """A group's figures in certain whole seconds of its window."""

    seconds: Count
    rate_per_s: float | None = None
    """Events acknowledged, or queries answered; None without such seconds."""
    p99_ms: float | None = None
    """Of the requests due in them (in a closed loop: sent); within 1 %."""


class DeletionCost(Message):
    """A group's figures before the first deletion, during deletions, and between them."""

    before: IntervalFigures
    during: IntervalFigures
    between: IntervalFigures


class RetentionResult(Message):
    """What was deleted in a run, and whether it was right."""

    period_s: Seconds
    step_s: Seconds
    way: str = ""
    """How the database deletes, in words."""
    clock_factor: Count = 1
    """The workload's option: the speed-up of event time."""
    deletions: list[Deletion]
    """The deletions while writers were active."""
    kept_from_ms: int | None = None
    """The limit of the run's final deletion, in ms since 1970; None: nothing became too old."""
    deleted: Count = 0
    """Acknowledged events that should be gone."""
    remaining: Count | None = None
    """Events that should be gone but aren't; None: unknown."""
