"""Validators of vLLM's request models: pydantic holds on to them, so that setting the attribute is not enough."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any


def replaced(original: MethodType, check: Callable[[Any], Any]) -> MethodType:
    """Make ``check`` the model validator that ``original`` is, and return it as a method of the model.

    Args:
        original: a bound class method, pydantic's validator "before" of the model that it is bound to.
        check: takes the raw fields of a request, and returns those that are to be read.
    """
    model: Any = original.__self__

    @functools.wraps(original.__func__)
    def validator(cls: Any, data: Any) -> Any:
        return check(data)

    replacement = MethodType(validator, model)
    # pydantic took the method when the class was made, and has to take the new one.
    model.__pydantic_decorators__.model_validators[original.__func__.__name__].func = replacement
    model.model_rebuild(force=True)
    return replacement
