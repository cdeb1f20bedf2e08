"""Who may do what, and which cluster is meant."""

from __future__ import annotations

import base64
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from cli.run.diagnosis import PERMISSIONS
from tests.e2e.tool import ROOT

from .cluster import Namespace, Rule
from .tool import HOLE, ClusterTool

pytestmark = pytest.mark.cluster


def documented_rules(section: str = "Permissions") -> list[dict[str, list[str]]]:
    """The rules of the section's Role as docs/how-to/private-clusters.md has them."""
    text = (ROOT / "docs/how-to/private-clusters.md").read_text().split(f"## {section}\n", 1)[1]
    text = text[text.index("```yaml\napiVersion: rbac") :]
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert block
    role = yaml.safe_load(block[1])
    assert role["kind"] == "Role"
    rules: list[dict[str, list[str]]] = role["rules"]
    return rules


def grants(rules: Sequence[Rule]) -> set[tuple[str, str, str]]:
    """Each single permission: (group, resource, verb)."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def without(*unwanted: tuple[str, str]) -> list[Rule]:
    """The documented Role less some (resource, verb)."""
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        for group, resource, verb in sorted(grants(documented_rules()))
        if (resource, verb) not in unwanted or group == "metrics.k8s.io"
    ]


def use(tool: ClusterTool, rules: Sequence[Rule]) -> None:
    """Give the tool's user these permissions and no more."""
    account = tool.namespace.account(rules)
    tool.kubeconfig = str(tool.write_kubeconfig(account))


def test_doctor_and_readme_agree() -> None:
    checked = {
        (group, resource + (f"/{subresource}" if subresource else ""), verb)
        for group, resource, subresource, verbs in PERMISSIONS
        for verb in verbs
    }
    assert checked == grants(documented_rules())


def test_documented_role_is_enough(tool: ClusterTool) -> None:
    use(tool, documented_rules())
    # The run's own pods, which the user may see, but not what their kubelet says.
    tool.configure(database="app.kubernetes.io/component in (collector, worker)")
    healthy = tool.run_here("doctor", "--config", tool.config).ok()
    assert "FAIL" not in healthy.out
    tool.insert("--runs", 2)
    environment = tool._read(tool.json)["environment"]["kubernetes"]
    assert environment["version"]
    assert set(environment["nodes"].values()) == {None}
    assert "kept" in environment["pods"]
    for run in tool._read(tool.json)["runs"]:
        assert run["resources"]["reason"] == (
            "no permission to query the kubelets (get nodes/proxy), and the cluster has no metrics API:"
            " see Permissions in docs/how-to/private-clusters.md"
        )
    cleaned = tool.run_here("clean", "--config", tool.config, "--yes").ok()
    assert "Nothing is left" in cleaned.out


def test_role_without_proxy(tool: ClusterTool) -> None:
    """Each run has new pods."""
    use(tool, without(("services/proxy", "create"), ("services/proxy", "get")))
    tool.configure(database="app=no-such in default")
    healthy = tool.run_here("doctor", "--config", tool.config).ok()
    assert "no permission to get services/proxy: each run gets new pods" in healthy.out
    done = tool.insert("--runs", 2, "--num-inserts", 300)
    assert "running," in done.err
    result = tool._read(tool.json)
    assert len(result["runs"]) == 2
    for run in result["runs"]:
        assert "the database's pods can't be listed" in run["resources"]["reason"]
        assert 'in the namespace "default"' in run["resources"]["reason"]
    assert "new for each run" in result["environment"]["kubernetes"]["pods"]
    assert len(list((tool.folder() / "logs").rglob("*collector*.log"))) == 2
    assert len({path.name for path in (tool.folder() / "logs").rglob("*collector*.log")}) == 2


@pytest.mark.parametrize(
    ("missing", "named", "status"),
    [
        ([("secrets", "create")], "secrets", 2),
        ([("jobs", "create")], "jobs", 2),
        # What was started is removed.
        ([("pods", "watch")], "pods", 1),
    ],
    ids=["secrets", "jobs", "watch"],
)
def test_permission_refused(
    tool: ClusterTool, missing: Sequence[tuple[str, str]], named: str, status: int
) -> None:
    tool.may_lack_results = True
    use(tool, without(*missing))
    done = tool.run_here("doctor", "--config", tool.config)
    assert done.status == 2
    assert f"not allowed: {missing[0][1]} {missing[0][0]}" in done.out
    assert "Permissions" in done.out
    text = tool.insert_here().error(status)
    assert named in text and "docs/how-to/private-clusters.md" in text


def test_no_permission_at_all(tool: ClusterTool) -> None:
    tool.may_lack_results = True
    use(tool, [])
    text = tool.insert_here().error(2)
    assert "forbidden" in text and "docs/how-to/private-clusters.md" in text
    text = tool.run_here("clean", "--config", tool.config).error(1)
    assert "forbidden" in text


@pytest.mark.parametrize(("group", "resource", "verb"), sorted(grants(documented_rules())))
def test_each_permission_is_needed(group: str, resource: str, verb: str) -> None:
    """A permission that neither helm nor the tool uses must not be asked for."""
    assert (group, resource, verb) in NEEDED


