"""Where the events of a run's writers begin, and how many of them come before its start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..contract import Role, RunSettings, share
from ..workloads.base import Workload
from ..workloads.history import WithHistory
from ..workloads.stored import StoredPart


@dataclass(frozen=True)
class Beginning:
    """The number of the first event of each writer of a run, and how many events it prefills."""

    settings: RunSettings
    workload: Workload
    first_event: int = 0
    """Without a history: the number of every writer's first event."""
    next_events: Mapping[int, int] = field(default_factory=dict)
    """With a history: the numbers with which those workers go on that have stored something."""
    is_certain: bool = True
    """With a history: whether all events before these numbers are stored, and nothing else."""

    @property
    def has_history(self) -> bool:
        """Whether the workload begins with a history."""
        return isinstance(self.workload, WithHistory)

    @property
    def writers(self) -> Iterator[int]:
        """The workers that insert, or prefill."""
        for group in self.settings.groups_of(Role.WRITE, Role.FILL):
            yield from range(group.first, group.end)

    def first_of(self, worker: int) -> int:
        """The number of a worker's first event, a prefill's among them."""
        return self.next_events.get(worker, 0) if self.has_history else self.first_event

    def prefill_of(self, worker: int) -> int:
        """How many events a worker inserts before the start: of a history, those that aren't there yet."""
        group = self.settings.group_of(worker)
        if group.load.role not in (Role.WRITE, Role.FILL):
            return 0
        if isinstance(self.workload, WithHistory):
            return max(0, self.workload.count_history(worker) - self.first_of(worker))
        return share(self.settings.data.prefill, group.load.workers, worker - group.first)

    @property
    def prefill(self) -> int:
        """How many events all writers prefill together."""
        return sum(map(self.prefill_of, self.writers))

    def list_prefilled(self) -> list[StoredPart]:
        """What is stored once the prefill is, as far as this run knows: with a history, all."""
        if not self.has_history:
            return [
                StoredPart(worker, self.first_event, count)
                for worker in self.writers
                if (count := self.prefill_of(worker))
            ]
        until = dict(self.next_events)
        until |= {
            worker: self.first_of(worker) + self.prefill_of(worker) for worker in self.writers
        }
        return [StoredPart(worker, 0, count) for worker, count in sorted(until.items())]

    def find_next(self, counts: Mapping[int, int]) -> dict[int, int]:
        """With a history: the number with which each worker goes on, once writers have stored so many events
        of this run."""
        until = {part.worker: part.count for part in self.list_prefilled()}
        return {worker: count + counts.get(worker, 0) for worker, count in until.items()}

    def find_frontier(self) -> int | None:
        """The first time, in ms since 1970, of the events that follow the prefill, whether or not writers add
        them in this run; None if there are no writers."""
        time, count = self.workload.schema.time, self.workload.disorder + 1
        firsts = (
            (worker, self.first_of(worker) + self.prefill_of(worker)) for worker in self.writers
        )
        return min(
            (
                int(self.workload.block(worker, first, count).columns[time].min())
                for worker, first in firsts
            ),
            default=None,
        )
