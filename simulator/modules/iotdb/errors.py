"""What IoTDB's status codes mean for a run."""

from __future__ import annotations

from typing import Any

from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import missing_table
from ..base import Job
from .options import IotdbOptions
from .thrift import Fields

# https://iotdb.apache.org/UserGuide/latest/Reference/Status-Codes.html
_SUCCESS = (200, 400)
"""Done; done, and another node would have been quicker."""
_SEVERAL = 302
_PASSES = {
    306: "dispatch",
    602: "not_ready",
    606: "write_rejected",
    709: "out_of_memory",
    712: "internal_timeout",
    713: "internal_retry",
    905: "leader_change",
    906: "no_region",
    1007: "node_away",
    1010: "node_away",
}
"""Code -> what it is counted as, if the same may work a little later."""
_NO_REGION = "no available"
"""Said of regions, also with the general code 301, while the nodes of a database's regions don't answer."""
_MISSING = (500, 508, 550)
"""Database, path or table."""
_REFUSED = (801, 802, 803, 804)


class ServerError(Exception):
    """A status that isn't success."""

    def __init__(self, code: int, message: str, needs_retry: bool) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.needs_retry = needs_retry


def check_status(status: Fields) -> None:
    """Raises ServerError unless the request was done, as a whole."""
    code = status.get(1)
    if code in _SUCCESS:
        return
    if code == _SEVERAL:
        parts: list[Any] = status.get(3) or []
        failed = [part for part in parts if part.get(1) not in _SUCCESS]
        if parts and not failed:
            return
        status = failed[0] if failed else status
    text = status.get(2, b"").decode(errors="replace")
    raise ServerError(int(status.get(1, 0)), one_line(text, 500), bool(status.get(5)))


def translate(error: ServerError, options: IotdbOptions, job: Job) -> Retryable | SimulatorError:
    """What an error means: worth another try, or the end of the run."""
    kind = "no_region" if _NO_REGION in str(error) else _PASSES.get(error.code)
    if kind or error.needs_retry:
        return Retryable(kind or f"status_{error.code}", str(error))
    if error.code in _MISSING:
        return missing_table(f"IoTDB: {error}", job)
    if error.code in _REFUSED:
        return SimulatorError(
            f"IoTDB refused {options.username} at {options.servers}: {error}; check username and password"
        )
    return SimulatorError(f"IoTDB refused a request: {error}")
