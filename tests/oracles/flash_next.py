"""What Flash-Next says, by transformers: whole texts, no caches, in the checkpoint's own bfloat16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TIE = 1 / 64
"""Logits of the quiet head are between 1 and 2 at most, where bfloat16 has steps of 1/128: these are two."""

MEAN_DIFFERENCE = 0.005
"""Bound on the mean difference of log probabilities, over an output's likeliest tokens."""


class Reference:
    """The model; ``changes`` of its configuration make another one of the same weights."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(folder)
        for name, value in changes.items():
            setattr(config, name, value)
        self.model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.bfloat16).eval()

    def logits(self, prompt: list[int], output: list[int]) -> Tensor:
        """Return the logits, float32 ``[len(output), V]``, from which each token of ``output`` was chosen."""
        with torch.no_grad():
            found: Tensor = self.model(torch.tensor([prompt + output])).logits[0]
        return found[len(prompt) - 1 : -1].float()

    def differences(self, prompt: list[int], completion: dict[str, Any]) -> tuple[float, float]:
        """Compare a greedy completion that has log probabilities.

        Returns:
            How far the chosen tokens' logits are below the best ones at most, and the mean difference of the log
            probabilities that were given.
        """
        output = completion["token_ids"]
        logits = self.logits(prompt, output)
        behind = logits.amax(1) - logits[torch.arange(len(output)), torch.tensor(output)]
        expected = logits.log_softmax(1)
        given = [
            (row, token, value) for row, found in enumerate(completion["logprobs"]) for token, value in found.items()
        ]
        error = sum(abs(value - float(expected[row, token])) for row, token, value in given) / len(given)
        return float(behind.max()), error

    def agrees(self, prompt: list[int], completion: dict[str, Any]) -> bool:
        """Tell whether every token is the best one or tied with it, and the log probabilities are the same."""
        behind, error = self.differences(prompt, completion)
        return behind <= TIE and error <= MEAN_DIFFERENCE


def quieten_head(folder: Path) -> None:
    """Divide the output head by 16, so that bfloat16 resolves the logits to where the figures above stand."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] /= 16
    save_file(tensors, path, metadata={"format": "pt"})


class MtpReference:
    """The MTP head over the target's streams, from whole texts: drafts are guessed one after the other."""

    def __init__(self, reference: Reference, folder: Path) -> None:
        from safetensors.torch import load_file
        from transformers.models.qwen4_exp import modeling_qwen4_exp as modeling

        config = type(reference.model.config)(
            **{
                **reference.model.config.to_dict(),
                "num_hidden_layers": 1,
                "layer_types": ["indexed_attention"],
                "ple_layer_ids": [],
            },
        )
        config._attn_implementation = "sdpa"
        config._experts_implementation = reference.model.config._experts_implementation
        self._target = reference.model
        self._streams, hidden = config.hc_count, config.hidden_size
        self._parts = torch.nn.ModuleDict(
            {
                "fc_embedding": torch.nn.Linear(hidden, hidden, bias=False),
                "fc_hidden": torch.nn.Linear(hidden, hidden, bias=False),
                "pre_fc_norm_embedding": modeling.Qwen4ExpTextRMSNorm(hidden, eps=config.rms_norm_eps),
                "pre_fc_norm_hidden": modeling.Qwen4ExpTextRMSNorm(self._streams * hidden, eps=config.rms_norm_eps),
                "layers": torch.nn.ModuleList([modeling.Qwen4ExpTextDecoderLayer(config, 0)]),
                "hyper_connection_mixer": modeling.Qwen4ExpTextGatedResidual(config, use_combine=False),
            }
        ).to(torch.bfloat16)
        stored = load_file(folder / "model.safetensors")
        self._parts.load_state_dict({name[4:]: value for name, value in stored.items() if name.startswith("mtp.")})
        self._rotary = modeling.Qwen4ExpTextRotaryEmbedding(config)

    @torch.no_grad()
    def logits(self, text: list[int], drafts: list[int]) -> Tensor:
        """Return the logits, float32 ``[len(drafts), V]``, of each draft behind ``text`` and the drafts before it."""
        seen: list[Tensor] = []
        layer = self._target.model.layers[-1]
        hook = layer.register_forward_hook(lambda module, inputs, output: seen.append(output))
        self._target(torch.tensor([text]))
        hook.remove()
        streams, found = seen[0][:, :-1], []
        for count in range(len(drafts)):
            made = self._layer([*text, *drafts[:count]], streams)
            streams = torch.cat([streams, made[:, -1:]], dim=1)
            found.append(self._target.lm_head(self._parts["hyper_connection_mixer"](made))[0, -1].float())
        return torch.stack(found)

    def _layer(self, text: list[int], streams: Tensor) -> Tensor:
        """Return the layer's streams at every position, each seeing its streams and the token that follows it."""
        parts = self._parts
        embedded = parts["fc_embedding"](
            parts["pre_fc_norm_embedding"](self._target.model.embed_tokens.weight[text[1:]])
        )
        normed = parts["pre_fc_norm_hidden"](streams).unflatten(-1, (self._streams, -1))
        joined = (embedded[None, :, None] + parts["fc_hidden"](normed)).flatten(-2)
        count = joined.size(1)
        rotation = self._rotary(joined, torch.arange(count).expand(3, 1, -1))
        causal = torch.ones(count, count, dtype=torch.bool).tril()[None, None]
        made: Tensor = parts["layers"][0](joined, rotation, attention_mask=causal)
        return made
