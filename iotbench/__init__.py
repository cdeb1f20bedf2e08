"""The benchmark as a library: stored results as tables and side by side, and the base for packages with
workloads. The base for packages with databases: `iotbench.database`.

    import iotbench

    table = iotbench.load("results")                             # all runs, as `results export` has them
    speeds = iotbench.matrix("comparison/results/fleet.tar.xz")  # candidates side by side
    events = iotbench.load_workload("machines")().block(worker=0, first=0, count=1000)
"""

from __future__ import annotations

from collections.abc import Collection
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from simulator import __version__
from simulator.workloads import load_workload
from simulator.workloads.base import Workload

if TYPE_CHECKING:
    import pyarrow

    from cli.results.matrix import Matrix
    from cli.results.model import Result
    from cli.results.store import StoredResult

__all__ = ["Workload", "__version__", "load", "load_workload", "matrix"]


def load(*paths: str | PathLike[str]) -> pyarrow.Table:
    """All runs of results, one row each, with the columns of `results export`, whose names end in units. A

    path is a folder of results, a campaign's folder or packed file, or a single result; default:

    `results`. ConfigError, a `click.ClickException`, if it is none of them;
    ModuleNotFoundError without pyarrow: `pip install 'iot-database-benchmark[recorded]'`.
    """
    from cli.results.export import make_table

    return make_table(_open(paths))


def matrix(
    *paths: str | PathLike[str], step: str | None = None, figures: Collection[str] | None = None
) -> Matrix[str]:
    """Candidates side by side: the figures of each by repetition, and which pairs they decide. `rank()` gives

    the candidates with their ranks, fastest first; `rows[name].average()` the means of a candidate's figures;

    `pairs[own, base]` the speed ratio of two candidates, with its interval.
    Outside campaigns a candidate is a target, and each of its results a repetition.

    `paths`: as for `load`. `step`: use only this step of a campaign, or this command. `figures`: keys of the
    figures to use; None: all comparable ones, which excludes inserts per second at a given rate. ConfigError
    if nothing is left.
    """
    from cli.results.matrix import TIMES, find_given, measure
    from cli.system.errors import ConfigError

    measured: dict[str, list[Result]] = {}
    for stored in _open(paths):
        result = stored.result
        if step in (None, result.step, result.command):
            measured.setdefault(result.candidate or result.target, []).append(result)
    if not measured:
        raise ConfigError("there is no result" if step is None else f"there is no step {step!r}")
    if figures is None and find_given(measured):
        figures = TIMES
    return measure(measured, figures=figures)


def _open(paths: Collection[str | PathLike[str]]) -> list[StoredResult]:
    from cli.results.store import FILE_NAME, LOCAL, is_campaign, list_results, open_results

    found = []
    for path in map(Path, paths or [LOCAL]):
        if path.is_dir() and not is_campaign(path) and not (path / FILE_NAME).is_file():
            found += list_results(path)
        else:
            found += open_results([str(path)], LOCAL)
    return found
