"""What the user asks for, as a value."""

from typing import Any

import pytest

from infernix_plugin import ConstraintError, InvalidChoice, OutputConstraint


def test_equal_sets_of_choices_are_equal_constraints() -> None:
    assert OutputConstraint.choice(["b", "a", "b"]) == OutputConstraint.choice(["a", "b"])


@pytest.mark.parametrize(
    ("choices", "location"),
    [("yes", None), (["a", 1], "[1]"), (["a", ["b"]], "[1]"), (["z", "a", "\ud800"], "[2]")],
)
def test_choices_that_are_not_strings_are_refused_with_their_place(choices: Any, location: str | None) -> None:
    with pytest.raises(InvalidChoice) as refused:
        OutputConstraint.choice(choices)
    assert refused.value.location == location


def test_schema_keeps_the_order_of_properties() -> None:
    constraint = OutputConstraint.json_schema({"properties": {"b": True, "a": True}})
    assert constraint.source.index('"b"') < constraint.source.index('"a"')


@pytest.mark.parametrize(
    ("make", "source", "kind"),
    [
        (OutputConstraint.regex, 5, "InvalidRegex"),
        (OutputConstraint.grammar, None, "InvalidGrammar"),
        (OutputConstraint.json_schema, b"{}", "InvalidSchema"),
        (OutputConstraint.choice, {"a": 1}, "InvalidChoice"),
        (OutputConstraint.choice, 7, "InvalidChoice"),
    ],
)
def test_sources_of_the_wrong_type_are_refused(make: Any, source: Any, kind: str) -> None:
    with pytest.raises(ConstraintError) as refused:
        make(source)
    assert type(refused.value).__name__ == kind


def test_errors_can_be_written_whatever_the_user_sent() -> None:
    error = ConstraintError("bad key \ud800", location="#/\udfff", hint="\ud83d")
    assert str(error).encode("utf-8").count(b"\\ud") == 3
