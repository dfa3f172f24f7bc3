"""The vendored JSON Schema Test Suite as cases, with every number as it was written.

``upstream`` holds ``tests/draft7``, ``tests/draft2020-12`` and the licence of json-schema-org/JSON-Schema-Test-Suite at
commit 44401e0c046704b476ec9d2e2fccdaee618f259d (22 August 2026), unchanged. Its ``remotes`` are left out: documents
that a schema refers to are never fetched.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UPSTREAM = Path(__file__).parent / "upstream"
DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}


class Number(str):
    """The source text of a JSON number: ``1.0`` and ``1`` are equal, but not the same output."""

    __slots__ = ()


@dataclass(frozen=True)
class Case:
    """One instance and whether the schema of its group allows it."""

    description: str
    instance: object
    valid: bool


@dataclass(frozen=True)
class Group:
    """One schema with its cases."""

    description: str
    schema: object
    cases: tuple[Case, ...]


def files() -> list[str]:
    """The names of all files, in a fixed order: ``draft7/items``, ``draft7/optional/format/date``."""
    return sorted(path.relative_to(UPSTREAM).with_suffix("").as_posix() for path in UPSTREAM.rglob("*.json"))


def groups(file: str) -> Iterator[Group]:
    """The groups of one file. A schema that does not name its dialect is given that of the folder it is in."""
    text = (UPSTREAM / f"{file}.json").read_text(encoding="utf-8")
    for group in json.loads(text, parse_int=Number, parse_float=Number):
        schema = group["schema"]
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": DRAFTS[file.split("/")[0]], **schema}
        tests = tuple(Case(test["description"], test["data"], test["valid"]) for test in group["tests"])
        yield Group(group["description"], schema, tests)


def written(value: object) -> str:
    """The value as JSON: numbers as in the source, ``", "`` and ``": "`` between the tokens."""
    match value:
        case Number():
            return str(value)
        case dict():
            return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {written(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(written, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)
