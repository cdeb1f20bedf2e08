"""Logs of collector and workers: one line per event on standard error, without secrets."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterable, Sequence
from urllib.parse import quote, quote_plus

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

SHORTEST_WORD = 8
"""Characters that a secret needs to be starred out wherever it is a word of its own. A shorter one
could be any word, or a part of many, and is starred out only where a secret is meant to stand."""

# What a field, header, key of a connection string or parameter of a URL that holds a secret is
# called; then what separates it from its value, in texts, JSON, SQL and Python's `repr`.
_NAME = r"(?:password|passwd|passphrase|pwd|secret|token|(?:api|app|access)[_-]?key)"
_SEPARATOR = r"""(?:['"]?\s*[=:]\s*(?:b?['"])?|['"],\s*b?['"]|\s+['"])"""

# What stands there is a secret, whether it is known or not: in `scheme://user:password@host` the
# password, in `Authorization: Basic …` everything behind the scheme.
_IN_URL = re.compile(r"(\w[\w+.-]*://[^\s/@:]*:)[^\s/]*@")
_IN_HEADER = re.compile(
    r"""(authorization['"]?\s*[:=,]\s*(?:b?['"])?(?:(?:basic|bearer|apikey|token)\s+)?)[^\s'",\\]+""",
    re.IGNORECASE,
)


# Base64 in either alphabet, and base64 that stands as a login.
_ENCODED = re.compile(r"[\w+/-]{8,}={0,2}", re.ASCII)
_LOGIN = re.compile(r"(\bbasic\W{1,4})([\w+/-]{8,}={0,2})", re.ASCII | re.IGNORECASE)
_GRAM = 4
"""This many consecutive characters of a secret within base64 are no accident."""


class Redactor:
    """Stars secrets out of texts: where secrets stand, and long ones wherever they are a word."""

    def __init__(self, secrets: Iterable[str], public: str = "") -> None:
        """`public`: what everybody may see. A secret that is a word of it, such as the password `postgres`
        beside the host `postgres`, can't be told from that word, and is treated as a short one."""
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
        """Stars out base64 that has a part of a secret, even cut off: a login that a server echoes, say."""
        for start in range(4):
            octets = _decode(match[0][start:])
            if any(octets[at : at + _GRAM] in self._grams for at in range(len(octets))):
                return "***"
        return match[0]


def _hide_login(match: re.Match[str]) -> str:
    """Stars out a login that isn't known: one that decodes to a text. Words after `basic` don't."""
    octets = _decode(match[2])
    return f"{match[1]}***" if octets.isascii() and octets.decode().isprintable() else match[0]


def _decode(text: str) -> bytes:
    """The bytes of the whole groups of base64, in either alphabet."""
    whole = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(whole[: len(whole) // 4 * 4])


def _forms(secret: str) -> Iterable[str]:
    """A secret as it is written in texts, URLs, JSON, Python and connection strings."""
    yield secret
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
    yield secret.replace("\\", "\\\\").replace("'", "\\'")


def _as_word(secret: str) -> str:
    """A pattern for the secret where no letter or digit before or behind makes it a part of a word."""
    before = r"(?<!\w)" if re.match(r"\w", secret[0]) else ""
    behind = r"(?!\w)" if re.match(r"\w", secret[-1]) else ""
    return before + re.escape(secret) + behind


class RedactingFormatter(logging.Formatter):
    """Stars out secrets, in tracebacks too: for the day when some library logs one."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(FORMAT)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor(super().format(record))


def configure_logging() -> None:
    """Log to standard error."""
    logging.basicConfig(level=logging.INFO, format=FORMAT, force=True)
    # They report each request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("httpcore").setLevel(logging.WARNING)


_known = Redactor(())


def hide(secrets: Sequence[str], public: str = "") -> None:
    """From now on, no log line and no text from `redact` shows one of these secrets; see `Redactor`."""
    global _known  # noqa: PLW0603 - a process has one run, and one set of secrets
    _known = Redactor(secrets, public)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(RedactingFormatter(_known))


def redact(text: str) -> str:
    """The text, which may come from a driver or a server, without the secrets given to `hide`."""
    return _known(text)
