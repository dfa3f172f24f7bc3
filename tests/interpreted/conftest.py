"""These tests need Triton's interpreter, which a process chooses before it imports a kernel.

So they run in a process of their own: ``tests/gpu/test_interpreted.py`` starts it. By hand:
``TRITON_INTERPRET=1 python -m pytest tests/interpreted``.
"""

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
