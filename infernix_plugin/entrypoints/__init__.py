"""What people and clients talk to: the ``infernix`` command and the demo it runs."""
