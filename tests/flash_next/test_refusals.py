"""What Flash-Next on the CPU does not do is refused, with what to do instead."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from infernix_plugin.model_executor.tiny import make_tiny_draft

DFLASH = """
import sys
from vllm.engine.arg_utils import EngineArgs
from vllm.plugins import load_general_plugins
load_general_plugins()
speculation = {"method": "dflash", "model": sys.argv[2], "num_speculative_tokens": 3}
try:
    EngineArgs(model=sys.argv[1], max_model_len=256, speculative_config=speculation).create_engine_config()
    print("accepted")
except Exception as error:
    print("refused:", " ".join(str(error).split()))
"""


def test_dflash_drafts_are_refused_and_the_methods_named(flash_next, tmp_path) -> None:
    make_tiny_draft(tmp_path / "draft", "dflash")
    done = subprocess.run(
        [sys.executable, "-c", DFLASH, str(flash_next), str(tmp_path / "draft")],
        capture_output=True, text=True, timeout=600, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    said = done.stdout.splitlines()[-1]
    assert said.startswith("refused:"), done.stderr[-2000:]
    assert "MTP" in said
    assert "n-gram" in said


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
