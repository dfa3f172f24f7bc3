"""Repairs of faults in the versions we sit on that show on the CPU backend, one module each.

Every module says why, which versions it fits and what it replaces. Modules that replace a vLLM attribute have
``TARGET`` ("module:attribute"), ``needed(vllm_version)`` and the replacement under the attribute's own name; the
seam framework installs them. Importing these modules imports neither torch nor vLLM.
"""
