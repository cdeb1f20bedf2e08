"""What each command measures, and how: runs planned, made, judged and kept."""

from __future__ import annotations

from collections.abc import Mapping

from ...plan.request import Request
from .capacity import CapacityExperiment
from .clients import ClientsExperiment
from .experiment import AnyExperiment, run_experiment
from .measuring import InsertExperiment, MixedExperiment, QueryExperiment
from .session import open_session
from .tuning import TuneExperiment

__all__ = ["AnyExperiment", "open_experiment", "run_experiment"]

_EXPERIMENTS: Mapping[str, type[AnyExperiment]] = {
    "insert": InsertExperiment, "query": QueryExperiment, "mixed": MixedExperiment,
    "capacity": CapacityExperiment, "tune": TuneExperiment, "clients": ClientsExperiment,
}  # fmt: skip


def open_experiment(request: Request) -> AnyExperiment:
    """The experiment of a request, with its target. ConfigError if one of them is wrong."""
    return _EXPERIMENTS[request.command](request, open_session(request))
