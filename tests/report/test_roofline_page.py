"""The page of `lab roofline`: the answer in one line, every part with its share, every dash with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.deployment import Deployment, assess
from lab.report.roofline_page import render
from lab.roofline.hardware_catalogue import find
from lab.roofline.layout import Layout
from lab.roofline.model_catalogue import find as find_model

SERVER = find("rtx_pro_6000_server")
V4 = Deployment(find_model("DeepSeek-V4-Flash"), SERVER, Layout(tp=4), batch=16, context=1000, kv_dtype="fp8")
DENSE = Deployment(find_model("Llama-3.1-8B"), find("a100_sxm_80"), batch=8, context=2048)


def page(asked: Deployment = V4, width: int = 100, **values: Any) -> str:
    return render(assess(replace(asked, **values)), width)


def joined(text: str) -> str:
    return " ".join(text.split())


def test_the_answer_is_one_sentence_below_what_was_asked() -> None:
    text = page()
    assert text.startswith(
        "DeepSeek-V4-Flash · MXFP4 · tp 4 · 4 x RTX PRO 6000 Blackwell Server Edition\nhardware   1,597"
    )
    assert (
        "at most 1,520 tok/s at batch 16 and context 1,000 (95.0 tok/s each, 380 per GPU), step 10.529 ms, limited by "
        "reading the experts"
    ) in joined(text)
    order = ("taken as", "at most", "a step", "messages", "room", " batch")
    places = [text.index(f"\n{word}" if word != "a step" else "  a step") for word in order]
    assert places == sorted(places)


def test_each_part_has_its_share() -> None:
    text = page()
    assert "  experts                 7.275  69.1 %  █████████████████████\n" in text
    assert "  KV cache                0.059   0.6 %\n" in text
    assert "arithmetic" not in text


def test_how_a_message_is_known_is_said() -> None:
    assert "all-reduce: 86 x 128.0 KiB at 24.9 µs = 2.140 ms (nccl-2.29.2; measured)" in joined(page())
    assert "interpolated between two" in page(batch=12)
    assert "measured on a card that stands in" in joined(page(hardware=find("rtx_pro_6000_ws")))
    assert "latency and bandwidth model" in joined(page(DENSE, hardware=find("rtx_5090"), layout=Layout(tp=2)))
    assert "messages" not in page(DENSE)


def test_tokens_that_travel_to_their_experts_are_told_by_their_way() -> None:
    text = joined(page(layout=Layout(tp=1, ep=4, dp=4)))
    assert "· tp 1 ep 4 dp 4 ·" in text
    assert "tokens to their experts: 43 x" in text and "and back: 43 x" in text


def test_the_room_is_told_with_and_without_draft_layers() -> None:
    text = joined(page())
    assert (
        "15,978,864 tokens of KV cache; at most 2,873 sequences of 1,000 tokens at once, 2,751 with the draft" in text
    )
    assert "with the draft" not in page(DENSE)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"hardware": replace(DENSE.hardware, memory_bytes=None)}, "– (A100 80GB SXM: how much memory it has is not"),
        ({"memory_fraction": 0.1}, "– (Llama-3.1-8B leaves no cache"),
        ({"hardware": replace(DENSE.hardware, cache_bytes=None)}, "– (the last-level cache is not known)"),
        ({"batch": 4096}, "but batch 4096 does not fit in memory"),
    ],
)
def test_every_dash_has_its_reason(values: dict[str, Any], words: str) -> None:
    assert words in joined(page(DENSE, **values))


def test_drafting_is_held_against_its_break_even() -> None:
    pays = joined(page(acceptance=(0.85, 0.67, 0.51), batch=1))
    assert "3.03 tokens a step with 3 drafted" in pays and "it pays at this batch; a draft token takes" in pays
    assert "it does not pay at this batch" in joined(page(acceptance=(0.1, 0.0, 0.0)))
    outside = joined(page(DENSE, acceptance=(0.5,)))
    assert "the drafter's own time is not counted" in outside
    assert "drafting" not in page()


def test_what_is_assumed_is_told() -> None:
    text = joined(page(routing=1.2, shared_prefix=512, activations="bf16"))
    assert "taken as KV cache fp8, power law 1.2 routing, 512 tokens of prefix shared, activations bf16" in text
    assert "KV cache bfloat16 (none given), no shared prefix" in page(DENSE)


@pytest.mark.parametrize("width", [20, 50, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    rows = page(width=width, acceptance=(0.85,)).splitlines()
    assert max(map(len, rows)) <= max(50, min(100, width))
    assert sum(row.split() == ["1024", *row.split()[1:]] for row in rows) == 1


def test_a_context_shared_as_a_whole_has_no_largest_batch() -> None:
    text = joined(page(DENSE, shared_prefix=2048))
    assert "no limit to the sequences at once: all of the context is shared" in text
    assert "no limit" not in page(DENSE)


def test_a_step_that_would_be_quicker_with_more_sequences_says_so() -> None:
    switching = Deployment(find_model("Llama-3.1-70B"), SERVER, Layout(tp=8), batch=32)
    assert "(33.604 ms if filled up to batch 64, whose messages were measured quicker)" in joined(page(switching))
    assert "filled up" not in page(switching, batch=64)
