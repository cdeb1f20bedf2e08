"""Imports, once for all, in the process from which others are forked.

Otherwise each of 1,000 workers would have it all in memory for itself, and they would import it at the same
time.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from .contract import RunSettings
from .modules import build

USED_LATER = {
    "collector": ("uvicorn.lifespan.off", "uvicorn.loops.auto", "uvicorn.protocols.http.auto",
                  "uvicorn.protocols.websockets.auto"),
    "worker": ("httpcore", "numpy.random"),
}  # fmt: skip
"""What the roles' libraries import only when they are first used: up to 0.1 s of CPU."""


def import_all(settings: RunSettings, *roles: str) -> None:
    """Import what runs like this one need in these roles."""
    for role in roles:
        for name in USED_LATER[role]:
            import_module(name)
    with suppress(Exception):  # the run itself says what is wrong with them
        build(settings)
