"""Where collector and workers run. One file per executor; `base` says what an executor is."""

from __future__ import annotations

from ..config import ExecutorName
from ..errors import ConfigError
from ..signals import Interrupts
from .base import Executor


def make_executor(name: ExecutorName, interrupts: Interrupts) -> Executor:
    """The executor of that name; ConfigError if this version has none."""
    if name is ExecutorName.LOCAL:
        from .local import LocalExecutor

        return LocalExecutor(interrupts)
    raise ConfigError(
        f"this version can't run on {name} yet: use --executor local, which runs collector and"
        " workers on this machine (the database must be reachable from here)"
    )
