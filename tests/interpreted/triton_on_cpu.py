"""Lets vLLM's GPU runner (V2) run on a CPU under Triton's interpreter. Call :func:`enable` before vLLM is imported.

Triton 3.9's wheel has no CPU backend and its interpreter has gaps that vLLM's kernels meet:

- vLLM switches Triton off unless a backend named ``cpu`` exists. The interpreter needs none, so a name is enough.
- Functions of ``libdevice`` have no interpreted body.
- A comparison's result carries the type of what was compared, so a scalar comparison inside a mask makes the mask an
  integer, which loads and stores refuse.
- Every launch patches ``triton.language`` again and copies each tensor to the host and back. On a CPU that is needless;
  without them an engine test takes seconds instead of minutes.
"""

import functools
from types import SimpleNamespace

import numpy as np
import torch
import triton.backends
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.language.extra import libdevice
from triton.runtime import interpreter


class CpuDriver:
    """What vLLM asks of a driver when it is imported."""

    @staticmethod
    def is_active() -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0


def enable() -> None:
    triton.backends.backends.setdefault("cpu", triton.backends.Backend(compiler=None, driver=CpuDriver))
    libdevice.log1p = elementwise(np.log1p)
    libdevice.isnan = elementwise(np.isnan, result=tl.int1)
    for name in dir(interpreter.InterpreterBuilder):
        if name.startswith(("create_icmp", "create_fcmp")):
            setattr(interpreter.InterpreterBuilder, name, as_boolean(getattr(interpreter.InterpreterBuilder, name)))
    patch_once()
    interpreter.GridExecutor._init_args_hst = lambda self, args, kwargs: (args, kwargs)
    interpreter.GridExecutor._restore_args_dev = lambda self, *arguments: None
    np.seterr(all="ignore")  # arithmetic with -inf is ordinary in these kernels


def elementwise(function, *, result=None):
    def interpreted(operand):
        scalar = result or operand.handle.dtype.scalar
        kind = tl.block_type(scalar, operand.type.shape) if result else operand.type
        return tl.tensor(interpreter.TensorHandle(function(operand.handle.data), scalar), kind)

    return interpreted


def as_boolean(comparison):
    @functools.wraps(comparison)
    def compared(self, left, right):
        return interpreter.TensorHandle(np.asarray(comparison(self, left, right).data, dtype=bool), tl.int1)

    return compared


def patch_once() -> None:
    original = interpreter._patch_lang
    scopes = []  # held for ever: leaving a scope would undo the patch

    def patch(kernel):
        if not scopes:
            scopes.append(original(SimpleNamespace(__globals__={"tl": tl, "core": tl.core})))
        return interpreter._LangPatchScope()

    interpreter._patch_lang = patch
