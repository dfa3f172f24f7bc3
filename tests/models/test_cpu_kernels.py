"""Which element types and sizes gated delta nets run with on a CPU: what is refused, and that the kernels refuse it."""

from types import SimpleNamespace

import pytest
import torch

from infernix_plugin.model_executor.cpu_kernels import HEAD_DIMS, refusal
from infernix_plugin.seams import engine_arguments
from infernix_plugin.seams.cpu_faults import install_import_repairs

install_import_repairs()
HYBRID = {"layer_types": ["linear_attention", "full_attention"]}


def model(key=128, value=128, **more):
    return SimpleNamespace(**{**HYBRID, "linear_key_head_dim": key, "linear_value_head_dim": value, **more})


@pytest.mark.parametrize(
    ("config", "dtype", "conv_dtype", "says"),
    [
        (model(), "float32", "auto", "float32; use --dtype bfloat16"),
        (model(), "float16", "auto", "float16; use --dtype bfloat16"),
        (model(), "bfloat16", "float32", "leave --mamba-cache-dtype at auto"),
        (model(96, 96), "bfloat16", "auto", "linear_key_head_dim 96 and linear_value_head_dim 96"),
        (model(64, 128), "bfloat16", "auto", "linear_key_head_dim 64 and linear_value_head_dim 128"),
    ],
)
def test_what_the_kernels_do_not_take_is_refused(config, dtype, conv_dtype, says):
    assert says in str(refusal(config, dtype, conv_dtype))


@pytest.mark.parametrize(
    ("config", "dtype", "conv_dtype"),
    [
        (model(), "bfloat16", "auto"),
        (model(64, 64), "bfloat16", "bfloat16"),
        (SimpleNamespace(layer_types=["full_attention"]), "float32", "float32"),
        (SimpleNamespace(), "float16", "auto"),
        (SimpleNamespace(layer_types=None), "float32", "auto"),
    ],
)
def test_what_they_take_is_not(config, dtype, conv_dtype):
    assert refusal(config, dtype, conv_dtype) is None


@pytest.mark.parametrize(("key", "value"), [(64, 64), (128, 128), (64, 128), (96, 96), (256, 256)])
def test_the_prefill_kernel_takes_these_head_dims(key, value):
    custom_ops = pytest.importorskip("vllm._custom_ops")
    if not hasattr(torch.ops._C, "chunk_gated_delta_rule_cpu"):
        pytest.skip("this vLLM has no CPU kernels")
    tokens, heads = 5, 2
    keys = torch.randn(1, tokens, heads, key).to(torch.bfloat16)
    arguments = {
        "query": keys,
        "key": keys,
        "value": torch.randn(1, tokens, heads, value).to(torch.bfloat16),
        "g": -torch.rand(1, tokens, heads),
        "beta": torch.rand(1, tokens, heads).to(torch.bfloat16),
        "initial_state": torch.zeros(2, heads, key, value),
        "initial_state_indices": torch.tensor([1], dtype=torch.int32),
        "cu_seqlens": torch.tensor([0, tokens], dtype=torch.int32),
        "output_final_state": True,
        "head_first": False,
        "use_qk_l2norm_in_kernel": True,
    }
    if key == value and key in HEAD_DIMS:
        assert custom_ops.chunk_gated_delta_rule_cpu(**arguments)[0].isfinite().all()
    else:
        with pytest.raises(RuntimeError, match="head"):
            custom_ops.chunk_gated_delta_rule_cpu(**arguments)


def arguments():
    """vLLM's arguments as they are by default, without what making them would load."""
    from vllm import EngineArgs

    given = object.__new__(EngineArgs)
    given.model, given.additional_config, given.hf_overrides = "some/name", {}, {}
    return given


def test_the_engine_does_not_start(monkeypatch):
    """With one line that ends a command line; on another device it starts."""
    config = SimpleNamespace(
        speculative_config=None,
        structured_outputs_config=SimpleNamespace(backend="auto"),
        model_config=SimpleNamespace(hf_text_config=model(), dtype=torch.float32),
        cache_config=SimpleNamespace(mamba_cache_dtype="auto"),
    )
    start = engine_arguments.SEAM.replace(lambda self: config)
    monkeypatch.setattr(engine_arguments, "_on_cpu", lambda: True)
    with pytest.raises(engine_arguments.SettingsRefused, match="bfloat16 only") as refused:
        start(arguments())
    assert "\n" not in str(refused.value)
    monkeypatch.setattr(engine_arguments, "_on_cpu", lambda: False)
    assert start(arguments()) is config
