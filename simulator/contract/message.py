"""The base of all messages, and the limits that settings and results refer to."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""A count or number, within the range of databases and numpy."""
Seconds = Annotated[float, Field(ge=0, le=1e9)]
"""A duration. Times since the common start may be slightly negative."""
Instant = Annotated[float, Field(ge=-1e9, le=1e9)]
"""Seconds since the common start."""


def _fail_fast(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "tuple"):
            schema["fail_fast"] = True
        for part in schema.values():
            _fail_fast(part)
    elif isinstance(schema, list | tuple):
        for part in schema:
            _fail_fast(part)


class Bounded:
    """Base of models whose validation stops at the first wrong entry of a list: an untrusted file may have a
    million wrong ones, which would take a gigabyte to report only one."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _fail_fast(schema)
        return schema


class Message(Bounded, BaseModel):
    """Base of all messages: refuses unknown fields and non-finite numbers, and shows no values in errors."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)


# --- limits ------------------------------------------------------------------------------------------


class Measure(StrEnum):
    """What a limit applies to."""

    P50 = "p50"
    P90 = "p90"
    P99 = "p99"
    P99_9 = "p99_9"
    """Percentiles of response times: from when a request was due; in a closed loop, from when it was sent."""
    SERVICE_P99 = "service_p99"
    """The p99 of service times: from when a request was sent."""
    ERROR_SHARE = "error_share"
    """Failed requests, including those cured by a retry, ÷ all requests sent."""

    @property
    def is_time(self) -> bool:
        """Whether the measure is in milliseconds; otherwise it is a share."""
        return self is not Measure.ERROR_SHARE

    @property
    def percent(self) -> float | None:
        """The percentile; None for a share."""
        return _PERCENTS.get(self)

    @property
    def least_requests(self) -> int:
        """How many requests it needs: with fewer, the slowest one alone decides a percentile."""
        return 1 if self.percent is None else round(100 / (100 - self.percent))


_PERCENTS = {
    Measure.P50: 50.0, Measure.P90: 90.0, Measure.P99: 99.0, Measure.P99_9: 99.9,
    Measure.SERVICE_P99: 99.0,
}  # fmt: skip


class RunLimit(Bounded, BaseModel):
    """A limit of a run."""

    measure: Measure
    query: str | None = None
    """The query it applies to; None: the inserts."""
    at_most: float
    """Milliseconds, or a share."""

    @property
    def name(self) -> str:
        """Its command-line form, `p99` or `query:NAME:p99`."""
        return self.measure if self.query is None else f"query:{self.query}:{self.measure}"

    @property
    def heading(self) -> str:
        """Its readable form, `inserts p99` or `NAME p99`."""
        return f"{self.query or 'inserts'} {self.measure}"

    def __str__(self) -> str:
        """`p99=100ms`, `p99=2s`, `error_share=0.1%`."""
        if self.measure.is_time and self.at_most >= 1000:
            return f"{self.name}={self.at_most / 1000:.10g}s"
        if self.measure.is_time:
            return f"{self.name}={self.at_most:.10g}ms"
        return f"{self.name}={100 * self.at_most:.10g}%"

    def show(self, value: float) -> str:
        """A measured value with its unit."""
        if self.measure.is_time:
            return f"{value:.3g} ms" if value < 999.5 else f"{value:,.0f} ms"
        return f"{100 * value:.3g}%"
