"""The MTP layer: one decoder layer that guesses further tokens from the target's streams.

With the embedding ``e`` of the next token and the streams ``s`` of the token before it, which are the target's on the
first guess and this layer's own on the others,

    streams = fc_embedding(norm(e)) + fc_hidden(norm(s)), the latter stream by stream, norm(s) over all streams at once

pass through a layer of sparse attention and experts; a mixer of its own and the output head of the target follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from vllm.compilation.decorators import support_torch_compile
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.models.utils import AutoWeightsLoader

from infernix_plugin.model_executor.models.flash_next.model import STACKED, DecoderLayer, Weights, output_head
from infernix_plugin.model_executor.models.flash_next.norm import OffsetNorm
from infernix_plugin.model_executor.models.flash_next.streams import StreamMixer, linear


@support_torch_compile(dynamic_arg_dims={"embeddings": 0, "positions": 0, "streams": 0})
class MtpLayer(nn.Module):
    """Embedding, projections, the layer and the final mixer. vLLM compiles the way from embeddings to streams."""

    def __init__(self, *, vllm_config: Any, prefix: str) -> None:
        """Build the layer; its number continues those of the target's layers."""
        super().__init__()
        config = vllm_config.model_config.hf_text_config
        self.streams = config.hc_count
        hidden = config.hidden_size
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, hidden)
        self.fc_embedding = linear(hidden, hidden, f"{prefix}.fc_embedding")
        self.fc_hidden = linear(hidden, hidden, f"{prefix}.fc_hidden")
        self.pre_fc_norm_embedding = OffsetNorm(hidden, config.rms_norm_eps)
        self.pre_fc_norm_hidden = OffsetNorm(self.streams * hidden, config.rms_norm_eps)
        number = f"{prefix}.layers.{config.num_hidden_layers}"
        self.layers = nn.ModuleList([DecoderLayer(vllm_config, "indexed_attention", None, number)])
        self.hyper_connection_mixer = StreamMixer(config, f"{prefix}.hyper_connection_mixer", final=True)

    def forward(self, embeddings: Tensor, positions: Tensor, streams: Tensor) -> Tensor:
        """Return the streams ``[tokens, h * H]`` behind the layer for ``embeddings`` ``[tokens, H]``."""
        earlier = self.fc_hidden(self.pre_fc_norm_hidden(streams).unflatten(-1, (self.streams, -1)))
        joined = self.fc_embedding(self.pre_fc_norm_embedding(embeddings)).unsqueeze(-2) + earlier
        return self.layers[0](joined.flatten(-2), positions, None)  # type: ignore[no-any-return]


class Qwen4ExpMTP(nn.Module):
    """The MTP head of a checkpoint, as vLLM loads and runs it."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        """Build the head.

        Raises:
            ValueError: more than one MTP layer, which neither vLLM's proposer nor any released model uses.
        """
        super().__init__()
        config = vllm_config.model_config.hf_text_config
        if getattr(config, "mtp_num_hidden_layers", 1) != 1:
            raise ValueError(f"Flash-Next on the CPU has one MTP layer, not {config.mtp_num_hidden_layers}")
        self.model = MtpLayer(vllm_config=vllm_config, prefix=f"{prefix}.mtp" if prefix else "mtp")
        self.lm_head = output_head(config, self.model.embed_tokens)
        self.logits_processor = LogitsProcessor(config.vocab_size)

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Return the embeddings ``[tokens, H]``."""
        return self.model.embed_tokens(input_ids)  # type: ignore[no-any-return]

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        hidden_states: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        spec_step_idx: int = 0,
    ) -> Tensor:
        """Return streams ``[tokens, h * H]``: what the next guess starts from, and what ``compute_logits`` takes."""
        if positions.dim() == 2:
            positions = positions[0]
        embeddings = self.embed_input_ids(input_ids) if inputs_embeds is None else inputs_embeds
        return self.model(embeddings, positions, hidden_states)  # type: ignore[no-any-return]

    def compute_logits(self, hidden_states: Tensor, spec_step_idx: int = 0) -> Tensor | None:
        """Return the logits ``[tokens, vocabulary]`` of streams."""
        mixed = self.model.hyper_connection_mixer.merge(hidden_states)
        return self.logits_processor(self.lm_head, mixed)  # type: ignore[no-any-return]

    def load_weights(self, weights: Weights) -> set[str]:
        """Load the head's tensors, and the embedding and output head of the target, from the target's checkpoint."""
        return AutoWeightsLoader(self).load_weights(_wanted(weights), mapper=STACKED)  # type: ignore[no-any-return]


def _wanted(weights: Weights) -> Iterator[tuple[str, Tensor]]:
    """Name the tensors as they are called here; those of the target's own layers are left out."""
    for name, tensor in weights:
        if name.startswith("mtp."):
            yield f"model.{name.removeprefix('mtp.')}", tensor
        elif name.endswith(("embed_tokens.weight", "lm_head.weight")):
            yield ("lm_head.weight" if "lm_head" in name else "model.embed_tokens.weight"), tensor
