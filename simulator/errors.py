"""The errors that the simulator tells apart, and what other packages add."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class SimulatorError(Exception):
    """Ends a run. The text says what is wrong and what to do; it is shown without a traceback."""


class GaveUp(SimulatorError):
    """A request was tried again until patience ended. What was measured before is worth keeping."""


class OptionError(SimulatorError):
    """Options of a module or workload are wrong: found before anything is started."""

    def __init__(self, *problems: str) -> None:
        """`problems`: all that is wrong."""
        super().__init__(list_problems(problems))
        self.problems = problems


MOST_PROBLEMS = 10


def list_problems(problems: Iterable[str]) -> str:
    """Everything that is wrong, each in a line or two: the first ten, and how many more there are."""
    texts = list(dict.fromkeys(problems))
    more = len(texts) - MOST_PROBLEMS
    return "\n".join([*texts[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])])


def one_line(text: object, at_most: int | None = None) -> str:
    """A text from elsewhere for a message of ours: on one line, of `at_most` characters. A system error
    gives its words, not its number, which differs from system to system."""
    if (
        isinstance(text, OSError)
        and type(text).__str__ is OSError.__str__
        and text.filename is None
    ):
        text = text.strerror or text
    line = " ".join(str(text).split())
    if not line and isinstance(text, BaseException):
        return type(text).__name__
    return line[:at_most]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` with the known name that is nearest to this one, or nothing."""
    import difflib  # only what has gone wrong needs it

    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]}?" if near else ""


def list_names(names: Iterable[str], at_most: int = 20) -> str:
    """The names for a message; if there are many, the first of them."""
    shown = list(names)
    more = len(shown) - at_most
    return ", ".join(shown[:at_most]) + (f" and {more} more" if more > 0 else "")


def unknown_option(key: str, options: Iterable[str]) -> str:
    """The message for an option that doesn't exist: the nearest one, and all."""
    names = sorted(options)
    return f"unknown option {key!r}{did_you_mean(key, names)} (known: {', '.join(names)})"


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


# --- what other packages add ---------------------------------------------------------------------


class PluginError(OptionError):
    """Another package's part can't be used; the text says which, of which package, and why."""


def plugin_names(group: str) -> list[str]:
    """Names of what other packages add, whether it can be loaded or not."""
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group).names)


def load_plugin(group: str, name: str, base: type[Any]) -> type[Any] | None:
    """The class that another package adds by that name; None if there is none. PluginError if it can't be
    loaded, or is none of `base`."""
    from importlib.metadata import entry_points

    for point in entry_points(group=group, name=name):
        try:
            loaded = point.load()
            if not isinstance(loaded, type) or not issubclass(loaded, base):
                raise TypeError(f"it is no subclass of {base.__module__}.{base.__name__}")
        except (Exception, SystemExit) as error:  # whatever a stranger's code does
            package = f" of the package {point.dist.name}" if point.dist else ""
            raise PluginError(
                f"{group.rpartition('.')[2].rstrip('s')} {name!r}{package} can't be loaded from"
                f" {point.value}: {type(error).__name__}: {one_line(error, 200)}; repair or uninstall it"
            ) from error
        return loaded
    return None
