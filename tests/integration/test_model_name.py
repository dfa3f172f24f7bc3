"""A model that is not there is refused before an engine starts, whatever its name looks like."""

from __future__ import annotations

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

from infernix_plugin.entrypoints import model_name, serve
from infernix_plugin.entrypoints.generate import run as generate
from infernix_plugin.entrypoints.model_name import require_model
from infernix_plugin.errors import CheckpointError


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that answers as the test says, and an empty cache; the names it was asked for."""
    asked, answer = [], {}

    def model_info(self, name, *, timeout):
        assert timeout == model_name.PATIENCE
        asked.append(name)
        if "raises" in answer:
            raise answer["raises"]

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("VLLM_USE_MODELSCOPE", raising=False)
    return asked, answer


@pytest.mark.parametrize("path", ["./nowhere", "/nowhere", "~/nowhere", "a/b/c", "nowhere/", "..", "a b", "", "a\0b"])
def test_a_path_where_nothing_is(hub, monkeypatch, tmp_path, path):
    monkeypatch.chdir(tmp_path)
    if path == "..":
        path = "../nowhere"
    with pytest.raises(CheckpointError, match=r"^there is no directory '.*'$"):
        require_model(path)
    assert hub[0] == []


def test_a_directory_that_is_no_checkpoint(hub, tmp_path):
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        require_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"^config\.json is corrupt: it is no JSON"):
        require_model(str(tmp_path))
    (tmp_path / "params.json").write_text("{}")  # which of the two vLLM reads is its business
    require_model(str(tmp_path))
    (tmp_path / "params.json").unlink()
    (tmp_path / "config.json").write_text("{}")  # what is in it is vLLM's to say
    require_model(str(tmp_path))


def test_names_of_a_file_of_vllm_are_for_it_to_read(hub, monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_MODEL_REDIRECT_PATH", str(tmp_path / "names"))
    for name in ("a/b/c", str(tmp_path), "./nowhere"):
        require_model(name)
    assert hub[0] == []


def answered(error):
    return error.__new__(error)


@pytest.mark.parametrize("name", ["nowhere", "some/name"])
def test_a_name_that_nobody_answers_for(hub, name):
    asked, answer = hub
    answer["raises"] = OSError("Name or service not known")
    with pytest.raises(CheckpointError, match="the hub cannot be asked: OSError: Name or service not known"):
        require_model(name)
    answer["raises"] = answered(RepositoryNotFoundError)
    with pytest.raises(CheckpointError, match="and the hub has no model of that name"):
        require_model(name)
    answer["raises"] = answered(GatedRepoError)
    require_model(name)
    del answer["raises"]
    require_model(name)
    assert asked == [name] * 4


def test_without_a_hub_only_the_cache_counts(hub, monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE is set"):
        require_model("some/name")
    (tmp_path / "cache" / "models--some--name").mkdir(parents=True)
    require_model("some/name")
    assert hub[0] == []


def test_what_only_vllm_can_judge_passes(hub, monkeypatch, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"")
    for name in ("s3://bucket/model", "some/name:Q4_K_M", str(tmp_path / "model.gguf")):
        require_model(name)
    monkeypatch.setenv("VLLM_USE_MODELSCOPE", "1")
    require_model("some/name")
    assert hub[0] == []


def test_the_commands_ask_before_they_start_anything(hub, monkeypatch):
    started = []
    monkeypatch.setattr(serve.os, "execv", lambda *arguments: started.append(arguments))
    monkeypatch.setattr("infernix_plugin.entrypoints.demo.server.vllm_command", lambda: "vllm")
    with pytest.raises(CheckpointError):
        serve.run("./nowhere", [])
    with pytest.raises(CheckpointError), generate._server("./nowhere"):
        started.append("generate")
    assert not started
    monkeypatch.setattr("transformers.PretrainedConfig.get_config_dict", lambda name: ({}, {}))
    serve.run("./nowhere", ["--hf-config-path=elsewhere"])
    assert started
