"""Entry points for outside harnesses that measure or check this package."""
