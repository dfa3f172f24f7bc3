"""The phases of a model's output around the constrained content."""
