"""Standard streams that may be closed, or have few characters: `run.py insert … 2>&1 | head` is no error, nor
is `2>&-`. Lines on a terminal that are drawn anew. And files, written as a whole or not at all."""

from __future__ import annotations

import codecs
import errno
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from textwrap import TextWrapper
from typing import TextIO

import click

from simulator.documents import printable

from .errors import RunFailed

# Nobody reads the pipe any more; the terminal is gone.
_NOBODY_READS = (errno.EPIPE, errno.EIO)


def print_text(text: str = "") -> None:
    """Print to standard output, unless nobody reads it any more."""
    _print(_make_safe(text), sys.stdout)


def print_prose(text: str) -> None:
    """Print sentences to standard output: on a terminal their lines end between words."""
    print_text(wrap_lines(text, terminal_width()))


def wrap_lines(text: str, width: int | None) -> str:
    """Lines of at most so many characters, unless a word is longer; None: as they are. Continuation lines
    are indented."""
    if width is None:
        return text
    fold = TextWrapper(
        width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join("\n".join(fold.wrap(line)) for line in text.split("\n"))


_INDENT = "  "


def terminal_width() -> int | None:
    """How many characters standard output has room for in a line; None: as many as you like."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def note(text: str) -> None:
    """Print progress and errors to standard error, unless nobody reads it any more. On a terminal lines end
    between words; a block that is drawn there stays below."""
    if sys.stderr.isatty():
        text = wrap_lines(text, terminal_size()[0])
    if _blocks:
        _blocks[-1].print_above(text)
    else:
        _print(_make_safe(text), sys.stderr)


STRIKE, STRIKE_END = "\x1b[9m", "\x1b[29m"
"""Struck through by a terminal: the only escape sequences that a text may have."""
_STRUCK = re.compile(f"({re.escape(STRIKE)}|{re.escape(STRIKE_END)})")


def _make_safe(text: str) -> str:
    parts = _STRUCK.split(text)
    return "".join(part if place % 2 else printable(part) for place, part in enumerate(parts))


def warn_once(text: str) -> None:
    """Note a warning, unless this command has noted the same."""
    context = click.get_current_context(silent=True)
    noted: set[str] = context.meta.setdefault(f"{__name__}.noted", set()) if context else set()
    if text not in noted:
        noted.add(text)
        note(f"warning: {text}")


def _print(text: str, stream: TextIO, end: str = "\n") -> None:
    with _unless_unread(stream):
        print(text, file=stream, end=end, flush=True)


@contextmanager
def _unless_unread(stream: TextIO) -> Iterator[None]:
    """Printing to a stream: that nobody reads it any more is no error. RunFailed if it is standard output and
    has no room."""
    try:
        yield
    except OSError as error:
        # What it still holds must not fail again when the interpreter ends.
        # https://docs.python.org/3/library/signal.html#note-on-sigpipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if stream is sys.stdout and error.errno not in _NOBODY_READS:
            raise RunFailed(f"can't print to standard output: {explain(error)}") from error


_UP, _ERASE_BELOW, _HIDE_CURSOR, _SHOW_CURSOR = "\x1b[{}A", "\x1b[J", "\x1b[?25l", "\x1b[?25h"
"""https://www.ecma-international.org/publications-and-standards/standards/ecma-48/ (CUU, ED) and
https://invisible-island.net/xterm/ctlseqs/ctlseqs.html (DECTCEM)"""


class Block:
    """The last lines of standard error, a terminal, which are drawn anew again and again. Use as a context
    manager; afterwards nothing is left of it.

    Between two drawings the (hidden) cursor stands at the beginning of the first line. Terminals wrap
    lines anew when their window is made narrower, or cut them off; the cursor stays with its character,
    so erasing from there on erases the block however many lines it takes by then.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._text = ""

    def __enter__(self) -> Block:
        _print(_HIDE_CURSOR, sys.stderr, end="")
        _blocks.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _blocks.remove(self)
        _print(f"\r{_ERASE_BELOW}{_SHOW_CURSOR}", sys.stderr, end="")

    def draw(self, lines: Sequence[str]) -> None:
        """Draw these lines in place of those before; each must be narrower than the terminal."""
        with self._lock:
            up = _UP.format(len(lines) - 1) if len(lines) > 1 else ""
            self._text = _make_safe("\n".join(lines)) + up + "\r"
            _print(f"\r{_ERASE_BELOW}{self._text}", sys.stderr, end="")

    def print_above(self, text: str) -> None:
        """Print lines that stay, above the block."""
        with self._lock:
            _print(f"\r{_ERASE_BELOW}{_make_safe(text)}\n{self._text}", sys.stderr, end="")


_DUMB_TERMINALS = ("dumb", "unknown")


def can_draw() -> bool:
    """Whether standard error is a terminal on which lines can be drawn anew."""
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in _DUMB_TERMINALS


PLAIN_INTERVAL_S = 10.0
"""Seconds until the first line of what takes long; each further one takes twice as long."""
_LONGEST_INTERVAL_S = 300.0


class Pace:
    """When the next line is due where lines aren't drawn anew: at intervals that grow."""

    def __init__(self) -> None:
        self._interval_s = PLAIN_INTERVAL_S
        self.restart()

    def restart(self) -> None:
        """A line was printed for another reason."""
        self._last_s = time.monotonic()

    def is_due(self) -> bool:
        """Whether a line is to be printed now; the next is due later."""
        if time.monotonic() - self._last_s < self._interval_s:
            return False
        self._interval_s = min(_LONGEST_INTERVAL_S, 2 * self._interval_s)
        self.restart()
        return True


@contextmanager
def follow_work() -> Iterator[Callable[[str], None]]:
    """Shows how far something is that may take long, and is told so in words again and again: in a line that
    is drawn anew and doesn't stay, or, if it can't be, in plain lines at intervals."""
    pace = Pace()
    with ExitStack() as stack:
        block: Block | None = None

        def tell(text: str) -> None:
            nonlocal block
            if can_draw():
                block = block or stack.enter_context(Block())
                block.draw([text[: terminal_size()[0] - 1]])
            elif pace.is_due():
                note(text)

        yield tell


_blocks: list[Block] = []
"""The one that stands on the terminal, if any."""


def terminal_size() -> tuple[int, int]:
    """Columns and lines of the terminal that standard error is, as it is now: a variable of the environment
    wouldn't know of a change. 80 and 24 if it doesn't say."""
    with suppress(OSError, ValueError):
        columns, lines = os.get_terminal_size(sys.stderr.fileno())
        if columns and lines:
            return columns, lines
    return 80, 24


_ASCII = str.maketrans(
    {
        "━": "=", "─": "-", "·": "|", "…": ".",  # as wide: the lines that are drawn anew have them
        "×": "x", "÷": "/", "−": "-", "–": "-", "±": "+/-", "≤": "<=", "≥": ">=", "µ": "u",
        "“": '"', "”": '"', "✓": "yes", "✗": "no",
    }
)  # fmt: skip
"""What this tool writes, in characters that each terminal has."""
_REPLACE = f"{__name__}.replace"


def _replace_unknown(error: UnicodeError) -> tuple[str, int]:
    r"""What is printed instead of characters that a stream's encoding doesn't have: something alike, or what
    Python writes for them, `\xfc`."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error(_REPLACE, _replace_unknown)


def prepare_streams() -> None:
    """Make sure that no character is an error on standard output and standard error. And give each standard
    stream that was closed (`>&-`) the null device. Otherwise the next file opened would get its number, and
    what is printed would be written into that file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is given, which is this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))
        stream = getattr(sys, name)
        if number and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_REPLACE)


