"""The models that this package adds to vLLM where vLLM itself has none that runs."""
