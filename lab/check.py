"""`lab check`: what did a running server really run under C clients, and why.

Without it the first answer would need a campaign file and a restart, and people would go on believing the number that
their client printed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from lab import observe
from lab.audit import FINDING, INVALID, WARNING, Code, Context, audit
from lab.audit.diagnosis import Diagnosis, diagnose
from lab.campaign import Limits, Window
from lab.check_bound import CheckBound, bound_of
from lab.engines import attach
from lab.errors import LabError
from lab.files import digest
from lab.observe.timeline import patiently
from lab.one_trial import measure_trial
from lab.records import JUDGED, SCHEMA, Launch, Trial, utc_now
from lab.report.advice import advised, waited
from lab.secrets import concealed, in_headers
from lab.workloads import Workload

if TYPE_CHECKING:
    from lab.engines.server import Fact, Server
    from lab.roofline.hardware import Hardware

# Nobody told us that a server of somebody else is idle: look longer than at one that the lab started.
IDLE_LOOK_SECONDS = 10.0
WARMUP_SHARE, WARMUP_SECONDS_MIN = 0.2, 3.0
OUTPUT_TOKENS = 64
LIMITS = Limits(start_seconds=60, stall_seconds=60, drain_seconds=20)
CHECK = "check"
SEVERITIES = (INVALID, FINDING, WARNING)
LOG_UNSEEN = "the server's log: a compile, an error or a restart that it tells of cannot be seen from here"
Say = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Checked:
    """One look at a server: its trial, what the audit found, worst first, and the diagnosis in a sentence; `missing`:
    what it does not show, with the switch for it; `bound`: on the hardware that was named, None: none was."""

    server_url: str
    engine: str
    model: str
    missing: tuple[str, ...]
    trial: Trial
    codes: list[Code]
    diagnosis: Diagnosis
    seconds: float
    bound: CheckBound | None = None
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """What must not be shown although the server may say it."""

    def figures(self) -> dict[str, Any]:
        """The keys of `lab check --json` (contract, section 4); missing is None."""
        trial, server, metrics = self.trial, self.trial.server, self.trial.metrics
        facts = trial.launch.effective
        return {
            "url": self.server_url,
            "engine": self.engine,
            "engine_version": self.version,
            "model": self.model,
            "offered": trial.concurrency,
            "running": server["running"],
            "waiting": server["waiting"],
            "waited": self.waited,
            "littles_law": trial.client["littles_law"],
            **{key: facts.get(key) for key in ("cap", "cap_source", "cap_asked", "cap_flag")},
            "diagnosis": self.diagnosis.name,
            "diagnosis_text": self.diagnosis.text,
            "fix": self.diagnosis.fix,
            "codes": [code.code for code in self.codes],
            "findings": [{"code": c.code, "severity": c.severity, "text": c.text} for c in self.codes],
            **{name: metrics[name] for name in ("output_tok_s", "ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms")},
            "requests_in_window": metrics["requests_in_window"],
            "sent": trial.client["sent"],
            "failed": trial.client["failed"],
            "tokens_source": trial.client["tokens_source"],
            "errors": trial.client["errors"],
            "prefix_caching": facts.get("prefix_caching"),
            "prefix_hit_share": metrics["prefix_hit_share"],
            "acceptance": metrics["acceptance"],
            "acceptance_length": metrics["acceptance_length"],
            "kv_usage_max": server["kv_usage_max"],
            "mean_context_tokens": metrics["mean_context_tokens"],
            "bound_tok_s": self.bound and self.bound.bound_tok_s,
            "bound_fraction": self.bound and self.bound.fraction(metrics["output_tok_s"]),
            "bound_taken": self.bound and self.bound.taken,
            "bound_unknown": self.bound.unknown if self.bound else "no --hardware was named",
            "missing": list(self.missing),
            "window_seconds": trial.window["seconds"],
            "seconds": self.seconds,
        }

    @property
    def version(self) -> str | None:
        """The engine's own word for its release; None: not shown."""
        facts = self.trial.launch.effective
        return facts.get("version") or facts.get("build")

    @property
    def waited(self) -> float | None:
        """What waited on average, as the diagnosis counts it."""
        return waited(self.diagnosis, self.trial)


