"""Repairs of faults in the versions we sit on that show on the CPU backend, one module each.

Every module says why, which versions it fits and what it repairs. A module that replaces an attribute of vLLM has
``SEAM``, which stands in the table of all seams; ``seeded_chunks`` is used by a seam beside this folder. The others
repair imports that fail before vLLM is there: ``install_import_repairs``. Importing any of these modules imports
neither torch nor vLLM.
"""


def install_import_repairs() -> None:
    """Let torchvision, torchaudio and torchcodec be imported beside a torch they were not built for. Idempotent.

    Also the entry point of the group ``vllm.platform_plugins``. This package is no platform (the answer is ``None``,
    "not mine"), but vLLM asks that group first of all, in every process, before the imports that would fail; it calls
    general plugins after them.
    """
    from infernix_plugin.seams.cpu_faults import audio_libraries, torchvision_ops

    torchvision_ops.install()
    audio_libraries.install()
