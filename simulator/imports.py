"""What processes import that are forked from one: there, once for all.

Of 1,000 workers each would have it in memory for itself, and all would import it at the same time.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from .contract import RunSettings
from .errors import SimulatorError
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
    with suppress(SimulatorError):  # whatever is wrong with them is for the run to say
        build(settings)
