"""What commands have to say that messages advise."""

from __future__ import annotations

import json
import shlex

from .contract import DataSet
from .workloads import load_workload
from .workloads.base import SHARING_WORKERS


def name_events(data: DataSet) -> str:
    """What follows --workload in a command about the same events: the workload, and each of its options
    that isn't the default. The number of workers that share devices is left out, as each insert sets it."""
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
