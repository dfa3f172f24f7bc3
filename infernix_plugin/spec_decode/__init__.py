"""Speculative decoding under a constraint.

So far vLLM's own proposers (MTP, n-gram) propose and its own sampler verifies. That is exact because the engine core
keeps every draft (:mod:`infernix_plugin.structured_output.manager`) and the masks bear on the target alone; what the
CPU sampler needs for it is in :mod:`infernix_plugin.seams.cpu_faults.expand_batch`. Proposers and a rejection sampler
of our own belong here.
"""
