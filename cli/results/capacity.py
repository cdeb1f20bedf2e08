"""The models of a capacity in result.json: what was asked for, each step, and the answer."""

from __future__ import annotations

from pydantic import BaseModel

from simulator.contract import Bounded, RunLimit


class CapacityStep(Bounded, BaseModel):
    """One run of a search."""

    run: int
    """Its number among `runs`, and among `reads` if there are readers."""
    rate_per_s: float | None = None
    """Events per second that were asked for; None of the closed loop at the beginning. What was due by the
    step's seed is `offered.due` of its run."""
    seed: int | None = None
    """What its events and arrivals follow from."""
    holds: bool | None = None
    """None of the closed loop, and of a step with too few requests for a verdict."""
    reasons: list[str] = []
    """Why it doesn't, or why there is no verdict."""
    figures: dict[str, float] = {}
    """What each limit is about, by its name: milliseconds, or a share."""
    client_bound: bool = False
    """It shows the client's speed."""


class CapacityBottleneck(Bounded, BaseModel):
    """What held back the run nearest above the capacity that was at its limit."""

    limit: str
    evidence: str
    rate_per_s: float | None = None
    """What was offered in that run; None: it was the closed loop."""


class Capacity(Bounded, BaseModel):
    """The highest rate that holds, in events per second. A rate holds if a run at it is valid, not
    saturated and within all limits."""

    limits: list[RunLimit] = []
    precision: float
    """The interval's ends are to be so close: its upper end ÷ its lower end is at most 1 + `precision`."""
    events_per_s: float | None = None
    """The interval's lower end: the highest rate that holds. None: no rate that was tried does."""
    above_per_s: float | None = None
    """The interval's upper end: the lowest rate above it that doesn't hold. None: all rates hold."""
    sure: bool = False
    """Whether both ends were repeated until their verdicts were sure."""
    unsure_because: str | None = None
    client_bound: bool = False
    """`above_per_s` shows what the client can't, and the database may be able to do more."""
    contradicting: list[int] = []
    """Numbers of the runs whose verdict isn't the one that follows from the answer."""
    devices: float | None = None
    """That many send `events_per_s`, each an event in `device_interval_s`."""
    device_interval_s: float | None = None
    bytes_per_day: float | None = None
    """On disk, at `events_per_s`."""
    database_cpus: float | None = None
    events_per_s_per_cpu: float | None = None
    """`events_per_s` ÷ CPUs that the database may use."""
    events_per_cost: float | None = None
    """Events that one unit of `cost_per_hour` pays for."""
    bottleneck: CapacityBottleneck | None = None
    """None: nothing is known of it."""
    steps: list[CapacityStep] = []
    """In the order in which they were made."""

    @property
    def steps_at_answer(self) -> list[CapacityStep]:
        """The steps that held `events_per_s`."""
        rate = self.events_per_s
        return [
            step
            for step in self.steps
            if step.holds and rate is not None and step.rate_per_s == rate
        ]
