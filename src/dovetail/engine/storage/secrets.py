"""Hides passwords, keys and tokens of addresses in every text that a program may print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from dovetail.errors import PlanError

HIDDEN = "***"
_NAMES = r"(?:password|passwd|pwd|secret|token|credential|access-?key|account-?key|api-?key|signature|sas|sig)"
# Up to the last "@" behind a ":", as a password may have "/" unescaped; without a ":" up to the first "/".
_IN_TEXT = re.compile(r"(?<=://)(?<!hdfs://)(?:([^\s/?#@:'\"]*):[^\s'\"]*|[^\s/?#@'\"]*)@")
_OPTION = re.compile(rf"((?:^|[?&;,\s'\"])[\w.-]*{_NAMES}[\w.-]*=)[^&;,\s'\"]+", re.IGNORECASE)
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)


def has_password(text: str) -> bool:
    """Whether an address has a key or password in front of its host."""
    return any(found[1] is not None for found in _IN_TEXT.finditer(text))


def is_secret(name: str) -> bool:
    """Whether a setting of this name is a secret."""
    return _SECRET_NAME.search(name) is not None


def hidden(text: str, users: bool = False) -> str:
    """The text without what stands in front of a host in its addresses, and without values of secret options.

    With `users` the name of the user stays.
    """

    def user(found: re.Match[str]) -> str:
        return (f"{found[1]}:{HIDDEN}@" if found[1] is not None else found[0]) if users else ""

    return _OPTION.sub(rf"\g<1>{HIDDEN}", _IN_TEXT.sub(user, text))


def shown(url: str) -> str:
    """The address of a server as it may be shown: user, host, port and path."""
    scheme, _, bare = url.partition("://")
    found = _IN_TEXT.match(url, len(scheme) + 3)
    user = "" if found is None else found[0].partition(":")[0].rstrip("@")
    rest = bare if found is None else url[found.end() :]
    return f"{scheme}://{user}{'@' if user else ''}{re.split('[?#]', rest)[0]}"


def censored(text: str, urls: Iterable[str], secrets: Iterable[str] = ()) -> str:
    """The text without these secrets and those of the addresses, however they are written there."""
    found = {*secrets, *(secret for url in urls for secret in _secrets_of(url))} - {""}
    forms = {form for secret in found for form in (secret, unquote(secret), quote(secret, safe=""))}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return hidden(text, users=True)


def _secrets_of(url: str) -> Iterator[str]:
    """The password of an address, a token in its place, and the values of secret options."""
    scheme, _, bare = url.partition("://")
    found = _IN_TEXT.match(url, len(scheme) + 3) if bare else None
    if found is not None:
        name, colon, password = found[0][:-1].partition(":")
        yield password if colon else name if scheme in ("http", "https") else ""
    yield from (value for name, value in parse_qsl(urlsplit(url).query) if is_secret(name))


def check_escaped(url: str) -> None:
    """`PlanError` for a URL whose password has a character by which it would be taken for something else."""
    try:
        parts = urlsplit(url)
    except ValueError as error:  # whose text may have parts of it
        raise PlanError("the url has a '[' or ']' that is not escaped: write %5B and %5D.", argument="uri") from error
    names = "".join(name for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    inside = f"{parts.path}{parts.fragment}{names}" + ("" if "@" in parts.netloc else parts.query)
    if "@" in inside or (parts.fragment and parts.scheme):
        raise PlanError(
            "the url has a '/', '?', '#' or '@' that is not escaped, and would be cut there; write these characters of "
            "a user, password or database as %2F, %3F, %23 and %40.",
            argument="uri",
        )
