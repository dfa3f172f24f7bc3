"""What a model cannot be combined with on the CPU: each refusal, what passes, and that the engine's arguments ask."""

from __future__ import annotations

import json

import pytest

from infernix_plugin.errors import SettingsError
from infernix_plugin.model_executor import combinations
from infernix_plugin.model_executor.combinations import METHODS, Choices, refusal

SIZES = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 4, "mtp_num_hidden_layers": 1}
TARGETS = {
    "qwen3.5": {"architectures": ["Qwen3_5ForCausalLM"], **SIZES},
    "qwen3.5-moe": {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "text_config": SIZES},
    "flash-next": {"architectures": ["Qwen4ExpForConditionalGeneration"], "text_config": SIZES},
}
DFLASH = {
    "architectures": ["DFlashDraftModel"],
    "vocab_size": 100,
    "hidden_size": 64,
    "dflash_config": {"mask_token_id": 99, "target_layer_ids": [0, 3]},
}


def asked(family, draft=None, **speculation):
    return refusal(TARGETS[family], Choices(speculation=speculation, draft=draft, max_model_len=50))


@pytest.mark.parametrize("family", TARGETS)
@pytest.mark.parametrize(
    "method",
    ["eagle", "eagle3", "medusa", "mlp_speculator", "ngram_gpu", "dspark", "extract_hidden_states", "dflash2", "x"],
)
def test_methods_that_nobody_has_are_refused_and_the_others_named(family, method):
    says = asked(family, method=method, num_speculative_tokens=3)
    assert says.startswith(f"there are no drafts of method {method!r} for {family} on the CPU")
    assert says.endswith(f"Its methods are {', '.join(map(repr, sorted(METHODS[family])))}")


@pytest.mark.parametrize("method", [None, "draft_model"])
def test_a_dflash_draft_that_would_draft_as_a_model_of_its_own(method):
    """vLLM loads it, and it computes NaN. Where the name of the directory tells vLLM the method, it is right."""
    says = asked("qwen3.5", DFLASH, method=method, model="d", num_speculative_tokens=3)
    assert says == "the draft is a DFlash draft: its method is 'dflash'"
    assert asked("qwen3.5", DFLASH, method=method, model="my-DFlash", num_speculative_tokens=3) is None
    assert asked("qwen3.5", TARGETS["qwen3.5"], method=method, model="d", num_speculative_tokens=3) is None


@pytest.mark.parametrize("method", ["dflash", "draft_model", "suffix", "custom_class"])
def test_flash_next_drafts_with_its_head_and_with_ngrams_only(method):
    assert asked("flash-next", DFLASH, method=method, model="d").endswith("Its methods are 'mtp', 'ngram'")
    assert asked("qwen3.5", DFLASH, method=method, model="dflash") is None


@pytest.mark.parametrize("family", TARGETS)
def test_what_exists_passes(family):
    for count in (1, 3, 49):
        for method in ("mtp", "qwen3_5_mtp", "ngram"):
            assert asked(family, method=method, num_speculative_tokens=count) is None
    assert refusal(TARGETS[family], Choices()) is None
    assert refusal(TARGETS[family], Choices(load_format="safetensors")) is None
    assert refusal({"architectures": ["LlamaForCausalLM"]}, Choices(speculation={"method": "eagle"})) is None


def test_advice_where_a_name_is_nearly_right():
    assert "DFlash2 drafts have the method 'dflash' too" in asked("qwen3.5", method="dflash2")
    assert "on a CPU the method is 'ngram'" in asked("qwen3.5", method="ngram_gpu")


@pytest.mark.parametrize("layers", [0, None])
def test_a_checkpoint_without_an_mtp_head(layers):
    target = {"architectures": ["Qwen4ExpForCausalLM"], **SIZES, "mtp_num_hidden_layers": layers}
    for method in ("mtp", "deepseek_mtp"):
        says = refusal(target, Choices(speculation={"method": method, "num_speculative_tokens": 3}))
        assert says.startswith("the checkpoint has no MTP head (mtp_num_hidden_layers")
        assert says.endswith("Its methods are 'ngram' without one")
    assert refusal(target, Choices(speculation={"method": "ngram"})) is None


@pytest.mark.parametrize("count", [50, 10**6])
def test_more_drafts_than_a_text_has_tokens(count):
    says = asked("qwen3.5", method="mtp", num_speculative_tokens=count)
    assert says == f"num_speculative_tokens is {count}, and a text has 50 tokens at most (max_model_len)"


