"""The text model: decoder layers over gated residual streams, the final mixer and the output head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from vllm.compilation.decorators import support_torch_compile
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn import QwenGatedDeltaNetAttention
from vllm.model_executor.layers.mamba.mamba_utils import (
    MambaStateCopyFuncCalculator,
    MambaStateDtypeCalculator,
    MambaStateShapeCalculator,
)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from vllm.model_executor.models.interfaces import HasInnerState, IsHybrid, SupportsMRoPE
from vllm.model_executor.models.qwen3_5 import Qwen3_5Model
from vllm.model_executor.models.qwen3_next import Qwen3NextSparseMoeBlock
from vllm.model_executor.models.utils import AutoWeightsLoader, WeightsMapper

from infernix_plugin.model_executor.models.flash_next.ngram_layer import NgramLayer
from infernix_plugin.model_executor.models.flash_next.ngram_table import is_shard
from infernix_plugin.model_executor.models.flash_next.sparse_attention import SparseAttention
from infernix_plugin.model_executor.models.flash_next.streams import STACKED_IN_MIXERS, StreamMixer

STACKED = Qwen3_5Model.hf_to_vllm_mapper | STACKED_IN_MIXERS
"""Which tensors of a checkpoint stand together in one of the model: query, key and value; gate and up; and so on."""

_DERIVED = (".layer_multipliers", ".ngram_heads_vocab_sizes", ".ngram_heads_offsets")
"""Tensors that some checkpoints hold and that follow from the configuration."""

Weights = Iterable[tuple[str, Tensor]]


class DecoderLayer(nn.Module):
    """n-gram features on some layers, then attention of either kind and experts, each around the streams."""

    def __init__(self, vllm_config: Any, layer_type: str, ngram_index: int | None, prefix: str) -> None:
        """Build the layer ``prefix``; ``ngram_index`` counts the n-gram layers, None on the others."""
        super().__init__()
        config = vllm_config.model_config.hf_text_config
        self.linear_attn: QwenGatedDeltaNetAttention | None = None
        self.self_attn: SparseAttention | None = None
        if layer_type == "linear_attention":
            self.linear_attn = QwenGatedDeltaNetAttention(config, vllm_config, prefix=f"{prefix}.linear_attn")
        else:
            self.self_attn = SparseAttention(vllm_config, f"{prefix}.self_attn")
        self.ple: NgramLayer | None = None
        if ngram_index is not None:
            assert self.linear_attn is not None  # the configuration sees to it
            self.ple = NgramLayer(vllm_config, ngram_index, self.linear_attn, f"{prefix}.ple")
        self.mlp = Qwen3NextSparseMoeBlock(vllm_config, prefix=f"{prefix}.mlp")
        self.attn_hyper_connection = StreamMixer(config, f"{prefix}.attn_hyper_connection")
        self.mlp_hyper_connection = StreamMixer(config, f"{prefix}.mlp_hyper_connection")

    def forward(self, streams: Tensor, positions: Tensor, token_ids: Tensor | None) -> Tensor:
        """Return the streams ``[tokens, h * H]`` behind the layer.

        Args:
            streams: ``[tokens, h * H]``.
            positions: int64 ``[tokens]``.
            token_ids: int ``[tokens]``; n-gram layers need them.
        """
        if self.ple is not None:
            if token_ids is None:
                raise ValueError("Flash-Next reads token ids in its n-gram layers; prompts of embeddings have none")
            streams = self.ple(streams, token_ids)
        if self.linear_attn is not None:
            streams = self.attn_hyper_connection.around(self.linear_attn, streams)
        else:
            assert self.self_attn is not None
            attention = self.self_attn
            streams = self.attn_hyper_connection.around(lambda hidden: attention(hidden, positions), streams)
        return self.mlp_hyper_connection.around(self.mlp, streams)


@support_torch_compile(dynamic_arg_dims={"token_ids": 0, "positions": 0, "embeddings": 0})
class FlashNextModel(nn.Module):
    """Embedding, decoder layers and final mixer: what vLLM compiles as a whole."""

    def __init__(self, *, vllm_config: Any, prefix: str) -> None:
        """Build the model for the target of ``vllm_config``."""
        super().__init__()
        config = vllm_config.model_config.hf_text_config
        self.streams = config.hc_count
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size)
        numbers = {layer - 1: index for index, layer in enumerate(config.ple_layer_ids)}
        self.layers = nn.ModuleList(
            DecoderLayer(vllm_config, layer_type, numbers.get(index), f"{prefix}.layers.{index}")
            for index, layer_type in enumerate(config.layer_types)
        )
        self.hyper_connection_mixer = StreamMixer(config, f"{prefix}.hyper_connection_mixer", final=True)

    def forward(self, token_ids: Tensor | None, positions: Tensor, embeddings: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the hidden states ``[tokens, H]`` in front of the output head, and the streams ``[tokens, h * H]``."""
        if embeddings is None:
            embeddings = self.embed_tokens(token_ids)
        streams = embeddings.repeat(1, self.streams)
        for layer in self.layers:
            streams = layer(streams, positions, token_ids)
        return self.hyper_connection_mixer.merge(streams), streams


