"""A place in a JSON text that is being written, byte by byte, and what must not be written there again.

Positions are immutable and share what they have in common, so a fork is a reference and going back is exact.

*Rivals* are what the value under way must not become, or what it would have to become for a value around it to be an
item that was written before. When a part turns out different, they are gone; most positions have none. They assume that
strings have canonical escapes, as in the grammars of JSON schemas; whether an item is a repetition does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from infernix_plugin.grammar.places import UNWATCHED, Place
from infernix_plugin.matching.companions.identity import (
    WORDS,
    Identity,
    may_become,
    member_of,
    number_identity,
    object_identity,
    string_identity,
    string_text,
)

FAR = 1 << 30
"""How many containers have to be closed to reach an array of unique items, if there is none."""

SPACE = b" \t\n\r"
_NUMBER = b"0123456789+-.eE"
_BEGUN_NUMBER = re.compile(rb"(-?(?:(?:0|[1-9]\d*)(?:\.\d*)?(?:(?<=\d)[eE][+-]?\d*)?)?)?")
_STRING_EVENT = re.compile(rb'["\\\x00-\x1f]')
_NOWHERE = Place()
_KINDS = ("object", "array", "string", "number", "boolean", "null")


class Expects(IntEnum):
    """What a position stands in, or before."""

    VALUE = 0
    VALUE_OR_END = 1
    KEY = 2
    KEY_OR_END = 3
    COLON = 4
    AFTER_VALUE = 5
    IN_STRING = 6
    IN_KEY = 7
    IN_NUMBER = 8
    IN_WORD = 9
    LEAD = 10
    """The text has not begun; what has to come before it is not complete."""
    NOTHING = 11
    """Something that is no JSON text, such as calls of tools, is written in place of it."""


class Crossing(IntEnum):
    """What a token holds behind the comma that follows the end of an item, at least."""

    ANY = 0
    BEGINNING = 1
    """The beginning of the next item or member."""
    COMPLETING = 2
    """A whole value."""


_UNDER_WAY = frozenset([Expects.IN_STRING, Expects.IN_KEY, Expects.IN_NUMBER, Expects.IN_WORD])


class Frame(NamedTuple):
    """An open array or object, with what was written of it as far as it matters."""

    parent: Frame | None
    is_array: bool
    place: Place
    unique: bool
    """It is an array of unique items."""
    captured: bool
    """It is an item of an array of unique items, or inside one."""
    eased: bool
    """Whatever its rivals are, it can always become different from all of them."""
    reach: int
    """How many containers have to be closed until a comma may begin what repeats an item."""
    taken: frozenset[Identity] = frozenset()
    """The items of an array of unique items."""
    written: int = 0
    """How many items an array has, as far as that matters."""
    parts: tuple[Any, ...] = ()
    """If captured, the items of an array, or the members of an object as pairs."""
    name: bytes = b""
    """The name of the member under way, as far as that matters."""
    rivals: tuple[Any, ...] = ()
    """The arrays, or the objects, that it may still become."""
    opened: tuple[Any, ...] = ()
    """The rivals before the first part, those left out that have not the same names."""
    tight: bool = False
    """One item more, here or further out, may be the last one that an array of unique items can have."""
    carefree: bool = True
    """Whatever is begun in it, or around it, can always become different from its rivals."""

    @property
    def keeps(self) -> bool:
        """Whether it matters what its values are."""
        return self.captured or self.unique

    @property
    def repeatable(self) -> bool:
        """Writing a name once more may bring rivals back."""
        return bool(self.opened) and bool(self.parts) and not self.is_array


class Position(NamedTuple):
    """What was written of a JSON text."""

    expects: Expects
    frame: Frame | None = None
    text: bytes = b""
    """What was written of the scalar or the name under way, with its opening quote; empty if that does not matter."""
    escaped: bool = False
    """The next character of the string belongs to an escape sequence."""
    rivals: tuple[Any, ...] = ()
    """What the scalar or the name under way may still become."""
    eased: bool = True
    """Whatever these rivals are, it can always become different from all of them."""

    @property
    def calm(self) -> bool:
        """No item can end with a repetition unless another one begins first."""
        if self.expects in _UNDER_WAY:
            return not self.rivals
        frame = self.frame
        if frame is None:
            return True
        if frame.rivals:
            return False
        match self.expects:
            case Expects.VALUE | Expects.VALUE_OR_END:
                return not frame.taken
            case Expects.KEY:
                return not frame.repeatable
        return True

    @property
    def doubtful(self) -> bool:
        """It is possible that nothing but repetitions can be written from here on."""
        if self.expects in _UNDER_WAY:
            return bool(self.rivals) and not self.eased
        frame = self.frame
        if frame is None:
            return False
        return (bool(frame.rivals) and not frame.eased) or self.exhausted

    @property
    def exhausted(self) -> bool:
        """An item has to come, and it is not known whether there is one left."""
        frame = self.frame
        return (
            self.expects is Expects.VALUE
            and frame is not None
            and frame.unique
            and len(frame.taken) >= frame.place.supply
        )

    @property
    def reach(self) -> int:
        """How many containers have to be closed until a comma may begin what repeats an item."""
        return self.frame.reach if self.frame else FAR

    @property
    def crossing(self) -> Crossing:
        """Which tokens that end an item and go on behind a comma have to be looked at."""
        frame = self.frame
        if frame is not None and frame.tight:
            return Crossing.ANY
        return Crossing.COMPLETING if frame is None or frame.carefree else Crossing.BEGINNING


class Text:
    """The JSON texts with some places in them."""

    def __init__(self, places: Sequence[Place]) -> None:
        """Bind to the places of a text, the root's first."""
        self._places = places

    def start(self, lead: bytes = b"") -> Position:
        """The position before a text, which only begins after ``lead``."""
        return Position(Expects.LEAD, None, lead) if lead else Position(Expects.VALUE)

    def advance(self, position: Position, data: bytes) -> Position | None:
        """The position after ``data`` was written; ``None`` if it repeats an item, or is not JSON."""
        current: Position | None = position
        index = 0
        while current is not None and index < len(data):
            if current.expects in (Expects.IN_STRING, Expects.IN_KEY) and not current.escaped:
                event = _STRING_EVENT.search(data, index)
                end = event.start() if event else len(data)
                if end > index:
                    current = _longer(current, data[index:end])
                    index = end
                    continue
            current = self._step(current, data[index])
            index += 1
        return current

    def _step(self, position: Position, byte: int) -> Position | None:
        match position.expects:
            case Expects.IN_STRING | Expects.IN_KEY:
                return self._in_string(position, byte)
            case Expects.IN_NUMBER:
                return self._in_number(position, byte)
            case Expects.IN_WORD:
                return _in_word(position, byte)
            case Expects.LEAD:
                return self._in_lead(position, byte)
            case Expects.NOTHING:
                return position
        if byte in SPACE:
            return position
        frame = position.frame
        match position.expects:
            case Expects.VALUE:
                return self._value(frame, byte)
            case Expects.VALUE_OR_END:
                return _closed(frame) if byte == b"]"[0] else self._value(frame, byte)
            case Expects.KEY | Expects.KEY_OR_END if frame:
                if byte == b'"'[0]:
                    return _key(frame)
                return _closed(frame) if byte == b"}"[0] and position.expects is Expects.KEY_OR_END else None
            case Expects.COLON if byte == b":"[0]:
                return Position(Expects.VALUE, frame)
            case Expects.AFTER_VALUE if frame:
                if byte == b","[0]:
                    return Position(Expects.VALUE if frame.is_array else Expects.KEY, frame)
                return _closed(frame) if byte == (b"]" if frame.is_array else b"}")[0] else None
        return None

    def _in_lead(self, position: Position, byte: int) -> Position | None:
        if position.text[0] != byte:
            return None
        return self.start(position.text[1:])

    def _in_string(self, position: Position, byte: int) -> Position | None:
        if position.escaped:
            return _longer(position, bytes([byte]))._replace(escaped=False)
        if byte == b"\\"[0]:
            return _longer(position, b"\\")._replace(escaped=True)
        if byte != b'"'[0]:
            return None
        identity = b""
        if position.text:
            found = string_identity(position.text + b'"')
            if found is None:
                return None
            identity = found
        if position.expects is Expects.IN_STRING:
            return _complete(position.frame, identity)
        assert position.frame is not None
        return Position(Expects.COLON, _named(position.frame, identity))

    def _in_number(self, position: Position, byte: int) -> Position | None:
        if byte in _NUMBER:
            more = bytes([byte])
            if position.text and not _BEGUN_NUMBER.fullmatch(position.text + more):
                return None
            return _longer(position, more)
        identity: Identity = b""
        if position.text:
            number = number_identity(position.text)
            if number is None:
                return None
            identity = number
        ended = _complete(position.frame, identity)
        return ended and self._step(ended, byte)

    def _value(self, frame: Frame | None, byte: int) -> Position | None:
        """The position behind the first byte of a value."""
        if byte in b"[{":
            return self._opened(frame, byte == b"["[0])
        first = bytes([byte])
        if byte == b'"'[0]:
            begun = _scalar(Expects.IN_STRING, frame, "string")
        elif byte in b"-0123456789":
            begun = _scalar(Expects.IN_NUMBER, frame, "number")
        elif byte in b"tfn":
            return _in_word(_scalar(Expects.IN_WORD, frame, "null" if byte == b"n"[0] else "boolean"), byte)
        else:
            return None
        return _longer(begun, first) if frame and frame.keeps else begun

    def _opened(self, parent: Frame | None, is_array: bool) -> Position:
        place = self._place_of(parent)
        rivals: tuple[Any, ...] = ()
        if parent and parent.keeps:
            wanted = tuple if is_array else frozenset
            rivals = tuple(rival for rival in _rivals(parent) if type(rival) is wanted)
        unique = place.unique and is_array
        eased = _eased(parent, "array" if is_array else "object")
        open_to_all = not unique or place.roomy.issuperset(_KINDS)
        frame = Frame(
            parent,
            is_array,
            place,
            unique,
            captured=parent is not None and parent.keeps,
            eased=eased,
            reach=0 if unique or (rivals and not is_array) else _reach(parent),
            rivals=rivals,
            opened=rivals,
            tight=(parent is not None and parent.tight) or (unique and place.supply <= 1),
            carefree=(parent is None or parent.carefree) and open_to_all and (eased or not rivals),
        )
        return Position(Expects.VALUE_OR_END if is_array else Expects.KEY_OR_END, frame)

    def _place_of(self, parent: Frame | None) -> Place:
        """The place of the value that comes next in ``parent``."""
        if parent is None:
            return self._places[0]
        place = parent.place
        if parent.is_array:
            index = place.item(parent.written)
        elif place.members:
            index = place.member(string_text(parent.name))
        else:
            index = place.undeclared
        return _NOWHERE if index == UNWATCHED else self._places[index]