@pytest.mark.parametrize(
    ("changes", "details", "says"),
    [
        ({"vocab_size": 200}, {}, "not one of this target: vocab_size is 200, the target's 100"),
        ({"hidden_size": 32}, {}, "not one of this target: hidden_size is 32, the target's 64"),
        ({}, {"target_layer_ids": [0, 4]}, "reads layers [4] of the target (target_layer_ids), which has 4, from 0"),
        ({}, {"target_layer_ids": [-1, "a", 1]}, "reads layers [-1, 'a'] of the target"),
        ({}, {"mask_token_id": 100}, "mask_token_id 100 is none of the target's 100 tokens"),
        ({}, {"mask_token_id": None}, "mask_token_id None is none of the target's"),
        ({}, {"selector_top_k": 10**6}, "selector_top_k 1000000 is not a number of the target's 100 tokens"),
        ({}, {"selector_top_k": 0}, "selector_top_k 0 is not a number of"),
        ({"architectures": ["Qwen3_5ForCausalLM"]}, {}, "no DFlash draft: its architecture is ['Qwen3_5ForCausalLM']"),
        ({"architectures": ["LlamaForCausalLM"]}, {}, "no DFlash draft: its architecture is ['LlamaForCausalLM']"),
    ],
)
def test_dflash_drafts_of_another_target(changes, details, says):
    draft = {**DFLASH, **changes, "dflash_config": {**DFLASH["dflash_config"], **details}}
    for family in ("qwen3.5", "qwen3.5-moe"):
        assert says in asked(family, draft, method="dflash", model="d", num_speculative_tokens=3)
        assert asked(family, DFLASH, method="dflash", model="d", num_speculative_tokens=3) is None


def test_a_draft_that_is_not_named_and_a_head_of_another_family():
    assert "needs a draft's checkpoint" in asked("qwen3.5", method="dflash", num_speculative_tokens=3)
    head = asked("flash-next", TARGETS["qwen3.5"], method="mtp", model="d")
    assert head == "the MTP head of qwen3.5 does not draft for flash-next"
    assert asked("qwen3.5", TARGETS["qwen3.5"], method="mtp", model="d") is None


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"load_format": "dummy"}, "load_format 'dummy' does not read; use 'auto'"),
        ({"load_format": "sharded_state"}, "load_format 'sharded_state' does not read"),
        ({"quantization": "fp8"}, "runs in bfloat16, without quantization 'fp8'"),
        ({"enable_lora": True}, "has no LoRA adapters"),
        ({"enable_prompt_embeds": True}, "prompts of embeddings have none"),
        ({"model_impl": "transformers"}, "runs as vLLM's own model only"),
    ],
)
def test_what_flash_next_does_not_do(choice, says):
    assert says in refusal(TARGETS["flash-next"], Choices(**choice))
    only_there = "model_impl" not in choice
    assert (refusal(TARGETS["qwen3.5"], Choices(**choice)) is None) is only_there


def test_the_arguments_of_an_engine_are_asked_about(monkeypatch, tmp_path):
    """A configuration that vLLM could not even read: what we say comes first. Elsewhere it is none of our business."""
    vllm = pytest.importorskip("vllm.engine.arg_utils")
    from vllm import plugins

    from infernix_plugin.seams import engine_arguments

    monkeypatch.setattr(plugins, "plugins_loaded", True)  # the seams of this process are not applied
    (tmp_path / "config.json").write_text(json.dumps(TARGETS["qwen3.5"]))
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text(json.dumps(DFLASH | {"vocab_size": 7}))
    speculation = {"method": "dflash", "model": str(tmp_path / "draft"), "num_speculative_tokens": 3}
    arguments = vllm.EngineArgs(model=str(tmp_path), speculative_config=speculation)
    with pytest.raises(SettingsError, match="vocab_size is 7, the target's 100"):
        engine_arguments._refuse_combinations(arguments)
    speculation |= {"method": "mtp", "model": None, "num_speculative_tokens": 33}
    with pytest.raises(SettingsError, match="a text has 32 tokens at most"):
        engine_arguments._refuse_combinations(
            vllm.EngineArgs(model=str(tmp_path), speculative_config=speculation, max_model_len=32)
        )
    overridden = {"mtp_num_hidden_layers": 0}
    with pytest.raises(SettingsError, match="no MTP head"):
        engine_arguments._refuse_combinations(
            vllm.EngineArgs(model=str(tmp_path), speculative_config=speculation, hf_overrides=overridden)
        )
    speculation = {"method": "dflash", "model": str(tmp_path), "num_speculative_tokens": 3}
    with pytest.raises(SettingsError, match=r"no DFlash draft: its architecture is \['Qwen3_5ForCausalLM'\]"):
        engine_arguments._refuse_combinations(vllm.EngineArgs(model=str(tmp_path), speculative_config=speculation))
    single = vllm.EngineArgs(model=str(tmp_path), spec_method="mtp", spec_tokens=33, max_model_len=32)
    with pytest.raises(SettingsError, match="a text has 32 tokens at most"):
        engine_arguments._refuse_combinations(single)
    monkeypatch.setattr(engine_arguments, "_on_cpu", lambda: False)
    monkeypatch.setattr(combinations, "refusal", lambda *_: pytest.fail("asked on a GPU"))
    engine_arguments._refuse_combinations(arguments)
