"""A worker without the plugin, or with another, stops the start."""

from types import SimpleNamespace

import pytest

from infernix_plugin.errors import UnsupportedVllmError
from infernix_plugin.seams import post_import, worker_presence


def start(answer):
    """An engine core whose workers give an answer, up to the step behind the check."""
    core = SimpleNamespace(model_executor=SimpleNamespace(collective_rpc=answer))
    started = []
    worker_presence.SEAM.replace(lambda self, vllm_config: started.append(self))(core, None)
    return started == [core]


@pytest.fixture(autouse=True)
def active(monkeypatch):
    monkeypatch.setattr(post_import, "is_installed", lambda: True)


def test_the_same_plugin_everywhere_starts():
    assert start(lambda method: [method(worker) for worker in "ab"])


def test_a_worker_without_it_is_named():
    with pytest.raises(
        UnsupportedVllmError, match=r"rank 1 has no active infernix-plugin, the engine core has infernix"
    ):
        start(lambda method: [method("a"), worker_presence.ABSENT])


def test_another_version_is_named():
    with pytest.raises(UnsupportedVllmError, match=r"rank 0 has infernix-plugin 0\.0 on vLLM 1, the engine core has"):
        start(lambda method: ["infernix-plugin 0.0 on vLLM 1"])


def test_a_worker_that_cannot_import_it_is_told():
    def missing(method):
        raise RuntimeError("No module named 'infernix_plugin'")

    with pytest.raises(UnsupportedVllmError, match="is infernix-plugin installed on its machine"):
        start(missing)


@pytest.mark.parametrize("change", ["disabled", "not installed"])
def test_inactive_is_absent(monkeypatch, change):
    assert worker_presence.identity() != worker_presence.ABSENT
    if change == "disabled":
        monkeypatch.setenv("INFERNIX_DISABLE", "1")
    else:
        monkeypatch.setattr(post_import, "is_installed", lambda: False)
    assert worker_presence.identity() == worker_presence.ABSENT
