"""Did the lever take effect on the server?

Without proof, both arms may have measured the same thing, and the difference is noise with a name.
"""

from __future__ import annotations

from lab.audit.base import INVALID, Code, Context, check
from lab.records import TREATMENT, Trial


@check("lever-not-applied")
def lever_not_applied(trial: Trial, context: Context) -> Code | None:
    """The treatment's proof is missing, or says that the server does not show the lever."""
    proof = trial.launch.record["proof"]
    if trial.launch.role != TREATMENT or (proof is not None and proof["applied"]):
        return None
    if proof is None:
        text = "there was no control to compare the server's account with, so nothing proves the lever"
        return Code("lever-not-applied", INVALID, text)
    return Code("lever-not-applied", INVALID, proof["text"])
