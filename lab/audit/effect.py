"""Did the lever take effect on the server?

Without proof, both arms may have measured the same thing, and the difference is noise with a name.
"""

from __future__ import annotations

from lab.audit.base import INVALID, Code, Context, check
from lab.records import Trial


@check("lever-not-applied")
def lever_not_applied(trial: Trial, context: Context) -> Code | None:
    """The launch's proof says that the lever is not shown by the server."""
    proof = trial.launch.record["proof"]
    if proof is None or proof["applied"]:
        return None
    return Code("lever-not-applied", INVALID, proof["text"])
