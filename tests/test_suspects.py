"""Every suspect speaks up when the records accuse it, and is cleared or silent when they do not."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from lab.gap import account
from lab.records import Trial
from lab.roofline import Hardware, Layout, bound
from lab.roofline.hardware_catalogue import find as find_hardware
from lab.roofline.model_catalogue import find as find_model
from lab.suspects import SUSPECTS, Case, Suspect, ranked, suspect
from tests.builders import HARDWARE, MODEL, control_arm, trial_in_memory

V4, SERVER = find_model("DeepSeek-V4-Flash"), find_hardware("rtx_pro_6000_server")
CARD = {"index": 0, "pcie_width": 16, "pcie_width_max": 16}
FOUR = {"cpu_cores_logical": 64, "gpus": [{**CARD, "index": index} for index in range(4)]}
SHARED = {"cpu_cores_logical": 2, "gpus": []}
FALLBACK = "WARNING Using default MoE kernel config. Performance might be sub-optimal! Config file not found"


def on_gpus(running: float, tok_s: float, changes: Any = None, facts: Any = None, **launch: Any) -> Trial:
    values = {
        "concurrency": 16,
        "server.running": running,
        "server.running_p95": running,
        "metrics.output_tok_s": tok_s,
        "metrics.mean_context_tokens": 1000.0,
        **(changes or {}),
    }
    return trial_in_memory(
        values, {"cap": 48, "gpus": 4, **(facts or {})}, **{"model": asdict(V4), "machine": FOUR, **launch}
    )


def gpu_case(trial: Trial | None = None, **more: Any) -> Case:
    """DeepSeek-V4-Flash on four cards, at 2 % of its bound."""
    trial = trial or on_gpus(16.0, 28.7)
    gap = account(trial, bound(V4, SERVER, Layout(tp=4), trial.server["running"], 1000))
    assert gap is not None
    return Case(trial, gap, **more)


def cpu_case(changes: Any = None, facts: Any = None, hardware: Hardware = HARDWARE, **more: Any) -> Case:
    trial = trial_in_memory(changes, facts)
    gap = account(trial, bound(MODEL, hardware, Layout(), trial.server["running"], 80))
    assert gap is not None
    return Case(trial, gap, **more)


def judged(name: str, case: Case) -> Suspect:
    return SUSPECTS[name](case)


def accuses(name: str, case: Case, *words: str) -> bool:
    found = judged(name, case)
    return found.weight > 0 and bool(found.evidence_for) and all(word in found.sentence for word in words)


def clears(name: str, case: Case, *words: str) -> bool:
    found = judged(name, case)
    return (
        found.weight < 0 and found.sentence.startswith("not likely") and all(word in found.sentence for word in words)
    )


def silent(name: str, case: Case) -> bool:
    found = judged(name, case)
    return not found.known and found.sentence.startswith("nothing in the records about ")


def test_a_fallback_kernel_is_accused_by_log_backend_and_a_step_that_grows_with_the_batch() -> None:
    assert accuses("kernel-fallback", gpu_case(log=f"loading\n{FALLBACK}\nready"), "sub-optimal")
    assert accuses(
        "kernel-fallback", gpu_case(on_gpus(16.0, 28.7, facts={"attention_backend": "torch_native"})), "torch_"
    )
    grown = judged("kernel-fallback", gpu_case(others=(on_gpus(2.0, 24.3),), log="loading\nready"))
    assert any("almost in proportion" in text for text in grown.evidence_for)
    assert "12.7 ms of each layer" in grown.sentence and grown.evidence_against == (
        "no line of the log speaks of a fallback",
    )


def test_a_fallback_kernel_is_cleared_by_a_small_rest_and_unknown_on_a_processor() -> None:
    assert clears("kernel-fallback", gpu_case(on_gpus(16.0, 1300.0), log="ready"), "no more than launching")
    flat = judged("kernel-fallback", gpu_case(others=(on_gpus(2.0, 4.0),)))
    assert any("hardly grows" in text for text in flat.evidence_against)
    assert silent("kernel-fallback", cpu_case())
    assert clears("kernel-fallback", cpu_case(log="ready"))


def test_eager_mode_is_accused_by_the_servers_word_its_steps_and_a_batch_beyond_its_graphs() -> None:
    off = on_gpus(16.0, 28.7, facts={"graphs": False})
    assert accuses("eager-mode", gpu_case(off), "has no graphs (log)")
    assert accuses(
        "eager-mode", gpu_case(off, control=on_gpus(16.0, 280.0, facts={"graphs": True})), "the control has them"
    )
    beyond = on_gpus(16.0, 28.7, facts={"graphs": True, "graph_max_batch": 8})
    assert accuses("eager-mode", gpu_case(beyond), "up to 16 requests ran", "holds 8")
    steps = {"server.window_delta": {"eager_steps": 90.0, "graph_steps": 10.0}}
    assert accuses("eager-mode", gpu_case(on_gpus(16.0, 28.7, steps)), "90 % of 100 steps")


def test_eager_mode_is_cleared_by_graphs_that_hold_the_batch_and_unknown_without_a_word() -> None:
    assert clears("eager-mode", gpu_case(on_gpus(16.0, 28.7, facts={"graphs": True, "graph_max_batch": 32})))
    assert clears("eager-mode", cpu_case(facts={"graph_reuse": True}))
    assert silent("eager-mode", gpu_case())


def test_peers_are_accused_by_environment_log_and_narrow_links() -> None:
    assert accuses("peer-to-peer-off", gpu_case(on_gpus(16.0, 28.7, arm=control_arm(env={"NCCL_P2P_DISABLE": "1"}))))
    line = "gpu1 NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"
    assert accuses("peer-to-peer-off", gpu_case(log=line), "via SHM")
    narrow = {**FOUR, "gpus": [CARD, {**CARD, "index": 3, "pcie_width": 4}]}
    assert accuses("peer-to-peer-off", gpu_case(on_gpus(16.0, 28.7, machine=narrow)), "GPU 3 is linked by 4 of 16")


def test_peers_are_cleared_by_the_log_and_by_a_single_device_and_unknown_otherwise() -> None:
    assert clears("peer-to-peer-off", gpu_case(log="gpu1 NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"))
    assert clears("peer-to-peer-off", cpu_case(), "one device serves")
    assert silent("peer-to-peer-off", gpu_case())


def test_a_batch_that_the_cap_holds_back_is_not_explained_by_kv_capacity_and_quotes_the_server() -> None:
    said = "speculative decoding reset the running limit to 48 (no --max-running-requests was given)"
    capped = on_gpus(8.0, 28.7, facts={"cap": 8, "cap_source": said, "kv_tokens": 1_570_000})
    words = ("8.0 of 16 asked ran", "not explained by KV capacity", said, "(from log)", "at most 25 % full")
    assert accuses("batch-not-reached", gpu_case(capped), *words)
    blind = on_gpus(8.0, 28.7, {"server.kv_usage_max": None}, {"cap": 8, "cap_source": None, "kv_tokens": 1_570_000})
    words = ("not explained by KV capacity (its 1,570,000 tokens hold 1570 sequences", "says why: 'log'")
    assert accuses("batch-not-reached", gpu_case(blind), *words)


def test_a_batch_that_the_cache_holds_back_is_explained_by_kv_capacity() -> None:
    full = {"server.waiting": 8.0, "server.kv_usage_max": 0.99, "server.delta": {"preemptions": 3.0}}
    found = judged("batch-not-reached", gpu_case(on_gpus(8.0, 28.7, full)))
    assert ", explained by KV capacity: the cache was at most 99 % full, 3 requests" in found.sentence
    small = on_gpus(8.0, 28.7, {"server.kv_usage_max": None}, {"kv_tokens": 8_000})
    assert (
        ", explained by KV capacity: its 8,000 tokens hold 8 sequences"
        in judged("batch-not-reached", gpu_case(small)).sentence
    )
    unknown = on_gpus(8.0, 28.7, {"server.kv_usage_max": None}, {"kv_tokens": None, "cap": None})
    sentence = judged("batch-not-reached", gpu_case(unknown)).sentence
    assert "does not show how full" in sentence and "does not say how many it can run" in sentence


def test_a_batch_that_ran_is_cleared() -> None:
    assert clears("batch-not-reached", gpu_case(), "16.0 of 16 asked ran")


def test_throttling_is_accused_by_the_driver_and_by_clocks_below_the_controls() -> None:
    hot = on_gpus(16.0, 28.7, {"machine.gpu_throttle": ["gpu_idle", "hw_thermal_slowdown"]})
    assert accuses("throttling", gpu_case(hot), "hw_thermal_slowdown")
    slow, usual = (on_gpus(16.0, 28.7, {"machine.gpu_clock_mhz": clock}) for clock in (1200.0, 2400.0))
    assert accuses("throttling", gpu_case(slow, control=usual), "SM clock was 1200 MHz, in the control 2400")


def test_throttling_is_cleared_by_the_driver_and_unknown_without_gpus() -> None:
    assert clears("throttling", gpu_case(on_gpus(16.0, 28.7, {"machine.gpu_throttle": ["gpu_idle"]})))
    assert silent("throttling", cpu_case())


def test_other_programs_are_seen_on_the_cores_that_neither_server_nor_client_used() -> None:
    assert accuses("other-programs", cpu_case({"server.machine_cpu_pct": 95.0}), "0.9 of 2 cores")
    assert clears("other-programs", cpu_case())
    assert silent("other-programs", cpu_case({"server.machine_cpu_pct": None}))


def test_a_processor_whose_step_grows_with_the_batch_computes_longer_than_it_reads() -> None:
    alone = trial_in_memory({"concurrency": 1, "server.running": 1.0, "metrics.output_tok_s": 80.0})
    case = cpu_case(facts={"n_threads": 1}, others=(alone,))
    assert accuses("compute-bound", case, "1.0 of its 1 threads", "almost in proportion")


def test_idle_threads_and_a_flat_step_clear_arithmetic_and_known_peaks_have_it_in_the_bound() -> None:
    alone = trial_in_memory({"concurrency": 1, "server.running": 1.0, "metrics.output_tok_s": 26.0})
    case = cpu_case(facts={"n_threads": 2}, others=(alone,))
    assert clears("compute-bound", case, "1.0 of its 2 threads", "hardly grows")
    assert clears("compute-bound", gpu_case(), "arithmetic adds 0.00 ms")
    assert silent("compute-bound", cpu_case())


def test_windows_of_other_workloads_and_small_gaps_tell_nothing_of_growth() -> None:
    alone = {"concurrency": 1, "server.running": 1.0, "metrics.output_tok_s": 80.0}
    assert silent("compute-bound", cpu_case(others=(trial_in_memory({**alone, "workload": "long"}),)))
    near = replace(HARDWARE, memory_bandwidth_bytes_s=3e7)
    assert silent("compute-bound", cpu_case(hardware=near, others=(trial_in_memory(alone),)))


def test_the_likeliest_comes_first_and_the_unknown_last() -> None:
    off = on_gpus(16.0, 28.7, facts={"graphs": False})
    found = ranked(gpu_case(off, others=(on_gpus(2.0, 24.3),), log=FALLBACK))
    assert [one.name for one in found][:2] == ["kernel-fallback", "eager-mode"]
    assert len(found) == len(SUSPECTS)
    known = [one.known for one in found]
    assert known == sorted(known, reverse=True) and known[-1] is False
    weights = [one.weight for one in found if one.known]
    assert weights == sorted(weights, reverse=True)


def test_two_suspects_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="two suspects are called throttling"):
        suspect("throttling", "heat", "it is hot")(lambda case: ())
