"""Options of targets with `module: victoriametrics`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from ...conditions import ACCESS, Condition
from ...contract import CommaList
from ..kit.options import BatchOptions, EndpointOptions, InFlightOptions, LoginOptions
from ..options import PAYLOAD


class ImportFormat(StrEnum):
    """What a request's body is."""

    AUTO = "auto"
    """What suits a request: JSON if it has many events of each device."""
    CSV = "csv"
    """A line for each event."""
    JSON = "json"
    """A line for each series that has samples in it."""


class VictoriaMetricsOptions(BatchOptions, InFlightOptions, EndpointOptions, LoginOptions):
    """Options of targets with `module: victoriametrics`."""

    EXAMPLE_URL: ClassVar[str] = "http://victoriametrics:8428"
    LOGIN: ClassVar[str] = "the options username and password"

    import_format: Annotated[ImportFormat, Condition.BATCH, PAYLOAD] = Field(
        ImportFormat.AUTO,
        description="csv (a line for each event), json (a line for each series of a request,"
        " which costs the server less), or auto: json if a request has 60 numbers or"
        " more per device, else csv",
    )
    db: Annotated[str | None, Condition.NONE, PAYLOAD] = Field(
        None,
        min_length=1,
        description="value of a label _db on all series, to separate them from others on the"
        " server (default: no such label)",
    )
    gzip: Annotated[bool, Condition.CLIENT, PAYLOAD] = Field(
        False, description="compress requests: less traffic for more of the client's CPU"
    )
    endpoint: Annotated[CommaList, Condition.NONE, ACCESS] = Field(
        min_length=1,
        max_length=1,
        description="URL of the server, e.g. http://victoriametrics:8428",
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600,
        gt=0,
        description="how long a query may take; the server's own limit (-search.maxQueryDuration,"
        " 30 s by default) applies, too",
    )
