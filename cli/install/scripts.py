"""Runs a recipe's scripts: install.sh and uninstall.sh."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from ..cluster import Place
from ..errors import ConfigError, RunFailed
from ..installation import program
from ..signals import Interrupted
from .recipes import Choice, Recipe

_END_S = 10.0

_GUARD = """
exec 3<&0 </dev/null
ended=
trap 'ended=yes' TERM
(
  trap '' TERM
  read -r -u 3
  kill -TERM 0
  sleep "$0"
  kill -KILL 0
) &
"$@" 3<&-
status=$?
if [ "$ended" ]; then kill -KILL 0; fi
{ kill -KILL $! && wait $!; } 2>/dev/null
exit $status
"""
"""Runs a script that must not outlive this process: $0 is how long it may take to end, in seconds. Standard
input is a pipe whose other end only this process has; it ends when this does, even by SIGKILL. Then all of
the process group are told to end, and after a while made to."""


class Scripts:
    """Runs a recipe's scripts against one place."""

    def __init__(self, recipe: Recipe, place: Place, timeout_s: int) -> None:
        for needed, remedy in (
            ("bash", "install it"),
            ("kubectl", "see https://kubernetes.io/docs/tasks/tools/"),
        ):
            if shutil.which(needed) is None:
                raise ConfigError(f"{needed} is not installed: {remedy}")
        self._recipe = recipe
        self._place = place
        self._timeout_s = timeout_s

    def plan(self, script: str, arguments: Sequence[str]) -> str:
        """What a script would do, in its own words; nothing is changed."""
        done = subprocess.run(
            self._command(script, [*arguments, "--plan"]),
            capture_output=True, text=True, env=self._environment(), check=False,
        )  # fmt: skip
        if done.returncode:
            raise RunFailed(_last_error(done.stderr, script))
        return done.stdout.rstrip()

    def run(self, script: str, arguments: Sequence[str]) -> None:
        """Run a script with its output on standard error; RunFailed if it fails. An interrupt ends it, and
        so does the end of this process."""
        running = subprocess.Popen(
            ["bash", "-c", _GUARD, f"{_END_S:g}", *self._command(script, arguments)],
            stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), stderr=sys.stderr.fileno(),
            env=self._environment(), start_new_session=True,
        )  # fmt: skip
        try:
            with running:  # which closes the pipe, whatever happens
                status = running.wait()
        except Interrupted as end:
            end.left = (
                f"{script} of {self._recipe.name} was not finished; see {program()} db status"
            )
            raise
        if status:
            raise RunFailed(
                f"{self._recipe.name}: {script} ended with status {status}; what it said is above."
                f" See dbinstall/{self._recipe.name}/README.md"
            )

    def _command(self, script: str, arguments: Sequence[str]) -> list[str]:
        command = ["bash", str(self._recipe.folder / script), "--namespace", self._place.namespace]
        context = self._place.resolve_context()
        if context:
            command += ["--context", context]
        return [*command, "--timeout", str(self._timeout_s), *arguments]

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        if self._place.kubeconfig:
            environment["KUBECONFIG"] = self._place.kubeconfig
        return environment


def _last_error(stderr: str, script: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    return f"{script}: {lines[-1].removeprefix('error: ') if lines else 'failed'}"


def install_arguments(choice: Choice) -> list[str]:
    """Options of install.sh."""
    arguments = ["--variant", choice.variant, "--nodes", str(choice.nodes), "--size", choice.size]
    return [*arguments, "--image", choice.image] if choice.image else arguments
