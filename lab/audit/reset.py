"""Did the server's counters run through?

Without this check a restart in the middle of a trial reads as tokens that somebody miscounted.
"""

from __future__ import annotations

from lab.audit.base import INVALID, Code, Context, check
from lab.records import Trial


@check("counter-reset")
def counter_reset(trial: Trial, context: Context) -> Code | None:
    """Counters fell while we measured: what they grew by is unknown, and so is whether the server was the same."""
    server = trial.server
    if not server["restarted"]:
        return None
    names = ", ".join(server["fell"] or ()) or "some of them"
    text = (
        f"the server's counters fell during the trial ({names}): it was restarted or somebody reset them, and nothing "
        "of its account can be set against ours"
    )
    return Code("counter-reset", INVALID, text, {"fell": names})
