"""Models: the checkpoints that the project builds itself, and (later) the models that it adds to vLLM."""
