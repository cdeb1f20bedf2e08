"""${VARIABLES} in a config file: where they stand, what is put in, and what a user is shown instead."""

from __future__ import annotations

import os
import re

VARIABLE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?+])([^}]*))?\}|(?=[A-Za-z_{]))")
"""`$$`, `${NAME}` with what a shell makes of its absence, or what a shell would read otherwise."""


class VariableError(ValueError):
    """A variable isn't set, or is written in a way that isn't read."""


def replace_variables(text: str) -> str:
    """The text with variables of the environment as a shell puts them in: `${X}`, `${X:-default}`,
    `${X-default}`, `${X:?message}`, `${X?message}`, `${X:+text}`, `${X+text}`; `$$` is a dollar sign.
    VariableError for one that isn't set, and for `$X`, which may be part of a password."""
    return VARIABLE.sub(_find_value, text)


def _find_value(match: re.Match[str]) -> str:
    name, operator, word = match.groups()
    if name is None:
        if match[0] == "$$":
            return "$"
        begin = re.match(r"\$\w*", match.string[match.start() :])
        assert begin is not None
        hint = (
            f"${{{begin[0][1:]}}} for a variable" if len(begin[0]) > 1 else "${NAME} for a variable"
        )
        raise VariableError(f"{begin[0]} has two readings: write {hint}, or $$ for a dollar sign")
    value = os.environ.get(name)
    if operator and operator[0] == ":":
        value = value or None
    if operator and operator[-1] == "+":
        return "" if value is None else replace_variables(word)
    if value is None and operator and operator[-1] == "-":
        return replace_variables(word)
    if value is None:
        if operator and word:
            raise VariableError(f"environment variable {name}: {word}")
        raise VariableError(
            f"environment variable {name} is not set; set it, or write ${{{name}:-default}}"
        )
    return value


def list_values(text: str) -> dict[str, str]:
    """Variable -> value, of those that the environment puts into a text."""
    names = [match[1] for match in VARIABLE.finditer(text) if match[1]]
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def hide_values(shown: str, written: str) -> str:
    """What is shown of an option, with the names of variables instead of their values."""
    if (whole := VARIABLE.fullmatch(written)) is not None and whole[1]:
        return f"${{{whole[1]}}}"
    values = list_values(written)
    for name in sorted(values, key=lambda variable: len(values[variable]), reverse=True):
        if len(values[name]) >= _SHORTEST_VALUE:
            shown = shown.replace(values[name], f"${{{name}}}")
    return shown


_SHORTEST_VALUE = 3
"""A shorter one is no secret, and a part of many words."""
