"""vLLM's own validation of constraints: replaced, because another compiler will run them."""

from __future__ import annotations

import functools
from typing import Any

from infernix_plugin.seams.seam import Seam


def _replace(original: Any) -> Any:
    @functools.wraps(original)
    def _validate_structured_outputs(
        self: Any, model_config: Any, structured_outputs_config: Any, tokenizer: Any
    ) -> None:
        if structured_outputs_config is None or (self.structured_outputs is None and not self.extra_args):
            return
        if model_config.is_diffusion or tokenizer is None:
            original(self, model_config, structured_outputs_config, tokenizer)  # refuses both with its own words
            return
        from infernix_plugin.entrypoints import validation

        validation.validate_sampling_params(model_config, tokenizer, self)

    return _validate_structured_outputs


SEAM = Seam(
    module="vllm.sampling_params",
    attribute="SamplingParams._validate_structured_outputs",
    reason="It judges by xgrammar's rules and names a backend; this also covers offline use and batches.",
    replace=_replace,
    parameters=("self", "model_config", "structured_outputs_config", "tokenizer"),
)
