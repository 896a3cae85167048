"""A deployment's figures: the worked cases, what fits, what drafting needs, and every missing figure as None."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lab.deployment import SWEEP, Assessment, Deployment, assess
from lab.errors import InputError
from lab.roofline.hardware_catalogue import find
from lab.roofline.layout import Layout
from lab.roofline.model_catalogue import find as find_model

CONTRACT = {
    *("model", "hardware", "tp", "ep", "dp", "pp", "batch", "context", "precision", "components_ms", "bound_tok_s"),
    *("bound_memory_tok_s", "bound_hard_tok_s", "step_ms", "distinct_experts", "kv_capacity_tokens", "max_batch"),
    *("limited_by", "sweep"),
}
V4 = Deployment(
    find_model("DeepSeek-V4-Flash"), find("rtx_pro_6000_server"), Layout(tp=4), batch=16, context=1000, kv_dtype="fp8"
)
DENSE = Deployment(find_model("Llama-3.1-8B"), find("a100_sxm_80"), batch=8, context=2048)


def assessed(asked: Deployment = V4, **values: Any) -> Assessment:
    return assess(replace(asked, **values))


def test_deepseek_v4_flash_as_worked_by_hand() -> None:
    figures = assessed().figures()
    assert set(figures) >= CONTRACT
    assert figures["bound_tok_s"] == pytest.approx(1520, rel=0.005)
    assert figures["step_ms"] == pytest.approx(10.529, rel=0.005)
    assert figures["bound_memory_tok_s"] == pytest.approx(1907, rel=0.005)
    assert figures["bound_tok_s_per_gpu"] * 4 == pytest.approx(figures["bound_tok_s"])
    assert figures["bound_tok_s_per_user"] * 16 == pytest.approx(figures["bound_tok_s"])
    assert sum(figures["components_ms"].values()) == pytest.approx(figures["step_ms"])
    assert (figures["model"], figures["hardware"], figures["tp"]) == ("DeepSeek-V4-Flash", "rtx_pro_6000_server", 4)
    assert figures["precision"] == {"weights": "MXFP4", "kv": "fp8", "state": None, "activations": None}
    assert (figures["limited_by"], figures["devices"]) == ("experts", 4)
    assert figures["collectives"]["all_reduce"]["found"] == "measured"
    json.dumps(figures, allow_nan=False)


def test_qwen_as_worked_by_hand() -> None:
    model = find_model("Qwen3.5-397B-A17B", "NVFP4")
    found = assessed(model=model, layout=Layout(tp=8), batch=1, context=500, kv_dtype=None)
    assert found.figures()["bound_tok_s"] == pytest.approx(202, rel=0.005)
    assert found.figures()["precision"]["kv"] == "bfloat16"


def test_the_sweep_is_the_bound_at_each_batch() -> None:
    rows = assessed().figures()["sweep"]
    assert [row["batch"] for row in rows] == list(SWEEP) == [1 << power for power in range(11)]
    for row in rows[:: len(rows) - 1]:
        alone = assessed(batch=row["batch"]).limit
        for name in ("step_ms", "bound_tok_s", "bound_tok_s_per_user", "bound_tok_s_per_gpu", "distinct_experts"):
            assert row[name] == pytest.approx(getattr(alone, name)), name


def test_the_sweep_says_what_fits() -> None:
    found = assessed(DENSE, context=8192)
    most = found.figures()["max_batch"]
    assert 1 < most < 1024
    assert {row["batch"]: row["fits"] for row in found.rows()} == {batch: batch <= most for batch in SWEEP}


SWITCHING = Deployment(find_model("Llama-3.1-70B"), find("rtx_pro_6000_server"), Layout(tp=8), batch=32)


def test_a_larger_batch_never_has_the_shorter_step() -> None:
    # NCCL takes 156.1 µs for 512 KiB among eight of these cards and 131.5 for 1 MiB
    found = assess(SWITCHING)
    steps = {row["batch"]: row["step_ms"] for row in found.rows()}
    assert list(steps.values()) == sorted(steps.values())
    assert found.limit.step_ms > assessed(SWITCHING, batch=64).limit.step_ms == pytest.approx(steps[32])
    assert found.quicker_filled_up == (64, pytest.approx(steps[32]))
    for row in found.rows():
        assert row["bound_tok_s"] == pytest.approx(1e3 * row["batch"] / row["step_ms"])
        assert row["bound_tok_s_per_user"] * row["batch"] == pytest.approx(row["bound_tok_s"])
        assert row["bound_tok_s_per_gpu"] * 8 == pytest.approx(row["bound_tok_s"])


def test_a_step_that_is_the_shortest_of_its_kind_is_left_as_it_is() -> None:
    found = assessed(SWITCHING, batch=64)
    assert found.quicker_filled_up is None
    assert found.rows()[6]["step_ms"] == found.limit.step_ms
    assert assessed(SWITCHING, batch=2048).quicker_filled_up is None


def test_a_context_shared_as_a_whole_lets_every_batch_fit() -> None:
    found = assessed(DENSE, shared_prefix=2048.0)
    figures = found.figures()
    assert (figures["max_batch"], figures["capacity_unknown"]) == (None, None)
    assert "takes no cache of its own" in figures["batch_not_limited"]
    assert {row["fits"] for row in figures["sweep"]} == {True}
    json.dumps(figures, allow_nan=False)
    assert assessed(DENSE).figures()["batch_not_limited"] is None


def test_memory_that_is_not_known_leaves_the_room_unknown() -> None:
    hardware = replace(DENSE.hardware, memory_bytes=None)
    figures = assessed(DENSE, hardware=hardware).figures()
    assert (figures["max_batch"], figures["kv_capacity_tokens"]) == (None, None)
    assert "how much memory it has is not known" in figures["capacity_unknown"]
    assert {row["fits"] for row in figures["sweep"]} == {None}
    assert figures["bound_tok_s"] > 0


def test_weights_that_leave_no_room_let_nothing_fit() -> None:
    figures = assessed(DENSE, memory_fraction=0.1).figures()
    assert figures["max_batch"] == 0
    assert "leaves no cache" in figures["capacity_unknown"]
    assert {row["fits"] for row in figures["sweep"]} == {False}


def test_a_dense_model_without_drafts_has_neither_experts_nor_break_even() -> None:
    figures = assessed(DENSE).figures()
    missing = ("distinct_experts", "max_batch_speculating", "break_even_tokens_per_step", "draft_step_ms")
    assert {figures[name] for name in missing} == {None}
    assert {row["distinct_experts"] for row in figures["sweep"]} == {None}
    assert (figures["draft_tokens"], figures["tokens_per_step"], figures["collectives"]) == (0, 1.0, {})


def test_drafting_counts_the_drafter_and_its_room() -> None:
    plain, found = assessed(), assessed(acceptance=(0.85, 0.67))
    figures = found.figures()
    assert figures["tokens_per_step"] == pytest.approx(2.52)
    assert figures["break_even_tokens_per_step"] == pytest.approx(found.limit.step_ms / plain.limit.step_ms)
    assert figures["components_ms"]["draft"] == pytest.approx(2 * figures["draft_step_ms"])
    assert figures["max_batch_speculating"] < figures["max_batch"]
    assert (plain.max_batch, found.max_batch) == (figures["max_batch"], figures["max_batch_speculating"])


def test_a_drafter_outside_the_checkpoint_costs_nothing_that_is_known() -> None:
    figures = assessed(DENSE, acceptance=(0.5,)).figures()
    assert figures["draft_step_ms"] is None
    assert "draft" not in figures["components_ms"]
    assert figures["break_even_tokens_per_step"] >= 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"layout": Layout(tp=3)}, "tp 3 is impossible"),
        ({"layout": Layout(tp=1)}, "does not fit"),
        ({"kv_dtype": "fp9"}, "unknown KV cache type 'fp9'; did you mean 'fp8'"),
        ({"acceptance": (1.5,)}, "acceptance rate 1.5 is outside 0 to 1"),
        ({"acceptance": (0.5, 0.9)}, "acceptance rises from 0.5 to 0.9"),
        ({"kv_dtype": ""}, "unknown KV cache type ''"),
        ({"shared_prefix": 1001.0}, "shared_prefix is 1001 tokens, more than the 1000 of the context"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        assessed(**values)
