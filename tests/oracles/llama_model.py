"""A tiny checkpoint of another family: Llama's layers, control tokens and form of tool calls, random weights."""

from __future__ import annotations

from pathlib import Path

START, END, END_OF_TURN = "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"
HEADER, HEADER_END, CALL = "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"
CHAT_TEMPLATE = (
    "{{- bos_token }}"
    "{%- if tools %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\n' ~ (tools | tojson) ~ '<|eot_id|>' }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' ~ (message.content or '') ~ '<|eot_id|>' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)


def make_tiny_llama(directory: Path) -> None:
    """Write the checkpoint; the same files every time."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from infernix_plugin.model_executor.tiny.corpus import documents

    control = [START, END, END_OF_TURN, HEADER, HEADER_END, CALL]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=512, initial_alphabet=alphabet, special_tokens=control, show_progress=False
    )
    tokenizer.train_from_iterator(documents(), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=START, eos_token=END_OF_TURN)
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(directory)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        bos_token_id=control.index(START),
        eos_token_id=control.index(END_OF_TURN),
        dtype="bfloat16",
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(directory)