def _key(frame: Frame) -> Position:
    """The position behind the opening quote of a name."""
    kept = frame.captured or bool(frame.place.members)
    names = {name for rival in frame.rivals for name, _ in rival}
    if frame.repeatable:
        names.update(name for name, _ in frame.parts)
    if not names:
        return Position(Expects.IN_KEY, frame, b'"' if kept else b"")
    return Position(Expects.IN_KEY, frame, b'"', rivals=tuple(names), eased=frame.eased)


def _scalar(expects: Expects, frame: Frame | None, kind: str) -> Position:
    """The position before the first byte of a scalar."""
    if frame is None or not (frame.rivals or frame.taken):
        return Position(expects, frame)
    return Position(expects, frame, b"", rivals=tuple(_rivals(frame)), eased=_eased(frame, kind))


def _eased(parent: Frame | None, kind: str) -> bool:
    """Whether a value of this type can always become different from its rivals."""
    if parent is None:
        return True
    as_item = not parent.unique or kind in parent.place.roomy
    return as_item and (parent.eased or not parent.rivals)


def _rivals(frame: Frame) -> Iterator[Identity]:
    """What the next value of an open container must not become, or would have to for the container to be a rival."""
    yield from frame.taken
    for rival in frame.rivals:
        if frame.is_array:
            if frame.written < len(rival) and rival[frame.written] not in frame.taken:
                yield rival[frame.written]
        else:
            value = member_of(rival, frame.name)
            if value is not None:
                yield value


