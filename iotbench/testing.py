"""What the contract suite needs to know about a database: see docs/how-to/own-database.md."""

from simulator.testing.server import (
    Entry,
    Fault,
    FaultHandle,
    Refusal,
    ServerUnderTest,
    SqlServerUnderTest,
)

__all__ = ["Entry", "Fault", "FaultHandle", "Refusal", "ServerUnderTest", "SqlServerUnderTest"]
