"""Plain HTTP to a server that the lab measures: sessions of one kind, and JSON of the form that its reader relies on.

Without it each caller takes a proxy or a certificate authority from somewhere else, and an answer of an unexpected form
ends in a traceback that names neither the page nor what is wrong with it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import requests

Shape = Any
"""A type (`float`: any number, `object`: anything, null too), `[shape]`: a list, `{key: shape}`: an object that has
these keys among others, "key?" where it may be absent or null, a tuple: any of these shapes."""

_WORDS = {
    dict: "object",
    list: "list",
    str: "text",
    bool: "boolean",
    int: "whole number",
    float: "number",
    type(None): "null",
}


def session(headers: Mapping[str, str] | None = None, *, close: bool = False) -> requests.Session:
    """A session that takes nothing from the environment but SSL_CERT_FILE, the file of a certificate authority of one's
    own, as for all of Python: no proxy, no password.

    close: end the connection after each answer; servers drop idle ones after 5 s.
    """
    made = requests.Session()
    made.trust_env = False
    made.verify = os.environ.get("SSL_CERT_FILE") or True
    made.headers.update(headers or {})
    if close:
        made.headers["Connection"] = "close"
    return made


def content(answer: requests.Response, path: str, shape: Shape) -> Any:
    """The JSON of an answer; raises requests.RequestException, naming the path, when it is none or not of that shape.

    A number that is not finite reads as null. What the answer says is not repeated: it may hold a secret.
    """
    try:
        value = answer.json(parse_float=_finite, parse_constant=_finite)
    except ValueError as error:
        raise requests.RequestException(f"{path}: the answer is no JSON") from error
    fault = _fault(value, shape, "answer")
    if fault:
        raise requests.RequestException(f"{path}: {fault}")
    return value


def _finite(text: str) -> float | None:
    """The number, also of `NaN` and `Infinity`, which are no JSON and which Python servers write."""
    number = float(text)
    return number if math.isfinite(number) else None


def _fault(value: Any, shape: Shape, where: str) -> str | None:
    """What is wrong with the first part that does not fit; None when all of it fits."""
    if isinstance(shape, tuple):
        faults = [_fault(value, one, where) for one in shape]
        return None if None in faults else faults[-1]
    kind = type(shape) if isinstance(shape, dict | list) else shape
    if not _is(value, kind):
        return f"{where} is no {_WORDS[kind]} but {_WORDS[type(value)]}"
    if isinstance(shape, list):
        parts = ((f"{where}[{index}]", one, shape[0]) for index, one in enumerate(value))
        return next((fault for at, one, part in parts if (fault := _fault(one, part, at))), None)
    for key, part in shape.items() if isinstance(shape, dict) else ():
        name = key.removesuffix("?")
        if name == key and name not in value:
            return f"{where} has no '{name}'"
        needed = name == key or value.get(name) is not None
        if needed and (fault := _fault(value[name], part, f"{where}.{name}")):
            return fault
    return None


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool) and kind in (int, float):
        return False
    return isinstance(value, int | float if kind is float else kind)
