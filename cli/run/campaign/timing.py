"""How long jobs take: first from a model, then from measured jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from simulator.contract import Load, Role

from ...plan.target import ExecutorName
from .plan import Job

JOB_OVERHEADS = {ExecutorName.LOCAL: (5.0, 3.0, 0.3), ExecutorName.KUBERNETES: (10.0, 15.0, 0.5)}
"""Upper bounds on seconds around a run's window on a busy machine: per job (a server that the tool starts,
the executor, the result), per run (processes or pods, tables, the connection barrier, the count, the end),
and per worker."""
VERIFY_SHARE = 0.1
"""Counting takes this share of the window, in proportion to what was inserted."""
FILL_PER_S = 20_000
"""Events per second when filling tables, in batches: less than most databases reach."""
FILL_BATCH = 100
"""From this batch size, inserting a number of events is that fast."""


@dataclass(frozen=True)
class Estimate:
    """How long jobs take."""

    clock_s: float = 0.0
    """Windows, whose length is given."""
    work_s: float = 0.0
    """Everything else, as far as known: filling tables, counting, starting and ending."""
    open_runs: int = 0
    """Runs that last until the last event or query, with nothing measured yet."""

    @property
    def known_s(self) -> float:
        """All known seconds."""
        return self.clock_s + self.work_s

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.clock_s + other.clock_s,
            self.work_s + other.work_s,
            self.open_runs + other.open_runs,
        )


def add_up(estimates: Iterable[Estimate], settle_s: float = 0.0) -> Estimate:
    """How long jobs take one after the other, with this pause in between."""
    every = list(estimates)
    return sum(every, Estimate(settle_s * max(0, len(every) - 1)))


def model_job(loads: Sequence[Load], prefills: Sequence[int], executor: ExecutorName) -> Estimate:
    """How long a job takes, from the loads of its runs and the events inserted before each; a generous
    estimate."""
    job_s, run_s, worker_s = JOB_OVERHEADS[executor]
    clock_s, work_s, open_runs = 0.0, job_s, 0
    for load, prefill in zip(loads, prefills, strict=True):
        if load.duration_s is not None:
            clock_s += load.duration_s
            work_s += VERIFY_SHARE * load.duration_s
        elif load.role is Role.WRITE and load.batch >= FILL_BATCH:
            work_s += (1 + VERIFY_SHARE) * load.total_events / FILL_PER_S
        else:
            open_runs += 1
        work_s += prefill / FILL_PER_S + run_s + load.workers * worker_s
    return Estimate(clock_s, work_s, open_runs)


def estimate_jobs(
    left: Sequence[Job], modelled: Mapping[str, Estimate], measured_s: Mapping[Job, float]
) -> dict[str, Estimate]:
    """How long each of these jobs takes, by name: as long as the candidate's earlier ones of the same step;
    else by the model, corrected by measurements of the candidate, or else of all. A length unknown to the
    model is taken from other candidates in the same step. `modelled`: by job name."""
    estimates = {}
    for job in left:
        alike = {other: s for other, s in measured_s.items() if other.step == job.step}
        own = [s for other, s in alike.items() if other.candidate == job.candidate]
        model = modelled[job.name]
        if own or (alike and model.open_runs):
            estimates[job.name] = Estimate(fmean(own or alike.values()))
            continue
        of_candidate = {
            other: s for other, s in measured_s.items() if other.candidate == job.candidate
        }
        factor = _find_factor(modelled, of_candidate) or _find_factor(modelled, measured_s) or 1.0
        estimates[job.name] = Estimate(model.clock_s, model.work_s * factor, model.open_runs)
    return estimates


def _find_factor(modelled: Mapping[str, Estimate], measured_s: Mapping[Job, float]) -> float | None:
    """Actual work ÷ modelled work, for jobs of known length; None without any."""
    known = [
        (modelled[job.name], took_s)
        for job, took_s in measured_s.items()
        if job.name in modelled and not modelled[job.name].open_runs
    ]
    said_s = sum(model.work_s for model, _ in known)
    took_s = sum(max(0.0, took_s - model.clock_s) for model, took_s in known)
    return took_s / said_s if said_s else None
