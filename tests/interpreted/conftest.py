"""These tests need Triton's interpreter, which a process chooses before it imports a kernel.

So they run in a process of their own: ``tests/gpu/test_interpreted.py`` starts it. By hand:
``TRITON_INTERPRET=1 python -m pytest tests/interpreted``.
"""

import os
import sys
from pathlib import Path

INTERPRETING = os.environ.get("TRITON_INTERPRET") == "1"

collect_ignore_glob = [] if INTERPRETING else ["test_*.py"]

if INTERPRETING:
    sys.path.insert(0, str(Path(__file__).parent))
    import triton_on_cpu

    # One engine, in this process, on the runner for GPUs.
    os.environ |= {
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    triton_on_cpu.enable()
