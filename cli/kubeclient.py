"""The Kubernetes client, with a time limit for each request."""

from __future__ import annotations

from typing import Any

from kubernetes.client import ApiClient
from urllib3.exceptions import HTTPError

UNREACHABLE = (HTTPError, OSError)
"""What the client raises when the API server doesn't answer."""

# To connect, and to wait for more of an answer; whoever waits longer on purpose says so.
_REQUEST_TIMEOUT_S = (5.0, 20.0)


class TimedApiClient(ApiClient):
    """Gives each request a timeout that has none of its own: a network may swallow everything."""

    def call_api(self, *arguments: Any, **options: Any) -> Any:
        options["_request_timeout"] = options.get("_request_timeout") or _REQUEST_TIMEOUT_S
        return super().call_api(*arguments, **options)
