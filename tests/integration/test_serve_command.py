"""``infernix serve``: which defaults a checkpoint gets, and that the user's options win."""

from __future__ import annotations

import json

import pytest

from infernix_plugin.entrypoints.serve import command_line

MTP = ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}']
NO_CACHE = "--no-enable-prefix-caching"


@pytest.fixture
def checkpoint(tmp_path):
    def make(config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return str(tmp_path)

    return make


HYBRID = {"text_config": {"mtp_num_hidden_layers": 1, "layer_types": ["linear_attention", "full_attention"]}}


@pytest.mark.parametrize(
    ("config", "options", "on_cpu", "defaults"),
    [
        (HYBRID, [], True, [*MTP, NO_CACHE]),
        (HYBRID, [], False, MTP),
        (HYBRID, ["--enable-prefix-caching"], True, MTP),
        (HYBRID, ["--speculative-config={}"], True, [NO_CACHE]),
        (HYBRID, ["--speculative-config", "{}", NO_CACHE], True, []),
        ({"layer_types": ["full_attention"], "mtp_num_hidden_layers": 0}, ["--port", "1"], True, []),
        ([], [], True, []),
    ],
)
def test_defaults(checkpoint, config, options, on_cpu, defaults):
    model = checkpoint(config)
    assert command_line(model, options, on_cpu=on_cpu) == ["serve", model, *options, *defaults]


def test_a_name_without_a_configuration_gets_no_defaults(monkeypatch):
    def nowhere(name):
        raise OSError(name)

    monkeypatch.setattr("transformers.PretrainedConfig.get_config_dict", nowhere)
    assert command_line("some/name", ["-tp", "2"], on_cpu=True) == ["serve", "some/name", "-tp", "2"]