def _longer(position: Position, more: bytes) -> Position:
    """The position after more of the scalar or the name under way."""
    if not position.text and not position.rivals and not _begins_kept(position):
        return position
    text = position.text + more
    rivals = position.rivals
    if rivals:
        if position.expects is Expects.IN_NUMBER:
            rivals = tuple(rival for rival in rivals if type(rival) is float and may_become(text, rival))
        else:
            rivals = tuple(rival for rival in rivals if type(rival) is bytes and rival.startswith(text))
    return position._replace(text=text, rivals=rivals)


def _begins_kept(position: Position) -> bool:
    """Whether what comes next begins a scalar whose text matters. Words are told apart by it."""
    if position.expects is Expects.IN_WORD:
        return True
    return position.expects is not Expects.IN_KEY and position.frame is not None and position.frame.keeps


def _in_word(position: Position, byte: int) -> Position | None:
    longer = _longer(position, bytes([byte]))
    if longer.text in WORDS:
        return _complete(position.frame, longer.text)
    return longer if any(word.startswith(longer.text) for word in WORDS) else None


def _named(frame: Frame, name: bytes) -> Frame:
    """The object when the name of its next member is written."""
    if not name:
        return frame
    rivals, opened, reach = frame.rivals, frame.opened, frame.reach
    if opened:
        opened = tuple(rival for rival in opened if member_of(rival, name) is not None)
        reach = 0 if opened else _reach(frame.parent)
        if any(known == name for known, _ in frame.parts):  # the value that is to come replaces the one before
            rest = [part for part in frame.parts if part[0] != name]
            rivals = tuple(rival for rival in opened if rival.issuperset(rest))
        rivals = tuple(rival for rival in rivals if member_of(rival, name) is not None)
    return frame._replace(name=name, rivals=rivals, opened=opened, reach=reach)


