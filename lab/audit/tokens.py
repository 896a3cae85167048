"""Do client and server agree on the tokens, and were they all ours?

Without these checks a client that loses updates, a second user of the server, prompts of another length and answers
that end early change a figure unseen.
"""

from __future__ import annotations

from lab.audit.base import INVALID, WARNING, Code, Context, check, further_check
from lab.audit.comparison import input_length_between
from lab.audit.thresholds import (
    CHUNKS_PER_TOKEN,
    COUNT_MISMATCH_SHARE,
    FOREIGN_HELD_MIN,
    FOREIGN_HELD_SHARE,
    FOREIGN_REQUESTS_MIN,
    FOREIGN_REQUESTS_SHARE,
    FOREIGN_SHARE,
    FOREIGN_TOKENS_MIN,
    INPUT_SHARE,
    INPUT_TOKENS_MIN,
    LATE_TOKENS_SHARE,
    LENGTH_ERRORS_SHARE,
    LIVE_MISMATCH_SHARE,
    LIVE_TOKENS_EACH,
    SAMPLES_MIN,
)
from lab.records import Trial


@check("foreign-traffic")
def foreign_traffic(trial: Trial, context: Context) -> Code | None:
    """The server was busy before we began, or it did more than we asked for."""
    return _before(trial) or _prompts(trial) or _finished(trial) or _held(trial)


def _before(trial: Trial) -> Code | None:
    idle, grew = trial.server["idle_running_max"], trial.server.get("idle_grew") or {}
    if idle:
        text = f"{idle:g} requests ran on the server before the trial began; somebody else uses it"
        return Code("foreign-traffic", INVALID, text, {"idle_running_max": idle})
    tokens = grew.get("prompt_tokens", 0.0) + grew.get("output_tokens", 0.0)
    if grew.get("requests_finished", 0.0) <= FOREIGN_REQUESTS_MIN and tokens <= FOREIGN_TOKENS_MIN:
        return None
    said = ", ".join(f"{name} by {value:g}" for name, value in sorted(grew.items()))
    text = f"the server's counters rose while we left it alone ({said}); somebody else uses it"
    return Code("foreign-traffic", INVALID, text, dict(grew))


def _prompts(trial: Trial) -> Code | None:
    """All prompt tokens, cached ones included. Prompts of preempted requests are read, and counted, again: then the
    counts say nothing."""
    counted = _counted(trial, "prompt_tokens")
    if counted is None or trial.server["delta"].get("preemptions"):
        return None
    ours, server = counted[0], counted[1] + (trial.server["delta"].get("cached_tokens") or 0.0)
    extra = server - ours
    if extra <= max(FOREIGN_TOKENS_MIN, FOREIGN_SHARE * ours):
        return None
    text = f"the server read {server:g} prompt tokens, our requests hold {ours:g}; somebody else uses it"
    return Code("foreign-traffic", INVALID, text, {"client": ours, "server": server})


def _finished(trial: Trial) -> Code | None:
    client, server = trial.client, trial.server["delta"].get("requests_finished")
    if server is None or not client["drained"] or client["failed"] or trial.server["restarted"]:
        return None
    ours = client["completed"]
    if abs(server - ours) <= max(FOREIGN_REQUESTS_MIN, FOREIGN_REQUESTS_SHARE * ours):
        return None
    why = "somebody else uses it" if server > ours else "its account is not of our requests alone"
    text = f"the server finished {server:g} requests during the trial, we completed {ours:g}; {why}"
    return Code("foreign-traffic", INVALID, text, {"client": ours, "server": server})


def _held(trial: Trial) -> Code | None:
    """More on the server than we had in flight, over the whole window; told although the trial did not drain."""
    server, little = trial.server, trial.client["littles_law"]
    running, waiting, failed = server["running"], server["waiting"] or 0.0, trial.client["failed"]
    if running is None or little is None or server["samples"] < SAMPLES_MIN or failed:
        return None
    extra = running + waiting - little
    if extra <= max(FOREIGN_HELD_MIN, FOREIGN_HELD_SHARE * little):
        return None
    text = f"the server held {running + waiting:.1f} requests on average, {little:.1f} were ours; somebody else uses it"
    return Code("foreign-traffic", INVALID, text, {"held": running + waiting, "littles_law": little})


