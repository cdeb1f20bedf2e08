"""Result folders at remote addresses: any that fsspec supports, as in s3://bucket/folder. fsspec and its
drivers are optional packages. Credentials come from the environment or the machine's identity, never from the
address, which shows in process lists and logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from tempfile import NamedTemporaryFile
from typing import Any

from simulator.errors import one_line

from ..system.errors import CliError, ConfigError, RunFailed
from ..system.installation import advise_install, program
from ..system.output import explain
from .index import FILE_NAME
from .manifest import hide_secrets

FETCHED = Path("~/.cache/iot-database-benchmark/remote")
"""Cached remote results: they never change, so each is fetched once."""
MARK = ".iotbench"
"""A file that a command writes next to the results before its first run, to find out early whether the
address is writable. The command needs no other right."""

_ADDRESS = re.compile(r"(?P<protocol>[A-Za-z][A-Za-z0-9+.-]*)://")
# Secrets may contain slashes, and S3's do.
_CREDENTIALS = re.compile(r"://[^@]*:[^@]*@")
_OF_OBSTORE = frozenset({"s3", "gs", "az", "abfs", "abfss"})
_RETRIES = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}
_LENT_FOR = timedelta(days=1)
_AT_ONCE = 16
"""Results fetched at a time: latency outweighs transfer."""
_MOST_CHARACTERS = 300
_REMEDY = "check the address and your credentials (environment, or the machine's identity)"


def is_address(text: str) -> bool:
    """Whether this is a remote address, not a path on this machine."""
    return bool(_ADDRESS.match(text)) or ("::" in text and "://" in text)


@dataclass(frozen=True)
class Address:
    """A remote folder of results."""

    url: str

    def __post_init__(self) -> None:
        """ValueError, without quoting the address, if it holds more than a location."""
        if _CREDENTIALS.search(self.url) or "?" in self.url:
            raise ValueError(
                "the address contains credentials or a query, which others could read: give only the"
                " location, and credentials in the"
                " environment (AWS_ACCESS_KEY_ID, …) or the machine's identity"
            )
        if "::" in self.url:
            raise ValueError(
                f"{self.url!r} is a chain of addresses: give one, as in s3://bucket/folder"
            )

    def __str__(self) -> str:
        return self.url

    def check_writable(self) -> None:
        """ConfigError if nothing can be written there."""
        with self._explain(ConfigError, f"can't write results to {self} (--output): {_REMEDY}"):
            files, root = self._open()
            with NamedTemporaryFile("w", encoding="utf-8", suffix=MARK) as file:
                file.write("iotbench writes results here\n")
                file.flush()
                files.put_file(file.name, f"{root}/{MARK}")

    def send(self, folder: Path) -> str:
        """Copy a folder there, under its name, and return its address. RunFailed, with a remedy, if that
        fails. result.json goes last, so that it is never there without the rest."""
        there = f"{self.url.rstrip('/')}/{folder.name}"
        failed = (
            f"the result is in {folder}, but could not be copied to {there}: copy the folder there"
            " yourself"
        )
        with self._explain(RunFailed, failed):
            files, root = self._open()
            if _is_there(files, f"{root}/{folder.name}/{FILE_NAME}"):
                raise RunFailed(f"{failed}, under another name: there already is a result")
            paths = [path for path in folder.rglob("*") if path.is_file()]
            for path in sorted(paths, key=lambda path: (path == folder / FILE_NAME, path)):
                own = path.relative_to(folder).as_posix()
                files.put_file(str(path), f"{root}/{folder.name}/{own}")
        return there

    def lend(self, file: Path) -> str:
        """Copy a file there, unless it is there already; return a signed address, which lets anyone who knows
        it read the file for a day. ConfigError if that fails."""
        with self._explain(ConfigError, f"can't copy {file} to {self}: {_REMEDY}"):
            self._open()  # names the missing package
            import obstore
            from obstore.store import AzureStore, GCSStore, S3Store, from_url

            store = from_url(self.url)
            if not isinstance(store, AzureStore | GCSStore | S3Store):
                raise ConfigError(f"{self} isn't an object store, whose addresses can be signed")
            try:
                obstore.head(store, file.name)
            except FileNotFoundError:
                obstore.put(store, file.name, file)
            return str(obstore.sign(store, "GET", file.name, _LENT_FOR))

    def fetch(self) -> Path:
        """A local folder with the result.json of each result there; fetches only new ones. ConfigError if the
        address can't be read."""
        with self._explain(ConfigError, f"can't read results from {self} (--results): {_REMEDY}"):
            files, root = self._open()
            entries = files.ls(root, detail=True)
            paths = [entry["name"] for entry in entries if entry["type"] == "directory"]
            names = {path.rstrip("/").rpartition("/")[2] for path in paths} - {"", ".", ".."}
            if not names:
                raise ConfigError(f"there is no result at {self}")
            here = self._make_cache()

            def fetch_one(name: str) -> None:
                _fetch_file(files, f"{root}/{name}/{FILE_NAME}", here / name)

            fetched = {path.parent.name for path in here.glob(f"*/{FILE_NAME}")}
            for name in fetched - names:
                rmtree(here / name, ignore_errors=True)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(fetch_one, sorted(names - fetched)))
            return here

    def _make_cache(self) -> Path:
        name = sha256(self.url.rstrip("/").encode()).hexdigest()[:16]
        try:
            folder = FETCHED.expanduser() / name
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, RuntimeError) as error:
            why = explain(error) if isinstance(error, OSError) else one_line(error)
            raise ConfigError(
                f"can't cache results of {self} in {FETCHED}: {why}; set HOME to a writable folder"
            ) from error
        return folder

    def _open(self) -> tuple[Any, str]:
        """fsspec's file system there, and this folder's path in it, without a trailing slash."""
        match = _ADDRESS.match(self.url)
        assert match is not None
        protocol = match["protocol"].lower()
        try:
            from fsspec.core import url_to_fs

            options: dict[str, Any] = {"skip_instance_cache": True}
            if protocol in ("file", "local"):
                options["auto_mkdir"] = True
            elif protocol in _OF_OBSTORE and find_spec("obstore"):
                from obstore.fsspec import register

                register(protocol)
                options["retry_config"] = _RETRIES
            files, root = url_to_fs(self.url, **options)
        except ImportError as error:
            raise ConfigError(
                f"{self}: a package is needed for this and not installed ({one_line(error, 100)}):"
                f" {advise_install('remote')}"
            ) from error
        except ValueError as error:
            raise ConfigError(
                f"{self}: {one_line(error, 100)}: fsspec doesn't know this kind of address"
            ) from error
        return files, root.rstrip("/")

    @contextmanager
    def _explain(self, kind: type[CliError], problem: str) -> Iterator[None]:
        """Turn whatever a driver package raises into an error of this kind."""
        try:
            yield
        except CliError:
            raise
        except Exception as error:
            # obstore appends its internal representation.
            text = str(error).partition("Debug source")[0]
            why = hide_secrets(one_line(text or error, _MOST_CHARACTERS))
            raise kind(f"{problem}\n{type(error).__name__}: {why}") from error


def explain_named(name: str) -> str:
    """How to name a result at an address."""
    return (
        f"{name} is an address: name its folder by --results, and the result by its ID (see:"
        f" {program()} results list --results URL)"
    )


def _is_there(files: Any, path: str) -> bool:
    """Whether a file is certain to be there."""
    with suppress(Exception):  # write-only credentials can't look
        return bool(files.exists(path))
    return False


def _fetch_file(files: Any, there: str, folder: Path) -> None:
    """Fetch a result into a new folder, atomically; nothing if there are only the logs of a failure."""
    folder.parent.mkdir(exist_ok=True)
    with NamedTemporaryFile(dir=folder.parent.parent, suffix=".part") as part:
        try:
            files.get_file(there, part.name)
        except FileNotFoundError:
            return
        folder.mkdir(exist_ok=True)
        with suppress(FileExistsError):  # another command has fetched it meanwhile
            (folder / FILE_NAME).hardlink_to(part.name)
