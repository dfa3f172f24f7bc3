"""Repairs of faults in the versions we sit on that show on the CPU backend, one module each.

Every module says why, which versions it fits and what it repairs. A module that replaces an attribute of vLLM has
``SEAM``; ``for_release`` gathers those that the installed vLLM needs. The others repair imports that fail before vLLM
is there: ``install_import_repairs``. Importing any of these modules imports neither torch nor vLLM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infernix_plugin.seams.seam import Seam


def for_release(release: tuple[int, int]) -> tuple[Seam, ...]:
    """Return the seams that vLLM ``release`` (major, minor) needs on the CPU; elsewhere they leave the original."""
    from infernix_plugin.seams.cpu_faults import expand_batch, gdn_conv_state

    return tuple(seam for seam in (expand_batch.SEAM, gdn_conv_state.SEAM) if release in seam.releases)


def install_import_repairs() -> None:
    """Let torchvision, torchaudio and torchcodec be imported beside a torch they were not built for. Idempotent.

    Also the entry point of the group ``vllm.platform_plugins``. This package is no platform (the answer is ``None``,
    "not mine"), but vLLM asks that group first of all, in every process, before the imports that would fail; it calls
    general plugins after them.
    """
    from infernix_plugin.seams.cpu_faults import audio_libraries, torchvision_ops

    torchvision_ops.install()
    audio_libraries.install()
