"""Random XML documents with everything that XML has, and damaged ones."""

from __future__ import annotations

import random

NAMES = ("a", "b", "r", "v", "long-name.1", "_x", "é", "p:a", "p:b", "q:r", "p:v")
_TEXTS: tuple[str, ...] = (
    "x",
    " ",
    "\n",
    "\r\n",
    "\r",
    "\t",
    "ä",
    "€",
    "𝄞",
    "]",
    "]]",
    ">",
    "&lt;",
    "&gt;",
    "&amp;",
    "&quot;",
    "&apos;",
)
_TEXTS += (
    "&#65;",
    "&#x20AC;",
    "&#13;",
    "&#10;",
    "&#9;",
    "\x7f",
    "\x85",
    "\u2028",
    "-",
    "--",
    "?",
    "'",
    '"',
    "word " * 9,
)
_CDATA = ("", "x", "<", "&", "]", "]]", ">", "\r\n", "\r", "é", "<a>", "&lt;", "--", "\x85")
_NOTES = ("", " c ", "<", "&", "-x", "\r", "é]]>", "?", "a>b", "&#1;")
_BODIES = ("", " ", " x", "  x y ", "\n<&-->", " é?", "\tq\r\nz")
_VALUES = (
    "",
    "x",
    " ",
    "\n",
    "\t",
    "\r\n",
    "é",
    "&lt;",
    "&quot;",
    "&#34;",
    "&#39;",
    "&#9;",
    "&#10;",
    ">",
    "&amp;",
    "\x7f",
    "--",
)
_BLANKS = ("", "", "", " ", "\n", "\t ", "\r\n")
_DECLARED = ('xmlns:p="u1"', "xmlns:p='u2'", 'xmlns:q="u1"', 'xmlns:q="u&amp;3"', 'xmlns="d"', 'xmlns=""', "xmlns='u1'")


class Documents:
    """Documents from one random generator; each is well-formed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311  (test data)

    def some(self, choices: tuple[str, ...], most: int) -> str:
        """Up to `most` of the choices, one after the other."""
        return "".join(self.rng.choice(choices) for _ in range(self.rng.randint(0, most)))

    def document(self) -> str:
        """A whole document with its prolog and what may follow the root."""
        rng = self.rng
        head = rng.choice(
            ('<?xml version="1.0"?>', "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>\n", "", "")
        )
        kind = rng.choice(("", "", "<!DOCTYPE a>", "<!DOCTYPE\np:a >"))
        around = [self._misc(), self._misc(), self._misc()]
        return head + around[0] + kind + around[1] + self._element(0, root=True) + around[2]

    def _misc(self) -> str:
        return "".join(
            self.rng.choice((self._comment(), self._instruction(), "\n", " ")) for _ in range(self.rng.randint(0, 2))
        )

    def _comment(self) -> str:
        return f"<!--{self.some(_NOTES, 3)} -->"

    def _instruction(self) -> str:
        return f"<?{self.rng.choice(('t', 'xml-x', 'é'))}{self.rng.choice(_BODIES)}?>"

    def _text(self) -> str:
        text = self.some(_TEXTS, 4)
        while "]]>" in text:
            text = text.replace("]]>", "]")
        return text

    def _attributes(self, root: bool) -> str:
        rng = self.rng
        parts = ['xmlns:p="u0"', 'xmlns:q="u9"'] if root else []
        for declared in rng.sample(_DECLARED, rng.choice((0, 0, 0, 1, 2))):
            if all(declared.split("=")[0] != part.split("=")[0] for part in parts):
                parts.append(declared)
        for name in rng.sample(("x", "y", "p:x", "xml:lang", "é", "z"), rng.choice((0, 0, 1, 3))):
            quote = rng.choice("\"'")
            value = self.some(_VALUES, 3).replace(quote, "")
            parts.append(f"{name}{rng.choice(_BLANKS)}={rng.choice(_BLANKS)}{quote}{value}{quote}")
        rng.shuffle(parts)
        return "".join((rng.choice(_BLANKS) or " ") + part for part in parts)

    def _element(self, depth: int, root: bool = False) -> str:
        rng = self.rng
        name, blank = rng.choice(NAMES), rng.choice(_BLANKS)
        start = f"<{name}{self._attributes(root)}{blank}"
        if depth > 0 and rng.random() < 0.2:
            return f"{start}/>"
        return f"{start}>{self._content(depth)}</{name}{rng.choice(_BLANKS)}>"

    def _content(self, depth: int) -> str:
        parts, rng = [], self.rng
        for _ in range(rng.randint(0, 6 - depth)):
            kind = rng.random()
            if kind < 0.5 and depth < 5:
                parts.append(self._element(depth + 1))
            elif kind < 0.8 and (not parts or parts[-1].endswith(">")):
                parts.append(self._text())
            elif kind < 0.9:
                parts.append(f"<![CDATA[{self.some(_CDATA, 3).replace(']]>', '')}]]>")
            else:
                parts.append(rng.choice((self._comment(), self._instruction())))
        return "".join(parts)

    def damaged(self, document: bytes) -> bytes:
        """The document with one to three small changes; it may still be well-formed."""
        rng, found = self.rng, bytearray(document)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(found) + 1)
            kind = rng.random()
            if kind < 0.3:
                del found[at : at + rng.randint(1, 3)]
            elif kind < 0.5:
                found[at:at] = found[(other := rng.randrange(len(found) + 1)) : other + rng.randint(1, 9)]
            elif kind < 0.95:
                found[at:at] = rng.choice(_PIECES)
            else:
                del found[at:]
        return bytes(found)


_PIECES: tuple[bytes, ...] = (
    b"<",
    b">",
    b"&",
    b"]]>",
    b"--",
    b"\0",
    b"\x01",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbf\xbf",
    b"/",
    b'"',
    b"'",
)
_PIECES += (
    b"=",
    b"<a>",
    b"</a>",
    b"<a/>",
    b"&x;",
    b"&#0;",
    b"&#xD800;",
    b"&#x110000;",
    b"&#;",
    b"&#x;",
    b"&lt",
    b"<!--",
    b"-->",
)
_PIECES += (
    b"<![CDATA[",
    b"<?",
    b"?>",
    b"<?xml ?>",
    b"<?XML x?>",
    b"<!DOCTYPE a>",
    b" x='1'",
    b' x="1"',
    b"z:",
    b":",
    b"1",
)
_PIECES += (
    b" xmlns:p=''",
    b" xmlns:xml='u'",
    b" xmlns:xmlns='u'",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    b"\xef\xbf\xbe",
    b"\x7f",
    b"\xe2\x80\xa8",
)
