"""What the database's pods used in a window, from counters that a kubelet reads now and then. Pure.

A kubelet samples most containers only every 10 to 15 seconds. Each figure has its own time stamp, and figures
count only between two of them. What lies before the first or after the last in the window is assumed to be
like the rest, provided that the rest is at least half of the window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from simulator.contract import DatabaseUse, Resources

from .pods import Count, DatabasePod, Kind, Mean, Memory, PodName
from .timeline import MIN_COVERED, Step, Window

_SLACK_S = 1.0
"""A step may begin this long before the load, or end this long after it: clocks differ, and workers need time
to start."""
_MEMORY_HOLDS_S = 30.0
"""A container that was silent for longer counts as ended."""
_BITS = 8

_Key = tuple[PodName, str, int]
"""Pod, container or interface, and when the counter began."""


@dataclass
class _Track:
    """One counter over time. It only rises, until it restarts at 0."""

    kind: Kind
    began: float | None = None
    """When it was 0, if we were sampling then."""
    last: tuple[float, float] | None = None
    """When it was last read, and its value."""
    steps: list[Step] = field(default_factory=list)
    anew: list[float] = field(default_factory=list)
    """When it was found to have restarted at 0."""

    def add(self, at: float, value: float) -> None:
        """Add a reading; ignored if it is not new."""
        if self.last is not None:
            before_at, before = self.last
            if at <= before_at:
                return
            if value < before:
                self.anew.append(at)
            # After a restart, at least the counter's value was used.
            amount = value - before if value >= before else value
            self.steps.append(Step(before_at, at, {self.kind: amount}))
        self.last = at, value


@dataclass
class Sum:
    """What was used of one kind."""

    amount: float
    covered_s: float
    """How many seconds, over all pods, the counters cover."""
    lived_s: float
    """How many seconds, over all pods, the pods lived."""

    @property
    def is_enough(self) -> bool:
        """Whether enough is known."""
        return self.covered_s > 0 and self.covered_s >= MIN_COVERED * self.lived_s


class Consumption:
    """All counters of the database's pods since sampling began."""

    def __init__(self, source: str) -> None:
        """`source`: where the figures come from."""
        self.source = source
        self._tracks: dict[Kind, dict[_Key, _Track]] = defaultdict(dict)
        self._memory: dict[tuple[PodName, str], list[tuple[float, float]]] = defaultdict(list)
        self._pods: dict[PodName, DatabasePod] = {}
        self.now: Collection[PodName] = ()
        """The pods that exist now."""
        self._first_at: float | None = None
        self.node_cpus: dict[str, float] = {}

    def set_pods(self, pods: Iterable[DatabasePod]) -> None:
        """Set the pods that the database has now."""
        by_name = {pod.name: pod for pod in pods}
        self._pods |= by_name
        self.now = frozenset(by_name)

    @property
    def pods(self) -> list[DatabasePod]:
        """All pods seen so far."""
        return list(self._pods.values())

    @property
    def nodes(self) -> list[str]:
        """Where the pods are now."""
        return sorted({self._pods[name].node for name in self.now})

    def lacks(self, kind: Kind) -> bool:
        """Whether a pod that exists now has no figures of this kind."""
        return bool(set(self.now) - {pod for pod, _, _ in self._tracks[kind]})

    def add_counts(self, counts: Iterable[Count]) -> bool:
        """Add counters of a node; those of other pods are ignored. Returns whether any was new."""
        is_new = False
        for count in counts:
            if count.pod not in self._pods:
                continue
            if self._first_at is None:
                self._first_at = count.at
            began = count.began_at or self._pods[count.pod].find_begin(count.owner)
            key = count.pod, count.owner, round(count.began_at or 0)
            track = self._tracks[count.kind].get(key)
            if track is None:
                track = self._tracks[count.kind][key] = _Track(count.kind)
                if began is not None and self._first_at < began < count.at:
                    track.began = began
                    track.add(began, 0.0)
            before = track.last
            track.add(count.at, count.value)
            is_new |= track.last != before
        return is_new

    def add_memory(self, sizes: Iterable[Memory]) -> None:
        """Add memory sizes of a node."""
        for memory in sizes:
            if memory.pod in self._pods:
                self._remember(memory.pod, memory.owner, memory.at, memory.size)

    def add_means(self, means: Iterable[Mean]) -> bool:
        """Add means from the metrics API. Returns whether any was new."""
        is_new = False
        for mean in means:
            if mean.pod not in self._pods:
                continue
            track = self._tracks[Kind.CPU].setdefault((mean.pod, mean.owner, 0), _Track(Kind.CPU))
            until = track.steps[-1].ended if track.steps else mean.began
            if mean.ended > until:
                is_new = True
                began = max(mean.began, until)
                used_s = mean.cpus * (mean.ended - began)
                track.steps.append(Step(began, mean.ended, {Kind.CPU: used_s}))
                track.last = mean.ended, 0.0
                self._remember(mean.pod, mean.owner, mean.ended, mean.memory)
        return is_new

    def _remember(self, pod: PodName, owner: str, at: float, size: float) -> None:
        readings = self._memory[pod, owner]
        if not readings or readings[-1][0] < at:
            readings.append((at, size))

    # --- what was used ----------------------------------------------------------------------------

    def add_up(self, kind: Kind, window: Window, pod: PodName | None = None) -> Sum | None:
        """What all pods, or one of them, used in the window; None if there are no figures of that kind."""
        total = Sum(0.0, 0.0, 0.0)
        tracks = {
            key: track
            for key, track in self._tracks[kind].items()
            if track.steps and (pod is None or key[0] == pod)
        }
        for key, track in tracks.items():
            steps = [step for step in track.steps if _is_in_load(step, window)]
            within_s = [step.within_s(window.began, window.ended) for step in steps]
            covered_s = sum(within_s)
            amount = sum(s * step.rate(kind) for s, step in zip(within_s, steps, strict=True))
            first = window.began if track.began is None else track.began
            last = window.ended if key[0] in self.now else track.steps[-1].ended
            lived_s = min(last, window.ended) - max(first, window.began)
            if lived_s > 0:
                total.lived_s += lived_s
                total.covered_s += covered_s
                total.amount += amount * lived_s / covered_s if covered_s else 0.0
        return total if tracks else None

    def find_use(self) -> DatabaseUse | None:
        """What the existing pods used when each was last sampled; None if none was."""
        last: dict[tuple[PodName, str], Step] = {}
        for (pod, owner, _), track in self._tracks[Kind.CPU].items():
            if pod in self.now and track.steps:
                previous = last.get((pod, owner))
                if previous is None or previous.ended < track.steps[-1].ended:
                    last[pod, owner] = track.steps[-1]
        if not last:
            return None
        used = sum(step.rate(Kind.CPU) for step in last.values())
        return DatabaseUse(cpus_used=used, cpus=self._count_cpus(self._pods))

    def summarize(self, window: Window) -> Resources | None:
        """What was used in the window; None if too little is known of it."""
        cpu = self.add_up(Kind.CPU, window)
        if cpu is None or not cpu.is_enough:
            return None
        cpus = self._count_cpus(self._pods)
        timeline = self._make_timeline(window)
        memory = self._list_memory(window)
        busiest, busiest_share = self._find_busiest(window)
        sums = {kind: self.add_up(kind, window) for kind in Kind}
        sizes = {
            kind: round(total.amount)
            for kind, total in sums.items()
            if total is not None and total.is_enough and not self.lacks(kind)
        }
        return Resources(
            source=f"{self.source}, every {self._interval_s(window):.0f} s",
            names=sorted("/".join(name) for name in self._pods),
            nodes=sorted({pod.node for pod in self._pods.values()}),
            covered_share=min(1.0, cpu.covered_s / cpu.lived_s),
            cpu_s=cpu.amount,
            cpus=cpus,
            cpu_share=cpu.amount / (window.length_s * cpus) if cpus else None,
            busiest=busiest,
            busiest_share=busiest_share,
            cpu_us_per_event=1e6 * cpu.amount / window.events if window.events else None,
            memory_peak_bytes=max(memory.values(), default=None),
            disk_read_bytes=sizes.get(Kind.READ),
            disk_written_bytes=sizes.get(Kind.WRITTEN),
            received_bytes=sizes.get(Kind.RECEIVED),
            sent_bytes=sizes.get(Kind.SENT),
            link_share=self._find_link_share(window),
            restarts=self._count_restarts(window),
            timeline=timeline,
        )

    def _count_cpus(self, pods: Collection[PodName]) -> float | None:
        """How many CPUs these pods may use: their limits, or their nodes' CPUs if those are fewer."""
        by_node: dict[str, float | None] = {}
        for name in pods:
            pod = self._pods[name]
            if name in self.now or not self.now:
                so_far = by_node.get(pod.node, 0.0)
                is_limited = so_far is not None and pod.cpu_limit is not None
                by_node[pod.node] = (so_far or 0.0) + (pod.cpu_limit or 0.0) if is_limited else None
        whole = 0.0
        for node, limit in by_node.items():
            both = [amount for amount in (limit, self.node_cpus.get(node)) if amount is not None]
            if not both:
                return None
            whole += min(both)
        return whole or None

    def _find_busiest(self, window: Window) -> tuple[str | None, float | None]:
        if len(self._pods) < 2:
            return None, None
        shares = {}
        for name in self._pods:
            used, cpus = self.add_up(Kind.CPU, window, name), self._count_cpus([name])
            if used is not None and used.is_enough and cpus:
                shares["/".join(name)] = used.amount / (used.lived_s * cpus)
        return max(shares.items(), key=lambda pair: pair[1], default=(None, None))

    def _find_link_share(self, window: Window) -> float | None:
        """The share of its link that the busiest pod used, in the busier direction."""
        shares = []
        for name, pod in self._pods.items():
            speeds = ((Kind.RECEIVED, pod.ingress_bits_per_s), (Kind.SENT, pod.egress_bits_per_s))
            for kind, speed in speeds:
                used = self.add_up(kind, window, name)
                if speed and used is not None and used.is_enough:
                    shares.append(_BITS * used.amount / used.lived_s / speed)
        return max(shares, default=None)

    def _count_restarts(self, window: Window) -> int:
        """How many containers restarted, and how many pods replaced others."""
        tracks = self._tracks[Kind.CPU]
        began: dict[PodName, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        present: dict[PodName, bool] = {}
        for (pod, owner, _), track in tracks.items():
            is_new = track.began is not None and window.origin < track.began <= window.ended
            present[pod] = present.get(pod, False) or not is_new
            began[pod][owner] += is_new + sum(
                window.origin < at <= window.ended + _SLACK_S for at in track.anew
            )
        again = sum(max(began[pod].values()) for pod in began if present[pod])
        new = sum(not was_there for was_there in present.values())
        gone = sum(was_there and pod not in self.now for pod, was_there in present.items())
        return again + min(new, gone)

    def _grid(self, window: Window) -> list[Step]:
        """The steps of the container that used most CPU; each becomes a point of the timeline."""
        by_pod: dict[tuple[PodName, str], list[Step]] = defaultdict(list)
        for (pod, owner, _), track in self._tracks[Kind.CPU].items():
            by_pod[pod, owner] += [
                step
                for step in track.steps
                if step.began >= window.origin - _SLACK_S and step.began < window.ended
            ]
        return max(
            by_pod.values(), key=lambda steps: sum(s.amounts[Kind.CPU] for s in steps), default=[]
        )

    def _interval_s(self, window: Window) -> float:
        lengths = sorted(step.length_s for step in self._grid(window))
        return lengths[len(lengths) // 2] if lengths else 0.0

    def _make_timeline(self, window: Window) -> list[tuple[int, float, int]]:
        steps = [step for track in self._tracks[Kind.CPU].values() for step in track.steps]
        timeline = []
        for step in sorted(self._grid(window), key=lambda step: step.began):
            used_s = sum(
                part.rate(Kind.CPU) * part.within_s(step.began, step.ended) for part in steps
            )
            second = max(0, int(step.began - window.origin))
            memory = round(self._memory_at(step.ended))
            timeline.append((second, used_s / step.length_s, memory))
        return timeline

    def _memory_at(self, at: float) -> float:
        """The memory of all containers, by each one's last reading."""
        whole = 0.0
        for readings in self._memory.values():
            earlier = [(seen, size) for seen, size in readings if seen <= at + _SLACK_S]
            if earlier and at - earlier[-1][0] <= _MEMORY_HOLDS_S:
                whole += earlier[-1][1]
        return whole

    def _list_memory(self, window: Window) -> Mapping[float, int]:
        stamps = sorted({seen for readings in self._memory.values() for seen, _ in readings})
        within = [at for at in stamps if window.began <= at <= window.ended] or stamps[-1:]
        return {at: round(self._memory_at(at)) for at in within}


def _is_in_load(step: Step, window: Window) -> bool:
    """Whether the load was on during the whole step."""
    return (
        step.began >= window.origin - _SLACK_S
        and step.ended <= window.ended + _SLACK_S
        and step.ended > step.began
    )
