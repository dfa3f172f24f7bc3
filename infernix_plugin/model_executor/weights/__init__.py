"""Which tensors a checkpoint has, which a model needs, and where each goes. Nothing here reads a tensor's data.

``headers`` reads what the files say about themselves, ``layout`` has the table of families (one module each:
``qwen3_5``, ``dflash``) and ``inspection`` compares the two. Imports neither torch nor vLLM.
"""
