"""A campaign of 24 jobs as its folder has it, made of the results in `img/results`: three candidates, four
steps, two repetitions."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from cli.results.model import Result
from cli.results.store import read_result
from cli.run.campaign.campaign import Campaign, open_campaign
from cli.system.processes import Interrupts
from simulator.contract import GroupResult, LatencyMs, Role
from simulator.histograms import Histogram

RESULTS = Path(__file__).parents[4] / "img" / "results"


class Database(NamedTuple):
    """A candidate, and how many times as fast and as large it is as what was measured."""

    module: str
    version: str
    speed: float
    size: float


CANDIDATES = {
    "postgresql": Database("postgres", "PostgreSQL 18.4", 1.0, 1.0),
    "questdb": Database("questdb", "QuestDB 9.1.1", 2.6, 0.45),
    "influxdb": Database("influxdb", "InfluxDB 2.7.12", 0.62, 0.3),
}
STEPS = {"growth": "steps", "questions": "query", "load": "insert", "capacity": "capacity"}
"""Step -> which stored result it is made of."""

FILE = """
title: Which database for 8,000 machines
targets: [postgresql, questdb, influxdb]
steps:
- steps: {steps: 10, workers: 1, runs: 1}
  label: growth
- query: {}
  label: questions
- insert: {duration: 1m}
  label: load
- capacity: {limit: p99=100ms}
repeats: 2
"""
CONFIG = """
targets:
  postgresql: {module: postgres, connection_string: host=127.0.0.1}
  questdb: {module: questdb}
  influxdb: {module: influxdb}
"""


def make_campaign(folder: Path, file: str = FILE, left_out: Collection[str] = ()) -> Campaign:
    """The campaign, with a result of each job but those that are left out."""
    (folder / "night.yaml").write_text(file)
    (folder / "config.yaml").write_text(CONFIG)
    campaign = open_campaign(
        folder / "night.yaml", folder / "config.yaml", folder / "night", Interrupts()
    )
    for number, job in enumerate(campaign.jobs):
        if job.name not in left_out:
            path = campaign.folder.results / f"20261102T{number:02d}0405Z-{job.command}"
            path.mkdir(parents=True)
            result = make_result(job.candidate.target, job.step, job.repeat)
            result = result.model_copy(update={"label": job.name} | job.id._asdict())
            (path / "result.json").write_text(result.model_dump_json())
    return campaign


@cache
def _read(step: str) -> Result:
    return read_result(RESULTS / f"example-{STEPS[step]}.json")


@cache
def make_result(candidate: str, step: str, repetition: int) -> Result:
    """What one job of the candidate might have measured."""
    database = CANDIDATES[candidate]
    chance = Random(f"{candidate} {step} {repetition}")
    speed = database.speed * chance.uniform(0.97, 1.03)
    result = _read(step).model_copy(deep=True)
    if step == "load":
        result.runs = [run for run in result.runs if run.run <= 2]
    result.target, result.module = candidate, database.module
    result.environment["database"] = {
        "version": database.version,
        "settings": result.environment["database"]["settings"] if database.speed == 1 else {},
        "schema": {"tables": ["events"], "tags": "row", "indexes": ["events_pkey"]},
    }
    result.options["module"] = {"client": "lean"}
    for run in result.runs:
        for group in run.groups:
            _vary_group(group, speed, database.size, at_rate=result.capacity is not None)
    if result.capacity is not None:
        answer = result.capacity
        answer.events_per_s = answer.events_per_s and answer.events_per_s * speed
        answer.above_per_s = answer.above_per_s and answer.above_per_s * speed
        for search_step in answer.steps:
            search_step.rate_per_s = search_step.rate_per_s and search_step.rate_per_s * speed
    return result


def _vary_group(group: GroupResult, speed: float, size: float, at_rate: bool) -> None:
    group.rate_per_s = group.rate_per_s and group.rate_per_s * speed
    group.timeline = [(second, round(events * speed)) for second, events in group.timeline]
    if group.offered:
        offered = group.offered
        offered.rate_per_s, offered.due = offered.rate_per_s * speed, round(offered.due * speed)
        offered.achieved = round(offered.achieved * speed)
    if group.storage and group.storage.total_bytes:
        group.storage.total_bytes = round(group.storage.total_bytes * size)
    if group.role is Role.READ:
        for query in group.queries:
            for execution in query.each:
                execution.duration_s = execution.duration_s and execution.duration_s / speed
    elif group.histogram and not at_rate:
        # In a search times are alike at the same share of the capacity.
        group.histogram = _shorten(group.histogram, speed)
        group.latency_ms = LatencyMs.of(group.histogram)
    elif group.latency_ms and not at_rate:
        percentiles = group.latency_ms.model_dump()
        group.latency_ms = LatencyMs(
            **{name: ms and ms / speed for name, ms in percentiles.items()}
        )


def _shorten(histogram: Histogram, speed: float) -> Histogram:
    count, shortened = histogram.count, Histogram()
    for rank in range(1, count + 1):
        [us] = histogram.values_us([100 * rank / count])
        shortened.add([us / speed / 1e6])
    return shortened
