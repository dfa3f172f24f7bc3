"""Checkpoints that are not there or not whole end the start with one line, before an engine runs."""

from __future__ import annotations

import inspect
import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from vllm import EngineArgs, plugins
from vllm.config import ModelConfig, MultiModalConfig

from infernix_plugin import settings
from infernix_plugin.errors import CheckpointError
from infernix_plugin.model_executor.tiny import make_tiny_draft
from infernix_plugin.model_executor.weights import configuration, start
from infernix_plugin.model_executor.weights.configuration import configuration_of
from infernix_plugin.model_executor.weights.layout import Part
from infernix_plugin.seams import engine_arguments

NORM = "model.layers.1.input_layernorm.weight"


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drafts") / "draft"
    make_tiny_draft(folder, "dflash")
    return folder


@pytest.fixture
def cut(tmp_path):
    """Return a copy of a checkpoint without a tensor."""

    def copy(checkpoint, name):
        folder = tmp_path / "cut"
        shutil.copytree(checkpoint, folder)
        tensors = load_file(folder / "model.safetensors")
        del tensors[name]
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return folder

    return copy


@pytest.fixture
def configured(monkeypatch):
    """Configure an engine as vLLM does, with our replacement around it."""
    create = engine_arguments.SEAM.replace(inspect.unwrap(EngineArgs.create_engine_config))
    monkeypatch.setattr(plugins, "plugins_loaded", True)  # the seams of this process are not applied
    monkeypatch.setattr(settings, "_current", None)

    def configure(model, **arguments):
        return create(EngineArgs(model=str(model), max_model_len=64, **arguments))

    return configure


def drafting(method, model=None):
    return {"method": method, "num_speculative_tokens": 2} | ({"model": str(model)} if model else {})


def test_whole_checkpoints_start(configured, tiny_model, draft):
    for speculation in (None, drafting("mtp"), drafting("ngram"), drafting("dflash", draft)):
        config = configured(tiny_model, speculative_config=speculation)
        assert config.model_config.model == str(tiny_model)


def refused(configured, *arguments, **named):
    """Return the line that ends a command line."""
    with pytest.raises(engine_arguments.CheckpointRefused) as refusal:
        configured(*arguments, **named)
    line = refusal.value.code
    assert line.startswith("infernix-plugin: ")
    assert "\n" not in line
    return line.removeprefix("infernix-plugin: ")


def test_a_missing_tensor_is_named(configured, tiny_model, cut):
    folder = cut(tiny_model, NORM)
    assert refused(configured, folder) == f"the checkpoint cut does not fit its model: missing: {NORM} [256]"
    assert configured(folder, load_format="dummy"), "reads no tensors"
    assert configured(folder, runner="pooling"), "what it can do without is for the worker to say"


