"""Do client and server agree on the tokens, and were they all ours?

Without these checks a client that loses updates, a second user of the server, prompts of another length and answers
that end early change a figure unseen.
"""

from __future__ import annotations

from lab.audit.account import account, whole
from lab.audit.base import INVALID, WARNING, Code, Context, check, further_check
from lab.audit.comparison import input_length_between
from lab.audit.concurrency import cache_full
from lab.audit.thresholds import (
    CHUNKS_PER_TOKEN,
    COUNT_MISMATCH_SHARE,
    FOREIGN_HELD_MIN,
    FOREIGN_HELD_SHARE,
    FOREIGN_REQUESTS_MIN,
    FOREIGN_REQUESTS_SHARE,
    FOREIGN_SHARE,
    FOREIGN_TOKENS_MIN,
    FOREIGN_UNKNOWN_LENGTHS,
    INPUT_SHARE,
    INPUT_TOKENS_MIN,
    LATE_TOKENS_SHARE,
    LENGTH_ERRORS_SHARE,
    LIVE_MISMATCH_INVALID,
    LIVE_MISMATCH_SHARE,
    LIVE_TOKENS_EACH,
    SAMPLES_MIN,
    UNCOUNTED_SHARE,
)
from lab.records import Trial

STALLED = "stalled"


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
    """All prompt tokens, cached ones included; a failed request's may be more than we know. Prompts of preempted
    requests are read, and counted, again: then the counts say nothing; nor where a full cache may have preempted some,
    and the server does not count that."""
    counted, preemptions = _totals(trial, "prompt_tokens"), trial.server["delta"].get("preemptions")
    if counted is None or preemptions or (preemptions is None and cache_full(account(trial))):
        return None
    ours, server = counted[0], counted[1] + (trial.server["delta"].get("cached_tokens") or 0.0)
    extra = server - ours
    unknown = trial.client["failed"] * FOREIGN_UNKNOWN_LENGTHS * (trial.client["prompt_tokens_mean"] or 0.0)
    if extra <= max(FOREIGN_TOKENS_MIN, FOREIGN_SHARE * ours) + unknown:
        return None
    text = f"the server read {server:.0f} prompt tokens, our requests hold {ours:.0f}; somebody else uses it"
    return Code("foreign-traffic", INVALID, text, {"client": ours, "server": server})


def _finished(trial: Trial) -> Code | None:
    """Requests that failed or were cut may count as finished there or not."""
    client, server = trial.client, trial.server["delta"].get("requests_finished")
    if server is None or client["drained"] is None or trial.server["restarted"]:
        return None
    ours, unsure = client["completed"], client["failed"] + (client["aborted"] or 0)
    if not client["drained"]:
        unsure = max(unsure, client["sent"] - ours)
    allowed = max(FOREIGN_REQUESTS_MIN, FOREIGN_REQUESTS_SHARE * ours)
    if ours - allowed <= server <= ours + unsure + allowed:
        return None
    why = "somebody else uses it" if server > ours else "its account is not of our requests alone"
    text = f"the server finished {server:g} requests during the trial, we completed {ours:g}; {why}"
    return Code("foreign-traffic", INVALID, text, {"client": ours, "server": server})


def _held(trial: Trial) -> Code | None:
    """More on the server than we had in flight, over the whole window; told although the trial did not drain. A request
    that failed may stay there for as long as one lives, one that we gave up all through the window."""
    server, client, seconds = trial.server, trial.client, trial.window["seconds"]
    running, waiting, little = server["running"], server["waiting"] or 0.0, client["littles_law"]
    if running is None or little is None or server["samples"] < SAMPLES_MIN:
        return None
    given_up = client["errors"].get(STALLED, 0)
    lingering = given_up + (client["failed"] - given_up) * (client["e2e_mean_ms"] or 0.0) / 1000 / seconds
    extra = running + waiting - little
    if extra <= max(FOREIGN_HELD_MIN, FOREIGN_HELD_SHARE * little) + lingering:
        return None
    text = f"the server held {running + waiting:.1f} requests on average, {little:.1f} were ours; somebody else uses it"
    return Code("foreign-traffic", INVALID, text, {"held": running + waiting, "littles_law": little})


