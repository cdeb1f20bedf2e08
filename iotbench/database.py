"""The base for a package with a database: see docs/how-to/own-database.md."""

from simulator.modules.public import *  # noqa: F403
from simulator.modules.public import __all__ as __all__  # noqa: PLC0414
