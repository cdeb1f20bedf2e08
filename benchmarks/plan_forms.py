"""A form in which a query is asked, and functions that make one from another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulator.modules.base import AnyModule
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Every, Query
from simulator.workloads.schema import Schema

FIELDS = ("temperature", "pressure", "vibration", "power", "pieces", "errors")
"""Fields of `machines`, without its text and its truth value."""


@dataclass(frozen=True)
class Form:
    """How a query is asked."""

    compiled: Callable[[BoundQuery], Any]
    change: Callable[[Any], Mapping[str, Any]] = lambda options: {}
    """The module's options that differ."""
    alone: bool = False
    """Whether each execution is encoded by itself, as nothing is known of what they have in common."""


def rewrite(module: AnyModule, pattern: str, by: str) -> Form:
    """The compiled text with a part of it replaced."""
    return Form(lambda bound: replace_part(module.compile(bound), pattern, by, module.job.schema))


def replace_part(text: str, pattern: str, by: str, schema: Schema) -> str:
    """A statement with a part of it replaced; `TABLE` stands for the table's name."""
    replaced, changes = re.subn(pattern, by.replace("TABLE", schema.table), text)
    assert changes, text
    return replaced


def name_devices(module: AnyModule, devices: Sequence[str]) -> Form:
    """All devices by their names, as an application asks that has a list of them."""
    return Form(lambda bound: module.compile(replace(bound, devices=tuple(devices))), alone=True)


def find_bucket_ms(query: Query) -> int:
    """The length of the time buckets of a query's answer; 0: it has none."""
    return next((part.every for part in query.per if isinstance(part, Every)), 0)
