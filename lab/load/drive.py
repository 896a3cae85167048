"""One trial from the owner's side: start the clients, watch the server, set the two accounts side by side.

Without one owner of the sequence, counters are read at other moments than the requests, and the client's
tokens are set against a server total that holds somebody else's.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson

from lab.errors import InputError
from lab.files import explain_os_error, make_folder
from lab.load import apis
from lab.load.client_process import LoadFailed
from lab.load.clients import Clients, process_count
from lab.load.target import Reading, Target, clock_offset, log_events, read, read_settled

if TYPE_CHECKING:
    import pandas as pd

    from lab.load.workload import Prompts
    from lab.observe.timeline import IdleLook

LAGS = ("loop_lag_mean_ms", "loop_lag_p99_ms", "loop_lag_max_ms")
STALL_SECONDS_AT_LEAST = 5.0
"""The silence of a simulated server is the machine's: a busy one needs this long, in real seconds."""


@dataclass(frozen=True)
class Measured:
    """The sections of trial.json that one measurement yields: plain dicts, missing is None."""

    window: dict[str, Any]
    prompts: dict[str, Any]
    client: dict[str, Any]
    server: dict[str, Any]
    machine: dict[str, Any]
    metrics: dict[str, Any]
    steady: dict[str, Any]


def drive(
    target: Target,
    prompts: Prompts,
    *,
    concurrency: int,
    output_tokens: int | None,
    window: Any,
    limits: Any,
    folder: Path,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    idle: IdleLook | None = None,
) -> Measured:
    """Measure one window under the load that `prompts` describe; requests and timeline go to `folder` as parquet.

    concurrency: clients, or client slots of an open loop; output_tokens: the cap of prompts that bring none; `window`
    and `limits` as in the campaign, in server seconds; `on_progress` receives the clients' events (`Clients`); `idle`:
    what the server did before it was left to us, passed into the record. Raises InputError for prompts that cannot be
    sent, LoadFailed when it could not be measured to its end, DiskFullError. However it ends, the clients end with it.
    """
    _check(target, prompts, window)
    make_folder(folder)
    with tempfile.TemporaryFile() as items:
        job = _job(target, prompts, concurrency, output_tokens, window, limits, items)
        seen = _measure(target, job, folder, on_progress)
    return _sections(target, prompts, job, window, seen, idle)


@dataclass(frozen=True)
class _Seen:
    """What a measurement has seen, before it is summed up."""

    requests: pd.DataFrame
    timeline: pd.DataFrame
    outcome: dict[str, Any]
    before: Reading
    after: Reading


def _measure(
    target: Target,
    job: dict[str, Any],
    folder: Path,
    on_progress: Callable[[dict[str, Any]], None] | None,
) -> _Seen:
    """Offer the load and watch; the tables are written even when it fails."""
    from lab.load import record
    from lab.observe import timeline

    whole = folder / "requests.parquet"
    processes = process_count(job["concurrency"])
    parts = [folder / f"requests-{number}.parquet" for number in range(processes)] if processes > 1 else [whole]
    watched = timeline.watch(
        target.sample, target.pid, timeline.interval_s(job["seconds"]), log_path=target.log, gpus=target.gpus
    )

    def keep() -> None:
        written = [part for part in parts if part.exists()]
        if processes > 1 and written:
            record.merge(written, whole)
            for part in written:
                part.unlink()
        timeline.write(watched.frame(), folder / "timeline.parquet")

    try:
        with Clients(job, parts, target.pid, on_progress) as clients:
            clients.wait_until_ready()
            before = read(target)
            with watched:
                outcome = clients.measure()
                after = read_settled(target)
    except LoadFailed:
        keep()
        raise
    keep()
    return _Seen(record.read(whole), watched.frame(), outcome, before, after)


