"""A campaign's folder: its plan, its results, what failed. What is done is known from it alone."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simulator import __version__

from ..errors import ConfigError, RunFailed
from ..output import explain, write_whole
from ..results.store import FILE_NAME, StoredResult, list_results, now
from .definition import Definition
from .plan import Turn, describe_change


class CampaignFolder:
    """One folder with all that belongs to a campaign."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results = path / "results"
        """As any folder with results: `--results` may name it."""
        self.report = path / "report.html"
        self.installed = path / "installed.json"
        """Which database the campaign has installed, while it is there."""
        self._replaced = path / "replaced"
        self._plan = path / "plan.json"
        self._failed = path / "failed.json"
        self._log = path / "campaign.log"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder, and keep other campaigns out of it; ConfigError if one is at work there. A
        process that is killed leaves no lock."""
        try:
            self.results.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("w")
        except OSError as error:
            raise ConfigError(
                f"can't write to {self.path}: {error.strerror}; name another folder with --output"
            ) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ConfigError(
                    f"another campaign is at work in {self.path}: wait for its end, or name another"
                    " folder with --output"
                ) from error
            yield

    def keep_plan(
        self, file: Path, definition: Definition, targets: Mapping[str, str], turns: list[Turn]
    ) -> None:
        """Write the plan, with a copy of the file, if there is none yet. `targets`: target -> digest of
        what the config file says of it."""
        if self._plan.exists():
            return
        plan = {
            "version": __version__,
            "made_at": now().isoformat(timespec="seconds"),
            "definition": definition.model_dump(mode="json", exclude_unset=True),
            "targets": dict(targets),
            "jobs": [
                {"name": job.name, "command": job.command, "arguments": list(job.arguments)}
                for turn in turns
                for job in turn
            ],
        }
        write_whole(self.path / "campaign.yaml", file.read_bytes())
        write_whole(self._plan, json.dumps(plan, indent=1))

    def check_plan(self, file: Path, definition: Definition, targets: Mapping[str, str]) -> None:
        """ConfigError, which says what has changed, if the folder was begun with another plan."""
        if not self._plan.exists():
            return
        before = self._read(self._plan)
        now_ = definition.model_dump(mode="json", exclude_unset=True)
        changes = describe_change(before["definition"], now_)
        if not changes and json.dumps(before["definition"]) != json.dumps(now_):
            changes = ["the order of its keys"]
        changes += [
            f"target {name} in the config file"
            for name, digest in targets.items()
            if before["targets"].get(name, digest) != digest
        ]
        if changes:
            more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
            raise ConfigError(
                f"{file} is not what {self.path} was begun with: {'; '.join(changes[:3])}{more}\n"
                "Undo that to go on, or begin anew in another folder with --output."
            )

    def find_done(self, names: Collection[str]) -> dict[str, StoredResult]:
        """Job -> its result, of those that have a whole one."""
        if not self.results.is_dir():
            return {}
        return {
            str(one.result.label): one
            for one in list_results(self.results)
            if one.result.complete and one.result.label in names
        }

    def find_failed(self) -> dict[str, str]:
        """Job -> why it failed."""
        return self._read(self._failed) if self._failed.exists() else {}

    def keep_failed(self, failed: Mapping[str, str]) -> None:
        """Replace what is kept of failures."""
        write_whole(self._failed, json.dumps(dict(failed), indent=1))

    def set_aside(self, kept: Collection[str]) -> None:
        """Move away all results but these (names of folders): half-written ones, and those of turns that
        are made anew."""
        try:
            for path in sorted(self.results.iterdir()):
                if path.name not in kept:
                    self._replaced.mkdir(exist_ok=True)
                    shutil.move(path, self._replaced / path.name)
        except OSError as error:
            raise RunFailed(f"can't write to {self._replaced}: {explain(error)}") from error

    def list_folders(self) -> set[str]:
        """Names of the folders that have a result, whole or not."""
        return {path.name for path in self.results.iterdir() if (path / FILE_NAME).exists()}

    def write_log(self, text: str) -> None:
        """Add a line, with the time in UTC."""
        try:
            with self._log.open("a") as file:
                file.write(f"{now():%Y-%m-%dT%H:%M:%SZ} {text}\n")
        except OSError as error:
            raise RunFailed(f"can't write {self._log}: {explain(error)}") from error

    @staticmethod
    def _read(file: Path) -> dict[str, Any]:
        try:
            found = json.loads(file.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file} can't be read: begin anew in another folder") from error
        assert isinstance(found, dict)
        return found
