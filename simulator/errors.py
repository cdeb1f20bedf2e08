"""The simulator's errors, parts that other packages add, texts made safe to show, and logs without
secrets."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote, quote_plus


class SimulatorError(Exception):
    """Ends a run. The text says what is wrong and what to do, and is shown without a traceback."""


class GaveUp(SimulatorError):
    """A request was retried until patience ended. What was measured before is worth keeping."""


class OptionError(SimulatorError):
    """Options of a module or workload are wrong; raised before anything is started."""

    def __init__(self, *problems: str) -> None:
        """`problems`: everything that is wrong."""
        super().__init__(list_problems(problems))
        self.problems = problems


MOST_PROBLEMS = 10


def list_problems(problems: Iterable[str]) -> str:
    """All problems, each in a line or two: the first ten, and how many more there are."""
    texts = list(dict.fromkeys(problems))
    more = len(texts) - MOST_PROBLEMS
    return "\n".join([*texts[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])])


def one_line(text: object, at_most: int | None = None) -> str:
    """A text from elsewhere, for one of our messages: on one line, at most `at_most` characters. Of a system
    error only the words, as its number differs between systems."""
    if (
        isinstance(text, OSError)
        and type(text).__str__ is OSError.__str__
        and text.filename is None
    ):
        text = text.strerror or text
    line = " ".join(str(text).split())
    if not line and isinstance(text, BaseException):
        return type(text).__name__
    return line[:at_most]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` with the known name nearest to this one; empty if there is none."""
    import difflib  # only needed for errors

    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]}?" if near else ""


def list_names(names: Iterable[str], at_most: int = 20) -> str:
    """The names for a message; if there are many, only the first ones."""
    shown = list(names)
    more = len(shown) - at_most
    return ", ".join(shown[:at_most]) + (f" and {more} more" if more > 0 else "")


def unknown_option(key: str, options: Iterable[str]) -> str:
    """The message for an option that doesn't exist: the nearest one, and all others."""
    names = sorted(options)
    return f"unknown option {key!r}{did_you_mean(key, names)} (known: {', '.join(names)})"


class Retryable(Exception):
    """A request failed, but may succeed if tried again. `kind` is counted in the result."""

    def __init__(
        self, kind: str, detail: str, backoff_s: float = 0.1, at_least_s: float = 0.0
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.backoff_s = backoff_s
        """The wait before the first retry; doubles with each further one."""
        self.at_least_s = at_least_s
        """The shortest wait, if the server asked for one (HTTP's Retry-After)."""


# --- parts that other packages add ---------------------------------------------------------------


class DriverMissing(ModuleNotFoundError):
    """A package that a module of the tool needs, `name`, is not installed."""

    def __init__(self, name: str | None, module: str) -> None:
        super().__init__(f"No module named {name!r}", name=name)
        self.module = module


class PluginError(OptionError):
    """A part from another package can't be used. The text says which part, of which package, and why."""


def plugin_names(group: str) -> list[str]:
    """Names of the parts that other packages add, whether or not they can be loaded."""
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group).names)


def load_plugin(group: str, name: str, base: type[Any]) -> type[Any] | None:
    """The class that another package adds by that name; None if there is none. PluginError if it can't be
    loaded or isn't a subclass of `base`."""
    from importlib.metadata import entry_points

    for point in entry_points(group=group, name=name):
        try:
            loaded = point.load()
            if not isinstance(loaded, type) or not issubclass(loaded, base):
                raise TypeError(f"it is no subclass of {base.__module__}.{base.__name__}")
        except (Exception, SystemExit) as error:  # whatever a stranger's code raises
            package = f" of the package {point.dist.name}" if point.dist else ""
            raise PluginError(
                f"{group.rpartition('.')[2].rstrip('s')} {name!r}{package} can't be loaded from"
                f" {point.value}: {type(error).__name__}: {one_line(error, 200)}; repair or uninstall it"
            ) from error
        return loaded
    return None


# --- logs --------------------------------------------------------------------------------------------


FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

SHORTEST_WORD = 8
"""How long a secret must be to be starred out wherever it is a word of its own. A shorter one could be any
word, or a part of many, and is starred out only where a secret is expected."""

# Names of fields, headers, keys of connection strings or parameters of URLs that hold a secret; then what
# separates a name from its value, in texts, JSON, SQL and Python's `repr`.
_NAME = r"(?:password|passwd|passphrase|pwd|secret|token|(?:api|app|access)[_-]?key)"
_SEPARATOR = r"""(?:['"]?\s*[=:]\s*(?:b?['"])?|['"],\s*b?['"]|\s+['"])"""

# A secret is expected here, whether or not it is known: the password in `scheme://user:password@host`, and
# everything after the scheme in `Authorization: Basic …`.
_IN_URL = re.compile(r"(\w[\w+.-]*://[^\s/@:]*:)[^\s/]*@")
_IN_HEADER = re.compile(
    r"""(authorization['"]?\s*[:=,]\s*(?:b?['"])?(?:(?:basic|bearer|apikey|token)\s+)?)[^\s'",\\]+""",
    re.IGNORECASE,
)


