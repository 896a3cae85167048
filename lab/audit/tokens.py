"""Do client and server agree on the tokens, and were they all ours?

Without this check a client that loses updates, or a second user of the server, changes a figure unseen.
"""

from __future__ import annotations

from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.thresholds import COUNT_MISMATCH_SHARE, FOREIGN_SHARE, FOREIGN_TOKENS_MIN
from lab.records import Trial


@check("foreign-traffic")
def foreign_traffic(trial: Trial, context: Context) -> Code | None:
    """The server was busy before we began, or read more prompt tokens than we sent."""
    idle = trial.server["idle_running_max"]
    if idle:
        text = f"{idle:g} requests ran on the server before the trial began; somebody else uses it"
        return Code("foreign-traffic", INVALID, text, {"idle_running_max": idle})
    counted = _counted(trial, "prompt_tokens")
    if counted is None:
        return None
    ours, server = counted
    extra = server - ours
    if extra <= max(FOREIGN_TOKENS_MIN, FOREIGN_SHARE * ours):
        return None
    text = f"the server read {server:g} prompt tokens, our requests hold {ours:g}; somebody else uses it"
    return Code("foreign-traffic", INVALID, text, {"client": ours, "server": server})


@check("count-mismatch")
def count_mismatch(trial: Trial, context: Context) -> Code | None:
    """Output tokens over the drained trial, counted on both sides.

    A trial whose requests were aborted has no drained total; where the counts cannot be compared that is a warning.
    """
    counted = _counted(trial, "output_tokens")
    if counted is None:
        text = "output tokens of client and server could not be compared (no counter, or the trial did not drain)"
        return Code("count-mismatch", WARNING, text)
    ours, server = counted
    if ours == server or abs(server - ours) <= COUNT_MISMATCH_SHARE * max(ours, server):
        return None
    text = f"the client counted {ours:g} output tokens, the server {server:g}"
    return Code("count-mismatch", INVALID, text, {"client": ours, "server": server})


def _counted(trial: Trial, name: str) -> tuple[float, float] | None:
    """(client, server) totals over the drained trial, or None where one of them cannot be known."""
    client, server = trial.client[name], trial.server["delta"].get(name)
    if client is None or server is None or not trial.client["drained"] or trial.client["failed"]:
        return None
    return float(client), float(server)
