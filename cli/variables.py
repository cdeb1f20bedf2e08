"""${VARIABLES} in a config file: where they stand, and what a user is shown instead of their values."""

from __future__ import annotations

import os
import re

# ${NAME} or ${NAME:-default}
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def list_values(text: str) -> dict[str, str]:
    """Variable -> value, of those that the environment puts into a text."""
    names = [match[1] for match in VARIABLE.finditer(text)]
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def hide_values(shown: str, written: str) -> str:
    """What is shown of an option, with the names of variables instead of their values."""
    if (whole := VARIABLE.fullmatch(written)) is not None:
        return f"${{{whole[1]}}}"
    values = list_values(written)
    for name in sorted(values, key=lambda variable: len(values[variable]), reverse=True):
        if len(values[name]) >= _SHORTEST_VALUE:
            shown = shown.replace(values[name], f"${{{name}}}")
    return shown


_SHORTEST_VALUE = 3
"""A shorter one is no secret, and a part of many words."""
