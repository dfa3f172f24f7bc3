"""``infernix generate``: one answer with a constraint or tools, streamed to the terminal."""
