"""Standard streams that may be closed or have a limited encoding: neither `run.py insert … 2>&1 | head` nor
`2>&-` is an error. Lines that are redrawn on a terminal. And atomic writing of files."""

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

from simulator.errors import printable

from .errors import RunFailed

# The reader of the pipe, or the terminal, is gone.
_NOBODY_READS = (errno.EPIPE, errno.EIO)


def print_text(text: str = "") -> None:
    """Print to standard output, unless its reader is gone."""
    _print(_make_safe(text), sys.stdout)


def print_prose(text: str) -> None:
    """Print sentences to standard output, wrapped between words on a terminal."""
    print_text(wrap_lines(text, terminal_width()))


def wrap_lines(text: str, width: int | None) -> str:
    """Wrap lines at `width` characters, unless a word is longer; None: leave them. Continuation lines are
    indented."""
    if width is None:
        return text
    fold = TextWrapper(
        width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join("\n".join(fold.wrap(line)) for line in text.split("\n"))


_INDENT = "  "


def terminal_width() -> int | None:
    """The columns of standard output; None: no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def note(text: str) -> None:
    """Print progress and errors to standard error, unless its reader is gone. On a terminal, lines wrap
    between words, above any block drawn there."""
    if sys.stderr.isatty():
        text = wrap_lines(text, terminal_size()[0])
    if _blocks:
        _blocks[-1].print_above(text)
    else:
        _print(_make_safe(text), sys.stderr)


STRIKE, STRIKE_END = "\x1b[9m", "\x1b[29m"
"""Strikethrough: the only escape sequences that a text may have."""
_STRUCK = re.compile(f"({re.escape(STRIKE)}|{re.escape(STRIKE_END)})")


def _make_safe(text: str) -> str:
    parts = _STRUCK.split(text)
    return "".join(part if place % 2 else printable(part) for place, part in enumerate(parts))


def warn_once(text: str) -> None:
    """Print a warning, once per command."""
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
    """Printing to a stream whose reader may be gone. RunFailed if standard output has no space left."""
    try:
        yield
    except OSError as error:
        # Its buffer must not fail again at exit.
        # https://docs.python.org/3/library/signal.html#note-on-sigpipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if stream is sys.stdout and error.errno not in _NOBODY_READS:
            raise RunFailed(f"can't print to standard output: {explain(error)}") from error


_UP, _ERASE_BELOW, _HIDE_CURSOR, _SHOW_CURSOR = "\x1b[{}A", "\x1b[J", "\x1b[?25l", "\x1b[?25h"
"""https://www.ecma-international.org/publications-and-standards/standards/ecma-48/ (CUU, ED) and
https://invisible-island.net/xterm/ctlseqs/ctlseqs.html (DECTCEM)"""


class Block:
    """The last lines of standard error on a terminal, which are redrawn. A context manager, which leaves
    nothing behind. Between drawings, the (hidden) cursor is at the beginning of the first line. Terminals
    rewrap or cut lines when their window narrows; the cursor stays with its character, so erasing from it
    erases the block however many lines it takes by then.
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
        """Draw these lines in place of the previous ones; each must be narrower than the terminal."""
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
"""The block on the terminal, if any."""


def terminal_size() -> tuple[int, int]:
    """Current columns and lines of standard error's terminal, which environment variables don't track. 80 and
    24 if unknown."""
    with suppress(OSError, ValueError):
        columns, lines = os.get_terminal_size(sys.stderr.fileno())
        if columns and lines:
            return columns, lines
    return 80, 24


_ASCII = str.maketrans(
    {
        "━": "=", "─": "-", "·": "|", "…": ".",  # of the same width, since redrawn lines contain them
        "×": "x", "÷": "/", "−": "-", "–": "-", "±": "+/-", "≤": "<=", "≥": ">=", "µ": "u",
        "“": '"', "”": '"', "✓": "yes", "✗": "no",
    }
)  # fmt: skip
"""ASCII substitutes for the tool's characters."""
_REPLACE = f"{__name__}.replace"


def _replace_unknown(error: UnicodeError) -> tuple[str, int]:
    r"""Replaces characters that a stream's encoding lacks by something similar, or by Python's escape,
    `\xfc`."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error(_REPLACE, _replace_unknown)


def prepare_streams() -> None:
    """Make any character printable on standard output and standard error, and attach closed standard streams
    (`>&-`) to the null device. Otherwise the next opened file would get their number, and output would end up
    in that file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # `open` returns the lowest free number, which is this one.
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
    """Why something could not be written, with a remedy."""
    if isinstance(error, UnicodeEncodeError):
        text = printable(error.object[error.start : error.end])
        return f"file names can't contain {text} here ({error.encoding}); use UTF-8, as in LC_ALL=C.UTF-8"
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{error.strerror}; {remedy}" if remedy else str(error.strerror)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically. RunFailed if that fails."""
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
        path = path.resolve()  # keeps symbolic links
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
