"""The steps of a turn measure one schema: what inserts have paid for is what queries go through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from simulator.conditions import Condition, find_conditions
from simulator.contract import Role

from ..errors import ConfigError
from ..making import Prepared
from .plan import Job, Turn


def check_schemas(turns: Sequence[Turn], prepared: Mapping[str, Prepared]) -> None:
    """ConfigError, which says what to do, if steps of a turn would make or expect different tables."""
    for turn in turns:
        first_with: dict[tuple[str, str], tuple[Job, Any]] = {}
        for job in turn:
            own = prepared[job.name]
            for name, value in list_schema(own).items():
                key = own.session.request.workload, name
                other, before = first_with.setdefault(key, (job, value))
                if value != before:
                    raise ConfigError(
                        f"{job.candidate}: the steps would measure different schemas: {name} is {before} in"
                        f" {other.step} and {value} in {job.step}: give it to all steps (below `options`,"
                        " or the target's), or to compare both, make each a variant (below `variants`)"
                    )


def list_schema(prepared: Prepared) -> dict[str, Any]:
    """The options of a job that its tables are made by."""
    session = prepared.session
    loads = [load for load in prepared.lengths[:1] if load.role is not Role.READ]
    models: list[BaseModel] = [session.assume_options(), session.workload_options, *loads]
    return {
        name: getattr(model, name)
        for model in models
        for name in type(model).model_fields
        if find_conditions(type(model)).get(name) is Condition.SCHEMA
    }
