"""One trial from the owner's side: start the client, watch the server, set the two accounts side by side.

Without one owner of the sequence, counters are read at other moments than the requests, and the client's
tokens are set against a server total that holds somebody else's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.load.client_process import ClientProcess, LoadFailed
from lab.load.workload import Prompts
from lab.observe import timeline

SETTLE_SECONDS = 5.0
SETTLE_STEP_SECONDS = 0.1


@dataclass(frozen=True)
class Measured:
    """The sections of trial.json that one measurement yields: plain dicts, missing is None."""

    window: dict[str, Any]
    prompts: dict[str, Any]
    client: dict[str, Any]
    server: dict[str, Any]
    metrics: dict[str, Any]


def drive(
    server_url: str,
    model: str,
    prompts: Prompts,
    *,
    concurrency: int,
    output_tokens: int,
    window: Any,
    limits: Any,
    extras: dict[str, Any],
    tokens_path: tuple[str, ...] | None,
    sample: Callable[[], Any],
    server_pid: int | None,
    folder: Path,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    idle_running_max: float | None = None,
) -> Measured:
    """Measure one window under `concurrency` closed-loop clients; requests and timeline go to `folder` as parquet.

    `window` and `limits` as in the campaign; `extras` are body fields of every request; `tokens_path` is
    where a stream chunk carries its running token count; `sample` gives the server's account; `on_progress`
    receives the client's events; `server_pid` is a process of this machine, or None; `idle_running_max` is
    passed into the record. Raises LoadFailed. However it ends, the client ends with it.
    """
    import pyarrow.parquet as pq

    from lab.load.summary import counter_delta, summarise

    folder.mkdir(parents=True, exist_ok=True)
    requests_path = folder / "requests.parquet"
    job = {
        "server_url": server_url,
        "model": model,
        "messages": prompts.messages,
        "concurrency": concurrency,
        "output_tokens": output_tokens,
        "warmup_seconds": window.warmup_seconds,
        "seconds": window.seconds,
        "stall_seconds": limits.stall_seconds,
        "drain_seconds": limits.drain_seconds,
        "extras": extras,
        "tokens_path": tokens_path,
        "requests_path": str(requests_path.resolve()),
    }
    with ClientProcess(job) as client:
        client.wait_for("ready", server_pid, on_progress)
        before = _counters(sample)
        with timeline.watch(sample, server_pid, timeline.interval_s(window.seconds)) as watched:
            client.go()
            outcome = client.wait_for("done", server_pid, on_progress)
            after = {} if outcome["failure"] else _settled_counters(sample)
    frame = watched.frame()
    timeline.write(frame, folder / "timeline.parquet")
    if outcome["failure"]:
        raise LoadFailed(f"{server_url}: {outcome['failure']}")
    sections = summarise(
        pq.read_table(requests_path).to_pandas(),
        frame,
        opened_s=outcome["opened_s"],
        closed_s=outcome["closed_s"],
        concurrency=concurrency,
        output_tokens=output_tokens,
        delta=counter_delta(before, after),
    )
    own = ("clients_started", "loop_lag_p99_ms", "cpu_share", "drained", "drain_seconds")
    return Measured(
        window={
            "opened_s": outcome["opened_s"],
            "closed_s": outcome["closed_s"],
            "seconds": outcome["closed_s"] - outcome["opened_s"],
            "opened_at": outcome["opened_at"],
        },
        prompts={"salt": prompts.salt, "digest": prompts.digest, "count": len(prompts.messages)},
        client=sections["client"] | {name: outcome[name] for name in own},
        server=sections["server"] | {"idle_running_max": idle_running_max},
        metrics=sections["metrics"],
    )


def _counters(sample: Callable[[], Any]) -> dict[str, float]:
    try:
        return dict(sample().counters)
    except timeline.UNANSWERED as error:
        raise LoadFailed(f"the server does not answer for itself: {error}") from error


def _settled_counters(sample: Callable[[], Any]) -> dict[str, float]:
    """The counters after the last response, once they stand still and nothing runs: some move only as requests end."""
    end_s = time.monotonic() + SETTLE_SECONDS
    last: dict[str, float] | None = None
    while True:
        try:
            reading = sample()
        except timeline.UNANSWERED as error:
            raise LoadFailed(f"the server does not answer for itself: {error}") from error
        counters = dict(reading.counters)
        if (counters == last and not reading.running) or time.monotonic() >= end_s:
            return counters
        last = counters
        time.sleep(SETTLE_STEP_SECONDS)