# helm: reads, creates and deletes the chart's objects, and keeps the release in Secrets, which it lists
# and updates. The tool: watches pods, Jobs and events; `clean` lists all and deletes what has no release. Of
# metrics it lists those of the database's pods. A campaign holds a Lease for each of its databases, and a
# recording is sent to the collector by POST.
_CHART = {
    ("batch", "jobs"), ("", "services"), ("", "secrets"),
    ("networking.k8s.io", "networkpolicies"), ("policy", "poddisruptionbudgets"),
}  # fmt: skip
NEEDED = {
    *((*kind, verb) for kind in _CHART for verb in ("create", "delete", "get", "list")),
    ("", "secrets", "update"),
    *((*kind, verb) for kind in (("batch", "jobs"), ("", "pods"), ("", "events"))
      for verb in ("list", "watch")),
    ("", "pods", "delete"), ("", "pods", "get"),
    ("", "pods/log", "get"), ("", "services/proxy", "get"), ("", "services/proxy", "create"),
    ("metrics.k8s.io", "pods", "list"),
    *(("coordination.k8s.io", "leases", verb) for verb in ("create", "delete", "get", "patch")),
}  # fmt: skip


def split_kubeconfig(tool: ClusterTool, namespace: Namespace) -> list[Path]:
    """Two files: one with cluster and context, which has a wrong current context; one with the user."""
    document = namespace.cluster.kubeconfig()
    broken: Any = {"name": "broken", "cluster": {"server": "https://127.0.0.1:1"}}
    first = {
        **document,
        "users": [],
        "clusters": [broken],
        "contexts": [
            {"name": "broken", "context": {"cluster": "broken", "user": "test"}},
            *document["contexts"],
        ],
        "current-context": "broken",
    }
    second = {**document, "contexts": [], "current-context": "test"}
    return [
        tool.write_kubeconfig(first, "first"),
        tool.place / "does-not-exist",
        tool.write_kubeconfig(second, "second"),
    ]


def test_kubeconfig_list_context_and_namespace(tool: ClusterTool, namespace: Namespace) -> None:
    """$KUBECONFIG as a list, --context over its first file's, --namespace over the config's."""
    files = split_kubeconfig(tool, namespace)
    tool.kubeconfig = ":".join(map(str, files))
    tool.document["namespace"] = "no-such-namespace"
    tool.configure()
    place = ("--context", "test", "--namespace", namespace.name)
    tool.insert(*place)
    # The first file's current context is kubectl's choice, too.
    tool.may_lack_results = True
    text = tool.insert_here("--namespace", namespace.name).error(2)
    assert "127.0.0.1" in text
    text = tool.insert_here("--context", "tset").error(2)
    assert "tset" in text and "--context" in text


def test_kubeconfig_option(tool: ClusterTool, namespace: Namespace) -> None:
    """--kubeconfig over $KUBECONFIG, for helm and for the client."""
    good = tool.write_kubeconfig(namespace.cluster.kubeconfig(), "good")
    tool.kubeconfig = str(split_kubeconfig(tool, namespace)[0])
    tool.insert("--kubeconfig", good)
    healthy = tool.run_here("clean", "--config", tool.config, "--kubeconfig", good).ok()
    assert "Nothing is left" in healthy.out


def test_no_kubeconfig(tool: ClusterTool) -> None:
    tool.may_lack_results = True
    tool.kubeconfig = str(tool.place / "none")
    text = tool.insert_here().error(2)
    assert "none" in text and "--context" in text and "--executor local" in text


def test_in_the_cluster(tool: ClusterTool, namespace: Namespace) -> None:
    """Without a kubeconfig, as a pod has it: helm and the client take the service account's files.

    A mount namespace shows this process those files, where a pod's would be.
    """
    document = namespace.account(documented_rules())
    entry = document["clusters"][0]["cluster"]
    server = urlsplit(entry["server"])
    files = tool.place / "serviceaccount"
    files.mkdir()
    (files / "token").write_text(document["users"][0]["user"]["token"])
    (files / "ca.crt").write_bytes(
        base64.b64decode(entry["certificate-authority-data"])
        if "certificate-authority-data" in entry
        else Path(entry["certificate-authority"]).read_bytes()
    )
    (files / "namespace").write_text(namespace.name)
    tool.kubeconfig = str(tool.place / "none")
    program = (
        "unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)),
        "sh", "-ec",
        """
        run=$(readlink -f /var/run)
        mount -t tmpfs none "$run"
        mkdir -p "$run/secrets/kubernetes.io"
        cp -r "$1" "$run/secrets/kubernetes.io/serviceaccount"
        shift
        exec "$@"
        """,
        "in-cluster", files, sys.executable, ROOT / "run.py",
    )  # fmt: skip
    env = {
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port or 443),
    }
    running = tool.start(
        "insert", "--target", HOLE, "--workers", 1, "--runs", 1, "--num-inserts", 100,
        program=program, env=env,
    )  # fmt: skip
    tool.fine(running.wait())
