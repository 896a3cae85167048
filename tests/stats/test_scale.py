"""What stands for a launch on the scale of ratios."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.stats.scale import ratio_value


@pytest.mark.parametrize("metric", ["goodput_rps", "request_rps"])
def test_a_counted_rate_of_0_has_a_place_and_many_are_hardly_moved(metric: str) -> None:
    assert ratio_value(metric, 0.0, 60.0) == pytest.approx(0.5 / 60)
    assert ratio_value(metric, 10.0, 60.0) == pytest.approx(10.0, rel=1e-3)


@pytest.mark.parametrize("metric", ["output_tok_s", "ttft_p99_ms", "kv_tokens"])
def test_0_is_no_throughput_and_no_time(metric: str) -> None:
    assert ratio_value(metric, 0.0, 60.0) is None
    assert ratio_value(metric, 3.5, 60.0) == 3.5


@pytest.mark.parametrize("metric", ["goodput_rps", "output_tok_s"])
def test_missing_stays_missing(metric: str) -> None:
    assert ratio_value(metric, None, 60.0) is None


@pytest.mark.parametrize("mean", [3, 8, 30])
def test_half_a_request_takes_most_of_the_bias_of_the_logarithm(mean: int) -> None:
    counts = np.random.default_rng(1).poisson(mean, 200_000)
    logs = [math.log(ratio_value("goodput_rps", count / 60, 60.0)) for count in counts]
    assert np.mean(logs) == pytest.approx(math.log(mean / 60), abs=0.03)
