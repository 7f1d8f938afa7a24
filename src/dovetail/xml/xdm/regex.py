"""Regular expressions of XPath as Python's: the same meaning in another notation."""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache, lru_cache

from dovetail.errors import XQueryError
from dovetail.xml.syntax.reader import NAME_CHAR, NAME_START

_TABLE = """
BasicLatin 0 7F, Latin-1Supplement 80 FF, LatinExtended-A 100 17F, LatinExtended-B 180 24F, IPAExtensions 250 2AF,
SpacingModifierLetters 2B0 2FF, CombiningDiacriticalMarks 300 36F, Greek 370 3FF, GreekandCoptic 370 3FF,
Cyrillic 400 4FF, CyrillicSupplement 500 52F, Armenian 530 58F, Hebrew 590 5FF, Arabic 600 6FF, Syriac 700 74F,
ArabicSupplement 750 77F, Thaana 780 7BF, NKo 7C0 7FF, Devanagari 900 97F, Bengali 980 9FF, Gurmukhi A00 A7F,
Gujarati A80 AFF, Oriya B00 B7F, Tamil B80 BFF, Telugu C00 C7F, Kannada C80 CFF, Malayalam D00 D7F, Sinhala D80 DFF,
Thai E00 E7F, Lao E80 EFF, Tibetan F00 FFF, Myanmar 1000 109F, Georgian 10A0 10FF, HangulJamo 1100 11FF,
Ethiopic 1200 137F, Cherokee 13A0 13FF, UnifiedCanadianAboriginalSyllabics 1400 167F, Ogham 1680 169F,
Runic 16A0 16FF, Tagalog 1700 171F, Hanunoo 1720 173F, Buhid 1740 175F, Tagbanwa 1760 177F, Khmer 1780 17FF,
Mongolian 1800 18AF, Limbu 1900 194F, TaiLe 1950 197F, KhmerSymbols 19E0 19FF, PhoneticExtensions 1D00 1D7F,
LatinExtendedAdditional 1E00 1EFF, GreekExtended 1F00 1FFF, GeneralPunctuation 2000 206F,
SuperscriptsandSubscripts 2070 209F, CurrencySymbols 20A0 20CF, CombiningMarksforSymbols 20D0 20FF,
CombiningDiacriticalMarksforSymbols 20D0 20FF, LetterlikeSymbols 2100 214F, NumberForms 2150 218F, Arrows 2190 21FF,
MathematicalOperators 2200 22FF, MiscellaneousTechnical 2300 23FF, ControlPictures 2400 243F,
OpticalCharacterRecognition 2440 245F, EnclosedAlphanumerics 2460 24FF, BoxDrawing 2500 257F, BlockElements 2580 259F,
GeometricShapes 25A0 25FF, MiscellaneousSymbols 2600 26FF, Dingbats 2700 27BF,
MiscellaneousMathematicalSymbols-A 27C0 27EF, SupplementalArrows-A 27F0 27FF, BraillePatterns 2800 28FF,
SupplementalArrows-B 2900 297F, MiscellaneousMathematicalSymbols-B 2980 29FF,
SupplementalMathematicalOperators 2A00 2AFF, MiscellaneousSymbolsandArrows 2B00 2BFF, CJKRadicalsSupplement 2E80 2EFF,
KangxiRadicals 2F00 2FDF, IdeographicDescriptionCharacters 2FF0 2FFF, CJKSymbolsandPunctuation 3000 303F,
Hiragana 3040 309F, Katakana 30A0 30FF, Bopomofo 3100 312F, HangulCompatibilityJamo 3130 318F, Kanbun 3190 319F,
BopomofoExtended 31A0 31BF, KatakanaPhoneticExtensions 31F0 31FF, EnclosedCJKLettersandMonths 3200 32FF,
CJKCompatibility 3300 33FF, CJKUnifiedIdeographsExtensionA 3400 4DBF, YijingHexagramSymbols 4DC0 4DFF,
CJKUnifiedIdeographs 4E00 9FFF, YiSyllables A000 A48F, YiRadicals A490 A4CF, HangulSyllables AC00 D7AF,
PrivateUse E000 F8FF, PrivateUseArea E000 F8FF, CJKCompatibilityIdeographs F900 FAFF,
AlphabeticPresentationForms FB00 FB4F, ArabicPresentationForms-A FB50 FDFF, VariationSelectors FE00 FE0F,
CombiningHalfMarks FE20 FE2F, CJKCompatibilityForms FE30 FE4F, SmallFormVariants FE50 FE6F,
ArabicPresentationForms-B FE70 FEFF, HalfwidthandFullwidthForms FF00 FFEF, Specials FFF0 FFFF,
LinearBSyllabary 10000 1007F, LinearBIdeograms 10080 100FF, AegeanNumbers 10100 1013F, OldItalic 10300 1032F,
Gothic 10330 1034F, Ugaritic 10380 1039F, Deseret 10400 1044F, Shavian 10450 1047F, Osmanya 10480 104AF,
CypriotSyllabary 10800 1083F, ByzantineMusicalSymbols 1D000 1D0FF, MusicalSymbols 1D100 1D1FF,
TaiXuanJingSymbols 1D300 1D35F, MathematicalAlphanumericSymbols 1D400 1D7FF, Emoticons 1F600 1F64F,
CJKUnifiedIdeographsExtensionB 20000 2A6DF, CJKCompatibilityIdeographsSupplement 2F800 2FA1F, Tags E0000 E007F,
VariationSelectorsSupplement E0100 E01EF, SupplementaryPrivateUseArea-A F0000 FFFFF,
SupplementaryPrivateUseArea-B 100000 10FFFF
"""
BLOCKS: dict[str, tuple[int, int]] = {
    name: (int(low, 16), int(high, 16)) for name, low, high in (block.split() for block in _TABLE.split(","))
}


