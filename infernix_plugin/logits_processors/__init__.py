"""How mask rows meet logits.

So far vLLM's runners apply the rows that :mod:`infernix_plugin.structured_output.manager` hands them. Mask application
and masked selection of our own, on the CPU and in Triton, and the guard against non-finite logits belong here.
"""
