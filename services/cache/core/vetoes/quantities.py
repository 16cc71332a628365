"""The numbers of a text with their units, so that "3 km", "three kilometres" and "3000 m" are one quantity."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

from services.cache.core.vetoes.tables import names, numbers
from services.cache.core.vetoes.tokens import HAN, NUMBER, SIGN, WORD, Token

# Longer ones are ids: compared as they are written.
_MOST_DIGITS: Final = 30


class Quantity(NamedTuple):
    """A number. `value` in the base unit of `dimension` (empty: no unit); `bare` without regard to it.

    `weak`: a "one" that counts nothing: "one of my cards".
    """

    value: str
    dimension: str
    bare: str
    weak: bool


def quantities(tokens: Sequence[Token]) -> tuple[Quantity, ...]:
    """All of them, in order."""
    found: list[Quantity] = []
    at = 0
    while at < len(tokens):
        read = _read(tokens, at)
        if read is None:
            at += 1
            continue
        value, size, kind = read
        quantity, at = _with_unit(tokens, at, at + size, value, kind)
        found.append(quantity)
    return tuple(found)


def _read(tokens: Sequence[Token], at: int) -> tuple[str | Decimal, int, str] | None:
    """The number that begins here: its value (a text for what is no decimal), its tokens, and a unit it implies."""
    token = tokens[at]
    if token.kind == NUMBER:
        return _digits(tokens, at)
    if token.kind == WORD:
        return _words(tokens, at)
    return _han(tokens, at) if token.kind == HAN else None


def _digits(tokens: Sequence[Token], at: int) -> tuple[str | Decimal, int, str] | None:
    text = tokens[at].text
    after = tokens[at + 1].text if at + 1 < len(tokens) else ""
    if ":" in text:
        return _clock(text, after), 1 + (after in ("am", "pm")), "#clock"
    if after in ("am", "pm"):
        return _clock(text + ":00", after), 2, "#clock"
    if after in numbers.ORDINAL_ENDS:
        return text, 2, "#ordinal"
    parts = text.split(",")
    if len(parts) > 1 and all(len(part.partition(".")[0]) == 3 for part in parts[1:]):
        text = "".join(parts)
    text = text.replace(",", ".")
    if text.count(".") > 1 or len(text) > _MOST_DIGITS or ("." in text and _is_version(tokens, at)):
        return text, 1, "#version"
    try:
        value = Decimal(text)
    except InvalidOperation:  # digits of a script that Decimal does not read
        return text, 1, ""
    scale = numbers.SCALES.get(after)
    return (value, 1, "") if scale is None else (value * scale, 2, "")


def _is_version(tokens: Sequence[Token], at: int) -> bool:
    """ "Python 3.10", "v3.10": not the number 3.1."""
    before = tokens[at - 1] if at else None
    return before is not None and before.kind == WORD and (
        before.text in ("v", "version", "release") or before.text in names.NAMES or before.surface[:1].isupper()
    ) and before.text not in numbers.UNITS  # fmt: skip


def _clock(text: str, half: str) -> str:
    """10:30 pm and 22:30 are 22:30."""
    parts = text.split(":")
    if half and parts[0].isdecimal():
        parts[0] = str(int(parts[0]) % 12 + (12 if half == "pm" else 0))
    return ":".join(part.zfill(2) for part in parts)


def _words(tokens: Sequence[Token], at: int) -> tuple[str | Decimal, int, str] | None:
    """ "twenty-one", "two hundred and fifty", "third", "half"."""
    text = tokens[at].text
    if text in numbers.ORDINALS:
        return str(numbers.ORDINALS[text]), 1, "#ordinal"
    if text in numbers.FRACTIONS:
        return numbers.FRACTIONS[text], 1, ""
    if text not in numbers.SMALL:
        return None
    total, current, end, last = 0, 0, at, 100
    while end < len(tokens):
        word = tokens[end].text
        if word in numbers.SMALL and numbers.SMALL[word] < last:
            current += numbers.SMALL[word]
            last = 10 if numbers.SMALL[word] >= 20 else 0
        elif word == "hundred" and current:
            current, last = current * 100, 100
        elif word in ("thousand", "million", "billion", "trillion") and current:
            total, current, last = total + current * numbers.SCALES[word], 0, 100
        elif not (
            word == "and"
            and end > at
            and end + 1 < len(tokens)
            and tokens[end + 1].text in numbers.SMALL
            and last == 100
        ):
            break
        end += 1
    return Decimal(total + current), end - at, ""


def _han(tokens: Sequence[Token], at: int) -> tuple[str | Decimal, int, str] | None:
    """三, 十二, 两百五十, 3万 (its 万), 百分之五, 第三, 半."""
    text = tokens[at].text
    if text in ("百分之", "第") and at + 1 < len(tokens):
        inner = _read(tokens, at + 1)
        return None if inner is None else (inner[0], inner[1] + 1, "%" if text == "百分之" else "#ordinal")
    if text == "半":
        return numbers.FRACTIONS[text], 1, ""
    total, section, digit, end = 0, 0, None, at
    while end < len(tokens) and tokens[end].kind == HAN:
        character = tokens[end].text
        if character in numbers.HAN_DIGITS:
            # 二零二四: digits one after the other, as in a year.
            digit = numbers.HAN_DIGITS[character] if digit is None else digit * 10 + numbers.HAN_DIGITS[character]
        elif character in numbers.HAN_SCALES and (end > at or character == "十"):
            scale = numbers.HAN_SCALES[character]
            if scale >= 10_000:
                total, section, digit = total + (section + (digit or 0)) * scale, 0, None
            else:
                section, digit = section + (1 if digit is None else digit) * scale, None
        else:
            break
        end += 1
    return (Decimal(total + section + (digit or 0)), end - at, "") if end > at else None


def _with_unit(
    tokens: Sequence[Token], start: int, end: int, value: str | Decimal, implied: str
) -> tuple[Quantity, int]:
    """The quantity with the unit before ($5, USD 5) or behind it, and where it ends."""
    unit = implied
    if not unit and end < len(tokens) and tokens[end].text in numbers.UNITS:
        unit, end = tokens[end].text, end + 1
    elif not unit and start and tokens[start - 1].kind in (SIGN, WORD):
        before = tokens[start - 1].text
        unit = before if before in numbers.CURRENCY_SIGNS or (before in _CURRENCIES and len(before) == 3) else ""
    dimension, factor = numbers.UNITS.get(unit, (unit, Decimal(1)))
    if isinstance(value, str):
        return Quantity(value, dimension, value, False), end
    weak = value == 1 and not unit and tokens[start].kind != NUMBER
    return Quantity(_plain(value * factor), dimension, _plain(value), weak), end


def _plain(value: Decimal) -> str:
    """Without zeros at the end: 3.50 is 3.5, 1E+3 is 1000."""
    return format(value.normalize(), "f")


_CURRENCIES: Final = frozenset(["usd", "eur", "gbp", "jpy", "cny", "rmb", "inr", "krw"])