def _reach(parent: Frame | None) -> int:
    return min(parent.reach + 1, FAR) if parent else FAR


def _complete(frame: Frame | None, identity: Identity) -> Position | None:
    """The position behind a whole value; ``None`` if it repeats an item."""
    if frame is None:
        return Position(Expects.AFTER_VALUE)
    if not frame.keeps:
        if frame.is_array and frame.place.positions:
            frame = frame._replace(written=frame.written + 1)
        return Position(Expects.AFTER_VALUE, frame)
    if identity in frame.taken:
        return None
    changes: dict[str, Any] = {}
    if frame.is_array:
        changes["written"] = frame.written + 1
        if frame.captured:
            changes["parts"] = (*frame.parts, identity)
            changes["rivals"] = tuple(
                rival for rival in frame.rivals if frame.written < len(rival) and rival[frame.written] == identity
            )
        if frame.unique:
            taken = frame.taken | {identity}
            outside = frame.parent is not None and frame.parent.tight
            changes |= {"taken": taken, "tight": outside or len(taken) + 1 >= frame.place.supply}
    else:
        member = (frame.name, identity)
        changes["parts"] = (*(part for part in frame.parts if part[0] != frame.name), member)
        changes["rivals"] = tuple(rival for rival in frame.rivals if member in rival)
    return Position(Expects.AFTER_VALUE, frame._replace(**changes))


def _closed(frame: Frame | None) -> Position | None:
    """The position behind the closing bracket of a container."""
    assert frame is not None
    identity: Identity = b""
    if frame.captured:
        identity = tuple(frame.parts) if frame.is_array else object_identity(frame.parts)
    return _complete(frame.parent, identity)
