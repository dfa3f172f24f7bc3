"""What Flash-Next on the CPU does not do is refused, with what to do instead."""

import json
from types import SimpleNamespace

import pytest
import torch


def configuration(flash_next, **changes):
    """As much of vLLM's configuration as is looked at before anything is built."""
    text = SimpleNamespace(**json.loads((flash_next / "config.json").read_text()))
    model = SimpleNamespace(hf_text_config=text, dtype=changes.pop("dtype", torch.bfloat16))
    stages = changes.pop("stages", 1)
    for name, value in changes.items():
        setattr(text, name, value)
    return SimpleNamespace(
        model_config=model,
        parallel_config=SimpleNamespace(pipeline_parallel_size=stages),
        cache_config=SimpleNamespace(cache_dtype="auto"),
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"dtype": torch.float32}, "use --dtype bfloat16"), ({"stages": 2}, "in one pipeline stage")],
    ids=str,
)
def test_other_types_and_pipelines(flash_next, changes, says) -> None:
    from infernix_plugin.model_executor.models.flash_next.model import Qwen4ExpForCausalLM

    with pytest.raises(ValueError, match=says):
        Qwen4ExpForCausalLM(vllm_config=configuration(flash_next, **changes))


def test_more_than_one_mtp_layer(flash_next) -> None:
    from infernix_plugin.model_executor.models.flash_next.mtp import Qwen4ExpMTP

    with pytest.raises(ValueError, match="has one MTP layer, not 2"):
        Qwen4ExpMTP(vllm_config=configuration(flash_next, mtp_num_hidden_layers=2))


def test_attention_without_an_index_scaled_positions_and_other_caches(flash_next) -> None:
    from infernix_plugin.model_executor.models.flash_next.rotary import Rotary
    from infernix_plugin.model_executor.models.flash_next.sparse_attention import SparseAttention

    with pytest.raises(ValueError, match="has no indexer_n_heads"):
        SparseAttention(configuration(flash_next, indexer_n_heads=None), "layer")
    quantised = configuration(flash_next)
    quantised.cache_config.cache_dtype = "fp8"
    with pytest.raises(ValueError, match="keeps bfloat16 keys and values, not fp8"):
        SparseAttention(quantised, "layer")
    with pytest.raises(ValueError, match="no rotary positions of type 'yarn'"):
        Rotary(configuration(flash_next, rope_parameters={"rope_type": "yarn"}).model_config.hf_text_config)
