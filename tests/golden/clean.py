"""`python -m tests.golden.clean [TRIALS]`: clean trials of healthy simulated servers; counts the codes they raise.

Without it nobody knows how often the audit throws away a launch that was right. Exit 1 when more than 0.2 % of the
trials raise an INVALID code.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from lab.audit import INVALID
from lab.campaign import Campaign
from lab.context import audit_run
from lab.files import write_text
from lab.measure import Task, measure
from lab.plan import Owed
from lab.prepare import create_run, prepare
from lab.records import JUDGED, OPENING

ALLOWED_SHARE = 0.002
WORKERS = 2
DIALECTS = ("vllm", "sglang", "llamacpp")
LOADS = {
    "chat": {"kind": "chat", "output_tokens": 32, "concurrency": [1, 8, 24]},
    "random": {"kind": "random", "input_tokens": 96, "output_tokens": 24, "concurrency": [8]},
    "shared": {"kind": "shared_prefix", "prefixes": 4, "prefix_tokens": 64, "input_tokens": 32, "output_tokens": 24}
    | {"concurrency": [8]},
    "poisson": {"kind": "chat", "output_tokens": 32, "arrivals": "poisson", "rate_rps": 3.0, "concurrency": [64]},
    "constant": {"kind": "chat", "output_tokens": 32, "arrivals": "constant", "rate_rps": 3.0, "concurrency": [64]},
}
SYNTHETIC = ("random", "shared")
"""No load for a speculating server: the audit rightly refuses acceptance on random words."""
SPECULATION = {"speculation.tokens": 2, "speculation.acceptance": [0.7, 0.4], "speculation.step_cost": 1.2}
VARIANTS = (
    {},
    SPECULATION,
    {"prefix_cache": True, "tokens_per_chunk": 2},
    {"noise.step_cv_pct": 10.0, "output.stop_early_share": 0.2},
)
"""Healthy servers that differ: plain, speculating, with a prefix cache and coarser chunks, noisy with early stops."""


@dataclass(frozen=True)
class Found:
    """One trial: where it ran, under which load, and the codes it raised with their severity and words."""

    dialect: str
    load: str
    codes: tuple[tuple[str, str, str], ...]


def variant(number: int) -> dict[str, Any]:
    """What kind of healthy server the launch of this number is."""
    return VARIANTS[number // len(DIALECTS) % len(VARIANTS)]


def owed_by(number: int) -> list[Owed]:
    """The trials of one launch: every load at every level."""
    loads = [name for name in LOADS if variant(number) is not SPECULATION or name not in SYNTHETIC]
    return [Owed(name, level, JUDGED) for name in loads for level in LOADS[name]["concurrency"]]


def launch(number: int) -> list[Found]:
    """All loads on one fresh server; dialect, kind of server and seed follow from the number."""
    dialect = DIALECTS[number % len(DIALECTS)]
    flags = {
        "dialect": dialect,
        "seed": number,
        "time_factor": 20.0,
        "step_ms": 40.0,
        "step_ms_per_running": 0.5,
        "prefill_ms_per_token": 0.05,
        "noise.step_cv_pct": 4.0,
        "noise.launch_cv_pct": 1.5,
        **variant(number),
    }
    content = {
        "name": "clean",
        "model": {"name": "simulated-model", "checkpoint": "simulated-model"},
        "server": {"engine": "simulated", "flags": flags},
        "workloads": LOADS,
        "window": {"warmup_seconds": 5, "seconds": 30, "min_steady_seconds": 30},
        "limits": {"start_seconds": 300, "stall_seconds": 60, "drain_seconds": 60},
        "rule": {"workload": "chat", "concurrency": 8},
        "levers": {"slots": {"custom": {"title": "Slots", "treatment": {"flags": {"max_running": 63}}}}},
    }
    owed = owed_by(number)
    with tempfile.TemporaryDirectory(prefix="lab-clean-") as scratch:
        path = Path(scratch) / "clean.yaml"
        write_text(path, yaml.safe_dump(content))
        prepared = prepare(Campaign.load(path))
        run = create_run(prepared, Path(scratch) / "results", "block")
        task = Task(arm=prepared.campaign.control, pass_number=number, role=OPENING, owed=owed)
        made = measure(run, prepared.campaign, prepared.engine, task, lambda text: None)
        if not made.ok:
            raise RuntimeError(f"launch {number} ({dialect}): {made.record['failure']}")
        return [
            Found(
                dialect,
                f"{entry.trial.workload}-c{entry.trial.concurrency}",
                tuple((code.code, code.severity, code.text) for code in entry.codes),
            )
            for entry in audit_run([made], None, 5.0, ("output_tok_s",)).trials
        ]


def trials(count: int) -> Iterator[Found]:
    """At least `count` trials, several servers at once."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
        planned = list(accumulate(len(owed_by(number)) for number in range(count)))
        for found in pool.map(launch, range(bisect_left(planned, count) + 1)):
            yield from found


def main(count: int) -> int:
    """Measure, and print what was found."""
    started_s = time.monotonic()
    measured: Counter[tuple[str, str]] = Counter()
    bad: Counter[tuple[str, str]] = Counter()
    codes: Counter[tuple[str, str]] = Counter()
    for found in trials(count):
        key = found.dialect, found.load
        measured[key] += 1
        invalid = [code for code in found.codes if code[1] == INVALID]
        bad[key] += bool(invalid)
        codes.update((severity, code) for code, severity, _ in found.codes)
        for code, _, text in invalid:
            print(f"invalid  {found.dialect} {found.load}: {code}: {text}", flush=True)
        if measured.total() % 200 == 0:
            print(f"{measured.total()} trials, {bad.total()} invalid, {time.monotonic() - started_s:.0f} s", flush=True)
    print(f"\n{'dialect':<10} {'load':<14} {'trials':>7} {'invalid':>8}")
    for dialect, load in sorted(measured):
        print(f"{dialect:<10} {load:<14} {measured[dialect, load]:>7} {bad[dialect, load]:>8}")
    for (severity, code), number in sorted(codes.items()):
        print(f"{severity:<8} {code:<24} {number}")
    share = bad.total() / measured.total()
    took_s = time.monotonic() - started_s
    print(
        f"{measured.total()} trials, {bad.total()} invalid ({share:.2%}; {ALLOWED_SHARE:.1%} allowed), {took_s:.0f} s"
    )
    return 1 if share > ALLOWED_SHARE else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
