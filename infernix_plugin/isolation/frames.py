"""Messages over a stream socket: a few byte strings each."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence

READY = b"ready"
GROWN = b"grown"
"""A worker that holds so much by now that the next job might not have the memory it may use."""

_COUNT = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")


def send(to: socket.socket, frames: Sequence[bytes]) -> None:
    """Send a message.

    Raises:
        OSError: the other side is gone.
    """
    to.sendall(_COUNT.pack(len(frames)) + b"".join(_LENGTH.pack(len(frame)) for frame in frames))
    for frame in frames:
        to.sendall(frame)


def receive(source: socket.socket) -> list[bytes]:
    """Wait for a message.

    Raises:
        OSError: the other side is gone.
    """
    (count,) = _COUNT.unpack(_exactly(source, _COUNT.size))
    lengths = [_LENGTH.unpack(_exactly(source, _LENGTH.size))[0] for _ in range(count)]
    return [_exactly(source, length) for length in lengths]


def arrives(source: socket.socket, seconds: float) -> bool:
    """Whether something can be read, or the other side is gone, within so many seconds."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


def _exactly(source: socket.socket, length: int) -> bytes:
    data = bytearray(length)
    view, filled = memoryview(data), 0
    while filled < length:
        got = source.recv_into(view[filled:])
        if not got:
            raise ConnectionError("the other process has ended")
        filled += got
    return bytes(data)
