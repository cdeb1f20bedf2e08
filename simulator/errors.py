"""The errors that the simulator tells apart."""

from __future__ import annotations


class SimulatorError(Exception):
    """Ends a run. The text says what is wrong and what to do; it is shown without a traceback."""


class OptionError(SimulatorError):
    """An option of a module or workload is wrong: found before anything is started."""


def one_line(text: object, at_most: int | None = None) -> str:
    """A text from elsewhere for a message of ours: without line breaks, `at_most` so many characters.

    Of an exception without a text, its type.
    """
    found = " ".join(str(text).split())
    if not found and isinstance(text, BaseException):
        return type(text).__name__
    return found[:at_most]


class Retryable(Exception):
    """A request failed in a way that passes: try it again. `kind` is counted in the result."""

    def __init__(
        self, kind: str, detail: str, backoff_s: float = 0.1, at_least_s: float = 0.0
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.backoff_s = backoff_s
        """Wait before the first retry; doubles with each further one."""
        self.at_least_s = at_least_s
        """Never wait less: what the server asked for (HTTP's Retry-After)."""
