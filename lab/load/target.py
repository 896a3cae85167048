"""The server side of a trial: where requests go, and what the server and its machine tell of themselves.

Without one object for it every caller would have to know fifteen arguments, and a server that somebody else started,
whose process and log are out of reach, would need a path of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lab.load.client_process import LoadFailed

if TYPE_CHECKING:
    import pandas as pd

    from lab.observe.gpus import Gpus

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SETTLE_SECONDS = 5.0
SETTLE_STEP_SECONDS = 0.1


@dataclass(frozen=True)
class Target:
    """The server side of a trial.

    url, model: where requests go and what they ask for; sample: the server's account (`lab.engines.server.Sample`);
    extras: body fields of every request; tokens_path: where a stream chunk carries its running token count, None
    when unknown; tokens_source: in words, where a window's token count comes from with this engine; headers: sent with
    every request, may hold a secret and are recorded nowhere; pid: the server's process on this machine, log: its log
    file here, gpus: those it uses, each None when out of reach; time_factor: server seconds in one real second;
    live_counters: names of the counters that move while requests run; ranks: data-parallel ranks, None when unknown.
    """

    url: str
    model: str
    sample: Callable[[], Any]
    extras: dict[str, Any] = field(default_factory=dict)
    tokens_path: tuple[str, ...] | None = None
    tokens_source: str | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    pid: int | None = None
    log: Path | None = None
    gpus: Gpus | None = None
    time_factor: float = 1.0
    live_counters: frozenset[str] = frozenset()
    ranks: int | None = None


@dataclass(frozen=True)
class Reading:
    """The server's counters, and when its answer arrived (monotonic seconds)."""

    t_s: float
    counters: dict[str, float]


def log_events(target: Target, timeline: pd.DataFrame, opened_s: float, closed_s: float) -> list[dict] | None:
    """What the server's log says of the window; None when it is out of reach."""
    from lab.observe import log_lines

    if target.log is None:
        return None
    try:
        return log_lines.events(log_lines.lines_between(target.log, timeline, opened_s, closed_s))
    except OSError:
        return None


def clock_offset(target: Target) -> dict[str, float | None]:
    """The clock of a server on another machine against ours; None on this machine, and when it does not show it."""
    if target.pid is not None or urlsplit(target.url).hostname in LOOPBACK:
        return {"offset_s": None, "offset_error_s": None}
    from lab.observe import clock

    try:
        offset = clock.http_date_offset(target.url)
    except OSError:
        offset = None
    return {"offset_s": offset and offset.offset_s, "offset_error_s": offset and offset.error_s}


def read(target: Target) -> Reading:
    """The counters before the load; raises LoadFailed when the server does not answer for some seconds."""
    from lab.observe.timeline import UNANSWERED, patiently

    try:
        counters = dict(patiently(target.sample).counters)
    except UNANSWERED as error:
        raise LoadFailed(f"the server does not answer for itself: {error}") from error
    return Reading(time.monotonic(), counters)


def read_settled(target: Target) -> Reading:
    """The counters after the last response, once they stand still and nothing runs: some move only as requests end.

    Without an answer for some seconds there are none: the window has been measured. Raises LoadFailed when the server's
    process, when it is on this machine, has ended.
    """
    from lab.observe.machine import is_running
    from lab.observe.timeline import UNANSWERED

    end_s = time.monotonic() + SETTLE_SECONDS
    last: Reading | None = None
    while True:
        try:
            sample = target.sample()
        except UNANSWERED as error:
            if target.pid is not None and not is_running(target.pid):
                raise LoadFailed(f"the server process {target.pid} ended during the trial") from error
        else:
            reading = Reading(time.monotonic(), dict(sample.counters))
            if last is not None and reading.counters == last.counters and not sample.running:
                return reading
            last = reading
        if time.monotonic() >= end_s:
            return last or Reading(time.monotonic(), {})
        time.sleep(SETTLE_STEP_SECONDS)