@check("count-mismatch")
def count_mismatch(trial: Trial, context: Context) -> Code | None:
    """Output tokens over the drained trial, counted on both sides; by the server's count of finished requests where it
    keeps one, since a live counter may be a token off for each. Of a failed request all tokens may be unknown.

    A trial whose requests were aborted has no drained total; then a live counter is compared, over the window and over
    the trial: a difference is a warning, and invalid where the moment of reading cannot explain it. Where there is no
    such counter, that is a warning too; where the counters fell, `counter-reset` says so.
    """
    if trial.server["restarted"]:
        return None
    finished = "output_tokens_finished" in trial.server["delta"]
    counted, unknown = _totals(trial, "output_tokens", "output_tokens_finished" if finished else None), _unknown(trial)
    if counted is None or unknown is None:
        return _live_mismatch(trial)
    ours, server = counted
    if ours == server or abs(server - ours) <= COUNT_MISMATCH_SHARE * max(ours, server) + unknown:
        return _live_mismatch(trial) if unknown and "output_tokens" in trial.server["window_delta"] else None
    text = f"the client counted {ours:.0f} output tokens, the server {server:.0f}: one of them miscounts or loses some"
    return Code("count-mismatch", INVALID, text, {"client": ours, "server": server})


def _live_mismatch(trial: Trial) -> Code | None:
    client, live = trial.client, trial.server["window_delta"].get("output_tokens")
    if live is None:
        text = "output tokens of client and server could not be compared (no counter, or the trial did not drain)"
        return Code("count-mismatch", WARNING, text)
    in_flight = LIVE_TOKENS_EACH * trial.concurrency * (client["tokens_per_chunk"] or 1.0)
    late = trial.server["output_tokens_staircase"] or 0.0
    ours, server = client["output_tokens"], trial.server["delta"].get("output_tokens")
    found = [_apart(client["window_tokens"], live, in_flight, late, "in the window")]
    if ours is not None and server is not None:
        found.append(_apart(ours, server, in_flight + (_unknown(trial) or 0.0), late, "in the trial"))
    return min((code for code in found if code), key=lambda code: (INVALID, WARNING).index(code.severity), default=None)


def _apart(ours: float, server: float, in_flight: float, late: float, when: str) -> Code | None:
    """`late`: what a counter that moves now and then may be behind."""
    allowed = LIVE_MISMATCH_SHARE * max(ours, server) + in_flight
    if abs(server - ours) <= allowed:
        return None
    sure = abs(server - ours) > LIVE_MISMATCH_INVALID * (allowed + late)
    text = f"the client counted {ours:.0f} output tokens {when}, the server's counter rose by {whole(server)}"
    return Code("count-mismatch", INVALID if sure else WARNING, text, {"client": ours, "server": server})


def _unknown(trial: Trial) -> float | None:
    """The most tokens of failed requests that one side may have counted and the other not; None: nobody knows."""
    failed, most = trial.client["failed"], trial.client["max_tokens_most"]
    return 0.0 if not failed else None if most is None else float(failed * most)


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
        why = ""
        if trial.launch.effective.get("speculative") is False:
            why = " (no speculation, says the server: it gathers tokens before it sends them, or it speculates unsaid)"
        said.append(
            f"a chunk of a stream carries {each:.2f} tokens on average{why}: the time between two chunks is not that "
            "of a token; TPOT is computed from the tokens and stands"
        )
    if late is not None and late > LATE_TOKENS_SHARE:
        said.append(f"{late:.0%} of the tokens are known from the final count only, so nobody saw when they came")
    if not said:
        return None
    guessed = trial.client["scaled_tokens_share"]
    if guessed:
        said.append(f"{guessed:.0%} of the window's tokens are chunks of unfinished answers, times what others carry")
    return Code("chunk-not-token", WARNING, "; ".join(said), {"tokens_per_chunk": each, "late_tokens_share": late})


@check("token-policy-unrecorded")
def token_policy_unrecorded(trial: Trial, context: Context) -> Code | None:
    """Nobody but the client counted some of the tokens, one for each chunk; or it is not on record who did."""
    source, uncounted = trial.client["tokens_source"], trial.client["uncounted_tokens_share"] or 0.0
    figures = {"tokens_source": source, "uncounted_tokens_share": uncounted}
    if uncounted > UNCOUNTED_SHARE:
        text = f"nobody counted {uncounted:.0%} of the window's tokens: one token for each chunk is a guess"
        return Code("token-policy-unrecorded", WARNING, text, figures)
    if not trial.client["completed"] or (source is not None and "chunks" not in source.split(" + ")):
        return None
    text = "no count by the server: one token for each chunk is a guess" if source else "nobody recorded who counted"
    return Code("token-policy-unrecorded", WARNING, text, figures)


def _totals(trial: Trial, name: str, counter: str | None = None) -> tuple[float, float] | None:
    """(client, server) totals over the drained trial, or None where one of them cannot be known."""
    client, server = trial.client[name], trial.server["delta"].get(counter or name)
    if client is None or server is None or not trial.client["drained"]:
        return None
    return float(client), float(server)
