"""What each command measures, and how: runs are planned, made, judged and kept."""

from __future__ import annotations

from collections.abc import Mapping

from .capacity import CapacityExperiment
from .clients import ClientsExperiment
from .experiment import AnyExperiment, run_experiment
from .measuring import InsertExperiment, MixedExperiment, QueryExperiment
from .tuning import TuneExperiment

__all__ = ["EXPERIMENTS", "AnyExperiment", "run_experiment"]

EXPERIMENTS: Mapping[str, type[AnyExperiment]] = {
    "insert": InsertExperiment, "query": QueryExperiment, "mixed": MixedExperiment,
    "capacity": CapacityExperiment, "tune": TuneExperiment, "clients": ClientsExperiment,
}  # fmt: skip
"""Command -> its experiment."""
