"""The models of a capacity in result.json: what was asked for, each step, and the answer."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel

from simulator.contract import Bounded


class Measure(StrEnum):
    """What of a run a limit is about."""

    P50 = "p50"
    P90 = "p90"
    P99 = "p99"
    P99_9 = "p99_9"
    """Of response times: from when a request was due."""
    SERVICE_P99 = "service_p99"
    """From when it was sent."""
    ERROR_SHARE = "error_share"
    """Requests that failed, cured by a retry or not, ÷ all that were sent."""

    @property
    def is_time(self) -> bool:
        """Whether it is in milliseconds; otherwise it is a share."""
        return self is not Measure.ERROR_SHARE


class CapacityLimit(Bounded, BaseModel):
    """What a step must not exceed."""

    measure: Measure
    query: str | None = None
    """Of this query; None: of the inserts."""
    at_most: float
    """Milliseconds, or a share."""

    @property
    def name(self) -> str:
        """As it is written on a command line, `p99` or `query:NAME:p99`."""
        return self.measure if self.query is None else f"query:{self.query}:{self.measure}"

    def __str__(self) -> str:
        """`p99=100ms`, `p99=2s`, `error_share=0.1%`."""
        if self.measure.is_time and self.at_most >= 1000:
            return f"{self.name}={self.at_most / 1000:.10g}s"
        if self.measure.is_time:
            return f"{self.name}={self.at_most:.10g}ms"
        return f"{self.name}={100 * self.at_most:.10g}%"

    def show(self, value: float) -> str:
        """A value that was measured, with its unit."""
        if self.measure.is_time:
            return f"{value:.3g} ms" if value < 999.5 else f"{value:,.0f} ms"
        return f"{100 * value:.3g}%"


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

    limits: list[CapacityLimit] = []
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
        """Those that held `events_per_s`."""
        rate = self.events_per_s
        return [s for s in self.steps if s.holds and rate is not None and s.rate_per_s == rate]