_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}
_CLASSES = {
    "i": f":{NAME_START}",
    "c": f":{NAME_CHAR}",
    "d": "\\d",
    "s": " \\t\\n\\r",
}
# By sign and whether lines count; in groups, as they may be repeated. No line starts behind the last line end.
_ANCHORS = {
    ("^", False): "(?:^)",
    ("$", False): "(?:\\Z)",
    ("^", True): "(?:^(?:(?<!\\n)|(?!\\Z)))",
    ("$", True): "(?:$)",
}
_PLAIN = frozenset("nrt\\|.?*+(){}$-[]^")


@lru_cache(maxsize=512)
def compiled(pattern: str, flags: str = "") -> re.Pattern[str]:
    """The pattern, compiled. Raises FORX0001 for unknown flags, FORX0002 for a pattern that XPath does not allow."""
    options = 0
    for flag in flags:
        if flag not in "imsxq":
            raise XQueryError("FORX0001", f"{flag!r} is not a flag of regular expressions: i, m, q, s and x are")
        options |= _FLAGS.get(flag, 0)
    text = re.escape(pattern) if "q" in flags else _Translation(pattern, flags).text()
    try:
        return re.compile(text, options)
    except (re.error, OverflowError) as error:
        raise XQueryError("FORX0002", f"{pattern!r} is not a regular expression: {error}") from None


@cache
def _runs() -> dict[str, list[tuple[int, int]]]:
    """Runs of neighbouring characters of each Unicode category, found in one pass."""
    runs: dict[str, list[tuple[int, int]]] = {}
    start, last = 0, unicodedata.category("\0")
    for code in range(1, sys.maxunicode + 2):
        category = unicodedata.category(chr(code)) if code <= sys.maxunicode else ""
        if category != last:
            runs.setdefault(last, []).append((start, code - 1))
            start, last = code, category
    return runs


