"""What is generated. One file per workload; `base` says what a workload is, `definition` how one is written
as YAML.

Another package adds a workload by an entry point of the group `iot_database_benchmark.workloads`: its name is
the value of `--workload`, its object the workload's class.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from ..contract import DataSet
from ..errors import OptionError, did_you_mean, load_plugin, one_line, plugin_names
from .base import SHARING_WORKERS, Workload, WorkloadOptions
from .cpu import Cpu
from .temperature import Temperature

ENTRY_POINTS = "iot_database_benchmark.workloads"

WORKLOADS: dict[str, type[Workload]] = {workload.name: workload for workload in (Temperature, Cpu)}
"""The workloads of this package that are classes of their own."""

SHIPPED = ("machines", "trucks", "wide")
"""The workloads of this package that are YAML definitions."""

RECORDED = "recorded"
"""The key that a definition of a recording has, and no other."""

_FOLDER = Path(__file__).parent


def workload_names() -> list[str]:
    """All workloads, including those of other packages."""
    return [*WORKLOADS, *SHIPPED, *plugin_names(ENTRY_POINTS)]


def load_workload(name: str, definition: Mapping[str, Any] | None = None) -> type[Workload]:
    """The class of a workload: from its definition if there is one, otherwise by name. OptionError if there
    is none, or it can't be loaded."""
    if definition is not None:
        return _define(to_json(definition))
    if name in WORKLOADS:
        return WORKLOADS[name]
    if name in SHIPPED:
        return _load_shipped(name)
    if workload := load_plugin(ENTRY_POINTS, name, Workload):
        return workload
    names = workload_names()
    raise OptionError(
        f"there is no workload {name!r}{did_you_mean(name, names)} (known: {', '.join(names)})"
    )


def load_options_model(name: str) -> type[WorkloadOptions]:
    """The options of a workload. All definitions have the same, so none is read for this."""
    if name not in SHIPPED:
        return load_workload(name).options_model
    from .defined import DefinedOptions

    return DefinedOptions


@lru_cache(maxsize=8)
def _define(document: bytes) -> type[Workload]:
    """The class for a definition in JSON."""
    content = from_json(document)
    try:
        if RECORDED in content:
            from .recording.definition import RecordedDefinition
            from .replay import replay

            recorded = RecordedDefinition.read(content)
            return replay(recorded, recorded.open())
        from .defined import define
        from .definition import Definition

        return define(Definition.read(content))
    except ValidationError as error:
        problem = "this version can't read the workload's definition"
        raise OptionError(f"{problem}: {one_line(error)}") from error


@cache
def _load_shipped(name: str) -> type[Workload]:
    # Importing the YAML reader costs time; few commands need it.
    from .yaml_source import read_document

    return _define(to_json(read_document(_FOLDER / f"{name}.yaml")))


def name_events(data: DataSet) -> str:
    """The value of --workload and its options in a command about the same events. Leaves out the number of
    workers that share devices, as each insert sets it."""
    model = load_workload(data.workload, data.definition).options_model
    defaults = model().model_dump(mode="json")
    words = [data.workload_argument]
    for name, value in data.workload_options.items():
        if name != SHARING_WORKERS and value != defaults.get(name):
            text = value if isinstance(value, str) else json.dumps(value)
            words += ["--workload-option", f"{name}={text}"]
    if data.seed:
        words += ["--seed", str(data.seed)]
    return shlex.join(words)
