"""Another program on the cores during the window is told; the server's own use is not."""

from __future__ import annotations

import pytest

from lab.audit.base import WARNING, Code, Context
from lab.audit.machine import machine_shared
from lab.audit.thresholds import OTHER_CORES
from tests.builders import trial_in_memory


def shared(busy_pct: float | None, cores: float | None = 1.0) -> Code | None:
    changes = {"server.machine_cpu_pct": busy_pct, "server.cores": cores, "client.cpu_share": 0.0}
    return machine_shared(trial_in_memory(changes), Context())


def test_a_second_program_is_a_warning_with_its_cores() -> None:
    code = shared(96.0)
    assert code is not None and (code.code, code.severity) == ("machine-shared", WARNING)
    assert code.text == "other programs used 0.9 of 2 cores during the window"


@pytest.mark.parametrize(("over", "fires"), [(0.01, True), (-0.01, False)])
def test_the_threshold_is_kept_from_both_sides(over: float, fires: bool) -> None:
    assert (shared(100 * (1.0 + OTHER_CORES + over) / 2) is not None) == fires


@pytest.mark.parametrize(("busy", "cores"), [(52.0, 1.0), (100.0, 2.0), (None, 1.0), (96.0, None)])
def test_a_machine_of_our_own_and_an_unknown_one_are_silent(busy: float | None, cores: float | None) -> None:
    assert shared(busy, cores) is None
