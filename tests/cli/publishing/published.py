"""Campaigns' folders as the tool keeps them, made of a few figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from cli.results.decision import (
    CandidateVerdict,
    Evidence,
    Requirement,
    Sample,
    Unit,
    VerdictMatrix,
    decide,
)
from cli.results.model import Result, SentStatements

from ..made import ENVIRONMENT, inserts, of_job, queries

SPEEDS: Mapping[str, Sequence[float]] = {
    "alpha": (100_000, 101_000, 99_500),
    "beta": (50_000, 50_500, 49_800),
    "gamma": (99_000, 102_500, 100_400),
}
"""Alpha and gamma can't be told apart, beta is half as fast."""
TIMES: Mapping[str, Mapping[str, Sequence[float]]] = {
    "alpha": {"newest": (0.020, 0.0201, 0.0199), "mean": (0.5, 0.51, 0.49)},
    "beta": {"newest": (0.010, 0.0101, 0.0099), "mean": (0.1, 0.101, 0.099)},
    "gamma": {"newest": (0.040, 0.0401, 0.0399)},
}
"""Seconds of each repetition; gamma can't answer `mean`."""


def describe_server(version: str = "PostgreSQL 18.4", **settings: str) -> dict[str, Any]:
    """The environment of a result."""
    environment = deepcopy(ENVIRONMENT)
    environment["database"] = {"version": version, "settings": {"fsync": "on"} | settings}
    return environment


def make_results(
    speeds: Mapping[str, Sequence[float]] = SPEEDS,
    times: Mapping[str, Mapping[str, Sequence[float]]] = TIMES,
    environments: Mapping[str, dict[str, Any]] | None = None,
    tags: Mapping[str, dict[str, str]] | None = None,
) -> dict[str, Result]:
    """Job -> its result: candidate, step and repetition."""
    results: dict[str, Result] = {}
    for name, own in speeds.items():
        more: dict[str, Any] = {
            "environment": (environments or {}).get(name) or describe_server(),
            "tags": (tags or {}).get(name, {}),
        }
        for number, speed in enumerate(own, 1):
            label = f"{name} load {number}"
            results[label] = inserts({4: [speed]}, name, label=label, **more)
            by_query = {
                query: [seconds[number - 1]] * 3 for query, seconds in times.get(name, {}).items()
            }
            if by_query:
                label = f"{name} questions {number}"
                statements = describe_sent(name, by_query)
                results[label] = queries(by_query, name, label=label, statements=statements, **more)
    return results


def describe_sent(name: str, asked: Iterable[str]) -> list[SentStatements]:
    """A schema, and statements, which are the same for alpha and gamma."""
    dialect = "vector" if name == "beta" else "row"
    return [
        SentStatements(title="Schema", lines=[f"CREATE TABLE events_{name} (time, value)"]),
        *(
            SentStatements(title=query, lines=[f"SELECT {dialect}", f"FROM {query}"], query=query)
            for query in asked
        ),
    ]


def judge() -> VerdictMatrix:
    """Alpha meets what is required, and beta doesn't."""
    required = Requirement(
        key="events_per_s", heading="load", unit=Unit.EVENTS_PER_S, bound=80_000, at_least=True
    )
    cells = {
        name: decide(
            required,
            [
                Sample(
                    repetition=number, keeps=speed >= 80_000, value=speed,
                    evidence=[Evidence(result=f"20261102T{2 * number:04d}00Z")],
                )
                for number, speed in enumerate(SPEEDS[name])
            ],
        )
        for name in ("alpha", "beta")
    }  # fmt: skip
    return VerdictMatrix(
        title="A fleet",
        requirements=[required],
        candidates=[CandidateVerdict(candidate=name, cells=[cell]) for name, cell in cells.items()],
        repeats=3,
        notes=["Made by /home/me/bin/run."],
    )


def keep_campaign(
    folder: Path,
    results: Mapping[str, Result],
    failed: Mapping[str, str] | None = None,
    **definition: object,
) -> Path:
    """A campaign's folder; `definition`: what else its file says."""
    jobs = [
        {
            "name": name, "candidate": name.split()[0], "step": name.split()[1],
            "repetition": int(name.split()[2]),
            "command": "insert" if " load" in name else "query",
            "arguments": [f"--target={name.split()[0]}"],
        }
        for name in [*results, *(failed or {})]
    ]  # fmt: skip
    plan = {
        "definition": {"steps": ["load", "questions"]} | definition,
        "targets": {},
        "jobs": jobs,
    }
    for number, (name, result) in enumerate(results.items()):
        keep_result(folder / "results" / f"20261102T{number:04d}00Z", of_job(result, name))
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "campaign.yaml").write_text("title: A night\n")
    if failed:
        (folder / "failed.json").write_text(json.dumps(failed))
    return folder


def keep_result(folder: Path, result: Result) -> Path:
    """A result's folder."""
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(result.model_dump_json())
    return folder
