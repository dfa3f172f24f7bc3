"""What no grammar can say, enforced beside it: companions wrap an engine's matcher and clear bits of its masks."""
