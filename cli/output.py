"""Standard streams that may be closed: `run.py insert … 2>&1 | head` is no error, nor is `2>&-`. And
files, written as a whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from .errors import RunFailed

# Nobody reads the pipe any more; the terminal is gone.
_NOBODY_READS = (errno.EPIPE, errno.EIO)


def say(text: str = "") -> None:
    """Print to standard output, unless nobody reads it any more."""
    _print(text, sys.stdout)


def note(text: str) -> None:
    """Print progress and errors to standard error, unless nobody reads it any more."""
    _print(text, sys.stderr)


def _print(text: str, stream: TextIO) -> None:
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        # What it still holds must not fail again when the interpreter ends.
        # https://docs.python.org/3/library/signal.html#note-on-sigpipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if stream is sys.stdout and error.errno not in _NOBODY_READS:
            raise RunFailed(f"can't print to standard output: {error.strerror}") from error


def open_closed_streams() -> None:
    """Give each standard stream that was closed (`>&-`) the null device. Otherwise the next
    file opened would get its number, and what is printed would be written into that file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is given, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, as a whole or not at all. RunFailed if it can't be."""
    try:
        if path.exists() and os.path.samestat(path.stat(), os.fstat(1)):
            _say_content(content)  # /dev/stdout, whatever that is connected to
            return
        encoded = content if isinstance(content, bytes) else content.encode()
        if path.exists() and not path.is_file():
            path.write_bytes(encoded)  # a pipe or device: nothing to replace
            return
        path = path.resolve()  # a symbolic link stays one
    except OSError as error:
        raise RunFailed(f"can't write {path}: {error.strerror}") from error
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(encoded)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise RunFailed(f"can't write {path}: {error.strerror}") from error


def _say_content(content: str | bytes) -> None:
    if isinstance(content, str):
        say(content)
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
