"""What runs have left in a namespace: found by label, removed with their release."""

from __future__ import annotations

import gzip
import json
import time
import zlib
from base64 import b64decode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from kubernetes.client.exceptions import ApiException

from ..results.store import now
from ..system.installation import program
from .cluster import RELEASE_PREFIX, RUN_LABEL, STARTED_BY, Helm, Place, explain_errors, pass_over
from .kubeclient import (
    DISRUPTION_BUDGET,
    JOB,
    NETWORK_POLICY,
    POD,
    SECRET,
    SERVICE,
    UNREACHABLE,
    Item,
    Kind,
    KubeClient,
    has_ended,
)

_KINDS = (JOB, POD, SERVICE, SECRET, NETWORK_POLICY, DISRUPTION_BUDGET)
"""The kinds of object that a run has: Jobs before the pods they own."""

_CHART_NAME = "iot-database-benchmark"
"""The name in deployment/Chart.yaml: other people's releases may have names like ours."""

# An object's deletionTimestamp is when its grace period ends.
# https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.34/#objectmeta-v1-meta
_DELETION_PATIENCE_S = 60.0
# Kubernetes deletes the pods of a deleted Job; on a busy cluster some seconds later.
_COLLECTION_PATIENCE_S = 10.0
_COLLECTION_POLL_S = 0.5


