"""Age of the servers, clocks, power and links of the GPUs: what differs between arms is told, what does not is not."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit.base import WARNING, Code, Context
from lab.audit.conditions import server_age, throttled
from lab.audit.thresholds_comparison import (
    CLOCK_SHARE,
    SERVER_AGE_RATIO,
    SERVER_AGE_REQUESTS_MIN,
    SERVER_AGE_SECONDS_MIN,
)
from tests.audit.two_arms import control_trial, treatment_trial

CARD = {"index": 0, "power_limit_w": 600.0, "pcie_width": 16}


def served(mine: float | None, theirs: float | None) -> Code | None:
    control = control_trial({"server.requests_before": theirs})
    return server_age(treatment_trial({"server.requests_before": mine}), Context(control=control))


def lived(mine_s: float, theirs_s: float) -> Code | None:
    control = control_trial({"window.opened_s": 992.0 + theirs_s})
    return server_age(treatment_trial({"window.opened_s": 992.0 + mine_s}), Context(control=control))


def test_a_server_that_already_served_ten_thousand_requests_is_told() -> None:
    code = served(10_000, 1)
    assert code is not None and (code.code, code.severity) == ("server-age", WARNING)
    assert code.text == ("servers of different age: it had served 10000 requests before the window, the control's 1")


@pytest.mark.parametrize(
    ("mine", "theirs", "fires"),
    [
        (SERVER_AGE_REQUESTS_MIN, 0, True),
        (SERVER_AGE_REQUESTS_MIN - 1, 0, False),
        (0, SERVER_AGE_REQUESTS_MIN, True),
        (3, 1, False),
        (SERVER_AGE_RATIO * 10_000, 10_000, False),
        (SERVER_AGE_RATIO * 10_000 + 1, 10_000, True),
        (None, 0, False),
        (10_000, None, False),
    ],
)
def test_small_numbers_and_small_ratios_are_no_age(mine: float | None, theirs: float | None, fires: bool) -> None:
    assert (served(mine, theirs) is not None) == fires


@pytest.mark.parametrize(
    ("mine_s", "theirs_s", "fires"),
    [
        (SERVER_AGE_SECONDS_MIN + 1, 1.0, True),
        (SERVER_AGE_SECONDS_MIN - 1, 1.0, False),
        (1.0, 3600.0, True),
        (SERVER_AGE_RATIO * 3600.0, 3600.0, False),
    ],
)
def test_the_life_of_the_server_before_the_window_counts_from_its_first_answer(
    mine_s: float, theirs_s: float, fires: bool
) -> None:
    assert (lived(mine_s, theirs_s) is not None) == fires


def test_an_age_that_nobody_noted_is_not_compared() -> None:
    timings = {"started_s": 1.0, "ready_seconds": None}
    assert server_age(treatment_trial(timings=timings), Context(control=control_trial())) is None
    assert server_age(treatment_trial({"server.requests_before": 10_000}), Context()) is None


def alike(mine: dict[str, Any], theirs: dict[str, Any]) -> Code | None:
    return throttled(treatment_trial(**mine), Context(control=control_trial(**theirs)))


def clock(mhz: float, name: str = "gpu_clock_mhz") -> dict[str, Any]:
    return {"changes": {f"machine.{name}": mhz}}


@pytest.mark.parametrize("name", ["gpu_clock_mhz", "gpu_memory_clock_mhz"])
@pytest.mark.parametrize(("share", "fires"), [(CLOCK_SHARE + 0.001, True), (CLOCK_SHARE - 0.001, False)])
def test_clocks_apart_are_told(name: str, share: float, fires: bool) -> None:
    code = alike(clock(2000 * (1 - share), name), clock(2000, name))
    assert (code is not None) == fires
    if code is not None:
        assert (code.code, code.severity) == ("throttled", WARNING)
        assert f"{name} 1938, in the control 2000" in code.text


@pytest.mark.parametrize(("key", "value"), [("power_limit_w", 300.0), ("pcie_width", 8)])
def test_another_power_limit_or_link_is_told(key: str, value: float) -> None:
    code = alike({"machine": {"gpus": [{**CARD, key: value}]}}, {"machine": {"gpus": [CARD]}})
    assert code is not None and f"{key} {value:g}, in the control {CARD[key]:g}" in code.text
    assert alike({"machine": {"gpus": [CARD]}}, {"machine": {"gpus": [CARD]}}) is None


@pytest.mark.parametrize(
    ("mine", "theirs", "where"), [(["hw_thermal_slowdown"], [], "here"), ([], ["sw_power_cap"], "in the control")]
)
def test_an_arm_that_alone_was_held_back_is_told(mine: list[str], theirs: list[str], where: str) -> None:
    code = alike({"changes": {"machine.gpu_throttle": mine}}, {"changes": {"machine.gpu_throttle": theirs}})
    assert code is not None and f"held back only {where} by {(mine + theirs)[0]}" in code.text


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (["sw_power_cap"], ["sw_power_cap"]),
        (["gpu_idle"], []),
        (["applications_clocks_setting"], []),
        (["sw_power_cap"], None),
    ],
)
def test_both_held_back_an_idle_gpu_and_an_unknown_one_are_silent(mine: Any, theirs: Any) -> None:
    assert alike({"changes": {"machine.gpu_throttle": mine}}, {"changes": {"machine.gpu_throttle": theirs}}) is None


def test_without_gpus_or_without_a_control_nothing_is_claimed() -> None:
    assert alike({}, {}) is None
    assert throttled(treatment_trial(**clock(1000)), Context()) is None
    assert alike(clock(1000), {}) is None
