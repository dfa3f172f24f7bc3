"""Tiny checkpoints with the real architecture and the real control tokens, built in seconds from a seed.

One module per model family; each turns a vocabulary and a seed into a configuration and named tensors. What the
families share: the training text (``corpus``), the tokenizer (``tokenizer``), the chat template (``chat_template``),
the word statistics that keep the output from being noise (``associations``), the weights of checkpoints of other sizes,
whose output is noise (``noise``), and the writer (``checkpoint``).
"""

from infernix_plugin.model_executor.tiny.checkpoint import make_random_model, make_tiny_draft, make_tiny_model

__all__ = ["make_random_model", "make_tiny_draft", "make_tiny_model"]
