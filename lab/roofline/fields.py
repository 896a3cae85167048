"""Values from files of other people, checked field by field, with one line for the first that is wrong.

Without it a layer count of -3, `true` or NaN runs through the arithmetic and comes out as a bound, or as a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from lab.errors import InputError

ModelType = TypeVar("ModelType", bound=BaseModel)
LONGEST_SHOWN = 60  # characters of a wrong value that a message repeats
_NOT_A_MAPPING = ("model_type", "model_attributes_type", "dict_type")


class Foreign(BaseModel):
    """The fields that the lab reads of somebody else's format; all others are left alone."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, allow_inf_nan=False, protected_namespaces=())


def whole(lowest: int, highest: int) -> WrapValidator:
    """For an int of that range, both ends included."""
    return _wrapped(f"a whole number from {lowest} to {highest}", lambda value: lowest <= value <= highest)


def number(lowest: float, highest: float) -> WrapValidator:
    """For a number of that range, both ends included."""
    return _wrapped(f"a number from {lowest} to {highest}", lambda value: lowest <= value <= highest)


def expected(words: str, among: Container[Any] | None = None) -> WrapValidator:
    """For any type that a person would call `words`; with `among` for its members only."""
    return _wrapped(words, lambda value: among is None or value in among)


def validated(model: type[ModelType], data: Any, where: str, prefix: str = "") -> ModelType:
    """`data` as an instance of `model`; raises InputError `where: prefix+field: expected …, got …` for the first
    field that is wrong."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        parts = (str(part) if _plain(part) else shown(part) for part in problem["loc"])
        field = (prefix + ".".join(parts)).removesuffix(".")
        if problem["type"] == "missing":
            raise InputError(f"{where}: lacks {field}, so no bound can be computed for it") from None
        place = f"{field}: " if field else ""
        if problem["type"] == "value_error":
            raise InputError(f"{where}: {place}{problem['ctx']['error']}") from None
        message = "expected a mapping" if problem["type"] in _NOT_A_MAPPING else problem["msg"]
        raise InputError(f"{where}: {place}{message}, got {shown(problem['input'])}") from None


def without_nulls(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value: null is how a config.json says that a field does not apply."""
    return {field: value for field, value in config.items() if value is not None}


def shown(value: Any) -> str:
    """A value for a message: on one line, and shortened."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits, or levels, than Python prints
        text = f"{type(value).__name__} too long to print"
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def _plain(part: str | int) -> bool:
    return isinstance(part, int) or (part.isprintable() and len(part) <= LONGEST_SHOWN)


def _wrapped(words: str, fits: Callable[[Any], bool]) -> WrapValidator:
    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            result = handler(value)
        except ValidationError:
            result = None
        if result is None or not fits(result):
            raise ValueError(f"expected {words}, got {shown(value)}")
        return result

    return WrapValidator(check)
