"""A rate that changes: stages, each with a rate of its own, as in `2m:1000,10m:5000,2m:1000`. And a fleet
that is cut off for a while, whose events come later."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from ..units import parse_amount, parse_duration_s
from .message import Message, Seconds

MOST_STAGES = 100
"""Each worker keeps a histogram for each."""


class RateStage(Message):
    """So long at this rate."""

    duration_s: float = Field(gt=0)
    rate_per_s: float = Field(ge=0)
    """Of all workers together; 0: a pause."""

    def __str__(self) -> str:
        return f"{self.duration_s:.10g}s:{self.rate_per_s:.10g}"


class FleetPause(Message):
    """So long the fleet of devices is cut off: events go on becoming due, and are sent once it is back."""

    begins_s: Seconds
    """Since the common start."""
    length_s: float = Field(gt=0, le=1e9)

    @property
    def ends_s(self) -> float:
        """Since the common start."""
        return self.begins_s + self.length_s


def parse_stages(text: str) -> list[RateStage]:
    """`2m:1000,10m:5k`; ValueError says how to write them."""
    stages = [_parse_stage(part.strip()) for part in text.split(",")]
    if len(stages) > MOST_STAGES:
        raise ValueError(f"{len(stages)} stages: {MOST_STAGES} at most")
    if not any(stage.rate_per_s for stage in stages):
        raise ValueError(f"{text!r}: one stage at least needs a rate above 0")
    return stages


def _parse_stage(part: str) -> RateStage:
    length, colon, rate = part.partition(":")
    duration_s, amount = parse_duration_s(length), parse_amount(rate)
    if not colon or duration_s is None or duration_s <= 0 or amount is None or amount < 0:
        raise ValueError(f"{part!r}: write stages as in 2m:1000,10m:5000,2m:1000")
    return RateStage(duration_s=duration_s, rate_per_s=float(amount))


def _read(value: object) -> Any:
    if isinstance(value, str):
        return parse_stages(value) if value else []
    return value


def format_stages(stages: Sequence[RateStage]) -> str:
    """As `parse_stages` reads it; empty of none."""
    return ",".join(map(str, stages))


Stages = Annotated[
    list[RateStage],
    BeforeValidator(_read),
    PlainSerializer(format_stages, return_type=str, when_used="json"),
]
"""In files and messages as they are written on a command line."""


def sum_durations_s(stages: Sequence[RateStage]) -> float:
    """How long all of them take."""
    return round(sum(stage.duration_s for stage in stages), 9)


def find_mean_rate(stages: Sequence[RateStage]) -> float:
    """What is due in all of them by the time that they take."""
    return _count_all(stages) / sum_durations_s(stages)


def _count_all(stages: Sequence[RateStage]) -> float:
    return sum(stage.duration_s * stage.rate_per_s for stage in stages)


def count_due_between(stages: Sequence[RateStage], from_s: float, until_s: float) -> float:
    """What is due in a stretch, counted from the begin of the first stage."""
    ends = list(accumulate(stage.duration_s for stage in stages))
    return sum(
        stage.rate_per_s * max(0.0, min(until_s, end) - max(from_s, end - stage.duration_s))
        for stage, end in zip(stages, ends, strict=True)
    )
