"""vLLM's front end in Rust runs no plugins, so a server with it must not start as if constraints were in force."""

from types import SimpleNamespace

import pytest

from infernix_plugin import settings
from infernix_plugin.errors import SettingsError
from infernix_plugin.seams import engine_arguments


def test_the_start_is_refused_with_one_line(monkeypatch):
    started = []
    create = engine_arguments.SEAM.replace(lambda self, *args: started.append(self))
    monkeypatch.setattr(settings, "configure", settings.load)  # the settings of this process stay
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    with pytest.raises(SettingsError, match="VLLM_USE_RUST_FRONTEND") as refused:
        create(SimpleNamespace(additional_config={}, model="no directory"))
    assert "\n" not in str(refused.value)
    assert "INFERNIX_DISABLE=1" in str(refused.value)
    assert not started
