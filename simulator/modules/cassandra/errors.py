"""What the driver raises, and what it means for a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cassandra import (
    AuthenticationFailed,
    CoordinationFailure,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException, ProtocolVersionUnsupported
from cassandra.protocol import (
    ErrorMessage,
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
    PreparedQueryNotFound,
    ServerError,
)

from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import connection_lost, lost_table, missing_table
from ..base import Job
from .options import CassandraOptions

ERRORS = (
    DriverException,
    NoHostAvailable,
    ConnectionException,
    UnresolvableContactPoints,
    ErrorMessage,
    OSError,
)
"""All that the driver raises for what a server or a network does."""


def explain_failure(
    options: CassandraOptions, error: Exception, datacenters: Collection[str | None]
) -> str:
    """One line for a failed connection, with a remedy."""
    causes = list(_find_causes(error))
    reason = find_cause(error)
    if any(isinstance(cause, (AuthenticationFailed, Unauthorized)) for cause in causes):
        remedy = "check username and password"
    # The driver makes another OSError of an SSLError.
    elif "ssl" in reason.lower() or "certificate" in reason:
        remedy = "check tls, ca_certs, and that the certificate is for the names in contact_points"
    elif any(isinstance(cause, ProtocolVersionUnsupported) for cause in causes):
        remedy = "set protocol_version to one that the server speaks"
    elif options.local_datacenter and datacenters and options.local_datacenter not in datacenters:
        known = ", ".join(sorted(map(str, datacenters)))
        remedy = f"set local_datacenter to one that there is: {known}"
    else:
        remedy = "check that the server runs and that contact_points, port and tls are right"
    return f"can't connect to Cassandra at {options.servers}: {reason}; {remedy}"


def _find_causes(error: Exception) -> Iterable[Exception]:
    """The error and what it is made of: NoHostAvailable has one for each node."""
    yield error
    parts = getattr(error, "errors", None)
    for part in parts.values() if isinstance(parts, dict) else ():
        if isinstance(part, Exception):
            yield from _find_causes(part)


def find_cause(error: Exception) -> str:
    """What went wrong, in one line: on one of the nodes, if on several."""
    return one_line(list(_find_causes(error))[-1])


def translate(
    error: Exception, options: CassandraOptions, job: Job, expects_tables: bool = False
) -> Retryable | SimulatorError:
    """What an error means: worth another try, or the end of the run. `expects_tables`: the run has made them,
    so that a node that doesn't know them has not caught up."""
    text = find_cause(error)
    for kind, name in (
        (WriteTimeout, "write_timeout"),
        (ReadTimeout, "read_timeout"),
        (OperationTimedOut, "client_timeout"),
        (Unavailable, "unavailable"),
        (OverloadedErrorMessage, "overloaded"),
        (PreparedQueryNotFound, "unprepared"),
        (CoordinationFailure, "replica_failure"),
        (IsBootstrappingErrorMessage, "unavailable"),
        # What a node says that is about to end, for one.
        (ServerError, "server_error"),
    ):
        if any(isinstance(cause, kind) for cause in _find_causes(error)):
            return Retryable(name, text)
    if isinstance(error, (AuthenticationFailed, Unauthorized)):
        return SimulatorError(f"Cassandra refused {options.servers}: {text}; check username")
    if isinstance(error, (NoHostAvailable, ConnectionException, OSError)):
        return connection_lost(text)
    if isinstance(error, InvalidRequest) and ("does not exist" in text or "unconfigured" in text):
        return lost_table(text) if expects_tables else missing_table(text, job)
    if isinstance(error, InvalidRequest) and "too large" in text:
        return SimulatorError(f"{text}; use a smaller --batch")
    return SimulatorError(f"Cassandra refused a request: {text}")
