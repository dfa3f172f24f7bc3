"""An engine core without the plugin, or with another, stops the start of the server."""

from dataclasses import fields

import msgspec
import pytest
from vllm.v1.engine import EngineCoreReadyResponse

from infernix_plugin.errors import UnsupportedVllmError
from infernix_plugin.seams import engine_presence, post_import

RANK = 3
VALUES = {int: RANK, str: "x", bool: True}
READY = EngineCoreReadyResponse(
    **{field.name: VALUES.get(field.type) for field in fields(EngineCoreReadyResponse)}  # the rest may be None
)


@pytest.fixture(autouse=True)
def active(monkeypatch):
    monkeypatch.setattr(post_import, "is_installed", lambda: True)


def said(replaced=True):
    """What an engine core sends, as vLLM encodes it."""
    make = engine_presence.ENGINE.replace(lambda self: READY) if replaced else lambda self: READY
    return msgspec.msgpack.encode(make(None))


def hear(payload):
    """What a server reads of it."""
    heard = []
    engine_presence.SERVER.replace(lambda self, payload: heard.append(payload))(None, payload)
    (read,) = heard
    return msgspec.convert(msgspec.msgpack.decode(read), EngineCoreReadyResponse)


def test_the_same_plugin_joins():
    assert hear(said()) == READY


def test_an_engine_without_it_is_named():
    with pytest.raises(UnsupportedVllmError, match=r"rank 3 has no active infernix-plugin, the server has infernix"):
        hear(said(replaced=False))
    with pytest.raises(UnsupportedVllmError, match="no active infernix-plugin"):
        hear(b"")


def test_another_version_is_named(monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(engine_presence, "identity", lambda: "infernix-plugin 0.0 on vLLM 1")
        payload = said()
    with pytest.raises(UnsupportedVllmError, match=r"rank 3 has infernix-plugin 0\.0 on vLLM 1, the server has"):
        hear(payload)
