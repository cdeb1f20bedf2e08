"""What an executor is: it starts a run, watches it, hands back its report, and cleans up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from simulator.contract import Report, RunSettings, Status

Watch = Callable[[Status], None]
"""Called with the collector's status about twice a second."""


class Executor(ABC):
    """Use as a context manager around all runs of a command."""

    @abstractmethod
    def __enter__(self) -> Executor: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    @abstractmethod
    def run(self, settings: RunSettings, logs: Path, timeout_s: float, watch: Watch) -> Report:
        """One run. `logs`: folder for the processes' logs; `timeout_s`: 0 for none.

        Raises RunFailed if there is no report; nothing of the run is left then either. The
        report's `phases_s` have the phases that only the executor sees: start and clean_up.
        """
