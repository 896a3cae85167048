"""The model behind a server's names, in the recipe that it really serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import InputError
from lab.served_model import served_model
from tests.builders import write_checkpoint

FLASH, QWEN, LLAMA = "DeepSeek-V4-Flash", "Qwen3.5-397B-A17B", "Llama-3.1-8B"


@pytest.mark.parametrize(
    ("name", "quantisation", "model", "recipe"),
    [
        (f"deepseek-ai/{FLASH}", None, FLASH, "MXFP4"),
        (f"deepseek-ai/{FLASH}", "fp8", FLASH, "MXFP4"),
        (f"/models/nvidia/{FLASH}-NVFP4/", "modelopt_fp4", FLASH, "NVFP4"),
        (FLASH.lower(), "modelopt_fp4", FLASH, "NVFP4"),
        (QWEN, None, QWEN, "BF16"),
        (QWEN, "fp8", QWEN, "FP8"),
        (f"nvidia/{QWEN}-NVFP4", None, QWEN, "NVFP4"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", None, LLAMA, "BF16"),
        ("Llama-3.1-8B-Instruct-FP8", None, LLAMA, "FP8"),
        ("Qwen3-235B-A22B-Instruct-2507", None, "Qwen3-235B-A22B", "BF16"),
        ("zai-org/GLM-4.5-Air", None, "GLM-4.5-Air", "BF16"),
        ("DeepSeek-V3-0324", "fp8", "DeepSeek-V3", "FP8"),
    ],
)
def test_a_name_leads_to_model_and_recipe(name: str, quantisation: str | None, model: str, recipe: str) -> None:
    found = served_model([None, name], quantisation)
    assert (found.name, found.format) == (model, recipe)


def test_the_first_name_that_is_known_counts() -> None:
    assert served_model(["chat", None, f"/models/{LLAMA}"], None).name == LLAMA


def test_a_checkpoint_on_this_machine_speaks_for_itself(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "tiny.gguf")
    assert served_model(["anything", str(path)], None).weight_bytes > 0


@pytest.mark.parametrize(
    ("names", "quantisation", "words"),
    [
        (
            ["chat", "/models/elsewhere.gguf"],
            None,
            "chat or /models/elsewhere.gguf: neither a model of the catalogue nor",
        ),
        ([f"{LLAMA}-AWQ"], "awq", "neither a model of the catalogue"),
        (["DeepSeek-V3.9"], None, "neither a model of the catalogue"),
        ([None], None, "no name: neither"),
        ([LLAMA], "compressed-tensors", f"'compressed-tensors' does not tell how {LLAMA} is stored"),
    ],
)
def test_what_cannot_be_told_is_refused(names: list[str | None], quantisation: str | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        served_model(names, quantisation)
