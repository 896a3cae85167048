"""`python -m tests.bench.handicap [PASSES]`: verdicts of the sequential rule on a real engine of known handicap.

Without it the error rates are those of simulated noise. Twelve passes of the embedded engine behind a proxy: the
control, the same again, and the same with its answers stretched by 2, 5 and 10 %. The records are then judged as
whole campaigns and as all contiguous campaigns of 2 to 4 passes that they hold.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd

from lab.campaign import CONTROL, PROJECT, Campaign, Passes
from lab.context import audit_run
from lab.effects import launch_row
from lab.engines.llamacpp import LlamaCpp
from lab.engines.server import Server
from lab.measure import Task, measure
from lab.plan import Owed, lever_order
from lab.prepare import create_run, prepare
from lab.records import CLOSING, JUDGED, OPENING
from lab.stats import compare, judge

HANDICAPS_PCT = {"again": 0.0, "slower-2": 2.0, "slower-5": 5.0, "slower-10": 10.0}
LABELS = ("adopt", "reject", "no-effect", "inconclusive")


class Stretched(LlamaCpp):
    """The embedded engine, each server behind a proxy of its own."""

    def launch(self, arm: Any, folder: Path, limits: Any, marker: str) -> Server:
        """See `Engine.launch`; the server's address is the proxy's."""
        server = super().launch(arm, folder, limits, marker)
        parts, share = urlsplit(server.url), HANDICAPS_PCT.get(arm.name, 0.0)
        command = [sys.executable, "-m", "tests.bench.stretching_proxy", parts.hostname, str(parts.port), str(share)]
        proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT)
        server.url = proxy.stdout.readline().split()[1]
        stop = server.stop

        def both() -> Any:
            if proxy.poll() is None:
                proxy.stdin.close()
                proxy.wait(10)
            return stop()

        server.stop = both
        return server


def measured(passes: int) -> tuple[Campaign, pd.DataFrame, int]:
    """The campaign, one row per valid launch, and how many were left out."""
    campaign = Campaign.load(Path(__file__).with_suffix(".yaml"))
    prepared, engine, rule = prepare(campaign, [], passes), Stretched(), campaign.rule
    owed = [Owed(rule.workload, rule.concurrency, JUDGED)]
    with tempfile.TemporaryDirectory(prefix="lab-handicap-") as scratch:
        run = create_run(prepared, Path(scratch), "campaign")

        def launch(name: str, number: int, role: str) -> None:
            task = Task(campaign.control.model_copy(update={"name": name}), number, role, owed)
            made = measure(run, campaign, engine, task, lambda text: None)
            value = made.trials[0].value(rule.metric) if made.ok else None
            print(f"pass {number}  {made.id:<16} {value}", file=sys.stderr, flush=True)

        launch(CONTROL, 0, OPENING)
        for number in range(1, passes + 1):
            for name in lever_order(list(HANDICAPS_PCT), number):
                launch(name, number, CLOSING)
            launch(CONTROL, number, CLOSING)
        launches = run.launches()
        found = [entry for entry in audit_run(launches, None, 5.0, (rule.metric,)).trials if entry.valid]
        rows = [row for entry in found if (row := launch_row(entry, rule.metric)) is not None]
    return campaign, pd.DataFrame(rows), len(launches) - len(rows)


def part(frame: pd.DataFrame, start: int, passes: int) -> pd.DataFrame:
    """Passes start+1 … start+passes with the control before them, numbered from 0."""
    chosen = frame[(frame["pass"] > start) & (frame["pass"] <= start + passes)]
    opening = frame[(frame["pass"] == start) & (frame["arm"] == CONTROL)]
    both = pd.concat([opening, chosen])
    return both.assign(**{"pass": both["pass"] - start})


def main(passes: int) -> None:
    """Measure, and print the tables."""
    started_s = time.monotonic()
    campaign, frame, left_out = measured(passes)
    rule = campaign.rule
    took_s = time.monotonic() - started_s
    print(f"{len(frame)} launches, {left_out} left out as invalid, {took_s:.0f} s, {os.cpu_count()} cores")
    print(f"{rule.metric} of {rule.workload} at C={rule.concurrency}, min_effect {rule.min_effect_pct:g} %\n")
    print(
        "arm        passes  campaigns  "
        + "  ".join(f"{label:>12}" for label in LABELS)
        + "   effect [95 %] of all passes"
    )
    for name in HANDICAPS_PCT:
        pair = frame[frame["arm"].isin([CONTROL, name])]
        whole = compare(pair, CONTROL, name, rule.alpha)
        told = f"{whole.effect_pct:+.1f} [{whole.ci_low_pct:+.1f}, {whole.ci_high_pct:+.1f}]"
        told += f", launches differ by {whole.residual_cv_pct:.1f} %"
        for length in (2, 3, 4, passes):
            looked = rule.model_copy(update={"passes": Passes(min=2, max=length)})
            found = Counter(
                judge(part(frame, start, length), CONTROL, name, looked).label for start in range(passes - length + 1)
            )
            counts = "  ".join(f"{found[label]:>12}" for label in LABELS)
            print(f"{name:<10} {length:>6}  {found.total():>9}  {counts}   {told if length == passes else ''}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
