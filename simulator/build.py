"""From a run's settings to its workload and module."""

from __future__ import annotations

import json
import logging

from .contract import RunSettings
from .errors import OptionError
from .logs import hide
from .modules import load_whole_module
from .modules.base import AnyModule, Job
from .modules.options import Options, parse_options
from .workloads import load_workload
from .workloads.base import Workload

_log = logging.getLogger(__name__)


def build(settings: RunSettings) -> tuple[Workload, AnyModule]:
    """The workload and the module that the settings name."""
    module_type = load_whole_module(settings.module)
    ignored = list_ignored_keys(settings, module_type.options_model)
    own = {key: text for key, text in settings.secret.items() if key not in ignored}
    told = ""
    if ignored:
        told = f"keys of the Secret that are no options are ignored: {', '.join(ignored)}"
        _log.warning(told)
    try:
        options = parse_options(
            module_type.options_model,
            {**settings.options, **own},
            lambda _: f"target {settings.target}",
        )
    except OptionError as error:
        raise OptionError(f"{error}; {told}" if told else str(error)) from error
    public = json.dumps([settings.module, settings.target, options.public()], default=str)
    hide([*options.secrets(), settings.token], public)
    workload_type = load_workload(settings.data.workload, settings.data.definition)
    workload_options = parse_options(
        workload_type.options_model, settings.data.workload_options, lambda _: "workload"
    )
    workload = workload_type(settings.data.seed, **workload_options.model_dump())
    return workload, module_type(options, Job.of(settings, workload.schema))


def list_ignored_keys(settings: RunSettings, model: type[Options]) -> list[str]:
    """Keys of the mounted Secret that are no options of the module."""
    known = model.option_names({**settings.options, **settings.secret})
    return sorted(settings.secret.keys() - set(known))