def check(
    url: str,
    concurrency: int,
    seconds: float,
    *,
    model: str | None = None,
    headers: Mapping[str, str] | None = None,
    key_from: str | None = None,
    hardware: Hardware | None = None,
    say: Say = lambda text, share: None,
) -> Checked:
    """Load the server at `url` with `concurrency` clients for a window of `seconds`, and audit what came of it.

    model: which of the served ones, None for the first; headers: with every request, perhaps a key, recorded nowhere;
    key_from: the variable that the key comes from; hardware: what it runs on, for its bound; `say` receives a line and
    the share of the time that has passed (None: unknown). Nothing is written outside a temporary folder. Raises
    InputError when there is no server that the lab knows, LabError when it cannot be measured.
    """
    began_s = time.monotonic()
    window = window_of(seconds)
    base, headers = attach.address(url, headers)
    say(f"looking at {base}", None)
    server = attach.recognise(base, headers, model=model, key_from=key_from)
    try:
        effective = patiently(server.describe)
        say(f"{server.engine}: is it idle? ({IDLE_LOOK_SECONDS:g} s)", None)
        idle = observe.idle_look(server.sample, IDLE_LOOK_SECONDS)
        with tempfile.TemporaryDirectory(prefix="lab-check-") as scratch:
            sections = _measure(server, effective, concurrency, window, Path(scratch), idle, say)
    except requests.RequestException as error:
        raise LabError(f"{server.url}: stopped answering ({error}); is it still up?") from error
    except LabError as error:
        raise type(error)(concealed(str(error), in_headers(server.headers))) from error
    trial = _trial(server, effective, concurrency, sections)
    limit = None if hardware is None else bound_of(trial, server.model, hardware)
    context = Context(hard_bound_tok_s=limit.hard_tok_s, bound_tok_s=limit.bound_tok_s) if limit else Context()
    found = [*audit(trial, context), *([gap] if limit and (gap := limit.finding(trial)) else [])]
    missing = (*server.missing, *(() if server.log else (LOG_UNSEEN,)))
    return Checked(
        server_url=server.url,
        engine=server.engine,
        model=server.model,
        missing=missing,
        trial=trial,
        codes=sorted(found, key=lambda code: SEVERITIES.index(code.severity)),
        diagnosis=advised(diagnose(trial, context), trial, missing),
        seconds=time.monotonic() - began_s,
        bound=limit,
        secrets=in_headers(server.headers),
    )


def window_of(seconds: float) -> Window:
    """The window of a check: its warm-up a fifth of it, and no demand on its length but its own."""
    warmup = max(WARMUP_SECONDS_MIN, WARMUP_SHARE * seconds)
    return Window(warmup_seconds=warmup, seconds=seconds, min_steady_seconds=seconds)


def _measure(
    server: Server,
    effective: Mapping[str, Fact],
    concurrency: int,
    window: Window,
    folder: Path,
    idle: Any,
    say: Say,
) -> dict[str, Any]:
    workload = Workload(kind="chat", output_tokens=OUTPUT_TOKENS, concurrency=[concurrency])
    facts = {key: fact.value for key, fact in effective.items()}
    loaded_s, drain_s = window.warmup_seconds + window.seconds, LIMITS.drain_seconds
    say(f"{concurrency} clients for {loaded_s:g} s, then at most {drain_s:g} s for the last answers", None)
    started_s = time.monotonic()

    def tell(event: dict[str, Any]) -> None:
        if event["event"] == "progress":
            share = min(1.0, (time.monotonic() - started_s) / (loaded_s + drain_s))
            say(f"{event['phase']}: {event['in_flight']} in flight, {event['output_tokens']} tokens", share)

    return measure_trial(
        server,
        workload,
        concurrency,
        salt=digest([server.url, utc_now()])[:6],
        window=window,
        limits=LIMITS,
        folder=folder,
        workload_folder=folder,
        facts=facts,
        context_tokens=facts.get("context_tokens"),
        idle=idle,
        gpus=None,
        on_progress=tell,
    )


def _trial(server: Server, effective: Mapping[str, Fact], concurrency: int, sections: dict[str, Any]) -> Trial:
    """The record of a launch that nobody made, so that the audit reads it like any other."""
    launch = {
        "launch": 0,
        "order": 0,
        "pass": 0,
        "role": CHECK,
        "arm": {"name": CHECK, "lever": None, "treatment": None, "engine": server.engine, "checkpoint": server.model},
        "effective": {key: {"value": fact.value, "source": fact.source} for key, fact in effective.items()},
        "state": "ok",
        "failure": None,
        "proof": None,
        "machine": observe.describe_machine(),
        "trials": [],
    }
    record = {
        "schema": SCHEMA,
        "simulated": False,
        "workload": "chat",
        "concurrency": concurrency,
        "purpose": JUDGED,
        **sections,
    }
    folder = Path(CHECK)
    return Trial(folder / "trials" / f"chat-c{concurrency}", record, Launch(folder, launch))
