"""The catalogue's model behind the names that a server shows.

Without it a person who checks a server would have to name model and recipe again, and the name of a quantised
checkpoint would be taken for that of the published one, four times its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lab.errors import InputError
from lab.roofline import model_catalogue
from lab.roofline.recipes import FORMATS

if TYPE_CHECKING:
    from lab.roofline.model import Model

TUNED = {"base", "instruct", "chat", "thinking"}
# `quantization` of SGLang and vLLM, as far as it tells a format.
QUANTISATIONS = {
    "fp8": "FP8",
    "w8a8_fp8": "FP8",
    "modelopt_fp8": "FP8",
    "modelopt_fp4": "NVFP4",
    "mxfp4": "MXFP4",
    "w8a8_int8": "INT8",
}


def served_model(names: Iterable[str | None], quantisation: str | None) -> Model:
    """The first of these names (None: not shown) that is a checkpoint on this machine or a model of the catalogue.

    A name of the catalogue may carry an owner before it and a recipe behind it (`nvidia/Qwen3.5-397B-A17B-NVFP4`);
    without one the server's `quantization` tells it, else it is the published one. Raises InputError where no name is
    known, or the recipe cannot be told.
    """
    shown = list(dict.fromkeys(name for name in names if name))
    for name in shown:
        if _is_checkpoint(name):
            return model_catalogue.find(name)
        if (found := _in_catalogue(name, quantisation)) is not None:
            return found
    said = " or ".join(shown) or "no name"
    raise InputError(f"{said}: neither a model of the catalogue nor a checkpoint on this machine")


def _is_checkpoint(name: str) -> bool:
    path = Path(name)
    return path.is_file() if name.endswith(".gguf") else (path / "config.json").is_file()


def _in_catalogue(name: str, quantisation: str | None) -> Model | None:
    last = name.rstrip("/").rpartition("/")[2].lower().removeprefix("meta-")
    for key in model_catalogue.names():
        head, rest = last[: len(key)], last[len(key) :]
        if head != key.lower() or rest[:1] not in ("", "-"):
            continue
        suffix = "-".join(part for part in rest.split("-") if part and not _only_trained(part))
        recipes = {recipe.lower(): recipe for recipe in (*FORMATS, *model_catalogue.recipes(key))}
        if not suffix:
            return model_catalogue.find(key, _recipe(key, quantisation))
        if suffix in recipes:
            return model_catalogue.find(key, recipes[suffix])
    return None


def _only_trained(part: str) -> bool:
    """Whether a part of a name says how, or when, a model was trained: architecture and bytes are the same."""
    return part in TUNED or part.isdecimal()


def _recipe(key: str, quantisation: str | None) -> str | None:
    """None: as published, which a quantised checkpoint's own `quantization` only repeats."""
    own = model_catalogue.recipes(key)
    told = QUANTISATIONS.get(quantisation or "")
    if quantisation is None or (told not in own and own[0] != "BF16"):
        return None
    if told is None:
        raise InputError(f"the server's quantization {quantisation!r} does not tell how {key} is stored")
    return told
