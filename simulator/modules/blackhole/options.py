"""Options of targets that discard what they are sent, and of the module that builds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from ...conditions import Condition
from ...errors import OptionError
from .. import load_module
from .._base.options import InFlightOptions
from ..base import AnyModule
from ..options import Options, parse_options


class BlackholeOptions(InFlightOptions):
    """Options of targets with `module: blackhole`; those of the encoder's payloads come on top."""

    model_config = ConfigDict(extra="allow")

    encoder: Annotated[str, Condition.BATCH] = Field(
        "postgres", description="module whose payloads are built"
    )
    delay_ms: Annotated[float, Condition.CLIENT] = Field(
        0, ge=0, description="how long each request seems to take"
    )

    @classmethod
    def option_names(cls, values: Mapping[str, Any]) -> list[str]:
        own = super().option_names(values)
        try:
            module = load_module(str(values.get("encoder", cls.model_fields["encoder"].default)))
        except OptionError:
            return [*own, *values]  # that is the error to be told of
        return [*own, *module.encoding_options_model.model_fields]

    def encoding(self) -> tuple[type[AnyModule], Options]:
        """The other module and the options for its encoder; OptionError if they don't fit."""
        module = load_module(self.encoder)
        own = set(Options.model_fields)
        values = {name: getattr(self, name) for name in own} | (self.model_extra or {})
        known = [name for name in type(self).model_fields if name not in own]

        def where(_: str) -> str:
            return f"encoder {self.encoder}"

        return module, parse_options(module.encoding_options_model, values, where, known)
