"""The command line against a namespace of the cluster."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.tool import PASSWORD_VARIABLE, ROOT, Done, Running, Tool

from .cluster import Namespace, image_values

# Little enough for the pods of three tests and their databases on a node of two cores, and as much as there
# is room for: a pod's process takes 0.7 s of CPU to start.
WORKER = {"cpu": "250m", "memory": "160Mi"}
COLLECTOR = {"cpu": "250m", "memory": "192Mi"}
HALF = "125m"
"""CPU of each of two workers, or of each pod of two runs."""

HOLE = "hole"
"""A target without a database, whose requests take 10 ms each."""
DATABASE = "database"

_USUAL = ("--workers", 1, "--runs", 1, "--num-inserts", 100)

_TOLD_SOON = "import cli.run.executors.asking as a; a.TOLD_AFTER_S = 1.0; "
_PATIENCES = (
    f"{_TOLD_SOON} import cli.run.executors.kubernetes.access as k; k.find_patience_s = lambda *_: 3.0;"
    " import cli.run.executors.kubernetes.release as r; r._REMOVAL_PATIENCE_S = 3.0;"
    " import cli.run.cluster as c; c.UNINSTALL_TIMEOUT_S = 5.0;"
    " import cli.run.install as w; w._ANSWER_PATIENCE_S = 3.0;"
    " import cli.main as m; m.main()"
)


class ClusterTool(Tool):
    """The tool with a config for the test's namespace and the kubeconfig of the environment."""

    def __init__(self, place: Path, namespace: Namespace) -> None:
        super().__init__(place, place / "embedded")
        self.namespace = namespace
        self.kubeconfig = os.environ.get("KUBECONFIG", str(Path("~/.kube/config").expanduser()))
        self.document: dict[str, Any] = {
            "namespace": namespace.name,
            "kubernetes": {
                "image": image_values(),
                "resources": dict(WORKER),
                "collectorResources": dict(COLLECTOR),
                # For the pods of other tests to end.
                "scheduling_patience": "1m",
            },
            "targets": {HOLE: {"module": "blackhole", "delay_ms": 10}},
        }
        self.configure()

    def configure(self, **values: Any) -> None:
        """Write the config, with these values of the chart for all targets."""
        self.document["kubernetes"] |= values
        self.config.write_text(yaml.safe_dump(self.document, sort_keys=False))

    def keep_from_waiting(self) -> None:
        """Let pods that find no node be refused as a config does that sets nothing."""
        del self.document["kubernetes"]["scheduling_patience"]
        self.configure()

    def add_database(self, host: str, password: str = f"${{{PASSWORD_VARIABLE}}}") -> None:
        """Add the target `database`."""
        text = f"host={host} user=postgres dbname=postgres password={password}"
        self.document["targets"][DATABASE] = {"module": "postgres", "connection_string": text}
        self.configure()

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**({"KUBECONFIG": self.kubeconfig} | more))

    def write_kubeconfig(self, document: dict[str, Any], name: str = "kubeconfig") -> Path:
        """A kubeconfig in the test's place."""
        path = self.place / name
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document))
        return path

    def insert(self, *arguments: object, target: str = HOLE) -> Done:
        """A small insert that goes well: one run of one worker, unless told otherwise."""
        return self.fine(self.insert_here(*arguments, "--json", self.json, target=target))

    def insert_here(self, *arguments: object, target: str = HOLE) -> Done:
        """An insert to its end, in this process: for what needs nobody beside it."""
        return self.run_here("insert", "--target", target, *_USUAL, *arguments)

    def start_insert(
        self, *arguments: object, target: str = HOLE, impatient: bool = False, **options: Any
    ) -> Running:
        """Start it. `impatient`: by `start_impatient`."""
        begin = self.start_impatient if impatient else self.start
        return begin("insert", "--target", target, *_USUAL, *arguments, **options)

    def start_impatient(
        self, *arguments: object, env: Mapping[str, str] | None = None, **options: Any
    ) -> Running:
        """Start a command with little patience for an API server that is away, and for a database that
        doesn't answer when it has been installed."""
        program = (sys.executable, "-c", _PATIENCES)
        env = {"PYTHONPATH": str(ROOT), **(env or {})}
        return self.start(*arguments, program=program, env=env, **options)

    def start_talkative(self, *arguments: object) -> Running:
        """Start an insert that soon says that the API server is away, and waits for it all the same."""
        program = (sys.executable, "-c", f"{_TOLD_SOON}import cli.main as m; m.main()")
        command = ("insert", "--target", HOLE, *_USUAL, *arguments)
        return self.start(*command, program=program, env={"PYTHONPATH": str(ROOT)})

    def fine(self, done: Done, copy: Path | None = None) -> Done:
        """Return `done` after checking that the runs were good; but on a busy machine workers may start
        late, not keep pace with each other, or be left without CPU, which is not the tool's fault."""
        if done.status:
            runs = self._read(copy or self.folders()[-1] / "result.json")["runs"]
            for reason in (
                text for run in runs for group in run["groups"] for text in group["invalid_reasons"]
            ):
                busy = ("overlapped", " late", "left without CPU")
                assert any(words in reason for words in busy), done
            assert "error" not in done.err, done
            assert done.status == 1, done
        return done

    def await_failure(self, running: Running, within_s: float = 60.0) -> str:
        """The error of a run that fails; its result, its events and the logs of its pods are kept."""
        return self.check_failure(running.wait(within_s))

    def check_failure(self, done: Done) -> str:
        """Likewise, when it has ended."""
        text = done.error(1)
        assert (self.folder() / "result.json").is_file()
        assert "iotb-" in self.read_logs("events.log")
        return text

    def read_logs(self, pattern: str) -> str:
        """The text of the logs whose names match."""
        paths = sorted((self.folder() / "logs").rglob(pattern))
        assert paths, f"no {pattern} in {sorted((self.folder() / 'logs').rglob('*'))}"
        return "".join(path.read_text() for path in paths)
