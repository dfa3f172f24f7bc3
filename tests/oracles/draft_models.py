"""What a drafter has to propose after a text, recomputed from the checkpoints in plain torch: whole texts, no caches.

float32 with the checkpoints' own bfloat16 weights. All return logits, one row per draft.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

Weights = dict[str, Tensor]


class Target:
    """The tiny Qwen3.5 model, by transformers."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        self.folder = folder
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.embed = self.model.get_input_embeddings().weight.data
        self.head = self.model.get_output_embeddings().weight.data

    def states(self, text: list[int]) -> tuple[Tensor, ...]:
        """Return the output of each layer, float32[n, H], behind the embeddings; the last one is normed."""
        with torch.no_grad():
            output = self.model(torch.tensor([text]), output_hidden_states=True)
        return tuple(state[0] for state in output.hidden_states)


def weights_of(folder: Path) -> Weights:
    return {name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()}


class Mtp:
    """The MTP head: one decoder layer over the target's last states, each beside the token that follows it."""

    def __init__(self, target: Target) -> None:
        from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

        config = type(target.model.config)(
            **{**target.model.config.to_dict(), "num_hidden_layers": 1, "layer_types": None}
        )
        config.layer_types = ["full_attention"]
        self._target = target
        self._weights = {
            name[4:]: tensor for name, tensor in weights_of(target.folder).items() if name.startswith("mtp.")
        }
        self._layer = Qwen3_5TextModel(config).eval()
        own = {name: tensor for name, tensor in self._weights.items() if name.startswith(("layers.", "norm."))}
        missing, unexpected = self._layer.load_state_dict(own, strict=False)
        assert missing == ["embed_tokens.weight"], missing
        assert not unexpected

    @torch.no_grad()
    def logits(self, text: list[int], drafts: list[int]) -> Tensor:
        """Return the logits of each of ``drafts``, float32[K, V], given those before it."""
        states = self._target.states(text[:-1])[-1]
        following = text[1:]
        rows = []
        for draft in drafts:
            tokens = self._target.embed[torch.tensor(following)]
            joint = torch.cat([self._norm(tokens, "embedding"), self._norm(states, "hidden")], dim=1)
            output = self._layer(inputs_embeds=(joint @ self._weights["fc.weight"].T).unsqueeze(0)).last_hidden_state[0]
            rows.append(output[-1] @ self._target.head.T)
            states = torch.cat([states, output[-1:]])
            following = [*following, draft]
        return torch.stack(rows)

    def _norm(self, states: Tensor, which: str) -> Tensor:
        return functional.rms_norm(states, states.shape[-1:], 1 + self._weights[f"pre_fc_norm_{which}.weight"], 1e-6)


