"""With what status a command ends that was refused before it began."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.run.cluster import Helm, Place, check_namespace
from cli.run.kubeclient import KubeClient
from cli.system.errors import ConfigError, NotStarted, RunFailed

from .api_server import Api


def test_what_helm_refuses_was_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "helm"
    program.write_text(
        "#!/bin/sh\ncat >&2\necho Error: values do not meet the schema >&2\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda _: str(program))
    helm = Helm(Place("bench", context="x"))
    monkeypatch.setattr(helm, "_version", "v3.19.5")
    values: dict[str, Any] = {}
    with pytest.raises(NotStarted, match="do not meet the schema"):
        helm.install("iotb-1", values)
    with pytest.raises(RunFailed) as failure:
        helm.uninstall("iotb-1")
    assert not isinstance(failure.value, NotStarted)


@pytest.mark.parametrize(("status", "known"), [(401, True), (403, False), (404, True)])
def test_whom_the_cluster_does_not_know_starts_nothing(status: int, known: bool) -> None:
    with Api() as api:
        api.answer = lambda *_: (status, b'{"message": "no"}')
        client = KubeClient(api.configuration)
        if known:
            with pytest.raises(ConfigError, match="log in again" if status == 401 else "create"):
                check_namespace(client, "bench")
        else:
            check_namespace(client, "bench")
        client.close()
