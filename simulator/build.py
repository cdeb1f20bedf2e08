"""From a run's settings to its workload and module."""

from __future__ import annotations

from .contract import RunSettings
from .logs import hide
from .modules import load_whole_module
from .modules.base import AnyModule, Job
from .modules.options import parse_options
from .workloads import load_workload
from .workloads.base import Workload


def build(settings: RunSettings) -> tuple[Workload, AnyModule]:
    """The workload and the module that the settings name."""
    module_type = load_whole_module(settings.module)
    options = parse_options(
        module_type.options_model, settings.options, lambda _: f"target {settings.target}"
    )
    hide([*options.secrets(), settings.token])
    workload_type = load_workload(settings.data.workload, settings.data.definition)
    workload_options = parse_options(
        workload_type.options_model, settings.data.workload_options, lambda _: "workload"
    )
    workload = workload_type(settings.data.seed, **workload_options.model_dump())
    return workload, module_type(options, Job.of(settings, workload.schema))
