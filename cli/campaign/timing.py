"""How long the jobs of a campaign take: at first by a model, then by those that were measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.contract import Load

from ..config import ExecutorName
from .plan import Job


@dataclass(frozen=True)
class JobOverhead:
    """What is around a run's window, in seconds, at most on a machine that isn't idle."""

    job_s: float
    """Once in each job: a server that the tool starts, the executor, the result."""
    run_s: float
    """In each run: processes or pods, tables, the connection barrier, the count, the end."""
    worker_s: float
    """On top for each worker."""


JOB_OVERHEADS = {
    ExecutorName.LOCAL: JobOverhead(5.0, 3.0, 0.3),
    ExecutorName.KUBERNETES: JobOverhead(10.0, 15.0, 0.5),
}
VERIFY_SHARE = 0.1
"""Counting what was stored takes this share of the window, since it is about what was inserted."""
FILL_PER_S = 20_000
"""Events per second by which tables are filled before a run: fewer than most databases take."""


@dataclass(frozen=True)
class Estimate:
    """How long jobs take."""

    known_s: float
    open_runs: int = 0
    """Runs that last until the last event or query, of which nothing was measured yet."""


def model_job(loads: Sequence[Load], prefill: int, executor: ExecutorName) -> Estimate:
    """How long a job takes by the loads of its runs: rather too long than too short."""
    overhead = JOB_OVERHEADS[executor]
    known_s = overhead.job_s
    for load in loads:
        known_s += (load.duration_s or 0.0) * (1 + VERIFY_SHARE) + prefill / FILL_PER_S
        known_s += overhead.run_s + load.workers * overhead.worker_s
    return Estimate(known_s, sum(load.duration_s is None for load in loads))


def estimate_left(
    left: Sequence[Job],
    modelled: Mapping[str, Estimate],
    measured_s: Mapping[Job, float],
    settle_s: float,
) -> Estimate:
    """How long these jobs still take: as long as the candidate's earlier ones of the same step, or else the
    other candidates', or else by the model. `modelled`: by the jobs' names."""
    known_s, open_runs = settle_s * max(0, len(left) - 1), 0
    for job in left:
        alike = [took_s for one, took_s in measured_s.items() if one.step == job.step]
        own = [
            took_s
            for one, took_s in measured_s.items()
            if (one.step, one.candidate) == (job.step, job.candidate)
        ]
        if found := own or alike:
            known_s += sum(found) / len(found)
        else:
            known_s += modelled[job.name].known_s
            open_runs += modelled[job.name].open_runs
    return Estimate(known_s, open_runs)
