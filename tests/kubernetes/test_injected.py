"""Clusters that put containers of their own into each pod, and whose way to the pods doesn't work."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from cli.run.executors.kubernetes import access
from simulator.contract import REPORT_PREFIX

from .cluster import IMAGE
from .tool import ClusterTool

pytestmark = pytest.mark.cluster

_INJECT = f"""
import sys
import yaml

def change(item):
    if item["kind"] == "Job":
        spec = item["spec"]["template"]["spec"]
        spec["containers"].insert(0, {{
            "name": "mesh", "image": {IMAGE!r}, "imagePullPolicy": "IfNotPresent",
            "command": ["python", "-c", "import time; print('mesh'); time.sleep(600)"],
            "securityContext": spec["containers"][0]["securityContext"],
        }})
    if item["kind"] == "Service":
        item["spec"]["ports"][0]["name"] = "web"
    return item

yaml.safe_dump_all((change(one) for one in yaml.safe_load_all(sys.stdin) if one), sys.stdout)
"""
"""A container before the chart's own, as a mutating default adds it. And with another name for the Service's
port, the API server's proxy answers 503, while workers reach the collector as ever."""


def wrap_helm(folder: Path) -> Path:
    """A folder with a helm that changes what it installs."""
    folder.mkdir()
    inject = folder / "inject"
    inject.write_text(f"#!{sys.executable}\n{_INJECT}")
    helm = folder / "helm"
    real = shutil.which("helm")
    helm.write_text(
        f'#!/bin/sh\ncase $1 in install) exec "{real}" "$@" --post-renderer "{inject}" ;; esac\n'
        f'exec "{real}" "$@"\n'
    )
    for file in (inject, helm):
        file.chmod(0o755)
    return folder


def test_two_containers_in_each_pod_and_a_proxy_that_answers_503(
    tool: ClusterTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "GO_ON_PATIENCE_S", 2.0)
    folder = wrap_helm(tool.place / "bin")
    done = tool.fine(
        tool.run_here(
            "insert", "--target", "hole", "--workers", 1, "--runs", 2, "--num-inserts", 300,
            "--json", tool.json, env={"PATH": f"{folder}:{os.environ['PATH']}"},
        )
    )  # fmt: skip
    assert "service proxy answers 503" in done.err
    assert done.err.count("the next run gets new pods") == 1
    assert "running," in done.err
    result = json.loads(tool.json.read_text())
    assert [run["groups"][0]["count"] for run in result["runs"]] == [300, 300]
    assert len(result["environment"]["kubernetes"]["images"]) == 1
    for component in ("collector", "worker"):
        assert "mesh" not in tool.read_logs(f"*{component}*.log")
    assert tool.read_logs("*collector*.log").count(REPORT_PREFIX) == 2
