"""`python -m tests.bench.roofline`: seconds for 10,000 evaluations of the bound, batches and contexts as arrays.

Without it a sweep that draws a curve would slowly become a wait. Exit 1 above one second.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from lab.roofline import Layout, bound
from lab.roofline.hardware_catalogue import find
from lab.roofline.model_catalogue import find as find_model

EVALUATIONS = 10_000
LIMIT_S = 1.0


def seconds(name: str, recipe: str | None, routing: str | float) -> float:
    """Of one call for 10,000 points, catalogues and routing tables not yet read included."""
    random = np.random.default_rng(1)
    batch, context = random.uniform(1, 512, EVALUATIONS), random.uniform(1, 131_072, EVALUATIONS)
    started = time.perf_counter()
    limit = bound(find_model(name, recipe), find("rtx_pro_6000_server"), Layout(tp=8), batch, context, routing=routing)
    taken = time.perf_counter() - started
    assert np.all(limit.bound_tok_s > 0) and len(limit.bound_tok_s) == EVALUATIONS
    return taken


def main() -> int:
    cases = [
        ("DeepSeek-V4-Flash", None, "uniform"),
        ("Qwen3.5-397B-A17B", "NVFP4", 1.2),
        ("Llama-3.1-70B", None, "uniform"),
    ]
    taken = {name: seconds(name, recipe, routing) for name, recipe, routing in cases}
    for name, value in taken.items():
        print(f"{name:20} {EVALUATIONS} evaluations in {value:.3f} s")
    return 1 if max(taken.values()) > LIMIT_S else 0


if __name__ == "__main__":
    sys.exit(main())
