"""How mask rows meet logits, and what becomes of a row from which no token can be drawn.

On the CPU, vLLM's runners apply the mask rows of :mod:`infernix_plugin.structured_output.manager`; :mod:`.guard` then
looks for rows without a distribution and :mod:`.row_failure` carries them to the engine core. :mod:`.masked_selection`
holds Triton kernels for mask application, masked argmax and masked top-k.
"""
