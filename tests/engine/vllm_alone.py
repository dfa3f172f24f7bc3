"""vLLM's own manager, proposers and rejection sampler, for comparison.

Only repairs of its CPU backend stay: without them it reads uninitialised memory or ends in the middle of a step, and
the comparison would show those faults instead of its treatment of illegal drafts.
"""

from infernix_plugin.seams import draft_proposers, table
from infernix_plugin.seams.cpu_faults import expand_batch, gdn_conv_state


def install_repairs_only() -> None:
    """Reduce the plugin of this process to those repairs; to be called before vLLM is imported."""
    table.ALL = (expand_batch.SEAM, gdn_conv_state.SEAM, draft_proposers.POSITIONS)