# Base64 in either alphabet, and base64 as a login.
_ENCODED = re.compile(r"[\w+/-]{8,}={0,2}", re.ASCII)
_LOGIN = re.compile(r"(\bbasic\W{1,4})([\w+/-]{8,}={0,2})", re.ASCII | re.IGNORECASE)
_GRAM = 4
"""This many consecutive characters of a secret in base64 are no coincidence."""


class Redactor:
    """Stars secrets out of texts: where secrets are expected, and long ones wherever they are a word."""

    def __init__(self, secrets: Iterable[str], public: str = "") -> None:
        """`public`: what everyone may see. A secret that is a word of it, such as the password `postgres`
        with the host `postgres`, can't be told from that word, and is treated as a short one."""
        words = set(re.findall(r"\w+", public))
        nonempty = [secret for secret in secrets if secret]
        self._grams = {
            octets[at : at + _GRAM]
            for octets in (secret.encode() for secret in nonempty if len(secret) >= SHORTEST_WORD)
            for at in range(len(octets) - _GRAM + 1)
        }
        # The longest first: one may be the beginning of another.
        forms = sorted(
            {form for secret in nonempty for form in _forms(secret)}, key=len, reverse=True
        )
        long = [form for form in forms if len(form) >= SHORTEST_WORD and form not in words]
        self._in_place: re.Pattern[str] | None = None
        self._as_word: re.Pattern[str] | None = None
        if forms:
            pattern = "|".join(map(_as_word, forms))
            self._in_place = re.compile(
                rf"((?i:{_NAME}){_SEPARATOR})(?:{pattern})|(://[^\s:@]*:)(?:{pattern})(?=@)"
            )
        if long:
            self._as_word = re.compile("|".join(map(_as_word, long)))

    def __call__(self, text: str) -> str:
        if self._in_place is not None:
            text = self._in_place.sub(r"\1\2***", text)
        if self._as_word is not None:
            text = self._as_word.sub("***", text)
        if self._grams:
            text = _ENCODED.sub(self._hide_encoded, text)
        text = _LOGIN.sub(_hide_login, text)
        return _IN_HEADER.sub(r"\1***", _IN_URL.sub(r"\1***@", text))

    def _hide_encoded(self, match: re.Match[str]) -> str:
        """Stars out base64 that has a part of a secret, even a truncated one: for example a login that a
        server echoes."""
        for start in range(4):
            octets = _decode(match[0][start:])
            if any(octets[at : at + _GRAM] in self._grams for at in range(len(octets))):
                return "***"
        return match[0]


def _hide_login(match: re.Match[str]) -> str:
    """Stars out an unknown login: one that decodes to a text. Words after `basic` don't."""
    octets = _decode(match[2])
    return f"{match[1]}***" if octets.isascii() and octets.decode().isprintable() else match[0]


def _decode(text: str) -> bytes:
    """The bytes of all complete groups of base64, in either alphabet."""
    whole = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(whole[: len(whole) // 4 * 4])


def _forms(secret: str) -> Iterable[str]:
    """The ways in which a secret is written in texts, URLs, JSON, Python and connection strings."""
    yield secret
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
    yield secret.replace("\\", "\\\\").replace("'", "\\'")


def _as_word(secret: str) -> str:
    """A pattern for the secret as a whole word: without a letter or digit on either side."""
    before = r"(?<!\w)" if re.match(r"\w", secret[0]) else ""
    behind = r"(?!\w)" if re.match(r"\w", secret[-1]) else ""
    return before + re.escape(secret) + behind


class RedactingFormatter(logging.Formatter):
    """Stars out secrets, in tracebacks too, in case some library logs one."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(FORMAT)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor(super().format(record))


def configure_logging() -> None:
    """Log to standard error."""
    logging.basicConfig(level=logging.INFO, format=FORMAT, force=True)
    # It logs each request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)


_known = Redactor(())


def hide(secrets: Sequence[str], public: str = "") -> None:
    """From now on, no log line and no text from `redact` shows any of these secrets; see `Redactor`."""
    global _known  # noqa: PLW0603 - a process has one run, and one set of secrets
    _known = Redactor(secrets, public)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(RedactingFormatter(_known))


def redact(text: str) -> str:
    """A text, perhaps from a driver or a server, without the secrets given to `hide`."""
    return _known(text)


# --- texts from elsewhere ---------------------------------------------------------------------------

# C0 except tab and line break, DEL, C1; marks that change the direction of text, or hide it; line separators;
# surrogates; non-characters (which XML can't have, and so no figure).
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff\ufdd0-\ufdef\U000e0000-\U000e007f"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
    + "]"
)


_BREAKS = re.compile(r"[\t\n]")


def printable(text: str) -> str:
    r"""The text with every control character and the like as Python writes it: `\x1b`, `\u202e`."""
    if text.replace("\n", "").isprintable():
        return text
    return _HARMFUL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def printable_line(text: str) -> str:
    """The same, on one line."""
    return printable(_BREAKS.sub(" ", text))


def make_printable(document: Any) -> Any:
    """Plain values with all texts, keys included, made printable, each on one line."""
    if isinstance(document, str):
        return printable_line(document)
    if isinstance(document, dict):
        return {printable_line(key): make_printable(value) for key, value in document.items()}
    if isinstance(document, list):
        return [make_printable(value) for value in document]
    return document
