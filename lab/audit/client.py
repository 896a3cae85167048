"""Did the requests themselves go well?

Without this check, failing requests shorten the work and look like speed.
"""

from __future__ import annotations

from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.thresholds import FAILED_SHARE_INVALID
from lab.records import Trial


@check("failed-requests")
def failed_requests(trial: Trial, context: Context) -> Code | None:
    """Requests that ended in an error; aborted at the end of the drain is not an error."""
    client = trial.client
    failed, issued = client["failed"], client["sent"]
    if not failed:
        return None
    share = failed / issued
    kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(client["errors"].items()))
    severity = INVALID if share > FAILED_SHARE_INVALID else WARNING
    text = f"{failed} of {issued} requests failed ({kinds})"
    return Code("failed-requests", severity, text, {"failed": failed, "issued": issued})


@check("nothing-completed")
def nothing_completed(trial: Trial, context: Context) -> Code | None:
    """No token arrived in the window: there is no throughput to speak of."""
    client = trial.client
    if client["window_tokens"]:
        return None
    text = f"no token arrived in the window ({client['completed']} requests completed before and after it)"
    return Code("nothing-completed", INVALID, text, {"completed": client["completed"], "window_tokens": 0})