@check("count-mismatch")
def count_mismatch(trial: Trial, context: Context) -> Code | None:
    """Output tokens over the drained trial, counted on both sides; by the server's count of finished requests where it
    keeps one, since a live counter may be a token off for each.

    A trial whose requests were aborted has no drained total; then a live counter is compared over the window, and where
    there is none, or the two differ, that is a warning.
    """
    finished = "output_tokens_finished" in trial.server["delta"]
    counted = _counted(trial, "output_tokens", "output_tokens_finished" if finished else "output_tokens")
    if counted is None:
        return _live_mismatch(trial)
    ours, server = counted
    if ours == server or abs(server - ours) <= COUNT_MISMATCH_SHARE * max(ours, server):
        return None
    text = f"the client counted {ours:g} output tokens, the server {server:g}"
    return Code("count-mismatch", INVALID, text, {"client": ours, "server": server})


def _live_mismatch(trial: Trial) -> Code | None:
    ours, server = trial.client["window_tokens"], trial.server["window_delta"].get("output_tokens")
    if server is None:
        text = "output tokens of client and server could not be compared (no counter, or the trial did not drain)"
        return Code("count-mismatch", WARNING, text)
    in_flight = LIVE_TOKENS_EACH * trial.concurrency * (trial.client["tokens_per_chunk"] or 1.0)
    if abs(server - ours) <= LIVE_MISMATCH_SHARE * max(ours, server) + in_flight:
        return None
    text = f"the client counted {ours:g} output tokens in the window, the server's live counter {server:g}"
    return Code("count-mismatch", WARNING, text, {"client": ours, "server": server})


@check("input-length-drift")
def input_length_drift(trial: Trial, context: Context) -> Code | None:
    """Prompts do not have the length asked for, or two servers count the same prompts differently.

    Where the lengths were only estimated (no tokenizer of the server was at hand) the first is a warning.
    """
    asked, counted = trial.prompts["input_tokens"], trial.client["prompt_tokens_mean"]
    if asked and counted is not None and abs(counted - asked) > max(INPUT_TOKENS_MIN, INPUT_SHARE * asked):
        text = f"prompts of {asked:g} tokens were asked for, the server counted {counted:.1f} on average"
        severity = INVALID if trial.prompts.get("input_tokens_exact") else WARNING
        return Code("input-length-drift", severity, text, {"asked": asked, "counted": counted})
    return input_length_between(trial, context)


@further_check("output-length-drift")
def output_length_asked(trial: Trial, context: Context) -> Code | None:
    """`output-length-drift` within an arm: answers were to be exactly as long as their cap, and are not."""
    share = trial.client["length_errors_share"]
    if not trial.prompts["ignore_eos"] or share is None or share <= LENGTH_ERRORS_SHARE:
        return None
    mean = trial.client["output_tokens_mean"]
    text = f"{share:.1%} of the answers are not as long as ignore_eos makes them ({mean:.1f} tokens on average)"
    return Code("output-length-drift", INVALID, text, {"share": share, "output_tokens_mean": mean})


@check("chunk-not-token")
def chunk_not_token(trial: Trial, context: Context) -> Code | None:
    """Chunks carry several tokens: gaps between chunks are not times per token, and a final count may come late."""
    each, late = trial.client["tokens_per_chunk"], trial.client["late_tokens_share"]
    said = []
    if each is not None and each > 1 / CHUNKS_PER_TOKEN:
        said.append(f"a chunk carries {each:.2f} tokens: chunk gaps are no times per token (tpot counts tokens)")
    if late is not None and late > LATE_TOKENS_SHARE:
        said.append(f"{late:.0%} of the tokens are known from the final count only, so nobody saw when they came")
    if not said:
        return None
    return Code("chunk-not-token", WARNING, "; ".join(said), {"tokens_per_chunk": each, "late_tokens_share": late})


@check("token-policy-unrecorded")
def token_policy_unrecorded(trial: Trial, context: Context) -> Code | None:
    """Nobody but the client counted some of the tokens, one for each chunk; or it is not on record who did."""
    source = trial.client["tokens_source"]
    if not trial.client["completed"] or (source is not None and "chunks" not in source.split(" + ")):
        return None
    text = "no count by the server: one token for each chunk is a guess" if source else "nobody recorded who counted"
    return Code("token-policy-unrecorded", WARNING, text, {"tokens_source": source})


def _counted(trial: Trial, name: str, counter: str | None = None) -> tuple[float, float] | None:
    """(client, server) totals over the drained trial, or None where one of them cannot be known."""
    client, server = trial.client[name], trial.server["delta"].get(counter or name)
    if client is None or server is None or not trial.client["drained"] or trial.client["failed"]:
        return None
    return float(client), float(server)