@cache
def _category(name: str) -> str:
    """The characters of a Unicode category, as ranges of a Python character class."""
    found = [run for category, runs in _runs().items() if category.startswith(name) for run in runs]
    return "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in found)


_CATEGORIES = frozenset(
    [part for parts in ("L Lu Ll Lt Lm Lo", "M Mn Mc Me", "N Nd Nl No", "P Pc Pd Ps Pe Pi Pf Po", "Z Zs Zl Zp",
                        "S Sm Sc Sk So", "C Cc Cf Co Cn") for part in parts.split()]
)  # fmt: skip


def _without_space(pattern: str) -> str:
    """The pattern without its white space, but for that inside character classes: the flag x."""
    kept, depth, escaped = [], 0, False
    for sign in pattern:
        if sign in " \t\n\r" and not depth:
            continue
        if not escaped:
            depth += (sign == "[") - (sign == "]" and depth > 0)
        escaped = sign == "\\" and not escaped
        kept.append(sign)
    return "".join(kept)


class _Translation:
    """The translation of one pattern into Python's notation."""

    def __init__(self, pattern: str, flags: str) -> None:
        self.pattern, self.flags = _without_space(pattern) if "x" in flags else pattern, flags
        self.at, self.groups, self.open = 0, 0, [0]
        self.closed: set[int] = set()

    def error(self, message: str) -> XQueryError:
        return XQueryError("FORX0002", f"{self.pattern!r} is not a regular expression: {message}")

    def text(self) -> str:
        parts = []
        while self.at < len(self.pattern):
            parts.append(self._next())
        if len(self.open) > 1:
            raise self.error("a group is not closed")
        return "".join(parts)

    def _next(self) -> str:
        here = self.pattern[self.at]
        if here == "\\":
            return self._escape()
        if here == "[":
            return self._class()
        self.at += 1
        if here == "(":
            return self._group()
        if here == ")":
            if len(self.open) == 1:
                raise self.error("a group is closed that was not opened")
            self.closed.add(self.open.pop())
            return ")"
        if here in "]}":
            raise self.error(f"{here} must be written \\{here}")
        if here == "{" and not re.match(r"[0-9]+(,[0-9]*)?\}", self.pattern[self.at :]):
            raise self.error("{ must be followed by a number of repetitions")
        return self._sign(here)

    def _sign(self, here: str) -> str:
        if here == "{":
            end = self.pattern.index("}", self.at) + 1
            text, self.at = self.pattern[self.at - 1 : end], end
        else:
            text = here
        if here in "*+?{" and self.pattern.startswith("+", self.at):
            raise self.error("possessive quantifiers are not known")
        if here == "." and "s" not in self.flags:
            return "[^\\n\\r]"
        if here in "^$":
            return _ANCHORS[here, "m" in self.flags]
        return text if here in ".*+?|{" else re.escape(here)

    def _group(self) -> str:
        if self.pattern.startswith("?:", self.at):
            self.at += 2
            self.open.append(-1)
            return "(?:"
        if self.pattern.startswith("?", self.at):
            raise self.error("(? is not known but for (?:")
        self.groups += 1
        self.open.append(self.groups)
        return "("

    def _escape(self) -> str:
        sign = self.pattern[self.at + 1 : self.at + 2]
        if sign.isdigit() and sign != "0":
            return self._reference()
        inside, negative = self._escaped_class()
        if inside is not None:
            return self._unfolded(f"[{'^' if negative else ''}{inside}]")
        return self._escaped_sign()

    def _unfolded(self, text: str) -> str:
        """A class by its escape, which is not affected by the flag for case."""
        return f"(?-i:{text})" if "i" in self.flags else text

    def _reference(self) -> str:
        digits = re.match(r"\d+", self.pattern[self.at + 1 :])
        number = digits[0] if digits else ""
        while len(number) > 1 and int(number) > self.groups:
            number = number[:-1]
        if int(number) not in self.closed:
            raise self.error(f"\\{number} stands before the end of its group")
        self.at += 1 + len(number)
        return f"(?({number})\\{number})"  # a group that matched nothing is matched by nothing

    def _escaped_sign(self) -> str:
        sign = self.pattern[self.at + 1 : self.at + 2]
        if sign not in _PLAIN or not sign:
            raise self.error(f"\\{sign} is not known")
        self.at += 2
        return f"\\{sign}"

    def _escaped_class(self) -> tuple[str | None, bool]:
        """The inside of a character class for `\\d`, `\\P{L}` and the like, and whether it is negated."""
        sign = self.pattern[self.at + 1 : self.at + 2]
        if sign in ("p", "P"):
            return self._property(), sign == "P"
        if sign in ("w", "W"):
            self.at += 2
            return "".join(map(_category, ("P", "Z", "C"))), sign == "w"
        if sign and sign.lower() in _CLASSES:
            self.at += 2
            return _CLASSES[sign.lower()], sign.isupper()
        return None, False

    def _property(self) -> str:
        match = re.match(r"\{([A-Za-z0-9-]+)\}", self.pattern[self.at + 2 :])
        if match is None:
            raise self.error("\\p must be followed by a category in braces")
        self.at += 2 + match.end()
        name = match[1]
        if name.startswith("Is") and name[2:] in BLOCKS:
            low, high = BLOCKS[name[2:]]
            return f"\\U{low:08x}-\\U{high:08x}"
        if name not in _CATEGORIES:
            raise self.error(f"{name} is not a known category or block of characters")
        return _category(name)

    def _class(self) -> str:
        """A character class; what is subtracted from it becomes a look-ahead."""
        self.at += 1
        negative = self.pattern.startswith("^", self.at)
        self.at += negative
        parts: list[str] = []
        escapes: list[str] = []
        subtracted = ""
        while not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                raise self.error("a character class is not closed")
            if self.pattern.startswith("-[", self.at):
                self.at += 1
                subtracted = f"(?!{self._class()})"
                break
            self._member(parts, escapes)
        if not self.pattern.startswith("]", self.at) or not (parts or escapes):
            raise self.error("a character class is empty or not closed")
        self.at += 1
        whole = self._assembled(parts, escapes, negative)
        return f"(?:{subtracted}{whole})" if subtracted else whole

    def _assembled(self, parts: list[str], escapes: list[str], negative: bool) -> str:
        choices = ([f"[{''.join(parts)}]"] if parts else []) + escapes
        if not negative:
            return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"
        if not escapes:
            return f"[^{''.join(parts)}]"
        return f"(?:(?!{'|'.join(choices)})(?s:.))"

    def _member(self, parts: list[str], escapes: list[str]) -> None:
        """A character, a range or an escape for a class; a - that is not written \\- is no end of a range."""
        if self.pattern[self.at] == "\\":
            inside, negative = self._escaped_class()
            if inside is not None and not negative and "i" not in self.flags:
                parts.append(inside)
                return
            if inside is not None:
                escapes.append(self._unfolded(f"[{'^' if negative else ''}{inside}]"))
                return
        dash = self.pattern[self.at] == "-"
        low, after = self._single(), self.pattern[self.at : self.at + 3]
        if after[:1] != "-" or after[1:2] == "[" or (after[1:2] == "]" and not dash):
            parts.append(low)
        elif after == "--[":
            parts.append(low)
            parts.append(self._single())
        elif dash or after[1:2] == "-":
            raise self.error("- at the end of a range must be written \\-")
        else:
            self.at += 1
            parts.append(f"{low}-{self._single()}")

    def _single(self) -> str:
        here = self.pattern[self.at : self.at + 1]
        if here == "\\":
            return self._escaped_sign()
        if here == "[":
            raise self.error("[ inside a character class must be written \\[")
        self.at += 1
        return re.escape(here)
