"""``infernix serve``: which defaults a checkpoint gets, and that the user's options win."""

from __future__ import annotations

import json

import pytest

from infernix_plugin.entrypoints.serve import command_line

MTP = ["--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}']


@pytest.fixture
def checkpoint(tmp_path):
    def make(config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return str(tmp_path)

    return make


HYBRID = {"text_config": {"mtp_num_hidden_layers": 1, "layer_types": ["linear_attention", "full_attention"]}}


@pytest.mark.parametrize(
    ("config", "options", "defaults"),
    [
        (HYBRID, [], MTP),
        (HYBRID, ["--no-enable-prefix-caching"], MTP),
        (HYBRID, ["--speculative-config={}"], []),
        ({"layer_types": ["full_attention"], "mtp_num_hidden_layers": 0}, ["--port", "1"], []),
        ([], [], []),
    ],
)
def test_defaults(checkpoint, config, options, defaults):
    model = checkpoint(config)
    assert command_line(model, options) == ["serve", model, *options, *defaults]


def test_a_name_without_a_configuration_gets_no_defaults(monkeypatch):
    def nowhere(name):
        raise OSError(name)

    monkeypatch.setattr("transformers.PretrainedConfig.get_config_dict", nowhere)
    assert command_line("some/name", ["-tp", "2"]) == ["serve", "some/name", "-tp", "2"]
