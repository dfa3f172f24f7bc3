"""``infernix check``: is a constraint supported, what does it cost, and where is an output refused."""
