"""What an executor is: it starts runs, watches them, hands back their reports, and cleans up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from simulator.contract import Report, RunSettings, Status

from ..faults.injector import Action, Disturbance, Doer

Watch = Callable[[Status], None]
"""Called about twice a second with the collector's status, and what the executor sees of the database."""


class Series(ABC):
    """Runs of one worker count, made one after the other."""

    @abstractmethod
    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        """The next run; `timeout_s`: 0 for none.

        Raises RunFailed if there is no report: then no further run can be made. The report's
        `phases_s` have the phases that only the executor sees: start and clean_up.
        """


class Executor(ABC):
    """Use as a context manager around all runs of a command."""

    @abstractmethod
    def __enter__(self) -> Executor: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    def check_capacity(self, worker_counts: Sequence[int]) -> None:  # noqa: B027 - not all need it
        """Before the first run: ConfigError if runs with so many workers can't be placed."""

    def find_doers(self) -> Mapping[Action, Doer]:
        """What can be done to the database where it runs, by this executor alone."""
        return {}

    def check_disturbances(self, disturbances: Sequence[Disturbance]) -> None:  # noqa: B027 - as above
        """Before the first run: ConfigError if one of these can't be done."""

    @abstractmethod
    def open_series(
        self, settings: Sequence[RunSettings], logs: Path
    ) -> AbstractContextManager[Series]:
        """Ready for the runs with these settings, which differ in what is stored before them alone.

        `logs`: folder for the processes' logs. Nothing of the runs is left when the context ends.
        """
