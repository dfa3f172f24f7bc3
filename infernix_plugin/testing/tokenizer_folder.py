"""The tokenizer that a benchmark is told: a folder with ``tokenizer.json``, or one line that says that it is none."""

from pathlib import Path

import typer


def tokenizer_folder(folder: Path) -> Path:
    """Return the folder; the callback of an argument of typer.

    Raises:
        typer.BadParameter: there is no tokenizer in it.
    """
    if not (folder / "tokenizer.json").is_file():
        raise typer.BadParameter(f"{folder} has no tokenizer.json")
    return folder
