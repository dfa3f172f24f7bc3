"""The language side: what a constraint means. No vLLM, no torch, no tokenizer."""
