"""What was seen beside a run: what the database's own processes or pods used, how busy the workers' machines
were, and what was done to the database."""

from __future__ import annotations

from pydantic import Field

from .message import Message


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
