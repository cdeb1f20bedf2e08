"""Module options from strings and YAML values, with errors that name key and remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import OptionError, unknown_option

AnyOptions = TypeVar("AnyOptions", bound=BaseModel)


def parse_options(
    model: type[AnyOptions],
    values: Mapping[str, Any],
    where: Callable[[str], str],
    more_known: Iterable[str] = (),
) -> AnyOptions:
    """Validated options; OptionError naming the first wrong key, beginning with `where(key)`.

    A key that there isn't comes before one that is missing: it's likely to be that one, misspelt.
    The error never shows a value: it could be a secret.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        first = min(found, key=lambda each: each["type"] != "extra_forbidden")
        key = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "extra_forbidden":
            problem = unknown_option(key, [*model.model_fields, *more_known])
        elif first["type"] == "missing":
            description = model.model_fields[key].description
            problem = f"option {key} is missing ({description})"
        else:
            message = first["msg"].removeprefix("Value error, ")
            message = message[:1].lower() + message[1:]
            # No key: it is several that don't fit together.
            problem = f"option {key}: {message}" if key else message
        raise OptionError(f"{where(key)}: {problem}") from error
