"""Options of targets with `module: influxdb`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from ...conditions import Condition
from .._base.http import scheme_port
from .._base.options import InFlightOptions, check_url, choose_mode, server_name
from ..base import OfficialClient
from ..options import Options
from .encoding import InsertMode

BATCHING = "batching"

_PACKAGES = ("influxdb-client", "reactivex")
CLIENTS = {
    "official": OfficialClient(
        _PACKAGES,
        dict.fromkeys(InsertMode, "influxdb-client's write of points, synchronous"),
        in_flight=True,
    ),
    BATCHING: OfficialClient(
        _PACKAGES, {InsertMode.BATCH: "influxdb-client's write of points, batching"}
    ),
}
"""What the option `client` can be."""


class EncodingOptions(Options):
    """Options that say what a payload looks like."""

    insert_mode: Annotated[InsertMode | None, Condition.BATCH] = Field(
        None, description="batch (default with --batch) or single (default without)"
    )
    gzip: Annotated[bool, Condition.CLIENT] = Field(
        False, description="compress requests: less traffic for more of the client's CPU"
    )

    def mode(self, batch: int) -> InsertMode:
        """The insert mode for requests of `batch` events; OptionError if they don't fit."""
        return choose_mode(
            "insert_mode", self.insert_mode, batch, InsertMode.SINGLE, InsertMode.BATCH
        )


class InfluxOptions(EncodingOptions, InFlightOptions):
    """Options of targets with `module: influxdb`."""

    endpoint: Annotated[str, Condition.NONE] = Field(
        description="URL of the server, e.g. https://influxdb:8086"
    )
    org: Annotated[str, Condition.NONE] = Field(
        min_length=1, description="name of the organisation"
    )
    token: str = Field(
        min_length=1, repr=False, description="API token that may read and write buckets"
    )
    bucket: Annotated[str, Condition.NONE] = Field(
        "iot-benchmark", min_length=1, description="bucket to use; made if it is missing"
    )
    shard_group_duration_h: int | None = Field(
        None, ge=1, description="hours of data in one shard of a new bucket (default: the server's)"
    )
    verify_ssl: Annotated[bool, Condition.NONE] = Field(
        True, description="check the server's certificate"
    )
    ssl_ca_cert: Annotated[str | None, Condition.NONE] = Field(
        None, description="file with the certificates to trust (default: those of certifi)"
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="after so many seconds without an answer, a write is sent again"
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="how long a query may take"
    )

    @field_validator("endpoint")
    @classmethod
    def _check_url(cls, value: str) -> str:
        return check_url(value, "https://influxdb:8086", "token").rstrip("/")

    @property
    def server(self) -> str:
        """host:port, for messages."""
        return server_name(self.endpoint, scheme_port(self.endpoint))
