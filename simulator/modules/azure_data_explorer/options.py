"""Options of targets with `module: azure_data_explorer`."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from ...conditions import ACCESS, Condition
from ...contract import Load
from ...errors import OptionError
from ..base import OfficialClient
from ..kit.options import IN_FLIGHT_MEANING, check_url
from ..options import PAYLOAD, InsertMode, Options

STREAMED_VISIBLE_S = 15.0
"""Streamed events show up in queries within about ten seconds.
https://learn.microsoft.com/azure/data-explorer/ingest-data-streaming"""

CLIENTS = {
    "official": OfficialClient(
        ("azure-kusto-ingest",),
        {
            InsertMode.QUEUED: "azure-kusto-ingest's QueuedIngestClient",
            InsertMode.STREAMING: "azure-kusto-ingest's KustoStreamingIngestClient",
        },
        writer=f"{__package__}.official:OfficialWriter",
        asker=f"{__package__}.official:OfficialAdxAsker",
    )
}
"""What the option `client` can be."""


class AdxOptions(Options):
    """Options of targets with `module: azure_data_explorer`."""

    IN_FLIGHT: ClassVar[str | None] = "max_in_flight"
    ADDRESSES: ClassVar[str] = "kusto_uri"

    batch: Annotated[bool, Condition.BATCH, PAYLOAD] = Field(
        True, description="true: queued ingestion, false: streaming ingestion"
    )
    kusto_uri: Annotated[str, Condition.NONE, ACCESS] = Field(
        description="URI of the cluster, e.g. https://name.region.kusto.windows.net"
    )
    kusto_ingest_uri: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None, description="URI for ingestion (default: kusto_uri with ingest- before the name)"
    )
    kusto_db: Annotated[str, Condition.NONE] = Field(
        min_length=1, description="name of the database"
    )
    adx_aad_app_id: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None, description="application (client) id to log in as"
    )
    adx_app_key: str | None = Field(None, repr=False, description="its client secret")
    adx_authority_id: Annotated[str | None, Condition.NONE, ACCESS] = Field(
        None, description="its tenant's id"
    )
    batching_time_s: Annotated[int | None, Condition.BATCH] = Field(
        None, ge=10, le=1800,
        description="with batch=true: seconds to collect data before storing them (default: the"
        " database's, 300 unless changed)",
    )  # fmt: skip
    settle_s: Annotated[float, Condition.NONE] = Field(
        900, gt=0, description="with batch=true: how long to wait for more events to appear"
    )
    max_in_flight: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=256, description=IN_FLIGHT_MEANING
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="how long to wait for the answer to events, in seconds"
    )
    query_timeout_s: Annotated[int, Condition.NONE] = Field(
        3600, ge=1, le=3600, description="how long a query may take"
    )

    @field_validator("kusto_uri", "kusto_ingest_uri")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        login = "adx_aad_app_id, adx_app_key and adx_authority_id"
        check_url(value, "https://name.region.kusto.windows.net", login, path=False)
        parts = urlsplit(value)
        if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
            raise ValueError("must begin with https://")
        return value.rstrip("/")

    def mode(self, load: Load) -> InsertMode:
        return InsertMode.QUEUED if self.batch else InsertMode.STREAMING

    @property
    def ingest_uri(self) -> str:
        """The URI for ingestion; that of a server without a name is `kusto_uri`."""
        if self.kusto_ingest_uri is not None:
            return self.kusto_ingest_uri
        host = urlsplit(self.kusto_uri).hostname or ""
        if "ingest-" in host or host == "localhost" or _is_address(host):
            return self.kusto_uri
        return self.kusto_uri.replace("://", "://ingest-", 1)

    def check_login(self) -> None:
        """OptionError unless there is a way to log in, or no need to (a stand-in on this machine)."""
        login = {
            name: getattr(self, name)
            for name in ("adx_aad_app_id", "adx_app_key", "adx_authority_id")
        }
        missing = [name for name, value in login.items() if not value]
        nobody = len(missing) == len(login)
        if missing and not (nobody and urlsplit(self.kusto_uri).scheme == "http"):
            raise OptionError(
                f"no login for {self.kusto_uri}: option {', '.join(missing)} is missing (on Kubernetes"
                " it may come from the Secret that existingSecret names)"
            )


def _is_address(host: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return True
    return False


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host).is_loopback if _is_address(host) else host == "localhost"
