"""Tools in requests and calls in responses, for the protocols that vLLM serves."""
