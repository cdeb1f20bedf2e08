"""How a recording comes to pods: packed, sent in parts or fetched, checked, unpacked."""

from __future__ import annotations

import io
import os
import random
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from simulator.contract import OFFSET_HEADER, Delivery
from simulator.errors import SimulatorError
from simulator.worker.base import CollectorClient
from simulator.workloads.recording.delivery import Streamed, obtain, pack

from ..cli.broken_recordings import zstd as compress
from ..helpers import settings
from .collecting import FakeDatabase, Run, play, until

NAME = "0123456789abcdef"
CONTENT = {"recording.json": b"{}", "0": random.Random(1).randbytes(300_000), "0.texts": b""}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of recordings of the machine that sends, with one in it."""
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path / "here"))
    store = tmp_path / "here" / NAME
    store.mkdir(parents=True)
    for name, content in CONTENT.items():
        (store / name).write_bytes(content)
    return store.parent


@pytest.fixture
def packed(here: Path) -> tuple[Delivery, Path]:
    return pack(NAME)


@pytest.fixture
def there(packed: tuple[Delivery, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """From now on, this process is a pod's, with another folder that isn't there yet."""
    monkeypatch.setenv("IOTBENCH_RECORDINGS", str(tmp_path / "there"))
    return tmp_path / "there"


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def no_collector() -> Any:
    raise AssertionError


def test_what_is_packed_is_unpacked(packed: tuple[Delivery, Path], there: Path) -> None:
    delivery, file = packed
    assert delivery.packed_bytes == file.stat().st_size < delivery.size_bytes
    # What a pod that was killed has left in a place that pods share.
    (there / "new-left").mkdir(parents=True)
    os.utime(there / "new-left", (0, 0))
    store = obtain(delivery, lambda: file.open("rb"))
    assert store == there / NAME and read(store) == CONTENT
    # What is there is not fetched again, and nothing else is left.
    assert obtain(delivery, no_collector) == store
    assert {path.name for path in there.iterdir()} == {NAME, f"{NAME}.lock"}


def test_it_is_packed_once(packed: tuple[Delivery, Path], here: Path) -> None:
    before = packed[1].stat().st_mtime_ns
    assert pack(NAME) == packed
    assert packed[1].stat().st_mtime_ns == before
    packed[1].unlink()
    assert pack(NAME)[0].sha256 == packed[0].sha256


def flip(packed: bytes) -> bytes:
    middle = len(packed) // 2
    return packed[:middle] + bytes([packed[middle] ^ 1]) + packed[middle + 1 :]


@pytest.mark.parametrize(
    ("change", "changed", "said"),
    [
        (bytes, {"sha256": "0" * 64}, "its hash is .{12}…, not 000000000000…"),
        (bytes, {"size_bytes": 20_000}, "larger than 20,000 bytes"),
        (lambda packed: packed[:-10], {}, "is damaged"),
        (flip, {}, "is damaged"),
        (lambda packed: b"<html>404</html>", {}, "is damaged"),
        (lambda packed: b"", {}, "is damaged"),
    ],
    ids=["hash", "size", "cut", "flipped", "page", "empty"],
)
def test_what_was_changed_is_refused(
    packed: tuple[Delivery, Path],
    there: Path,
    change: Callable[[bytes], bytes],
    changed: dict[str, Any],
    said: str,
) -> None:
    content = change(packed[1].read_bytes())
    delivery = packed[0].model_copy(update=changed)
    with pytest.raises(SimulatorError, match=said) as caught:
        obtain(delivery, lambda: io.BytesIO(content))
    assert "start the run again" in str(caught.value)
    assert {path.name for path in there.iterdir()} == {f"{NAME}.lock"}


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "link"])
def test_nothing_is_written_elsewhere(
    packed: tuple[Delivery, Path], there: Path, name: str
) -> None:
    """Though its hash is checked only then."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as made:
        entry = tarfile.TarInfo(name)
        if name == "link":
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(entry, io.BytesIO())
    content = compress(archive.getvalue())
    with pytest.raises(SimulatorError, match="more than files of its folder"):
        obtain(packed[0], lambda: io.BytesIO(content))
    assert {path.name for path in there.iterdir()} == {f"{NAME}.lock"}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_from_a_volume_or_an_address(packed: tuple[Delivery, Path], there: Path) -> None:
    delivery, file = packed
    at_a_path = delivery.model_copy(update={"source": str(file), "name": "a" * 16})
    assert read(obtain(at_a_path, no_collector)) == CONTENT
    with serving(file.parent) as url:
        source = f"{url}/{file.name}?signature=hush"
        at_an_address = delivery.model_copy(update={"source": source})
        assert read(obtain(at_an_address, no_collector)) == CONTENT
        nowhere = delivery.model_copy(
            update={"source": f"{url}/no?signature=hush", "name": "b" * 16}
        )
        with pytest.raises(SimulatorError, match=r"/no: (File not found|Not Found)") as caught:
            obtain(nowhere, no_collector)
    assert "hush" not in str(caught.value)


