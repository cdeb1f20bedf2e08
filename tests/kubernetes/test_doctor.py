"""`doctor`: all well, and each thing that can be wrong with its remedy. And the chart's values in the
config file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .cluster import Namespace
from .tool import DATABASE, WORKER, ClusterTool

pytestmark = pytest.mark.cluster


def doctor(tool: ClusterTool, *arguments: object, status: int = 2, path: str | None = None) -> str:
    """What `doctor` prints."""
    env = {"PATH": path} if path else None
    done = tool.run_here("doctor", "--config", tool.config, *arguments, env=env)
    assert done.status == status, done
    assert not done.err, done
    return done.out


def check_failed(out: str, name: str, *texts: str) -> None:
    """The check of that name is the last one and failed; a remedy follows."""
    lines = out.splitlines()
    failed = [number for number, line in enumerate(lines) if line.startswith("FAIL ")]
    assert len(failed) == 1, out
    assert name in lines[failed[0]]
    for text in texts:
        assert text in lines[failed[0]], out
    assert len(lines) > failed[0] + 1 and lines[failed[0] + 1].startswith("      "), out


def test_all_is_well(tool: ClusterTool, namespace: Namespace, database: str) -> None:
    tool.add_database(database)
    out = doctor(tool, "--target", DATABASE, status=0)
    lines = out.splitlines()
    assert all(line.startswith("ok ") for line in lines), out
    for line, text in zip(
        lines, ("context", "helm", "permissions", "image", "Pod Security", "database"), strict=True
    ):
        assert text in line
    assert namespace.name in lines[0]
    assert not tool.folders()


def test_wrong_context(tool: ClusterTool) -> None:
    check_failed(doctor(tool, "--context", "nowhere"), "context", "nowhere")


def test_no_helm(tool: ClusterTool) -> None:
    # All of the programs but helm.
    folder = tool.place / "bin"
    folder.mkdir()
    path = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if not (Path(part) / "helm").exists()
    )
    out = doctor(tool, path=f"{path}{os.pathsep}{folder}")
    check_failed(out, "helm", "not installed")
    assert "https://helm.sh" in out
    old = folder / "helm"
    old.write_text("#!/bin/sh\necho v3.3.4\n")
    old.chmod(0o755)
    check_failed(doctor(tool, path=f"{folder}{os.pathsep}{path}"), "helm", "v3.3.4", "3.4")


def test_no_image(tool: ClusterTool) -> None:
    tool.configure(image={**tool.document["kubernetes"]["image"], "tag": "no-such-tag"})
    out = doctor(tool)
    assert "no-such-tag is on 0 of" in out and "make image" in out
    check_failed(out, "image", "no-such-tag", "pod iotb-")


def test_quota(tool: ClusterTool, namespace: Namespace) -> None:
    namespace.quota(**{"limits.cpu": "100m"})
    check_failed(doctor(tool), "quota", "exceeded quota", "limits.cpu")


def test_no_room(tool: ClusterTool) -> None:
    """The remedy is that of a run."""
    tool.keep_from_waiting()
    tool.configure(resources={**WORKER, "cpu": "500"})
    out = doctor(tool)
    check_failed(out, "scheduling", "Of 1 worker, 1 has no node; each requests cpu 500")
    assert "`kubernetes: resources:` in config.yaml" in out


def test_pod_security(tool: ClusterTool) -> None:
    tool.configure(runAsUser=0)
    check_failed(doctor(tool), "Pod Security", "violates PodSecurity")


def test_database_that_does_not_answer(tool: ClusterTool, database: str) -> None:
    tool.add_database("no-such-database.example.invalid")
    check_failed(doctor(tool, "--target", DATABASE), "database", "no-such-database.example.invalid")
    tool.add_database(database, password="not-the-right-one")
    out = doctor(tool, "--target", DATABASE)
    check_failed(out, "database", "password authentication failed")


def test_values_for_all_targets_and_for_one(tool: ClusterTool, namespace: Namespace) -> None:
    tool.document["targets"]["hole"]["kubernetes"] = {
        "resources": {"memory": "170Mi"},
        "podLabels": {"team": "one"},
    }
    tool.configure(podLabels={"team": "all", "site": "here"}, priorityClassName="")
    running = tool.start_insert("--num-inserts", 1000)
    pod = namespace.await_running("worker")[0]
    assert pod.metadata.labels["team"] == "one" and pod.metadata.labels["site"] == "here"
    container = pod.spec.containers[0]
    assert container.resources.limits == {"cpu": WORKER["cpu"], "memory": "170Mi"}
    assert container.resources.requests == container.resources.limits
    assert pod.status.qos_class == "Guaranteed"
    tool.fine(running.wait())


def test_unknown_value(tool: ClusterTool) -> None:
    tool.may_lack_results = True
    tool.configure(nodeSelectr={"pool": "clients"})
    line = next(
        number
        for number, text in enumerate(tool.config.read_text().splitlines(), 1)
        if "nodeSelectr" in text
    )
    text = tool.insert_here().error(2)
    assert f"config.yaml:{line}: kubernetes.nodeSelectr" in text
    assert "did you mean nodeSelector?" in text
    del tool.document["kubernetes"]["nodeSelectr"]
    tool.document["targets"]["hole"]["kubernetes"] = {"run": {"workers": 3}}
    tool.configure()
    text = tool.insert_here().error(2)
    assert "targets.hole.kubernetes.run: unknown key" in text


def test_value_of_a_wrong_kind(tool: ClusterTool, namespace: Namespace) -> None:
    """What only the chart's schema knows."""
    tool.may_lack_results = True
    tool.configure(image={**tool.document["kubernetes"]["image"], "pullPolicy": "Sometimes"})
    text = tool.insert_here().error(2)
    assert "pullPolicy" in text
    assert not namespace.objects()
