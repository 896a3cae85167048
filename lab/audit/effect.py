"""Did the arm run as it was meant to: the lever in effect, decoding on the fast path?

Without proof, both arms may have measured the same thing, and the difference is noise with a name.
"""

from __future__ import annotations

from lab.audit.account import whole
from lab.audit.base import INVALID, WARNING, Code, Context, check
from lab.audit.thresholds import EAGER_SHARE
from lab.records import TREATMENT, Trial

GRAPHS_LEVER = "cuda_graphs"


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


@check("graph-miss")
def graph_miss(trial: Trial, context: Context) -> Code | None:
    """Decoding fell off the captured graphs: the batch of a rank is larger than any of them, steps ran eagerly, or the
    arm lost its graphs although the lever is another."""
    facts, server = trial.launch.effective, trial.server
    largest, ranks, running = facts.get("graph_max_batch"), facts.get("ranks") or 1, server["running_p95"]
    if ranks > 1:
        fullest = server["rank_running_p95"]
        running = fullest if fullest is not None or running is None else running / ranks
    figures = {"graph_max_batch": largest, "running_p95": running}
    if largest is not None and running is not None and facts.get("graphs") is not False and running > largest:
        where = "at once" if ranks == 1 else f"at once on the fullest of {ranks:g} data-parallel ranks"
        text = (
            f"for a twentieth of the window {running:g} requests or more ran {where}, the largest captured graph holds "
            f"{largest:g}: those steps ran without a graph"
        )
        return Code("graph-miss", WARNING, text, figures)
    steps = server["window_delta"] if "eager_steps" in server["window_delta"] else server["delta"]
    eager, graph = steps.get("eager_steps"), steps.get("graph_steps")
    if facts.get("graphs") and eager is not None and graph is not None and eager > EAGER_SHARE * (eager + graph):
        text = f"{whole(eager)} of {whole(eager + graph)} steps ran outside the captured graphs"
        return Code("graph-miss", WARNING, text, {"eager_steps": eager, "graph_steps": graph})
    control = context.control.launch.effective.get("graphs") if context.control else None
    if facts.get("graphs") is False and control and trial.launch.record["arm"]["lever"] != GRAPHS_LEVER:
        return Code(
            "graph-miss", WARNING, "the control decodes with graphs, this arm without, and the lever is another"
        )
    return None
