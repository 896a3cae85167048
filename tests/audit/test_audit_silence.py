"""A pause of the whole server within the window is told, its usual pace is not."""

from __future__ import annotations

from typing import Any

import pytest

from lab.audit import audit
from lab.audit.base import WARNING, Context
from lab.audit.silence import standstill
from lab.audit.thresholds import READING_SHARE, STANDSTILLS_MOST
from tests.audit.simulated import Scene, trial_of
from tests.builders import trial_in_memory

PAUSE = {
    "client.silence_max_s": 2.0,
    "client.silence_at_s": 1.5,
    "client.silence_limit_s": 1.0,
    "client.silences_alike": 1,
    "client.silences_alike_s": 2.0,
}


@pytest.mark.parametrize(
    ("changes", "fires"),
    [
        ({}, True),
        ({"client.silence_limit_s": 2.0}, False),
        # The client itself saw nothing for most of that time.
        ({"client.loop_lag_max_ms": 1100.0}, False),
        ({"client.loop_lag_max_ms": 900.0}, True),
        ({"client.silences_alike": STANDSTILLS_MOST, "client.silences_alike_s": 5.0}, True),
        ({"client.silences_alike": STANDSTILLS_MOST + 1}, False),
        ({"client.window_tokens": 0}, False),
        ({"client.silence_max_s": None}, False),
        # All streams hung at the end: `hang` says so.
        (
            {"client.silence_at_s": 4.0, "client.hung_streams": 4, "client.hung_mean": 1.3, "client.hung_since_s": 4.0},
            False,
        ),
        ({"client.silence_at_s": 4.0}, True),
        # It read prompts meanwhile: by its own counter, or by the length of those that waited.
        ({"client.silence_prompt_tokens": 400.0}, False),
        ({"client.silence_reading_s": READING_SHARE * 2.0}, False),
        ({"client.silence_reading_s": READING_SHARE * 2.0 - 0.1}, True),
        ({"client.silence_reading_s": None, "client.silence_prompt_tokens": None}, True),
    ],
)
def test_a_pause_is_a_standstill_where_it_is_long_and_rare(changes: dict[str, Any], fires: bool) -> None:
    code = standstill(trial_in_memory({**PAUSE, **changes}), Context())
    assert (code is not None) == fires
    assert code is None or (code.code, code.severity) == ("standstill", WARNING)


def test_it_tells_when_how_long_and_what_the_throughput_is_without_it() -> None:
    code = standstill(trial_in_memory(PAUSE), Context())
    assert code is not None
    assert code.text.startswith("no stream got a token for 2.0 s, from 1.5 s into the window on, while 4 were in the ")
    assert code.text.endswith("without that time the throughput is 150.0 tok/s, not 100.0")
    assert (code.figures["output_tok_s"], code.figures["output_tok_s_without"]) == (100.0, 150.0)
    again = standstill(
        trial_in_memory({**PAUSE, "client.silences_alike": 2, "client.silences_alike_s": 3.5}), Context()
    )
    assert again is not None and "(and 1 more such pauses, 3.5 s in all)" in again.text


def test_a_window_of_nothing_but_a_pause_has_no_throughput_without_it() -> None:
    code = standstill(trial_in_memory({**PAUSE, "client.silences_alike_s": 6.0}), Context())
    assert code is not None and code.text.endswith("(a compile, a swap, a pause of the process?)")
    assert code.figures["output_tok_s_without"] is None


SLOW = Scene(clients=1, token_s=0.9, output_tokens=8, prefill_s=3.0, warmup_s=12.0, seconds=60.0)


@pytest.mark.parametrize("scene", [SLOW, Scene(noise=0.3), Scene(prefill_s=1.5, seconds=30.0)])
def test_slow_steps_and_long_prompts_are_no_standstill(scene: Scene) -> None:
    """The last scene holds up all answers for a second and a half with every new prompt."""
    for seed in range(5):
        assert not {"standstill", "hang"} & {code.code for code in audit(trial_of(scene, seed))}, seed
