"""Qwen3.8-Flash-Next (``qwen4_exp``) in plain torch, for vLLM's CPU backend.

On CUDA and ROCm vLLM has its own implementation in kernels, which stays in charge: nothing here is registered there.
"""
