"""What the recipes send meets the restricted Pod Security Standard, or is in the table of exceptions.
https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted

What a chart makes of its values is checked in test_vendors.py, where the vendors' charts are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .rendering import COMBINATIONS, Combination, chart_values, objects, render

EXCEPTIONS = {
    "arangodb": "the server's folder of apps belongs to root, unless the operator was installed with its"
    " feature secured-containers",
    "cockroachdb": "no values: the chart does it by itself",
    "postgresql-vendor": "no field for it: CloudNativePG does it by itself",
    "timescaledb": "no field for it: CloudNativePG does it by itself",
}
"""Recipe, or recipe and variant -> why there is nothing to check."""

CHART_CONTEXTS = {
    "influxdb": ("securityContext", "securityContext"),
    "questdb": ("podSecurityContext", "securityContext"),
    "victoriametrics": ("server.podSecurityContext", "server.securityContext"),
    "yugabytedb": ("podSecurityContext", "containerSecurityContext"),
}
"""Recipe -> the values that its chart makes a pod's context of, and a container's."""

# The defaults of Yugabyte's chart, to which our values add.
_YUGABYTE_USER = {"runAsNonRoot": True, "runAsUser": 10001}

_ADDABLE = {"NET_BIND_SERVICE"}
_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
    "secret",
}  # fmt: skip


def find_faults(spec: Any) -> list[str]:
    """The parts of a pod's spec that the restricted standard forbids."""
    faults = [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    faults += [
        f"volume {volume['name']}"
        for volume in spec.get("volumes") or []
        if not _VOLUMES & volume.keys()
    ]
    pod = spec.get("securityContext") or {}
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        own = container.get("securityContext") or {}
        both = pod | own
        capabilities = own.get("capabilities") or {}
        checks = {
            "runAsNonRoot": both.get("runAsNonRoot") is True,
            "runAsUser": both.get("runAsUser") != 0,
            "seccompProfile": (both.get("seccompProfile") or {}).get("type")
            in ("RuntimeDefault", "Localhost"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "privileged": not own.get("privileged"),
            "capabilities": "ALL" in capabilities.get("drop", [])
            and set(capabilities.get("add", [])) <= _ADDABLE,
            "hostPort": not any(port.get("hostPort") for port in container.get("ports") or []),
        }
        faults += [f"{container['name']}: {key}" for key, is_met in checks.items() if not is_met]
    return faults


def pod_specs(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Kind and name, and spec, of all pods and pod templates in a document."""
    if isinstance(value, dict):
        if "kind" in value:
            name = f"{value['kind']}/{(value.get('metadata') or {}).get('name')}"
        if isinstance(value.get("containers"), list):
            yield name, value
        else:
            for item in value.values():
                yield from pod_specs(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from pod_specs(item, name)


def spec_of_values(recipe: str, values: Any) -> Any:
    """A pod as a chart makes it of its values, as far as security goes."""
    pod, container = (_context(values, path) for path in CHART_CONTEXTS[recipe])
    if recipe == "yugabytedb":
        pod = _YUGABYTE_USER | pod
    return {"securityContext": pod, "containers": [{"name": recipe, "securityContext": container}]}


def _context(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = values[key]
    return values | values.get("additionalSettings", {})


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_restricted(combination: Combination) -> None:
    recipe = combination.recipe.name
    documents = render(combination)
    specs = [spec for _, spec in pod_specs(objects(documents))]
    if recipe in CHART_CONTEXTS:
        specs += [spec_of_values(recipe, values) for values in chart_values(documents)]
    excepted = {recipe, f"{recipe}-{combination.variant}"} & EXCEPTIONS.keys()
    # An exception that is no longer needed must go.
    assert bool(specs) != bool(excepted)
    for spec in specs:
        assert find_faults(spec) == []


_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize(
    ("pod", "container", "rest", "faults"),
    [
        (_POD, _CONTAINER, {}, []),
        ({}, _POD | _CONTAINER, {}, []),
        (_POD, _CONTAINER | {"runAsNonRoot": False}, {}, ["x: runAsNonRoot"]),
        (_POD | {"runAsUser": 0}, _CONTAINER, {}, ["x: runAsUser"]),
        (_POD, _CONTAINER | {"seccompProfile": {"type": "Unconfined"}}, {}, ["x: seccompProfile"]),
        ({}, _CONTAINER, {}, ["x: runAsNonRoot", "x: seccompProfile"]),
        (_POD, {}, {}, ["x: allowPrivilegeEscalation", "x: capabilities"]),
        (_POD, _CONTAINER | {"privileged": True}, {}, ["x: privileged"]),
        (
            _POD, _CONTAINER | {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}, {},
            ["x: capabilities"],
        ),
        (_POD, _CONTAINER, {"hostNetwork": True}, ["hostNetwork"]),
        (_POD, _CONTAINER, {"volumes": [{"name": "v", "hostPath": {}}]}, ["volume v"]),
        (_POD, _CONTAINER, {"initContainers": [{"name": "i", "securityContext": _CONTAINER}]}, []),
        (
            _POD, _CONTAINER, {"initContainers": [{"name": "i"}]},
            ["i: allowPrivilegeEscalation", "i: capabilities"],
        ),
    ],
)  # fmt: skip
def test_faults_are_found(pod: Any, container: Any, rest: Any, faults: list[str]) -> None:
    spec = {"securityContext": pod, "containers": [{"name": "x", "securityContext": container}]}
    assert find_faults(spec | rest) == faults
