"""Did the server run what the label says, and if not, does anything say why?

Without this check a cause that no other check knows leaves a false C standing as a result.
"""

from __future__ import annotations

from lab.audit.account import account
from lab.audit.base import INVALID, Code, Context, check
from lab.audit.client import client_bound, client_conn_cap, failed_requests, nothing_completed, ramp_heavy
from lab.audit.concurrency import batch_cap, client_inflight_illusion, hang, kv_bound
from lab.audit.gate import gate_misaligned, metric_absent
from lab.audit.thresholds import BELOW_SHARE, SEEN_ERRORS
from lab.records import Trial

_BLIND = (metric_absent, gate_misaligned, nothing_completed)
_CAUSES = (client_conn_cap, client_bound, ramp_heavy, batch_cap, kv_bound, client_inflight_illusion)
_CAUSES_OF_THE_LABEL = (hang, failed_requests)
"""They explain a false label where they are invalid, and are side notes elsewhere."""


@check("below-load")
def below_load(trial: Trial, context: Context) -> Code | None:
    """A closed loop's server ran less than was asked, beyond the error of its samples, and no check knows why."""
    load = account(trial)
    if not load.closed or load.few or load.ran is None:
        return None
    most = load.ran.at_most(SEEN_ERRORS) + load.reading
    if most >= BELOW_SHARE * load.offered or _explained(trial, context):
        return None
    cap = "unknown" if load.cap is None else f"{load.cap:g}"
    said = "none" if load.little is None else f"{load.little:.1f}"
    text = (
        f"asked {load.offered:g}, ran {load.ran.mean:.1f} ({said} in flight, {load.waiting or 0.0:.1f} waiting, cap "
        f"{cap}): the batch that ran is not the one that was asked, and nothing says why"
    )
    figures = {**load.figures(), "ran": load.ran.mean, "ran_error": load.ran.error}
    return Code("below-load", INVALID, text, figures)


def _explained(trial: Trial, context: Context) -> bool:
    if any(cause(trial, context) for cause in (*_BLIND, *_CAUSES)):
        return True
    codes = (cause(trial, context) for cause in _CAUSES_OF_THE_LABEL)
    return any(code is not None and code.severity == INVALID for code in codes)