def _sections(
    target: Target, prompts: Prompts, job: dict[str, Any], window: Any, seen: _Seen, idle: IdleLook | None
) -> Measured:
    from lab.load.summary import counter_delta, summarise

    factor, outcome, finished = target.time_factor, seen.outcome, "requests_finished"
    opened_s, closed_s = outcome["opened_s"], outcome["closed_s"]
    sections = summarise(
        seen.requests,
        seen.timeline,
        opened_s=opened_s,
        closed_s=closed_s,
        concurrency=job["concurrency"],
        output_tokens=job["output_tokens"],
        delta=counter_delta(seen.before.counters, seen.after.counters),
        arrivals=prompts.arrivals,
        rate_rps=prompts.rate_rps,
        live_counters=target.live_counters,
        time_factor=factor,
        min_steady_seconds=window.min_steady_seconds,
        ignore_eos=prompts.ignore_eos,
        ranks=target.ranks,
        slo=prompts.slo,
    )
    sections["window"] |= {
        "warmup_seconds": window.warmup_seconds,
        "seconds": (closed_s - opened_s) * factor,
        "min_steady_seconds": window.min_steady_seconds,
        "opened_s": opened_s,
        "closed_s": closed_s,
        "opened_at": outcome["opened_at"],
        "time_factor": factor,
        "tokens_source": target.tokens_source,
        **clock_offset(target),
    }
    sections["client"] |= {
        **{name: outcome[name] for name in ("clients_started", "processes", "cpu_share", "drained")},
        **{name: _times(outcome[name], factor) for name in (*LAGS, "drain_seconds")},
    }
    sections["server"] |= {
        "counters_before_s": (seen.before.t_s - opened_s) * factor,
        "counters_after_s": (seen.after.t_s - opened_s) * factor if seen.after.counters else None,
        "requests_before": seen.before.counters.get(finished),
        "idle_running_max": idle.running_max if idle else None,
        "idle_grew": idle.grew if idle else None,
        "log_events": log_events(target, seen.timeline, opened_s, closed_s),
    }
    return Measured(prompts=prompts.record(), **sections)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _check(target: Target, prompts: Prompts, window: Any) -> None:
    """Raise InputError for prompts that cannot be sent as they are, before anything is started."""
    if not prompts.items:
        raise InputError(f"workload {prompts.kind}: holds no prompts")
    apis.get(prompts.api).body(prompts.items[0], target.model, 1, {}, {})
    if prompts.arrivals == "trace":
        lasts_s = prompts.items[-1]["at_s"] - prompts.items[0]["at_s"]
        needed_s = window.warmup_seconds + window.seconds
        if lasts_s < needed_s:
            raise InputError(
                f"workload {prompts.kind}: its times end after {lasts_s:g} s, warm-up and window take {needed_s:g} s; "
                "shorten the window or give a longer trace"
            )


def _job(
    target: Target,
    prompts: Prompts,
    concurrency: int,
    output_tokens: int | None,
    window: Any,
    limits: Any,
    stream: IO[bytes],
) -> dict[str, Any]:
    """What every client process is told (see `lab.load.job.Job`), in real seconds; the prompts go into `stream`.

    That is a file without a name, which the clients read through this process: it is gone with its owner.
    """
    factor = target.time_factor
    items = [item | {"at_s": item["at_s"] / factor} if "at_s" in item else item for item in prompts.items]
    try:
        stream.writelines(orjson.dumps(item, option=orjson.OPT_APPEND_NEWLINE) for item in items)
        stream.flush()
    except OSError as error:
        raise explain_os_error(error, Path(tempfile.gettempdir())) from error
    stall_seconds = limits.stall_seconds / factor
    return {
        "server_url": target.url,
        "api": prompts.api,
        "model": target.model,
        "headers": target.headers,
        "items": f"/proc/{os.getpid()}/fd/{stream.fileno()}",
        "arrivals": prompts.arrivals,
        "rate_rps": None if prompts.rate_rps is None else prompts.rate_rps * factor,
        "salt": prompts.salt,
        "concurrency": concurrency,
        "output_tokens": output_tokens,
        "sampling": prompts.sampling(),
        "extras": {**target.extras, **prompts.extras()},
        "tokens_path": target.tokens_path,
        "warmup_seconds": window.warmup_seconds / factor,
        "seconds": window.seconds / factor,
        "stall_seconds": stall_seconds if factor == 1 else max(STALL_SECONDS_AT_LEAST, stall_seconds),
        "drain_seconds": limits.drain_seconds / factor,
        "time_factor": factor,
    }
