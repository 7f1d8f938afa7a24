"""Hides passwords, keys and tokens of addresses in every text that a program may print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from dovetail.errors import PlanError

HIDDEN = "***"
_KEYS = r"(?:access|account|api|encryption|keystore|private|signing)[-_.]?key(?!provider)"
_NAMES = (
    rf"(?:password|passwd|pwd|passphrase|secret|token|credential|signature|sas|sig|{_KEYS}"
    r"|connection[-_.]?string|(?<!security\.)authorization)"
)
# A quote belongs to a word if more of the word follows; in a list of addresses, each is a word.
_QUOTE = r"['\"](?=[^\s'\".,;:)\]}>&])"
_WORD = rf"(?:(?!://)[^\s'\"]|{_QUOTE})*"
# Up to the last "@" of the word behind a ":", as a password may have "/" or a quote unescaped; in a password with a
# blank, up to the next "@", unless a port is all that there is; without a ":" up to the first "/".
_WITH_BLANKS = r"(?!\d{1,5}(?:[/?#,;:.)]\S*)?(?:[\s'\"]|$))(?:(?!://)[^\n@])*"
_IN_TEXT = re.compile(
    rf"(?<=://)(?<!hdfs://)(?:((?:[^\s/?#@:'\"]|{_QUOTE})*):(?:{_WORD}|{_WITH_BLANKS}(?:@{_WORD})?)|[^\s/?#@'\"]*)@"
)
_IN_URL = re.compile(r"(?<=://)(?<!hdfs://)(?:([^/?#@:]*):.*|[^/?#@]*)@", re.DOTALL)
# A password in the place of a port: the host was forgotten.
_NO_PORT = re.compile(
    r"(://[^\s/?#@:'\"\[]*:)(?!\d*(?:[/?#\s'\",;:)\]}>]|$)|\$\{)"
    rf"(?:[^\s/?#@'\"]|{_QUOTE})+(?=[/?#\s'\"]|$)"
)
_OPTION = re.compile(
    rf"((?:^|[?&;,\s'\"])[\w.-]*{_NAMES}[\w.-]*=)(?:'[^']*'|\"[^\"]*\"|(?:[^&;,\s'\"]|{_QUOTE})+)", re.IGNORECASE
)
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)


def has_password(text: str) -> bool:
    """Whether an address has a key or password in front of its host."""
    return any(found[1] is not None for found in _IN_URL.finditer(text))


def is_secret(name: str) -> bool:
    """Whether a setting of this name is a secret."""
    return _SECRET_NAME.search(name) is not None


def hidden(text: str, users: bool = False) -> str:
    """The text without what stands in front of a host in its addresses, and without values of secret options.

    With `users` the name of the user stays.
    """
    text = _IN_TEXT.sub(_user if users else "", text)
    return _OPTION.sub(rf"\g<1>{HIDDEN}", _NO_PORT.sub(rf"\g<1>{HIDDEN}", text))


def _user(found: re.Match[str]) -> str:
    """The user in front of a host; on the web a name without a password is a token."""
    if found[1] is not None:
        return f"{found[1]}:{HIDDEN}@"
    return f"{HIDDEN}@" if found.string.endswith(("http://", "https://"), 0, found.start()) else found[0]


def shown_setting(name: str, value: str) -> str:
    """The value of a setting as it may be shown."""
    return HIDDEN if is_secret(name) else hidden(value, users=True)


def shown(url: str) -> str:
    """The address of a server as it may be shown: user, host, port and path."""
    scheme, _, bare = url.partition("://")
    found = _IN_URL.match(url, len(scheme) + 3)
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
    found = _IN_URL.match(url, len(scheme) + 3) if bare else None
    if found is not None:
        name, colon, password = found[0][:-1].partition(":")
        yield password if colon else name if scheme in ("http", "https") else ""
    yield from (value for name, value in parse_qsl(urlsplit(url).query) if is_secret(name))


def check_escaped(url: str) -> None:
    """`PlanError` for a URL whose password has a character by which it would be taken for something else."""
    _check_blanks(url)
    try:
        parts = urlsplit(url)
    except ValueError:  # whose text may have parts of it
        raise PlanError("the url has a '[' or ']' that is not escaped: write %5B and %5D.", argument="uri") from None
    names = "".join(name for name, _ in parse_qsl(parts.query, keep_blank_values=True))
    inside = f"{parts.path}{parts.fragment}{names}" + ("" if "@" in parts.netloc else parts.query)
    if "@" in inside or (parts.fragment and parts.scheme):
        raise PlanError(
            "the url has a '/', '?', '#' or '@' that is not escaped, and would be cut there; write these characters of "
            "a user, password or database as %2F, %3F, %23 and %40.",
            argument="uri",
        )
    _check_ports(parts.scheme, parts.netloc)


def _check_blanks(url: str) -> None:
    found = _IN_URL.search(url)
    if found is not None and re.search(r'[\s"]', found[0]):
        raise PlanError(
            "the url has a blank or '\"' in its user or password that is not escaped; percent-encode it: write %20 "
            "and %22.",
            argument="uri",
        )


def _check_ports(scheme: str, authority: str) -> None:
    """Refuse what is no port: it may be a password. PostgreSQL takes several hosts, each with its port."""
    given = authority.rpartition("@")[2]
    hosts = given.split(",") if scheme in ("postgresql", "postgres") else [given]
    ports = [host.rpartition("]")[2].partition(":")[2] for host in hosts]
    if not all(re.fullmatch("[0-9]{0,5}", port) and int(port or 0) < 1 << 16 for port in ports):
        raise PlanError(
            f"the url has no port between 0 and 65535 behind the ':' of its host; give {scheme}://user:password@host:"
            "port/..., and do not leave out the host.",
            argument="uri",
        )