class Dflash:
    """A DFlash draft: the last token and K masks, read at once beside keys and values from the target's layers."""

    def __init__(self, target: Target, folder: Path) -> None:
        self._target = target
        self._weights = weights_of(folder)
        self._config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self._details = self._config["dflash_config"]
        self._candidates = "selector_top_k" in self._details

    @torch.no_grad()
    def hidden(self, text: list[int], drafts: int) -> Tensor:
        """Return the states of the mask slots, float32[K, H]."""
        w, config = self._weights, self._config
        states = self._target.states(text[:-1])
        features = torch.cat([states[layer + 1] for layer in self._details["target_layer_ids"]], dim=1)
        context = self._norm(features @ w["fc.weight"].T, "hidden_norm.weight")
        x = self._target.embed[torch.tensor([text[-1], *[self._details["mask_token_id"]] * drafts])]
        for layer in range(config["num_hidden_layers"]):
            prefix = f"layers.{layer}."
            normed = self._norm(x, f"{prefix}input_layernorm.weight")
            mixed = self._convolved(
                normed, f"{prefix}attention_conv.", lambda y, prefix=prefix: self._attention(y, context, prefix)
            )
            x = x + mixed
            normed = self._norm(x, f"{prefix}post_attention_layernorm.weight")
            x = x + self._convolved(normed, f"{prefix}mlp_conv.", lambda y, prefix=prefix: self._mlp(y, prefix))
        return self._norm(x, "norm.weight")[1:]

    def logits(self, text: list[int], drafts: list[int]) -> Tensor:
        return self.hidden(text, len(drafts)) @ self._target.head.T

    @torch.no_grad()
    def scores(self, text: list[int], candidates: Tensor, drafts: list[int]) -> Tensor:
        """Return the score of each candidate after the draft chosen before it, float32[K, C].

        Args:
            text: the committed tokens.
            candidates: int64[K, C], the engine's own choice of candidates.
            drafts: K chosen tokens.
        """
        hidden = self.hidden(text, len(drafts))
        unary = (hidden @ self._target.head.T).gather(1, candidates)
        before = torch.tensor([text[-1], *drafts[:-1]])
        prefix = "candidate_selector."
        left = self._weights[f"{prefix}predecessor_codebook"][before]
        right = self._weights[f"{prefix}successor_codebook"][candidates]
        projected = hidden @ self._weights[f"{prefix}hidden_projection.weight"].T
        return unary + torch.einsum("kr,kcr->kc", left * projected, right)

    def _attention(self, x: Tensor, context: Tensor, prefix: str) -> Tensor:
        heads, kv_heads, width = (
            self._config[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
        )
        w, prefix = self._weights, f"{prefix}self_attn."
        both = torch.cat([context, x])
        queries = (x @ w[f"{prefix}q_proj.weight"].T).view(-1, heads, width)
        keys = (both @ w[f"{prefix}k_proj.weight"].T).view(-1, kv_heads, width)
        values = (both @ w[f"{prefix}v_proj.weight"].T).view(-1, kv_heads, width)
        positions = torch.arange(len(both))
        queries = self._rotated(self._norm(queries, f"{prefix}q_norm.weight"), positions[len(context) :])
        keys = self._rotated(self._norm(keys, f"{prefix}k_norm.weight"), positions)
        shared = heads // kv_heads
        chances = torch.einsum("qhd,khd->hqk", queries, keys.repeat_interleave(shared, 1)).div(width**0.5).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", chances, values.repeat_interleave(shared, 1))
        return mixed.reshape(len(x), -1) @ w[f"{prefix}o_proj.weight"].T

    def _rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        base = self._config["rope_parameters"]["rope_theta"]
        angles = positions[:, None, None] * base ** (-torch.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)

    def _mlp(self, x: Tensor, prefix: str) -> Tensor:
        w, prefix = self._weights, f"{prefix}mlp."
        gate = functional.silu(x @ w[f"{prefix}gate_proj.weight"].T)
        return (gate * (x @ w[f"{prefix}up_proj.weight"].T)) @ w[f"{prefix}down_proj.weight"].T

    def _convolved(self, x: Tensor, prefix: str, block: Any) -> Tensor:
        """A block between two causal convolutions over the slots, whose coefficients depend on the block's input."""
        if not self._candidates:
            return block(x)
        taps, group = self._details["conv_kernel_size"], self._details["conv_group_size"]
        delta = (x @ self._weights[f"{prefix}kernel_projection.weight"].T).view(len(x), 2, taps, -1)
        kernels = self._weights[f"{prefix}base_kernel"] + delta.repeat_interleave(group, dim=-1)
        return self._convolution(block(self._convolution(x, kernels[:, 0])), kernels[:, 1])

    def _convolution(self, x: Tensor, kernels: Tensor) -> Tensor:
        """``kernels``: float32[slots, taps, H]; tap ``t`` reads ``t`` slots back."""
        return sum(kernels[:, tap] * functional.pad(x, (0, 0, tap, 0))[: len(x)] for tap in range(kernels.shape[1]))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], self._weights[name], self._config["rms_norm_eps"])