def test_an_entry_of_a_wrong_type_is_named(configured, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_model, "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"hidden_size": "big"}))
    line = "config.json does not describe a qwen3.5 model: hidden_size is 'big' and should be a whole number"
    assert refused(configured, "model") == line
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    assert configured("model")


WRONG_ENTRIES = [
    ({"max_position_embeddings": "512"}, "max_position_embeddings is '512', which is text, and should be a number"),
    ({"rms_norm_eps": "1e-6"}, "rms_norm_eps is '1e-6', which is text, and should be a number"),
    ({"rms_norm_eps": "small"}, "Field 'rms_norm_eps' expected float, got str (value: 'small')"),
    ({"tie_word_embeddings": "yes"}, "Field 'tie_word_embeddings' expected bool, got str (value: 'yes')"),
    ({"eos_token_id": "x"}, "Field 'eos_token_id' with value 'x' doesn't match any type in (int, list[int], NoneType)"),
    ({"num_attention_heads": 3}, "The hidden size (256) is not a multiple of the number of attention heads (3)."),
    (
        {"rope_parameters": {"rope_type": "default", "rope_theta": "10000"}},
        "rope_parameters.rope_theta is '10000', which is text, and should be a number",
    ),
    ({"architectures": "LlamaForCausalLM"}, "architectures is 'LlamaForCausalLM', and should be a list of names"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG_ENTRIES, ids=lambda one: str(one)[:30])
def test_entries_of_wrong_types_are_named_for_every_model(configured, tiny_model, tmp_path, changes, said):
    """Of a family without a table of tensors: what transformers' class declares, and what can only be numbers."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    right = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 2112, **sizes}
    folder = tmp_path / "llama"
    folder.mkdir()
    chosen = {"tokenizer": str(tiny_model), "dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(right | changes))
    line = f"config.json of 'llama' has a wrong entry: {said}"
    assert refused(configured, folder, **chosen) == line
    drafting_with_it = drafting("draft_model", folder)
    if "architectures" not in changes:
        said_of_draft = refused(configured, tiny_model, speculative_config=drafting_with_it)
        assert said_of_draft == f"the draft is no checkpoint: {line}"
    (folder / "config.json").write_text(json.dumps(right))
    assert configured(folder, **chosen)


def test_numbers_as_text_where_they_are_nobodys_business(tmp_path):
    others = {"transformers_version": "5.0", "model_version": "2", "hidden_act": "silu", "num_labels_of": "many"}
    stated = others | {"quantization_config": {"group_size": "128"}, "hidden_size": 256}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    configuration.require_entries(tmp_path, None, lambda: None)
    (tmp_path / "config.json").write_text(json.dumps(stated | {"hidden_size": "256"}))
    configuration.require_entries(tmp_path, {"hidden_size": 256}, lambda: None)
    with pytest.raises(CheckpointError, match="hidden_size is '256'"):
        configuration.require_entries(tmp_path, None, lambda: None)


def test_a_tokenizer_without_a_vocabulary_is_refused(configured, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_model, "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    for _ in ("with its configuration", "without one"):
        line = refused(configured, "model")
        assert line.startswith(
            "the directory 'model' has no vocabulary: there is no tokenizer.json or tokenizer.model; "
        )
        (tmp_path / "model" / "tokenizer_config.json").unlink(missing_ok=True)
    assert refused(configured, tiny_model, tokenizer="model") == line
    assert configured("model", tokenizer=str(tiny_model))
    assert configured("model", skip_tokenizer_init=True)


def test_a_head_is_needed_where_it_drafts(configured, tiny_model, cut):
    folder = cut(tiny_model, "mtp.fc.weight")
    assert configured(folder)
    line = refused(configured, folder, speculative_config=drafting("mtp"))
    assert line == "the checkpoint cut does not fit its model: missing: mtp.fc.weight [256, 512]"


def test_a_draft_has_to_be_whole(configured, tiny_model, draft, cut):
    line = refused(configured, tiny_model, speculative_config=drafting("dflash", cut(draft, "fc.weight")))
    assert line == "the checkpoint cut does not fit its model: missing: fc.weight [256, 512]"


@pytest.mark.parametrize("method", ["dflash", "draft_model", "eagle"])
def test_a_directory_that_is_no_draft(configured, tiny_model, tmp_path, monkeypatch, method):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "draft").mkdir()
    line = "the draft is no checkpoint: the directory 'draft' has no config.json"
    assert refused(configured, tiny_model, speculative_config=drafting(method, "draft")) == line
    assert refused(configured, tiny_model, spec_method=method, spec_model="draft", spec_tokens=2) == line
    (tmp_path / "draft" / "config.json").write_text("{")
    line = refused(configured, tiny_model, speculative_config=drafting(method, "draft"))
    assert line.startswith("the draft is no checkpoint: config.json is corrupt: it is no JSON: ")


def test_paths_where_nothing_is(configured, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused(configured, tiny_model, speculative_config=drafting("dflash", "./nowhere"))
    assert line == "the draft is no checkpoint: there is no directory './nowhere'"
    assert refused(configured, "./nowhere") == "there is no directory './nowhere'"
    (tmp_path / "empty").mkdir()
    assert refused(configured, "empty") == "the directory 'empty' has no config.json"
    shutil.copy(tiny_model / "config.json", tmp_path)
    assert configured("empty", hf_config_path=str(tmp_path), tokenizer=str(tiny_model), load_format="dummy")


@pytest.mark.parametrize("path", ["./draft", "/nowhere/draft", "~/draft", "models/drafts/x", "../draft"])
@pytest.mark.parametrize("method", [None, "eagle3", "draft_model"])
def test_paths_of_drafts_where_nothing_is(configured, tiny_model, tmp_path, monkeypatch, path, method):
    """Said at once: vLLM asks the hub for them, again and again."""
    monkeypatch.chdir(tmp_path)
    chosen = {"model": path, "num_speculative_tokens": 2} | ({"method": method} if method else {})
    line = refused(configured, tiny_model, speculative_config=chosen)
    assert line == f"the draft is no checkpoint: there is no directory {path!r}"


def test_options_of_drafts_that_vllm_would_dump(configured, tiny_model):
    def said(speculation):
        with pytest.raises(engine_arguments.SettingsRefused) as refusal:
            configured(tiny_model, speculative_config=speculation)
        assert "\n" not in refusal.value.code
        return refusal.value.code.removeprefix("infernix-plugin: --speculative-config")

    assert said({"method": "mtp", "num_speculative_token": 2}) == (
        " has no key 'num_speculative_token'; did you mean num_speculative_tokens?"
    )
    assert said(["mtp"]) == " is of the type list and should be an object"
    assert said({"method": "mtp", "num_speculative_tokens": 0}) == (
        ": num_speculative_tokens is 0: Input should be greater than 0"
    )
    assert said({"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 3, "prompt_lookup_max": 2}) == (
        ": prompt_lookup_min=3 must be <= prompt_lookup_max=2"
    )
    assert configured(tiny_model, speculative_config={"method": "mtp", "num-speculative-tokens": 2})


def test_a_configuration_from_elsewhere_is_the_one_that_counts(configured, tiny_model, cut, tmp_path):
    folder = cut(tiny_model, NORM)
    shutil.move(folder / "config.json", tmp_path)
    elsewhere = {"hf_config_path": str(tmp_path), "tokenizer": str(tiny_model)}
    assert refused(configured, folder, **elsewhere).endswith(f"does not fit its model: missing: {NORM} [256]")
    shutil.copy(tiny_model / "model.safetensors", folder)
    assert configured(folder, **elsewhere)


def test_options_that_change_the_configuration_are_followed(configured, tiny_model, tmp_path):
    """A size is wrong in the file and right in the option, then the other way round."""
    folder = tmp_path / "stale"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    size = config["intermediate_size"]
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 2 * size}))
    assert configured(folder, hf_overrides={"intermediate_size": size})
    line = refused(configured, tiny_model, hf_overrides={"intermediate_size": 2 * size})
    assert f"down_proj.weight is [256, {size}] and should be [256, {2 * size}]" in line


def test_options_reach_into_the_parts_of_a_configuration(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1, "text_config": {"b": 2, "c": 3}}')
    model = SimpleNamespace(hf_config_path=None, hf_overrides={"d": 4, "text_config": {"b": 5}})
    assert configuration_of(model, tmp_path) == {"a": 1, "d": 4, "text_config": {"b": 5, "c": 3}}


def test_an_option_for_a_part_leaves_the_rest_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(plugins, "plugins_loaded", True)  # the seams of this process are not applied
    text = {"mtp_num_hidden_layers": 1, "max_position_embeddings": 512}
    stated = {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(stated))

    def judge(**changes):
        chosen = {"hf_overrides": {"text_config": changes}, "speculative_config": drafting("mtp")}
        engine_arguments._refuse_combinations(EngineArgs(model=str(tmp_path), **chosen))

    judge(max_position_embeddings=256)
    with pytest.raises(engine_arguments.SettingsRefused, match="the checkpoint has no MTP head"):
        judge(mtp_num_hidden_layers=0)


def test_other_formats_than_config_json_are_for_vllm_to_read(configured, tiny_model, tmp_path):
    sizes = {"dim": 256, "n_layers": 2, "head_dim": 64, "hidden_dim": 512, "n_heads": 4, "n_kv_heads": 2}
    others = {"norm_eps": 1e-5, "vocab_size": 2112, "rope_theta": 1e6, "max_position_embeddings": 512}
    (tmp_path / "params.json").write_text(json.dumps(sizes | others))
    save_file({"norm.weight": torch.ones(256)}, tmp_path / "consolidated.safetensors")
    assert configured(tmp_path, tokenizer=str(tiny_model), dtype="bfloat16")


@pytest.mark.parametrize("images", [0, 1])
def test_a_vision_tower_is_needed_where_images_are_on(images):
    assert "multimodal_config" in ModelConfig.__dataclass_fields__
    assert callable(MultiModalConfig.get_limit_per_prompt)
    limits = SimpleNamespace(get_limit_per_prompt={"image": images, "video": 0}.__getitem__)
    model = SimpleNamespace(architectures=["Qwen3_5ForConditionalGeneration"], multimodal_config=limits)
    assert (Part.VISION in start._parts_of(model)) == bool(images)


def test_only_what_the_worker_refuses_too_is_refused(cut, tiny_model):
    """Everything about a model that takes it out of the comparison; each alone."""
    folder = cut(tiny_model, NORM)
    compared = {"model": str(folder), "quantization": None, "runner_type": "generate", "architectures": ["Q"]}
    compared |= {"multimodal_config": None, "hf_config_path": None, "hf_overrides": {}}

    def judge(load="auto", **changes):
        model = SimpleNamespace(**compared | changes)
        loader = SimpleNamespace(load_format=load)
        start.require_checkpoints(SimpleNamespace(model_config=model, load_config=loader, speculative_config=None))

    for load in ("auto", "hf", "safetensors"):
        with pytest.raises(CheckpointError, match=NORM):
            judge(load)
    judge("runai_streamer")
    judge(quantization="fp8")
    judge(runner_type="pooling")
    judge(model="some/name")
    judge(hf_overrides=lambda config: config)
    judge(hf_overrides={"architectures": ["LlamaForCausalLM"]})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
    judge()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").rename(folder / "model.bin")
    judge()
    start.require_checkpoints(SimpleNamespace(model_config=None))
