"""What a compiled step calls but does not look into: the parts of layers that depend on the step's metadata and pages.

vLLM compiles a model once, for any number of tokens. Which rows a step reads and writes is different in every step and
decided in Python, so these parts stand in the compiled graph as operators, ``torch.ops.infernix.*``, that find their
layer by its full name.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import Library
from vllm.forward_context import get_forward_context
from vllm.utils.torch_utils import direct_register_custom_op

LIBRARY = Library("infernix", "FRAGMENT")  # type: ignore[no-untyped-call]
"""The operators exist as long as this does."""


def _layer(name: str) -> Any:
    return get_forward_context().no_compile_layers[name]


def _sparse_attention(queries: torch.Tensor, rows: torch.Tensor, index_queries: torch.Tensor, layer: str) -> Tensor:
    return _layer(layer).attend(queries, rows, index_queries)  # type: ignore[no-any-return]


def _sparse_attention_shape(
    queries: torch.Tensor, rows: torch.Tensor, index_queries: torch.Tensor, layer: str
) -> Tensor:
    return torch.empty_like(queries, memory_format=torch.contiguous_format)


def _ngram_entries(token_ids: torch.Tensor, width: int, layer: str) -> Tensor:
    return _layer(layer).entries(token_ids)  # type: ignore[no-any-return]


def _ngram_entries_shape(token_ids: torch.Tensor, width: int, layer: str) -> Tensor:
    return token_ids.new_empty((token_ids.size(0), width), dtype=torch.bfloat16)


def _ngram_convolution(inputs: torch.Tensor, layer: str) -> Tensor:
    return _layer(layer).convolution(inputs)  # type: ignore[no-any-return]


def _ngram_convolution_shape(inputs: torch.Tensor, layer: str) -> Tensor:
    return torch.empty_like(inputs)


direct_register_custom_op("sparse_attention", _sparse_attention, fake_impl=_sparse_attention_shape, target_lib=LIBRARY)
direct_register_custom_op("ngram_entries", _ngram_entries, fake_impl=_ngram_entries_shape, target_lib=LIBRARY)
direct_register_custom_op(
    "ngram_convolution", _ngram_convolution, fake_impl=_ngram_convolution_shape, target_lib=LIBRARY
)


def sparse_attention(queries: Tensor, rows: Tensor, index_queries: Tensor, layer: str) -> Tensor:
    """Keep ``rows`` in the pages of ``layer`` and attend; see ``SparseAttention.attend``."""
    return torch.ops.infernix.sparse_attention(queries, rows, index_queries, layer)  # type: ignore[no-any-return]


def ngram_entries(token_ids: Tensor, width: int, layer: str) -> Tensor:
    """Look up the n-grams of ``token_ids`` in the table of ``layer``; see ``NgramLayer.entries``."""
    return torch.ops.infernix.ngram_entries(token_ids, width, layer)  # type: ignore[no-any-return]


def ngram_convolution(inputs: Tensor, layer: str) -> Tensor:
    """Convolve ``inputs`` with those before them in ``layer``; see ``NgramLayer.convolution``."""
    return torch.ops.infernix.ngram_convolution(inputs, layer)  # type: ignore[no-any-return]
