"""What other packages add by entry points. One that is broken is named, and the others can be used."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from .errors import OptionError, one_line


class PluginError(OptionError):
    """Another package's part can't be used; the text says which, of which package, and why."""


def plugin_names(group: str) -> list[str]:
    """Names of what other packages add, whether it can be loaded or not."""
    return sorted(entry_points(group=group).names)


def load_plugin(group: str, name: str, base: type[Any]) -> type[Any] | None:
    """The class that another package adds by that name; None if there is none. PluginError if it can't be
    loaded, or is none of `base`."""
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
