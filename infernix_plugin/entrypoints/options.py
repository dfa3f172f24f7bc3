"""Request options that cannot be honoured together with a constraint, or that vLLM would ignore silently."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from infernix_plugin.entrypoints.carrier import refuse_reserved_tags
from infernix_plugin.entrypoints.declared import declared
from infernix_plugin.entrypoints.ignored_fields import REMOVED
from infernix_plugin.entrypoints.tools.members import refuse_ignored_in_tool
from infernix_plugin.errors import ConflictingConstraints, excerpt
from infernix_plugin.structured_output.record import KEY

PENALTIES = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
"""What a penalty is where nobody asks for one."""

MAX_BIAS = 1e30
"""Far beyond what changes a probability; far below where float32 logits, divided by a small temperature, overflow."""


def check_request(request: Any) -> None:
    """Refuse what a request (chat, completion, Responses) says beside or instead of one constraint.

    Raises:
        ConflictingConstraints: located by the field's name.
    """
    for name, replacement in REMOVED.items():
        if (request.model_extra or {}).get(name) is not None:
            raise ConflictingConstraints(
                f"{name} does not exist any more and would be ignored.", location=name, hint=f"Use {replacement}."
            )
    _refuse_reserved_keys(request)
    refuse_reserved_tags(request)
    sources = constraint_sources(request)
    if len(sources) > 1:
        raise ConflictingConstraints(
            f"A request can have one constraint, but {' and '.join(sources)} are both set.", location=sources[-1]
        )
    _refuse_text_beside_tools(request)
    _refuse_ignored_schemas(request)


def _refuse_ignored_schemas(request: Any) -> None:
    """Refuse a schema where none is read, and members of tools that would constrain their calls elsewhere."""
    for place, holder in (("response_format", request), ("text.format", declared(request, "text"))):
        given = declared(holder, place.rpartition(".")[2])
        if _type_of(given) != "json_object":
            continue
        members = given if isinstance(given, Mapping) else given.model_dump()
        for name in ("schema", "json_schema"):
            if members.get(name) is not None:
                raise ConflictingConstraints(
                    "A format of the type json_object has no schema, and it would be ignored.",
                    location=f"{place}.{name}",
                    hint="A schema stands in a format of the type json_schema.",
                )
    for index, tool in enumerate(declared(request, "tools") or ()):
        refuse_ignored_in_tool(tool, f"tools[{index}]")


def check_extra_args(params: Any) -> None:
    """Refuse reserved keys in ``SamplingParams``, which offline scripts fill themselves.

    Raises:
        ConflictingConstraints: located by the key.
    """
    _refuse_reserved("extra_args", params.extra_args)
    _refuse_reserved("extra_args.kv_transfer_params", (params.extra_args or {}).get("kv_transfer_params"))


def _refuse_reserved_keys(request: Any) -> None:
    for field in ("vllm_xargs", "kv_transfer_params"):
        _refuse_reserved(field, getattr(request, field, None))


def _refuse_reserved(field: str, given: Any) -> None:
    """What begins with our name travels inside the server, and comes from no client."""
    for name in given or ():
        if str(name).lower().startswith(KEY):
            place = f"{field}.{excerpt(str(name))[1:-1]}"
            raise ConflictingConstraints(f"Keys of {field} that begin with {KEY!r} are reserved.", location=place)


def _refuse_text_beside_tools(request: Any) -> None:
    """A tool call is none of a regex's strings; vLLM would drop one of the two, with a line in the server's log."""
    structured = declared(request, "structured_outputs")
    if structured is None or not declared(request, "tools"):
        return
    if declared(request, "tool_choice") == "none":
        return
    for kind in ("regex", "choice", "grammar"):
        if getattr(structured, kind, None) is not None:
            raise ConflictingConstraints(
                f"{kind} constrains the whole answer, so the tools of the request could not be called.",
                location=f"structured_outputs.{kind}",
                hint='Set tool_choice to "none", or leave the tools out.',
            )


def keep_penalties_of_the_model_out(request: Any) -> None:
    """Give content with a constraint no penalty that only the model's generation config names.

    A constrained language repeats its structure; penalties on that push the output to odd spellings of it.
    """
    for name, neutral in PENALTIES.items():
        if getattr(request, name, neutral) is None:
            setattr(request, name, neutral)


def constraint_sources(request: Any) -> list[str]:
    """Return the names of the request fields that hold a constraint, in the order in which they are looked at."""
    present = {
        "response_format": _type_of(declared(request, "response_format")) not in (None, "text"),
        "text.format": _type_of(getattr(declared(request, "text"), "format", None)) not in (None, "text"),
        "structured_outputs": request.structured_outputs is not None,
    }
    return [name for name, there in present.items() if there]


def _type_of(response_format: Any) -> Any:
    """Return the type of a response format, which in a batch of chats is still a dictionary; ``None`` without one."""
    if isinstance(response_format, Mapping):
        return response_format.get("type")
    return getattr(response_format, "type", None)


def check_display(request: Any) -> None:
    """Refuse to show the control tokens of constrained output: they are its form, and no part of what it says.

    Only what the client asks for: vLLM's own parsers set the same option to see the tokens themselves.

    Raises:
        ConflictingConstraints: located by the option's name.
    """
    if declared(request, "skip_special_tokens", True) is False:
        raise ConflictingConstraints(
            "skip_special_tokens cannot be false beside a constraint: special tokens are not part of its text.",
            location="skip_special_tokens",
        )


def check_sampling(options: Any, model_stops: Collection[int]) -> None:
    """Refuse sampling options that could cut, prolong or forbid constrained content.

    Args:
        options: a request or ``SamplingParams``; both use the same names.
        model_stops: the model's own stop ids, which may be repeated.

    Raises:
        ConflictingConstraints: located by the option's name, with the reason.
    """
    reasons = {
        "use_beam_search": "a beam is not one output with one constraint",
        "stop": "a stop string may cut the output before it is complete",
        "include_stop_str_in_output": "the text of the stop token is not part of the constrained output",
        "ignore_eos": "the output could not end where the constraint ends",
        "min_tokens": "it forbids the stop token where the constraint may allow nothing else",
        "bad_words": "it may forbid the only token that the constraint allows",
        "allowed_token_ids": "it may forbid the only token that the constraint allows",
    }
    for name, reason in reasons.items():
        if getattr(options, name, None):
            raise ConflictingConstraints(f"{name} cannot be combined with a constraint: {reason}.", location=name)
    for token, bias in (declared(options, "logit_bias") or {}).items():
        if not abs(bias) <= MAX_BIAS:
            raise ConflictingConstraints(
                f"logit_bias gives token {token} the bias {bias}, with which no probabilities can be computed.",
                location="logit_bias",
                hint=f"A bias beside a constraint is a number from -{MAX_BIAS:g} to {MAX_BIAS:g}.",
            )
    foreign = set(declared(options, "stop_token_ids") or ()) - set(model_stops)
    if foreign:
        raise ConflictingConstraints(
            f"stop_token_ids cannot add {sorted(foreign)} to a constrained request: "
            "the output may be cut before it is complete.",
            location="stop_token_ids",
            hint="The model's own stop tokens are always in force.",
        )
