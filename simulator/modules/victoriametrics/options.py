"""Options of targets with `module: victoriametrics`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator

from ...conditions import Condition
from .._base.http import scheme_port
from .._base.options import (
    InFlightOptions,
    LoginOptions,
    TlsOptions,
    check_url,
    choose_mode,
    server_name,
)
from ..options import Options


class InsertMode(StrEnum):
    """How events are sent."""

    BATCH = "batch"
    """The lines of a batch in one request."""
    SINGLE = "single"
    """A request per event."""


class ImportFormat(StrEnum):
    """What a request's body is."""

    AUTO = "auto"
    """What suits a request: JSON if it has many events of each device."""
    CSV = "csv"
    """A line for each event."""
    JSON = "json"
    """A line for each series that has samples in it."""


class EncodingOptions(Options):
    """Options that say what a payload looks like."""

    insert_mode: Annotated[InsertMode | None, Condition.BATCH] = Field(
        None, description="batch (default with --batch) or single (default without)"
    )
    import_format: Annotated[ImportFormat, Condition.BATCH] = Field(
        ImportFormat.AUTO,
        description="csv (a line for each event), json (a line for each series of a request, which takes less"
        " of the server), or auto: json if a request has 60 numbers or more of each device, else csv",
    )
    db: Annotated[str | None, Condition.NONE] = Field(
        None,
        min_length=1,
        description="value of a label db that all series get, to keep them apart from others on the server"
        " (default: no such label)",
    )
    gzip: Annotated[bool, Condition.CLIENT] = Field(
        False, description="compress requests: less traffic for more of the client's CPU"
    )

    def mode(self, batch: int) -> InsertMode:
        """The insert mode for requests of `batch` events; OptionError if they don't fit."""
        return choose_mode(
            "insert_mode", self.insert_mode, batch, InsertMode.SINGLE, InsertMode.BATCH
        )


class VictoriaMetricsOptions(EncodingOptions, InFlightOptions, TlsOptions, LoginOptions):
    """Options of targets with `module: victoriametrics`."""

    endpoint: Annotated[str, Condition.NONE] = Field(
        description="URL of the server, e.g. http://victoriametrics:8428"
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="after so many seconds without an answer, a write is sent again"
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600,
        gt=0,
        description="how long a query may take; the server's own limit (-search.maxQueryDuration,"
        " 30 s by default) counts, too",
    )

    @field_validator("endpoint")
    @classmethod
    def _check_url(cls, value: str) -> str:
        return check_url(
            value, "http://victoriametrics:8428", "the options username and password"
        ).rstrip("/")

    @property
    def server(self) -> str:
        """host:port, for messages."""
        return server_name(self.endpoint, scheme_port(self.endpoint))
