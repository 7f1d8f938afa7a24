"""Secrets: `${NAME}` in a text is taken from the environment, and what it gave is never shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

HIDDEN = "***"
_NAMED = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(slots=True)
class Secrets:
    """The values that came from the environment, and texts with them hidden."""

    environment: Mapping[str, str] = field(repr=False)
    values: dict[str, str] = field(default_factory=dict, repr=False)

    def missing(self, text: str) -> list[str]:
        """Names in the text that the environment does not have, in order."""
        return [name for escaped, name in _NAMED.findall(text) if not escaped and name not in self.environment]

    def filled(self, value: Any) -> Any:
        """The value with every `${NAME}` in its texts replaced; `$${NAME}` stays as `${NAME}`."""
        if isinstance(value, str):
            return _NAMED.sub(self._replaced, value)
        if isinstance(value, Mapping):
            return {key: self.filled(part) for key, part in value.items()}
        return [self.filled(part) for part in value] if isinstance(value, list) else value

    def _replaced(self, found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        self.values[found[2]] = value = self.environment.get(found[2], "")
        return value

    def masked(self, text: str) -> str:
        """The text without any of the values, as they are or as a URL spells them."""
        forms: Iterable[str] = {form for value in self.values.values() for form in (value, quote(value, safe=""))}
        for form in sorted(filter(None, forms), key=len, reverse=True):
            text = text.replace(form, HIDDEN)
        return text
