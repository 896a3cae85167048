"""The server's own cost model: figures of one device, and silence where it does not estimate."""

from __future__ import annotations

import pytest

from lab.server_model import analytic
from tests.builders import trial_in_memory

COUNTED = {
    "output_tokens": 4000.0,
    "estimated_flops": 8e9,
    "estimated_read_bytes": 3.9e9,
    "estimated_write_bytes": 0.1e9,
}


def test_estimates_are_of_one_device_at_the_rate_of_the_window() -> None:
    found = analytic(trial_in_memory({"server.delta": COUNTED}, {"ranks": 2}))
    assert found is not None
    assert found.flop_per_byte == pytest.approx(2.0)
    assert found.flop_s == pytest.approx(8e9 / 2 / 4000 * 100)


@pytest.mark.parametrize("name", ["estimated_flops", "estimated_read_bytes", "output_tokens"])
@pytest.mark.parametrize("value", [0.0, None])
def test_a_server_that_does_not_estimate_has_no_point(name: str, value: float | None) -> None:
    delta = {**COUNTED, name: value}
    assert analytic(trial_in_memory({"server.delta": {k: v for k, v in delta.items() if v is not None}})) is None
