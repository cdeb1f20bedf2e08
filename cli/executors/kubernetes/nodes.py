"""What a cluster has and what is taken of it, if the user may know."""

from __future__ import annotations

import json
import logging
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from ...kubeclient import UNREACHABLE
from .capacity import Node, read_cluster

_log = logging.getLogger(__name__)


def read_nodes(api: client.ApiClient) -> list[Node] | None:
    """All nodes with the pods on them; None if the user may not list those of the whole cluster."""
    core = client.CoreV1Api(api)
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    try:
        # Plain JSON: to make the client's objects of thousands of pods takes seconds.
        nodes: Any = core.list_node(_preload_content=False)
        pods: Any = core.list_pod_for_all_namespaces(
            field_selector=selector, _preload_content=False
        )
        return read_cluster(json.loads(nodes.data)["items"], json.loads(pods.data)["items"])
    except (ApiException, *UNREACHABLE) as error:
        _log.debug("whether the runs fit on the cluster can't be seen: %s", error)
        return None
