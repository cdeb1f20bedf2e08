"""What a cluster has and what is taken of it, if the user may know."""

from __future__ import annotations

import logging

from kubernetes.client.exceptions import ApiException

from ...kubeclient import NODE, POD, UNREACHABLE, KubeClient
from .capacity import Node, read_cluster

_log = logging.getLogger(__name__)


def read_nodes(client: KubeClient) -> list[Node] | None:
    """All nodes with the pods on them; None if the user may not list those of the whole cluster."""
    at_work = "status.phase!=Succeeded,status.phase!=Failed"
    try:
        return read_cluster(client.find(NODE), client.find(POD, fields=at_work))
    except (ApiException, *UNREACHABLE) as error:
        _log.debug("whether the runs fit on the cluster can't be seen: %s", error)
        return None
