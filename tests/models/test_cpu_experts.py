"""The dot-product kernel of experts, against float64, and where it is chosen."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from vllm.model_executor.kernels.linear import zentorch_utils
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.oracle import unquantized

from infernix_plugin.model_executor.cpu_experts import DotProductExperts
from infernix_plugin.seams.cpu_experts import SEAM
from infernix_plugin.seams.seam import ORIGINAL

EXPERTS, HIDDEN, CHOSEN = 6, 64, 2

needs_the_processor = pytest.mark.skipif(
    not DotProductExperts._supports_current_device(), reason="no AVX512-BF16 here, or AMX, for which vLLM has a kernel"
)


def configuration(**changes):
    settings = {
        "intermediate_size_per_partition": 32, "hidden_dim": HIDDEN, "activation": MoEActivation.SILU,
        "in_dtype": torch.bfloat16, "has_bias": False, "is_act_and_mul": True, "moe_backend": "auto",
        "moe_parallel_config": SimpleNamespace(use_ep=False, use_batched_activation_format=False),
        "routing_method": None, "router_logits_dtype": None,
    }  # fmt: skip
    return SimpleNamespace(**settings | changes)


def layer(width, seed):
    generator = torch.Generator().manual_seed(seed)
    module = nn.Module()
    for name, shape in {"w13_weight": (EXPERTS, 2 * width, HIDDEN), "w2_weight": (EXPERTS, HIDDEN, width)}.items():
        value = torch.randn(shape, generator=generator).mul_(0.2).to(torch.bfloat16)
        module.register_parameter(name, nn.Parameter(value, requires_grad=False))
    return module


def expected(module, hidden, weights, chosen):
    """The definition, in float64."""
    w13, w2, x = (part.double() for part in (module.w13_weight, module.w2_weight, hidden))
    out = torch.zeros_like(x)
    for token, (its_weights, its_experts) in enumerate(zip(weights.double(), chosen.tolist(), strict=True)):
        for weight, expert in zip(its_weights, its_experts, strict=True):
            gate, up = (w13[expert] @ x[token]).chunk(2)
            out[token] += weight * (w2[expert] @ (nn.functional.silu(gate) * up))
    return out


@needs_the_processor
@pytest.mark.parametrize("on_input", [False, True], ids=["weighted", "weighted before"])
@pytest.mark.parametrize("width", [32, 40, 96], ids=lambda width: f"width {width}")
@pytest.mark.parametrize("tokens", [0, 1, 2, 7, 33, 150], ids=lambda tokens: f"{tokens} tokens")
def test_it_computes_what_the_definition_says(tokens, width, on_input):
    """Widths that the kernel does not take are filled up with zeros."""
    module = layer(width, tokens)
    generator = torch.Generator().manual_seed(width)
    hidden = torch.randn(tokens, HIDDEN, generator=generator).to(torch.bfloat16)
    chosen = torch.rand(tokens, EXPERTS, generator=generator).topk(CHOSEN).indices.int()
    weights = torch.rand(tokens, CHOSEN, generator=generator)
    wanted = expected(module, hidden, torch.ones_like(weights) if on_input else weights, chosen)
    other = expected(module, hidden, weights, chosen.roll(1, dims=1))
    experts = DotProductExperts.__new__(DotProductExperts)
    experts.moe_config = configuration(intermediate_size_per_partition=width)
    experts.process_weights_after_loading(module)
    output = torch.full_like(hidden, torch.nan)
    experts.apply(
        output=output, hidden_states=hidden, w1=module.w13_weight, w2=module.w2_weight, topk_weights=weights,
        topk_ids=chosen, apply_router_weight_on_input=on_input,
    )  # fmt: skip
    if not tokens:
        return
    tolerance = 0.02 * float(wanted.abs().max())
    assert float((output.double() - wanted).abs().max()) < tolerance
    assert float((other - wanted).abs().max()) > 2 * tolerance  # so fine a tolerance sees an exchange of two experts


def kernel_for(monkeypatch, dot_products, tiles, **changes):
    """What vLLM chooses on a processor of these abilities."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: dot_products)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)
    monkeypatch.setattr(unquantized.mk.FusedMoEExperts, "is_supported_config", staticmethod(supported))
    listed = SEAM.replace(getattr(unquantized.backend_to_kernel_cls, ORIGINAL, unquantized.backend_to_kernel_cls))
    for kernel in listed(unquantized.UnquantizedMoeBackend.CPU):
        if (
            kernel._supports_current_device()
            and kernel.is_supported_config(kernel, configuration(**changes), None, None, None)[0]
        ):
            return kernel.__name__
    return None


def supported(kernel, moe_config, *_):
    """The part of vLLM's answer that depends on the kernel."""
    fits = kernel._supports_activation(moe_config.activation)
    return fits and kernel._supports_parallel_config(moe_config.moe_parallel_config), "it does not fit"


@needs_the_processor
def test_it_is_chosen_where_it_fits(monkeypatch):
    assert kernel_for(monkeypatch, dot_products=True, tiles=False) == "DotProductExperts"


@needs_the_processor
@pytest.mark.parametrize(
    ("dot_products", "tiles", "changes", "chosen"),
    [
        (False, False, {}, "CPUUnquantizedExperts"),
        (True, True, {}, "X86CPUUnquantizedExperts"),
        (True, False, {"in_dtype": torch.float32}, "CPUUnquantizedExperts"),
        (True, False, {"has_bias": True}, "CPUUnquantizedExperts"),
        (True, False, {"activation": MoEActivation.GELU}, "CPUUnquantizedExperts"),
        (True, False, {"moe_parallel_config": SimpleNamespace(use_ep=True)}, "CPUUnquantizedExperts"),
    ],
    ids=["no dot products", "tiles", "float32", "biases", "another activation", "experts spread over processes"],
)
def test_vllms_own_kernels_stay_where_it_does_not(monkeypatch, dot_products, tiles, changes, chosen):
    assert kernel_for(monkeypatch, dot_products, tiles, **changes) == chosen


@needs_the_processor
@pytest.mark.parametrize("hidden", [HIDDEN, HIDDEN + 8], ids=["its sizes", "other sizes"])
def test_zentorch_keeps_what_it_computes(monkeypatch, hidden):
    """AMD's extension serves vLLM's portable class, for layers of any size."""
    monkeypatch.setattr(zentorch_utils, "has_zentorch_op", lambda names: True)
    chosen = kernel_for(monkeypatch, dot_products=True, tiles=False, hidden_dim=hidden)
    assert chosen == "CPUUnquantizedExperts"
