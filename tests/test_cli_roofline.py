"""`lab roofline` from its words: the worked cases, and one line for whatever cannot be."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.builders import HARDWARE, MODEL
from tests.test_cli import Captured, lab, refused

V4_ON_FOUR = ("--model", "DeepSeek-V4-Flash", "--hardware", "rtx_pro_6000_server", "--tp", "4")


def test_the_roofline_of_deepseek_v4_flash(capsys: Captured) -> None:
    asked = ("roofline", *V4_ON_FOUR, "--batch", "16", "--context", "1000", "--kv-dtype", "fp8")
    code, out, err = lab(capsys, *asked, "--json")
    figures = json.loads(out)
    assert (code, err) == (0, "")
    assert figures["bound_tok_s"] == pytest.approx(1520, rel=0.005)
    assert figures["step_ms"] == pytest.approx(10.529, rel=0.005)
    code, out, err = lab(capsys, *asked)
    assert (code, err) == (0, "")
    assert "at most 1,520 tok/s at batch 16 and context 1,000" in out


def test_the_roofline_of_qwen_in_nvfp4(capsys: Captured) -> None:
    _, out, _ = lab(
        capsys,
        *("roofline", "--model", "Qwen3.5-397B-A17B", "--recipe", "NVFP4", "--hardware", "rtx_pro_6000_server"),
        *("--tp", "8", "--batch", "1", "--context", "500", "--json"),
    )
    assert json.loads(out)["bound_tok_s"] == pytest.approx(202, rel=0.005)


def test_the_roofline_of_drafts(capsys: Captured) -> None:
    asked = ("roofline", *V4_ON_FOUR, "--draft-tokens", "2", "--acceptance", "0.85,0.67", "--json")
    figures = json.loads(lab(capsys, *asked)[1])
    assert (figures["draft_tokens"], figures["tokens_per_step"]) == (2, pytest.approx(2.52))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "DeepSeek-V4-Flsh"), "unknown model 'DeepSeek-V4-Flsh'; did you mean 'DeepSeek-V4-Flash'?"),
        (("--hardware", "h200_sxn"), "unknown hardware 'h200_sxn'; did you mean 'h200_sxm'?"),
        (("--hardware", "RTX PRO 6000"), "comes in editions that differ; name one of rtx_pro_6000_server (1597 GB/s)"),
        (("--hardware", "mine.yaml"), "mine.yaml: no such file"),
        (("--recipe", "NVFP5"), "unknown recipe 'NVFP5'; did you mean 'NVFP4'?"),
        (("--tp", "3"), "64 attention heads do not divide into 3"),
        (("--tp", "1"), "does not fit: of 154.4 GB of weights"),
        (("--draft-tokens", "2", "--acceptance", "0.8"), "--acceptance: 1 shares for --draft-tokens 2; give both"),
        (("--draft-tokens", "2"), "--acceptance: 0 shares for --draft-tokens 2; give both"),
    ],
)
def test_a_roofline_that_cannot_be_is_one_line(capsys: Captured, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(capsys, "roofline", *V4_ON_FOUR, *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--batch", "0"), "'0' is not a whole number from 1"),
        (("--context", "0"), "'0' is not a whole number of tokens from 1"),
        (("--routing", "evenly"), "'evenly' is not uniform, balanced or an exponent above 0"),
        (("--routing", "-1"), "'-1' is not uniform"),
        (("--acceptance", "0.8,x"), "'x' is not a number from 0 to 1"),
        (("--memory-fraction", "1.5"), "'1.5' is not a number from 0 to 1"),
    ],
)
def test_a_roofline_of_words_that_are_no_figures_is_bad_input(
    capsys: Captured, arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = lab(capsys, "roofline", *V4_ON_FOUR, *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_roofline_of_a_model_that_is_not_modelled_failed(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    model = replace(MODEL, not_modelled="it is of another kind")
    monkeypatch.setattr("lab.roofline.model_catalogue.find", lambda name, recipe: model)
    code, out, err = lab(capsys, "roofline", *V4_ON_FOUR)
    assert (code, out) == (1, "")
    assert err == "lab: no bound for tiny: it is of another kind\n"


def test_the_roofline_of_this_machine(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.this_machine.hardware_here", lambda gpus: HARDWARE)
    _, out, _ = lab(capsys, "roofline", "--model", "Llama-3.1-8B", "--hardware", "auto", "--batch", "1", "--json")
    figures = json.loads(out)
    assert (figures["hardware"], figures["max_batch"]) == ("test processor", None)


def test_a_machine_whose_cards_are_in_no_catalogue_is_asked_to_name_them(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cards:
        def describe(self) -> list[dict[str, str]]:
            return [{"name": "NVIDIA H200 NVL"}] * 2

    monkeypatch.setattr("lab.observe.local_gpus", lambda env: Cards())
    said = refused(capsys, "roofline", "--model", "Llama-3.1-8B", "--hardware", "auto")
    assert said.startswith("hardware: this machine's 'NVIDIA H200 NVL' is not in the catalogue; name a GPU")
