"""Opens a recording, and converts it first if needed."""

from __future__ import annotations

from pathlib import Path

from .settings import Recorded
from .sources import find_source
from .store import HEADER, VERSION, Recording, Tell, recordings_folder, tell_nobody, write_whole


def open_recording(
    settings: Recorded, base: Path | None = None, tell: Tell = tell_nobody
) -> Recording:
    """The recording that the settings name, converted if needed. Relative paths begin at `base`, or at the
    current folder. OptionError, with everything that is wrong, if it can't be read or stored."""
    source = find_source(settings, base, tell)
    folder = recordings_folder()
    key = folder / f"{source.key}.name"
    if key.is_file() and (folder / (name := key.read_text(encoding="utf-8")) / HEADER).is_file():
        recording = Recording(folder / name)
        if recording.header.version == VERSION:
            return recording
    # Only this needs pyarrow.
    from .converting import convert

    folder.mkdir(parents=True, exist_ok=True)
    name = convert(source, settings, folder, tell)
    write_whole(key, name.encode())
    return Recording(folder / name)
