"""The figures of the concurrency account, read in one way by every check.

Without it one check would take the queue gauge for the queue and another the client's word, and a trial would be capped
and client-bound at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.records import Trial

CLOSED = "closed"


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error; 0 where that is unknown."""

    mean: float
    error: float

    def at_most(self, errors: float) -> float:
        """So many standard errors above the mean."""
        return self.mean + errors * self.error


@dataclass(frozen=True)
class Account:
    """The four numbers and what explains them; None: unknown.

    offered: clients, or client slots of an open loop; little: mean in flight by the client (Little's law); running,
    waiting: the server's gauges; waiting_p10: what waits but for a tenth of the time; cap: what the server can run at
    once; kv_usage_max, preemptions: of the window; kv_room_tokens: the cache of one rank; prompt_tokens: mean length.
    ran, on_server: running, and running with waiting, by the surest estimate and with its standard error: the gauges'
    mean, or their distance from what got tokens (lab/load/figures_batch.py), which is also the least that ran.
    reading: what was in flight and got no tokens yet, where the running gauge leaves out prompts being read; else 0.
    few: fewer requests than clients were sent in the whole trial, so the load was never reached and nothing is said of
    the client. (The catalogue asks for five for each in the window. In a window that is fully occupied, long answers
    may well be fewer, and a client that holds 100 of 128 must not hide behind them.)
    """

    offered: float
    closed: bool
    little: float | None
    running: float | None
    waiting: float | None
    cap: float | None
    waiting_p10: float | None
    kv_usage_max: float | None
    kv_room_tokens: float | None
    prompt_tokens: float | None
    preemptions: float | None
    few: bool
    ran: Estimate | None
    on_server: Estimate | None
    reading: float

    @property
    def held(self) -> float | None:
        """What the server ran and queued; None when a gauge is missing."""
        return _sum(self.running, self.waiting)

    @property
    def queue(self) -> float | None:
        """What waited: by the gauge, or what the client held in flight and the server did not run (llama.cpp counts a
        request as deferred only when its loop next looks at the queue)."""
        if self.running is None:
            return None
        return max(self.waiting or 0.0, (self.little or 0.0) - self.running)

    @property
    def possible(self) -> float:
        """The most that could run of what was offered."""
        return self.offered if self.cap is None else min(self.offered, self.cap)

    def figures(self) -> dict[str, float | None]:
        """The four numbers, for a code."""
        return {
            "offered": self.offered,
            "littles_law": self.little,
            "running": self.running,
            "waiting": self.waiting,
            "cap": self.cap,
        }


def whole(value: float) -> str:
    """A count of events in words: a counter that is read between two samples gives a fraction, which is no count."""
    return f"{value:.0f}" if float(value).is_integer() else f"about {value:.0f}"


def account(trial: Trial) -> Account:
    """The concurrency account of a trial."""
    client, server, facts = trial.client, trial.server, trial.launch.effective
    answering, little = server.get("answering"), client["littles_law"]
    apart = facts.get("running_without_prompts") and answering is not None and little is not None
    live, total = server["window_delta"].get("preemptions"), server["delta"].get("preemptions")
    return Account(
        offered=trial.concurrency,
        closed=client["arrivals"] == CLOSED,
        little=little,
        running=server["running"],
        waiting=server["waiting"],
        cap=facts.get("cap"),
        waiting_p10=server["waiting_p10"],
        kv_usage_max=server["kv_usage_max"],
        kv_room_tokens=facts["kv_tokens"] / (facts.get("ranks") or 1) if facts.get("kv_tokens") else None,
        prompt_tokens=client["prompt_tokens_mean"],
        preemptions=total if live is None else live,
        few=client["arrivals"] == CLOSED and client["sent"] < trial.concurrency,
        ran=_estimate(server, "running", server["running"]),
        on_server=_estimate(server, "held", _sum(server["running"], server["waiting"])),
        reading=max(0.0, little - answering) if apart else 0.0,
    )


def _estimate(server: dict[str, Any], name: str, plain: float | None) -> Estimate | None:
    """The plain mean or the fitted one, whichever is surer; not less than what got tokens."""
    if plain is None:
        return None
    least = server.get("answering") or 0.0
    error, of_held = server.get(f"{name}_error"), server.get("held_error")
    error = of_held if error is None else error
    fitted, fitted_error = server.get(f"{name}_fitted"), server.get(f"{name}_fitted_error")
    if fitted is not None and fitted_error is not None and (error is None or fitted_error < error):
        return Estimate(max(fitted, least), fitted_error)
    return Estimate(max(plain, least), error or 0.0)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
