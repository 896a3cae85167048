"""Every check is found by registration, fires on its own fault, and is silent over a clean trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab import audit
from lab.audit import base, thresholds
from lab.audit.base import CHECKS, FINDING, INVALID, WARNING, Context
from lab.audit.diagnosis import diagnose
from tests.builders import TRIAL, trial_in_memory

KNOWN = {
    "batch-cap", "below-load", "chunk-not-token", "client-bound", "client-conn-cap", "client-inflight-illusion",
    "cold-start-in-window", "coordinated-omission", "count-mismatch", "counter-reset", "dp-underfilled",
    "failed-requests", "faked-output", "false-plateau", "first-chunk-empty", "foreign-traffic", "gate-misaligned",
    "graph-miss", "hang", "input-length-drift", "kv-bound", "lever-not-applied", "machine-shared", "metric-absent",
    "no-steady-window", "nothing-completed", "output-length-drift", "peak-bucketed", "prefix-contamination",
    "ramp-heavy", "spec-gauge-snapshot", "spec-random-tokens", "standstill", "tail-undersampled",
    "token-policy-unrecorded", "too-few-requests", "warmup-overlap", "zero-is-missing",
}  # fmt: skip


def test_the_checks_of_every_module_are_known() -> None:
    assert set(CHECKS) >= KNOWN


def test_a_clean_trial_raises_nothing() -> None:
    assert audit.audit(trial_in_memory()) == []


def test_a_bad_trial_raises_every_code_that_applies() -> None:
    trial = trial_in_memory({"client.failed": 100, "client.errors": {"timeout": 100}, "server.running": None})
    assert {code.code for code in audit.audit(trial)} == {"failed-requests", "metric-absent"}


MEASURED = ("client", "server", "machine", "metrics", "steady")
FIGURES = [(section, name) for section in MEASURED for name in TRIAL[section]]


@given(st.sets(st.sampled_from(FIGURES), max_size=12), st.sampled_from(["closed", "poisson"]))
@settings(deadline=None, max_examples=300)
def test_any_figures_may_be_unknown(unknown: set[tuple[str, str]], arrivals: str) -> None:
    trial = trial_in_memory({"client.arrivals": arrivals} | {f"{section}.{name}": None for section, name in unknown})
    context = Context(control=trial_in_memory())
    codes = audit.audit(trial, context) + audit.audit(trial_in_memory(), Context(control=trial))
    assert all(code.text for code in codes)
    assert diagnose(trial, context).text


@pytest.mark.parametrize(("section", "name"), FIGURES)
def test_what_is_unknown_invalidates_nothing_but_the_gauges_themselves(section: str, name: str) -> None:
    codes = audit.audit(trial_in_memory({f"{section}.{name}": None}))
    invalid = {code.code for code in codes if code.severity == INVALID}
    expected = {"running": {"metric-absent"}, "waiting": {"metric-absent"}, "window_tokens": {"nothing-completed"},
                "samples": {"gate-misaligned"}}  # fmt: skip
    assert invalid == expected.get(name, set())


def test_an_old_record_without_the_later_figures_can_be_judged() -> None:
    trial = trial_in_memory()
    old = {
        name: {key: trial.record[name][key] for key in keys}
        for name, keys in {
            "window": ("opened_s", "closed_s", "seconds", "opened_at", "warmup_seconds"),
            "prompts": ("salt", "digest", "count"),
            "client": ("offered", "littles_law", "sent", "completed", "failed", "aborted", "errors", "prompt_tokens",
                       "output_tokens", "window_tokens", "cpu_share", "drained"),
            "server": ("running", "waiting", "samples", "idle_running_max", "machine_cpu_pct", "cores", "delta"),
            "metrics": ("output_tok_s", "ttft_p50_ms", "requests_in_window"),
        }.items()
    }  # fmt: skip
    top = {name: trial.record[name] for name in ("schema", "simulated", "workload", "concurrency", "purpose")}
    codes = audit.audit(replace(trial, record={**top, **old}))
    assert not [code for code in codes if code.severity == INVALID]


def test_a_code_defined_twice_is_an_error_of_the_program() -> None:
    with pytest.raises(ValueError, match="two checks are called batch-cap"):
        base.check("batch-cap")(lambda trial, context: None)


def test_a_code_that_two_files_check_is_told_by_either() -> None:
    ignored = trial_in_memory({"prompts.ignore_eos": True, "client.length_errors_share": 0.5})
    assert [code.code for code in audit.audit(ignored)] == ["output-length-drift"]
    with pytest.raises(KeyError):
        base.further_check("no-such-code")(lambda trial, context: None)


@pytest.mark.parametrize(
    "changes",
    [
        {"server.idle_running_max": 2.0},
        {"client.failed": 100, "client.errors": {"timeout": 100}},
        {"client.window_tokens": 0},
        {"server.samples": 3},
        {"server.waiting": None},
        {"server.delta": {}},
        {"server.running": 2.0},
    ],
)
def test_codes_are_a_severity_and_one_sentence_with_figures_of_json(changes: dict[str, object]) -> None:
    codes = audit.audit(trial_in_memory(changes, facts={"cap": 2}))
    assert codes
    for code in codes:
        assert code.severity in (INVALID, WARNING, FINDING)
        assert code.text and "\n" not in code.text
        assert all(value is None or isinstance(value, int | float | str) for value in code.figures.values())


def test_every_limit_stands_in_one_file() -> None:
    names = [name for name in vars(thresholds) if name.isupper()]
    for path in Path(thresholds.__file__).parent.glob("*.py"):
        if path.name != "thresholds.py":
            assert not [name for name in names if f"\n{name} =" in path.read_text()]
