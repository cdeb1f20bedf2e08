"""The rows of a worker's devices in the tags' table, stored before anything is measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

from ..errors import Retryable, SimulatorError
from ..modules.base import AnyModule
from ..workloads.base import Workload
from .loop import choose_backoff_s


def store_devices(
    module: AnyModule, workload: Workload, worker: int, abort: Callable[[], object] = lambda: None
) -> None:
    """Store the rows of a worker's devices. They are the same in each run, so it's tried again as a whole.

    `abort` is called before each retry. SimulatorError after the target's `max_retries`.
    """
    most = module.options.max_retries
    for attempt in count():
        try:
            module.open()
            try:
                module.store_devices(workload.device_rows(worker))
            finally:
                module.close()
        except Retryable as error:
            if attempt >= most:
                raise SimulatorError(
                    f"gave up after {most} retries ({error.kind}): {error}"
                ) from error
            time.sleep(choose_backoff_s(error, attempt))
            abort()
        else:
            return
