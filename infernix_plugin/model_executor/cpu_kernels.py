"""What vLLM's CPU kernels for gated delta nets compute with, said before a model is loaded.

The kernels check it when the first prompt runs: the engine has started by then, and dies.
"""

from __future__ import annotations

from typing import Any

HEAD_DIMS = (64, 128)
"""Sizes of a linear-attention head that the prefill kernel is compiled for; keys and values must have the same."""


def refusal(text_config: Any, dtype: str, conv_dtype: str) -> str | None:
    """Say why a model cannot run on vLLM's CPU backend, and what to do; ``None`` if it can.

    Args:
        text_config: the configuration of the text model, with ``layer_types``.
        dtype: what the model is computed in (``bfloat16``).
        conv_dtype: what the convolution's inputs are kept in, ``auto`` for the model's.
    """
    if "linear_attention" not in (getattr(text_config, "layer_types", None) or ()):
        return None
    if dtype != "bfloat16":
        return (
            "gated delta nets (Qwen3.5) are computed in bfloat16 only on vLLM's CPU backend, and this would be "
            f"{dtype}; use --dtype bfloat16. Recurrent states stay in float32"
        )
    if conv_dtype not in ("auto", "bfloat16"):
        return (
            "on vLLM's CPU backend the convolution of gated delta nets keeps its inputs in bfloat16, not in "
            f"{conv_dtype}; leave --mamba-cache-dtype at auto"
        )
    key, value = (getattr(text_config, f"linear_{part}_head_dim", None) for part in ("key", "value"))
    if key != value or key not in HEAD_DIMS:
        return (
            f"linear_key_head_dim {key} and linear_value_head_dim {value}: vLLM's CPU kernels for gated delta nets "
            f"take {' or '.join(map(str, HEAD_DIMS))}, the same for both"
        )
    return None