class Qwen4ExpForCausalLM(nn.Module, HasInnerState, IsHybrid, SupportsMRoPE):  # type: ignore[misc]
    """Flash-Next for text, as vLLM loads and runs it."""

    checkpoint_names: ClassVar[WeightsMapper] = WeightsMapper(
        orig_to_new_prefix={"mtp.": None, "model.visual.": None, "visual.": None, "model.language_model.": "model."}
    )
    """What is not wanted, and what is called otherwise in multimodal checkpoints and in those cut out of them."""

    packed_modules_mapping: ClassVar[dict[str, list[str]]] = {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
        "in_proj_qkvz": ["in_proj_qkv", "in_proj_z"],
        "in_proj_ba": ["in_proj_b", "in_proj_a"],
        "down_inject_proj": ["input_mix_weight_down", "block_inject_weight"],
    }

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        """Build the model.

        Raises:
            ValueError: a type other than bfloat16, or more than one pipeline stage.
        """
        super().__init__()
        config = vllm_config.model_config.hf_text_config
        if vllm_config.model_config.dtype is not torch.bfloat16:
            raise ValueError(
                "Flash-Next on the CPU runs in bfloat16, the only type of vLLM's gated delta nets there, "
                f"not in {vllm_config.model_config.dtype}; use --dtype bfloat16"
            )
        if vllm_config.parallel_config.pipeline_parallel_size > 1:
            raise ValueError("Flash-Next on the CPU runs in one pipeline stage")
        self.config, self.vllm_config = config, vllm_config
        self.model = FlashNextModel(vllm_config=vllm_config, prefix=f"{prefix}.model" if prefix else "model")
        self.lm_head = output_head(config, self.model.embed_tokens)
        self.logits_processor = LogitsProcessor(config.vocab_size)
        # The MTP layer reads the streams of the whole step; vLLM takes them from here, not from what forward returns.
        speculation = vllm_config.speculative_config
        self.last_streams: Tensor | None = None
        if speculation is not None and speculation.method == "mtp":
            tokens = vllm_config.scheduler_config.max_num_batched_tokens
            wide = config.hc_count * config.hidden_size
            self.last_streams = torch.zeros(tokens, wide, dtype=vllm_config.model_config.dtype)

    def embed_input_ids(self, input_ids: Tensor) -> Tensor:
        """Return the embeddings ``[tokens, H]``."""
        return self.model.embed_tokens(input_ids)  # type: ignore[no-any-return]

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """Return hidden states ``[tokens, H]``; all rows of multimodal ``positions`` are equal for text."""
        if positions.dim() == 2:
            positions = positions[0]
        hidden, streams = self.model(input_ids, positions, inputs_embeds)
        if self.last_streams is not None:
            self.last_streams[: len(streams)] = streams
        return hidden  # type: ignore[no-any-return]

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        """Return the logits ``[tokens, vocabulary]``."""
        return self.logits_processor(self.lm_head, hidden_states)  # type: ignore[no-any-return]

    def get_mtp_target_hidden_states(self) -> Tensor | None:
        """Return the streams of the last step, ``[max tokens, h * H]``, for the MTP layer."""
        return self.last_streams

    def get_mrope_input_positions(self, input_tokens: list[int], mm_features: Any) -> tuple[Tensor, int]:
        """Return three equal rows of positions, and that the next token continues them."""
        return torch.arange(len(input_tokens)).expand(3, -1), 0

    def load_weights(self, weights: Weights) -> set[str]:
        """Load a checkpoint; the n-gram tables are mapped out of its files.

        Raises:
            ValueError: a tensor that the model does not have, or a table that is not complete.
        """
        directory = checkpoint_directory(self.vllm_config)
        for index, layer in enumerate(self.model.layers):
            if isinstance(layer, DecoderLayer) and layer.ple is not None:
                layer.ple.map_table(directory, index)
        loader = AutoWeightsLoader(self)
        return loader.load_weights(_wanted(weights), mapper=self.checkpoint_names | STACKED)  # type: ignore[no-any-return]

    @classmethod
    def get_mamba_state_dtype_from_config(cls, vllm_config: Any) -> tuple[torch.dtype, torch.dtype]:
        """Return the types of the two states of a gated delta net."""
        cache = vllm_config.cache_config
        return MambaStateDtypeCalculator.gated_delta_net_state_dtype(  # type: ignore[no-any-return]
            vllm_config.model_config.dtype, cache.mamba_cache_dtype, cache.mamba_ssm_cache_dtype
        )

    @classmethod
    def get_mamba_state_shape_from_config(cls, vllm_config: Any) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the shapes of the two states of a gated delta net; the n-gram layers use the same pages."""
        config = vllm_config.model_config.hf_text_config
        return MambaStateShapeCalculator.gated_delta_net_state_shape(  # type: ignore[no-any-return]
            vllm_config.parallel_config.tensor_parallel_size,
            config.linear_num_key_heads,
            config.linear_num_value_heads,
            config.linear_key_head_dim,
            config.linear_value_head_dim,
            config.linear_conv_kernel_dim,
            vllm_config.num_speculative_tokens,
        )

    @classmethod
    def get_mamba_state_copy_func(cls) -> tuple[Any, Any]:
        """Return how prefix caching copies the states: a window, then a recurrence; n-gram layers have a window."""
        return MambaStateCopyFuncCalculator.gated_delta_net_state_copy_func()  # type: ignore[no-any-return]


class Qwen4ExpForConditionalGeneration(Qwen4ExpForCausalLM):
    """The text half of a multimodal checkpoint."""


def output_head(config: Any, embedding: VocabParallelEmbedding) -> Any:
    """Return the layer ``[vocabulary, H]`` that makes logits, which may be the embedding itself."""
    head = ParallelLMHead(config.vocab_size, config.hidden_size, prefix="lm_head")
    return head.tie_weights(embedding) if config.tie_word_embeddings else head


def checkpoint_directory(vllm_config: Any) -> Path:
    """Return where the files of the target are; those of a name on a hub were fetched before weights are loaded."""
    model = vllm_config.model_config.model
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            model,
            revision=vllm_config.model_config.revision,
            cache_dir=vllm_config.load_config.download_dir,
            local_files_only=True,
        )
    )


def _wanted(weights: Weights) -> Iterator[tuple[str, Tensor]]:
    """Drop n-gram tables, in case a loader read them all the same, and what follows from the configuration."""
    return ((name, tensor) for name, tensor in weights if not (is_shard(name) or name.endswith(_DERIVED)))
