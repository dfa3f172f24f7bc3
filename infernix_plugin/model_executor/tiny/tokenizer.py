"""A byte-level BPE tokenizer with the pre-tokenisation and the control tokens of Qwen3.5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from infernix_plugin.model_executor.tiny import corpus
from infernix_plugin.model_executor.tiny.chat_template import CHAT_TEMPLATE

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEXT_TOKENS = 2048
"""Ordinary tokens: 256 bytes and the learned merges. Control tokens follow directly after them."""

MODEL_MAX_LENGTH = 32_768

END_OF_TEXT = "<|endoftext|>"
START_OF_TURN = "<|im_start|>"
END_OF_TURN = "<|im_end|>"

SPECIAL = (
    END_OF_TEXT, START_OF_TURN, END_OF_TURN,
    "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
    "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
"""Added tokens that decoding with ``skip_special_tokens`` hides, in Qwen3.5's order of ids."""

VISIBLE = (
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip
"""Added tokens that stay in the decoded text: parsers look for them there."""

SPECIAL_SPEECH = (
    "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>",
    "<|audio_pad|>",
)  # fmt: skip
"""Special tokens of the speech models that share this vocabulary; their ids come last."""

CONTROL_TOKENS = SPECIAL + VISIBLE + SPECIAL_SPEECH

# A piece of text is: an English contraction, a word with at most one mark before it, ONE digit, a run of punctuation
# with the line ends after it, line ends, or blanks. Merges never cross a piece. The pattern of Qwen3.5's tokenizer.
_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train() -> Tokenizer:
    """Train on ``corpus.documents()``. Deterministic: the same merges in the same order on every machine."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT_TOKENS, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(corpus.documents(), trainer)
    if tokenizer.get_vocab_size() != TEXT_TOKENS:
        raise RuntimeError(f"the corpus gave {tokenizer.get_vocab_size()} tokens, not {TEXT_TOKENS}")
    tokenizer.add_tokens([AddedToken(text, special=text not in VISIBLE, normalized=False) for text in CONTROL_TOKENS])
    return tokenizer


def save(tokenizer: Tokenizer, directory: Path) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja`` into ``directory``."""
    (directory / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    added = tokenizer.get_added_tokens_decoder()
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(token_id): {
                "content": token.content,
                "lstrip": token.lstrip,
                "normalized": token.normalized,
                "rstrip": token.rstrip,
                "single_word": token.single_word,
                "special": token.special,
            }
            for token_id, token in sorted(added.items())
        },
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TURN,
        "errors": "replace",
        "model_max_length": MODEL_MAX_LENGTH,
        "pad_token": END_OF_TEXT,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen3_5Tokenizer",
        "unk_token": None,
    }
    (directory / "tokenizer_config.json").write_text(
        json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