_MAKE_ROOM, _ALLOW, _ELSEWHERE = (
    "make room, or write to another disk",
    "make it writable, or name another place",
    "name another place",
)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_REMEDIES = {
    **dict.fromkeys(NO_ROOM, _MAKE_ROOM),
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.EROFS: _ALLOW,
    errno.ENOENT: "make its folder, or name another place",
    errno.EEXIST: _ELSEWHERE,
    errno.ENOTDIR: _ELSEWHERE,
}


def explain(error: OSError | UnicodeEncodeError) -> str:
    """Why something could not be written, and what to do about it."""
    if isinstance(error, UnicodeEncodeError):
        text = printable(error.object[error.start : error.end])
        return f"names of files have no {text} here ({error.encoding}); use UTF-8, as by LC_ALL=C.UTF-8"
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{error.strerror}; {remedy}" if remedy else str(error.strerror)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, as a whole or not at all. RunFailed if it can't be."""
    encoded = content if isinstance(content, bytes) else content.encode(errors="backslashreplace")
    try:
        if path.exists() and os.path.samestat(path.stat(), os.fstat(1)):
            # /dev/stdout, whatever that is connected to
            with _unless_unread(sys.stdout):
                sys.stdout.buffer.write(encoded if encoded is content else encoded + b"\n")
                sys.stdout.buffer.flush()
            return
        if path.exists() and not path.is_file():
            path.write_bytes(encoded)  # a pipe or device: nothing to replace
            return
        path = path.resolve()  # a symbolic link stays one
    except OSError as error:
        raise RunFailed(f"can't write {path}: {explain(error)}") from error
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
        raise RunFailed(f"can't write {path}: {explain(error)}") from error