def test_pods_of_one_place_fetch_it_once(packed: tuple[Delivery, Path], there: Path) -> None:
    opened = []

    @contextmanager
    def open_slowly() -> Iterator[BinaryIO]:
        opened.append(1)
        with packed[1].open("rb") as file:
            yield file

    threads = [threading.Thread(target=obtain, args=(packed[0], open_slowly)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [1]
    assert read(there / NAME) == CONTENT


# --- the collector between command line and workers -------------------------------------------------


def test_the_collector_waits_for_it_and_hands_it_on(
    database: FakeDatabase, packed: tuple[Delivery, Path], there: Path
) -> None:
    delivery, file = packed
    content = file.read_bytes()
    half = len(content) // 2

    async def story(run: Run) -> None:
        async def send(offset: int, part: bytes) -> str:
            answer = await run.http.post(
                "/recording", content=part, headers={OFFSET_HEADER: str(offset)}
            )
            assert answer.status_code == 200, answer.text
            return answer.text

        assert await send(0, content[:half]) == str(half)
        assert await send(0, content[:half]) == str(half)  # its answer was lost
        assert database.calls == []
        assert await send(half, content[half:]) == str(len(content))
        answer = await run.http.get("/recording")
        assert answer.content == content
        await until(lambda: "prepare" in database.calls)
        assert read(there / NAME) == CONTENT

    play(story, delivery=delivery)


def test_the_collector_refuses_what_was_changed(
    database: FakeDatabase, packed: tuple[Delivery, Path], there: Path
) -> None:
    wrong = packed[0].model_copy(update={"sha256": "0" * 64})

    async def story(run: Run) -> None:
        content = packed[1].read_bytes()
        await run.http.post("/recording", content=content, headers={OFFSET_HEADER: "0"})
        await until(lambda: run.collector.failure is not None)
        assert "is damaged: its hash is" in str(run.collector.failure)
        assert database.calls == []
        assert (await run.http.get("/recording")).status_code == 410
        # The next run gets it anew.
        assert not list(there.glob("*.zst"))

    play(story, delivery=wrong)


def test_who_needs_none_gets_none(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        assert (await run.http.get("/recording")).status_code == 404
        answer = await run.http.post("/recording", content=b"x", headers={OFFSET_HEADER: "0"})
        assert answer.status_code == 422

    play(story)


def test_a_worker_reads_it_from_the_collector(packed: tuple[Delivery, Path], there: Path) -> None:
    file = packed[1]
    with serving(file.parent) as url:
        file.rename(file.parent / "recording")
        client = CollectorClient(url, settings(), 0)
        try:
            assert read(obtain(packed[0], client.open_recording)) == CONTENT
        finally:
            client.close()


def test_parts_are_a_file() -> None:
    assert Streamed(iter([b"", b"abc", b"defgh", b""])).read() == b"abcdefgh"
