"""Rates that are offered, and that may change: options of commands that insert or ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from simulator.contract import Load, find_mean_rate, sum_durations_s

from .options import Function, on_command_line

RATE = Load.model_fields["rate_per_s"].description
STAGES = "A rate that changes is written in stages, which say how long it takes: 2m:1000,10m:5000."


def query_rate_option(kind: click.ParamType[Any], more: str = "") -> Callable[[Function], Function]:
    """What readers beside writers are to ask."""
    return click.option(
        "--query-rate", type=kind,
        help=f"Queries per second of all readers together; without it: at once. {more}".rstrip(),
    )  # fmt: skip


def take_stages(ctx: click.Context, given: dict[str, Any]) -> None:
    """Of rates that are stages, fill in the stages, their mean rate, and how long they take. UsageError if
    something else was said of that."""
    flags = {"rate_per_s": "--rate", "query_rate": "--query-rate"}
    staged = {name: given[name] for name in flags if isinstance(given.get(name), list)}
    if not staged:
        return
    lengths = {flags[name]: sum_durations_s(stages) for name, stages in staged.items()}
    given_now = on_command_line(ctx)
    if "duration_s" in given_now:
        lengths["--duration"] = given["duration_s"]
    if len(set(lengths.values())) > 1:
        told = " and ".join(f"{flag} {length:g} s" for flag, length in lengths.items())
        raise click.UsageError(
            f"the stages of a rate say how long a run takes: {told} differ; let them add up to the same, or"
            " leave --duration out"
        )
    for name, flag in (("events", "--num-inserts"), ("runs", "--runs")):
        if name in given_now and (name == "events" or ctx.info_name == "query"):
            raise click.UsageError(
                f"{flag} and the stages of a rate both say when a run ends: give one of them"
            )
    given["duration_s"] = next(iter(lengths.values()))
    for name, stages in staged.items():
        given["stages" if name == "rate_per_s" else "query_stages"] = stages
        given[name] = find_mean_rate(stages)
