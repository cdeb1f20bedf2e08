"""A worker, from its settings to its exit status: `writing` and `reading` are the two kinds, `feed` makes
requests, `schedule` says when they are due, `loop` sends them, `measure` records times."""

from __future__ import annotations

import logging
import time

from ..contract import Role, RunSettings, Stage, WorkerResult
from ..errors import Retryable, SimulatorError
from ..modules.base import connect
from .base import CollectorClient, RunOver, Worker, garbage_collection_paused
from .reading import ReadingWorker
from .writing import WritingWorker

__all__ = ["connect", "garbage_collection_paused", "run_worker"]

_log = logging.getLogger(__name__)


def run_worker(settings: RunSettings, number: int, collector_url: str) -> int:
    """Run a worker from start to end. Returns its exit status: 0 done, 1 failed (and the collector knows
    why)."""
    client = CollectorClient(collector_url, settings, number)
    try:
        roles: dict[Role, type[WritingWorker | ReadingWorker | CheckingWorker]] = {
            Role.WRITE: WritingWorker,
            Role.FILL: WritingWorker,
            Role.READ: ReadingWorker,
            Role.CHECK: CheckingWorker,
        }
        worker = roles[settings.group_of(number).load.role](settings, number, client)
        client.result(worker.run())
        worker.finish()
    except RunOver as error:
        _log.error("the run is over: %s", error)
        return 1
    except (SimulatorError, Retryable) as error:
        _log.error("failed: %s", error)
        client.fail(str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it is, the collector must be told
        _log.exception("failed unexpectedly")
        client.fail(f"unexpected {type(error).__name__}: {error} (see the worker's log)")
        return 1
    finally:
        client.close()
    return 0


class CheckingWorker(Worker):
    """Connects to the database from where a worker runs; changes nothing."""

    def run(self) -> WorkerResult:
        self._client.ready(Stage.PREPARED)
        with connect(self._module):
            self._module.server_info()
            origin = self._await_start()
        return self._result(time.perf_counter() - origin)
