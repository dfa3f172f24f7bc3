"""Constraint text with its error locations, shared by the textual front ends."""

from __future__ import annotations

from dataclasses import dataclass

from infernix_plugin.errors import ConstraintError, ConstraintTooLarge

_MAX_DIGITS = 10
_UNICODE_END = 0x110000


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one constraint, checked to hold only Unicode scalar values.

    ``error_type`` is what a fault in it raises. Locations are ``line:column`` (both from 1) with ``by_line``, else
    ``offset N`` (characters, from 0).
    """

    text: str
    error_type: type[ConstraintError]
    by_line: bool

    def __post_init__(self) -> None:
        try:
            self.text.encode("utf-8")
        except UnicodeEncodeError as fault:
            raise self.error("a lone surrogate is not a Unicode scalar value", fault.start) from None

    def check_size(self, limit: int, limit_name: str) -> None:
        """Raise :class:`ConstraintTooLarge` when the text has more than ``limit`` UTF-8 bytes."""
        size = len(self.text.encode("utf-8"))
        if size > limit:
            raise ConstraintTooLarge(f"the source has {size} bytes; {limit_name} is {limit}")

    def location(self, offset: int) -> str:
        """The place of the character at ``offset``."""
        if not self.by_line:
            return f"offset {offset}"
        line = self.text.count("\n", 0, offset) + 1
        return f"{line}:{offset - self.text.rfind(chr(10), 0, offset)}"

    def error(self, message: str, offset: int, hint: str | None = None) -> ConstraintError:
        """The error to raise for a fault at ``offset``."""
        return self.error_type(message, location=self.location(offset), hint=hint)

    def too_large(self, message: str, offset: int) -> ConstraintTooLarge:
        """The error to raise when what stands at ``offset`` passes a limit."""
        return ConstraintTooLarge(message, location=self.location(offset))

    def number(self, digits: str, offset: int) -> int:
        """The value of decimal ``digits``, which must be few enough to be a count or a token id."""
        if len(digits) > _MAX_DIGITS:
            raise self.too_large(f"a number of {len(digits)} digits; the most is {_MAX_DIGITS}", offset)
        return int(digits)

    def scalar(self, offset: int, width: int) -> int:
        """The Unicode scalar value written as ``width`` hexadecimal digits after the two characters at ``offset``."""
        digits = self.text[offset + 2 : offset + 2 + width]
        escape = self.text[offset : offset + 2]
        if len(digits) < width or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise self.error(f"{escape} must be followed by {width} hexadecimal digits", offset)
        value = int(digits, 16)
        if 0xD800 <= value <= 0xDFFF:
            raise self.error(
                f"{escape}{digits} is a surrogate, not a Unicode scalar value",
                offset,
                "write the character itself",
            )
        if value >= _UNICODE_END:
            raise self.error(f"{escape}{digits} is beyond the last Unicode scalar value U+10FFFF", offset)
        return value
