"""What a run's tables take on disk. A database that doesn't say is no failure."""

from __future__ import annotations

import logging

from ..contract import InsertRun, Storage
from ..errors import Retryable, SimulatorError
from ..modules.base import AnyModule

_log = logging.getLogger(__name__)


def measure_storage(module: AnyModule, run: InsertRun, compact: bool) -> dict[str, Storage]:
    """The run's fields for it: now, and if asked for, after the database has compacted its tables."""
    if run.verification is None or run.verification.stored is None:
        return {}
    stored = run.verification.stored
    before = _ask(module, stored)
    if not compact or before.reason:
        return {"storage": before}
    return {"storage": before, "storage_compacted": _ask_compacted(module, stored)}


def _ask_compacted(module: AnyModule, stored: int) -> Storage:
    try:
        done = module.compact()
    except (SimulatorError, Retryable) as error:
        return Storage(reason=f"it could not be compacted: {error}")
    if not done:
        return Storage(reason="the database has nothing to compact by")
    return _ask(module, stored)


def _ask(module: AnyModule, stored: int) -> Storage:
    try:
        return module.storage().model_copy(update={"events": stored})
    except (SimulatorError, Retryable) as error:
        _log.warning("the size on disk is not known: %s", error)
        return Storage(reason=str(error))