@dataclass
class LeftoverRun:
    """One run in the cluster."""

    run_id: str
    kinds: dict[str, list[str]] = field(default_factory=dict)
    """Kind -> names of its objects, except those that Kubernetes is deleting."""
    hanging: dict[str, list[str]] = field(default_factory=dict)
    """Kind -> names of the objects that should have been deleted long ago."""
    has_release: bool = False
    started_by: str = "unknown"
    created: datetime | None = None
    pods_at_work: int = 0

    @property
    def removable(self) -> bool:
        """Whether it has anything that nobody has deleted yet."""
        return self.has_release or bool(self.kinds)

    @property
    def at_work(self) -> bool:
        """Whether any of its pods still run, or wait to run."""
        return self.pods_at_work > 0

    @property
    def state(self) -> str:
        if not self.removable:
            return "hangs in deletion"
        return f"{self.pods_at_work} pods at work" if self.at_work else "ended"

    @property
    def age(self) -> str:
        if self.created is None:
            return "unknown"
        minutes = int((now() - self.created).total_seconds() // 60)
        return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"

    @property
    def objects(self) -> str:
        release = ["release"] if self.has_release else []
        counts = [f"{len(names)} {kind}" for kind, names in sorted(self.kinds.items())]
        hanging = [
            f"{len(names)} {kind} stuck in deletion" for kind, names in sorted(self.hanging.items())
        ]
        return ", ".join(release + counts + hanging)


def describe_others(client: KubeClient, place: Place, own: str) -> str | None:
    """Which other runs are at work in the namespace, and how to remove each; None if there are none, or if we
    may not look.

    A run whose tool was killed goes on, and inserts into the tables that the next run has dropped.
    """
    try:
        selector = f"{RUN_LABEL},{RUN_LABEL}!={own}"
        labelled = _list_labelled(client, place.namespace, (JOB, POD), selector)
    except (ApiException, *UNREACHABLE):
        return None
    runs = [run for run in sort_by_run([], labelled, now()) if run.at_work]
    if not runs:
        return None
    options = " ".join(place.list_options())
    return "\n".join(
        f"run {run.run_id}, started by {run.started_by} {run.age} ago, is running in namespace"
        f" {place.namespace}, too: if nobody needs it, remove it with {program()} clean"
        f" {run.run_id} --running {options}"
        for run in runs
    )


def find_runs(place: Place) -> list[LeftoverRun]:
    """All runs that have anything left which isn't just being deleted, oldest first. RunFailed if the cluster
    can't be reached."""
    client = place.make_client()
    until = time.monotonic() + _COLLECTION_PATIENCE_S
    while True:
        with explain_errors(f"can't list what is in namespace {place.namespace}"):
            # This tool's releases, in any state, from the Secrets in which helm keeps them: the options of
            # `helm list` differ between versions 3 and 4.
            names = set()
            for secret in client.find(SECRET, place.namespace, labels="owner=helm"):
                name = (secret["metadata"].get("labels") or {}).get("name", "")
                if name.startswith(RELEASE_PREFIX):
                    # https://github.com/helm/helm/blob/main/pkg/storage/driver/util.go
                    with suppress(KeyError, TypeError, ValueError, OSError, EOFError, zlib.error):
                        packed = b64decode(b64decode(secret["data"]["release"]))
                        release = json.loads(gzip.decompress(packed))
                        if release["chart"]["metadata"]["name"] == _CHART_NAME:
                            names.add(name)
            releases = sorted(names)
            labelled = _list_labelled(client, place.namespace)
        if not has_orphans(labelled) or time.monotonic() > until:
            return sort_by_run(releases, labelled, now())
        time.sleep(_COLLECTION_POLL_S)


def sort_by_run(
    releases: Iterable[str], labelled: Iterable[tuple[str, Item]], at: datetime
) -> list[LeftoverRun]:
    """Group releases and objects, each with its kind, by run; `at`: now."""
    runs: dict[str, LeftoverRun] = {}
    for release in releases:
        run_id = release.removeprefix(RELEASE_PREFIX)
        runs.setdefault(run_id, LeftoverRun(run_id)).has_release = True
    for kind, item in labelled:
        meta = item["metadata"]
        run_id = meta["labels"][RUN_LABEL]
        run = runs.setdefault(run_id, LeftoverRun(run_id))
        run.created = min(
            filter(None, (run.created, _read_time(meta, "creationTimestamp"))), default=None
        )
        run.started_by = (meta.get("annotations") or {}).get(STARTED_BY, run.started_by)
        going_since = _read_time(meta, "deletionTimestamp")
        if going_since and (at - going_since).total_seconds() > _DELETION_PATIENCE_S:
            run.hanging.setdefault(kind, []).append(meta["name"])
            continue
        if going_since is None:
            run.kinds.setdefault(kind, []).append(meta["name"])
        run.pods_at_work += kind == "pod" and not has_ended(item)
    present = [run for run in runs.values() if run.removable or run.hanging]
    return sorted(present, key=lambda run: run.created or at)


def _read_time(meta: Item, name: str) -> datetime | None:
    text = meta.get(name)
    return datetime.fromisoformat(text) if text else None


def has_orphans(labelled: Sequence[tuple[str, Item]]) -> bool:
    """Whether there is a pod whose Job is gone: Kubernetes is about to delete it.

    A pod that is meant to outlive its Job names no owner.
    """
    jobs = {item["metadata"]["uid"] for kind, item in labelled if kind == "job"}
    return any(
        owner["kind"] == "Job" and owner["uid"] not in jobs
        for kind, item in labelled
        if kind == "pod" and not item["metadata"].get("deletionTimestamp")
        for owner in item["metadata"].get("ownerReferences") or []
    )


def _list_labelled(
    client: KubeClient, namespace: str, kinds: Iterable[Kind] = _KINDS, labels: str = RUN_LABEL
) -> list[tuple[str, Item]]:
    """Each object of any run, with its kind."""
    return [
        (kind.name, item) for kind in kinds for item in client.find(kind, namespace, labels=labels)
    ]


def remove_run(place: Place, helm: Helm, run: LeftoverRun) -> None:
    """Uninstall the release, then delete whatever still has the run's label."""
    if run.has_release:
        helm.uninstall(RELEASE_PREFIX + run.run_id)
    client = place.make_client()
    for kind in _KINDS:
        for name in run.kinds.get(kind.name, ()):
            with explain_errors(f"can't delete {kind.name} {name}"), pass_over(404):
                client.delete(kind, place.namespace, name)
