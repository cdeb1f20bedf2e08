"""Options of targets with `module: influxdb`."""

from __future__ import annotations

import ssl
from typing import Annotated, ClassVar

import certifi
from pydantic import Field

from ...conditions import ACCESS, Condition
from ...contract import CommaList
from ...errors import OptionError, SimulatorError
from ..base import OfficialClient, RefusedText
from ..kit.options import (
    BATCH_MODES,
    BatchOptions,
    ClientCertOptions,
    HttpOptions,
    InFlightOptions,
    any_encrypted,
    is_pem,
    make_tls_context,
)
from ..options import PAYLOAD, InsertMode

BATCHING = "batching"

_PACKAGES = ("influxdb-client", "reactivex")
_WRITER = f"{__package__}.official:make_writer"
_ASKER = f"{__package__}.official:OfficialInfluxAsker"
_REFUSED_TEXTS = (
    RefusedText(
        "\t", "a tab", r"which the client stores as \t (a backslash and a t)", tags_only=True
    ),
)
CLIENTS = {
    "official": OfficialClient(
        _PACKAGES,
        dict.fromkeys(BATCH_MODES, "influxdb-client's write of points, synchronous"),
        in_flight=True,
        writer=_WRITER,
        asker=_ASKER,
        refused_texts=_REFUSED_TEXTS,
    ),
    BATCHING: OfficialClient(
        _PACKAGES,
        {InsertMode.BATCH: "influxdb-client's write of points, batching"},
        writer=_WRITER,
        asker=_ASKER,
        refused_texts=_REFUSED_TEXTS,
    ),
}
"""What the option `client` can be."""


class InfluxOptions(BatchOptions, HttpOptions, ClientCertOptions, InFlightOptions):
    """Options of targets with `module: influxdb`."""

    EXAMPLE_URL: ClassVar[str] = "https://influxdb:8086"
    LOGIN: ClassVar[str] = "token"
    TRUST_REMEDY: ClassVar[str] = "ssl_ca_cert (or set verify_ssl=false)"

    gzip: Annotated[bool, Condition.CLIENT, PAYLOAD] = Field(
        False, description="compress requests: less traffic for more of the client's CPU"
    )
    endpoint: Annotated[CommaList, Condition.NONE, ACCESS] = Field(
        min_length=1, max_length=1, description="URL of the server, e.g. https://influxdb:8086"
    )
    org: Annotated[str, Condition.NONE, ACCESS] = Field(
        min_length=1, description="name of the organisation"
    )
    token: str = Field(
        min_length=1, repr=False, description="API token that may read and write buckets"
    )
    bucket: Annotated[str, Condition.NONE] = Field(
        "iot-benchmark", min_length=1, description="bucket to use; created if it is missing"
    )
    shard_group_duration_h: int | None = Field(
        None, ge=1, description="hours of data in one shard of a new bucket (default: the server's)"
    )
    verify_ssl: Annotated[bool, Condition.NONE, ACCESS] = Field(
        True, description="check the server's certificate"
    )
    ssl_ca_cert: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None,
        description=(
            "certificate authorities to trust: a PEM file, or its text (default: those of certifi)"
        ),
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600, gt=0, description="how long a query may take"
    )

    def login(self) -> dict[str, str]:
        return {"authorization": f"Token {self.token}"}

    def make_tls_context(self) -> ssl.SSLContext | None:
        if not any_encrypted(self.endpoint):
            return None
        # The same authorities as the client trusts by default.
        authorities = self.ssl_ca_cert or certifi.where()
        try:
            make_tls_context(authorities)
        except SimulatorError as error:
            named = "its text" if is_pem(authorities) else authorities
            raise OptionError(
                f"option ssl_ca_cert: {named} can't be read: {error.__cause__}"
            ) from error
        return make_tls_context(authorities, self.verify_ssl, self.client_cert, self.client_key)
