"""The table of all seams, and their installation in this process."""

from __future__ import annotations

from infernix_plugin.seams import (
    anthropic_messages,
    chat_tool_choice,
    checkpoint_check,
    draft_marks,
    draft_proposers,
    engine_arguments,
    engine_core_manager,
    flash_next,
    online_renderer,
    output_parser,
    post_import,
    reasoning_config,
    rejection_sampler,
    request_output,
    responses_custom_tools,
    responses_cut_call,
    responses_stream,
    sampling_params,
    scheduler_output,
    second_runner,
    speculative_options,
    terminal_observation,
    worker_presence,
)
from infernix_plugin.seams.cpu_faults import (
    align_state_copy,
    expand_batch,
    gdn_conv_state,
    gdn_lone_token,
    install_import_repairs,
    ngram_start,
)
from infernix_plugin.seams.seam import Seam

ALL: tuple[Seam, ...] = (
    engine_arguments.SEAM,
    reasoning_config.DEFAULTS,
    reasoning_config.TOKEN_IDS,
    sampling_params.SEAM,
    online_renderer.CHAT,
    online_renderer.COMPLETION,
    online_renderer.RESPONSES,
    online_renderer.PROMPT,
    output_parser.GET_PARSER,
    output_parser.CHAT,
    anthropic_messages.REQUEST,
    anthropic_messages.CONVERSION,
    chat_tool_choice.SEAM,
    engine_core_manager.SEAM,
    worker_presence.SEAM,
    scheduler_output.UPDATE,
    scheduler_output.FINISH,
    scheduler_output.SEND_ABORTED,
    draft_marks.SEAM,
    request_output.PROCESS_OUTPUTS,
    request_output.MAKE_REQUEST_OUTPUT,
    request_output.NEW_COMPLETION_OUTPUT,
    responses_custom_tools.SEAM,
    responses_cut_call.SEAM,
    responses_stream.SEAM,
    terminal_observation.MERGE,
    terminal_observation.CHAT,
    terminal_observation.CHAT_EVENTS,
    terminal_observation.CHAT_CHUNKS,
    terminal_observation.CHAT_BATCH,
    terminal_observation.COMPLETION,
    terminal_observation.COMPLETION_EVENTS,
    terminal_observation.RESPONSES,
    terminal_observation.MESSAGE,
    terminal_observation.MESSAGE_EVENTS,
    rejection_sampler.SAMPLER,
    rejection_sampler.REJECTION_SAMPLER,
    rejection_sampler.SAMPLE_TOKENS,
    rejection_sampler.SAMPLE,
    rejection_sampler.DRAFT_PROBS,
    second_runner.APPLY,
    second_runner.SAMPLE,
    second_runner.OPTIONS,
    second_runner.GET_OUTPUT,
    speculative_options.VALIDATION,
    speculative_options.PROCESSORS_OF_RUNNER,
    draft_proposers.POSITIONS,
    draft_proposers.UNSUPPORTED_FEATURES,
    draft_proposers.DFLASH,
    draft_proposers.PROPOSE,
    draft_proposers.SAMPLING,
    expand_batch.SEAM,
    gdn_conv_state.SEAM,
    gdn_lone_token.SEAM,
    align_state_copy.SEAM,
    ngram_start.SEAM,
    checkpoint_check.SEAM,
    flash_next.REGISTRATION,
    flash_next.UNREAD_TABLE,
)


def install() -> None:
    """Install all seams in this process. Idempotent.

    Raises:
        UnsupportedVllmError: a module that is already imported does not look as expected.
    """
    install_import_repairs()
    post_import.install(ALL)
