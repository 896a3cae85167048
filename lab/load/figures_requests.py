"""The client's own account of its requests: how many, what became of them, how many tokens they held.

Without it a trial's failures, shortened answers and repeated prompts stay hidden behind one rate.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lab.load.figures_chunks import Chunks, bin_count
from lab.load.figures_flight import Flight
from lab.load.figures_uncounted import CHUNKS, SCALED
from lab.load.record_columns import mean, numbers, share, total
from lab.load.steady import trend

if TYPE_CHECKING:
    import pandas as pd

ABORTED = "aborted"
FULL_SHARE = 0.9
EARLY_EVENT_SHARE = 0.05
EARLY_EVENT_SECONDS = 0.001
"""Real time: events sent together are read within it."""
EARLY_REQUESTS_SHARE = 0.1
REQUESTS_FOR_EARLY = 20
CACHED_COMMON_QUANTILE = 0.1
PROMPTS_MEASURED = 2000


class Requests:
    """The requests that were sent, column by column; times are seconds after the window opened.

    `table` holds the rows that were sent, `never_sent_due_s` when the others were due.
    """

    def __init__(self, requests: pd.DataFrame, opened_s: float, seconds: float, time_factor: float) -> None:
        def at(name: str) -> np.ndarray:
            return (numbers(self.table, name) - opened_s) * time_factor

        sent = requests.sent_s.notna()
        self.seconds, self.time_factor = seconds, time_factor
        self.never_sent_due_s = (numbers(requests[~sent], "due_s") - opened_s) * time_factor
        self.table = requests[sent]
        self.due_s, self.sent_s, self.end_s = at("due_s"), at("sent_s"), at("end_s")
        self.first_event_s, self.first_token_s = at("first_event_s"), at("first_token_s")
        self.complete = self.table.error.isna().to_numpy()
        self.aborted = (self.table.error == ABORTED).to_numpy()
        self.issued = (self.sent_s >= 0) & (self.sent_s < seconds)
        self.ended = (self.end_s >= 0) & (self.end_s < seconds)
        self.output_tokens = numbers(self.table, "output_tokens")

    @cached_property
    def flight(self) -> Flight:
        """What was in flight when."""
        return Flight(self.sent_s, self.end_s)

    def decode_s(self) -> np.ndarray:
        """Seconds a token after the first chunk: (end − first token) / (tokens − tokens of the first chunk).

        Undefined, and NaN, where no token followed the first chunk.
        """
        later = self.output_tokens - numbers(self.table, "first_chunk_tokens")
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(later > 0, (self.end_s - self.first_token_s) / later, np.nan)


def measured_lengths(requests: Requests, output_tokens: int | None) -> dict[str, list[int | None]]:
    """Prompt by prompt, how long it was and how many tokens answered it: the first 2,000 complete requests that asked
    in full, each prompt once. Two arms with the same prompts are compared by these pairs."""
    table = requests.table[_full(requests, output_tokens)].drop_duplicates("prompt").head(PROMPTS_MEASURED)
    lengths = {"lengths_measured": "output_tokens", "prompt_tokens_measured": "prompt_tokens"}
    return {
        "prompts_measured": [int(prompt) for prompt in table.prompt],
        **{key: [None if v != v else int(v) for v in numbers(table, name)] for key, name in lengths.items()},
    }


def _full(requests: Requests, output_tokens: int | None) -> np.ndarray:
    """Complete requests that asked for `output_tokens` (a closed loop's first requests ask for less), or all complete
    ones where that is None."""
    enough = output_tokens is None or numbers(requests.table, "max_tokens") >= output_tokens
    return requests.complete & enough


def counts(requests: Requests, chunks: Chunks, output_tokens: int | None, ignore_eos: bool) -> dict[str, Any]:
    """Requests, tokens and chunks over the whole trial, and the shares of what went wrong among them.

    Mean lengths are those of complete requests that asked in full. Of the window's tokens, scaled_tokens_share and
    uncounted_tokens_share were not counted: see `lab.load.figures_uncounted`. max_tokens_most: the largest cap.
    """
    table, complete = requests.table, requests.complete
    failed = table[~complete & ~requests.aborted]
    asked = numbers(table, "max_tokens")
    full = _full(requests, output_tokens)
    sources = sorted(set(table.tokens_source[complete].dropna()))
    guessed = {name: chunks.share_of_window((table.tokens_source == name).to_numpy()) for name in (CHUNKS, SCALED)}
    if guessed[SCALED]:
        sources.append(SCALED)
    produced = int(np.nansum(requests.output_tokens))
    carried = int(chunks.lengths.sum())
    repeats = table.repeats.dropna()
    return {
        "sent": len(table),
        "completed": int(complete.sum()),
        "failed": len(failed),
        "aborted": int(requests.aborted.sum()),
        "errors": {kind: int(count) for kind, count in failed.error.value_counts().sort_index().items()},
        "error_text": failed.error_text.iloc[0] if len(failed) else None,
        "completed_in_window": int((complete & requests.ended).sum()),
        "issued_in_window": int(requests.issued.sum()),
        "aborted_of_window": int((requests.aborted & requests.issued).sum()),
        "never_sent": len(requests.never_sent_due_s),
        "prompt_tokens": total(table, "prompt_tokens"),
        "cached_tokens": total(table, "cached_tokens"),
        "output_tokens": produced,
        "reasoning_tokens": total(table, "reasoning_tokens"),
        "reasoning_seen": bool(table.reasoning_seen.fillna(False).astype(bool).any()),
        "tokens_source": " + ".join(sources) or None,
        "scaled_tokens_share": guessed[SCALED],
        "uncounted_tokens_share": guessed[CHUNKS],
        "max_tokens_most": int(np.nanmax(asked)) if (~np.isnan(asked)).any() else None,
        "prompts_reused": int(table.prompt.duplicated().sum()),
        "chunks": carried,
        "tokens_per_chunk": float(chunks.tokens.sum()) / carried if carried else None,
        "late_tokens_share": chunks.late_tokens() / produced if produced else None,
        "output_tokens_mean": mean(requests.output_tokens[full]),
        "output_tokens_sd": _sd(requests.output_tokens[full]),
        "prompt_tokens_mean": mean(numbers(table, "prompt_tokens")),
        "length_errors_share": share((requests.output_tokens != asked)[full]) if ignore_eos else None,
        "repeats_share": share(repeats.to_numpy(dtype=bool)),
        **_cached(table),
    }


def flow(requests: Requests, concurrency: int, arrivals: str, rate_rps: float | None) -> dict[str, Any]:
    """The load that was really offered: in flight, in time, and as a rate."""
    flight, seconds = requests.flight, requests.seconds
    bins = flight.bins(0.0, seconds, bin_count(seconds))
    level = FULL_SHARE * concurrency
    run = (flight.sent_s[0], flight.end_s[-1]) if len(flight.sent_s) else (0.0, 0.0)
    moved = trend(bins)
    before = requests.sent_s < 0
    return {
        "offered": concurrency,
        "arrivals": arrivals,
        "rate_rps": rate_rps,
        "achieved_rps": float(requests.issued.sum() / seconds),
        "littles_law": flight.mean(0.0, seconds),
        "littles_law_run": flight.mean(*run),
        "in_flight_bins": [float(value) for value in bins],
        "in_flight_flat_pct": 50 * float(np.ptp(bins)) / float(bins.mean()) if bins.any() else None,
        "in_flight_trend_pct": moved.change_pct if moved.moves else 0.0,
        "full_share": flight.share_at_least(level, *run),
        "peak_in_flight": flight.peak,
        "last_warmup_end_s": float(requests.end_s[before].max()) if before.any() else None,
        "backing_off": _backing_off(requests) if arrivals == "closed" else None,
        **_delays(requests, arrivals),
    }


def _backing_off(requests: Requests) -> float:
    """How many clients of a closed loop waited after a failure, on average over the window: from the end of the failed
    request until the same client's next fell due, by its own choice or because the server asked for it."""
    client = requests.table.client.to_numpy()
    order = np.lexsort((requests.sent_s, client))
    client, failed = client[order], (~requests.complete & ~requests.aborted)[order]
    from_s, until_s = requests.end_s[order], np.full(len(order), np.inf)
    again = client[1:] == client[:-1]
    until_s[:-1][again] = requests.due_s[order][1:][again]
    waited_s = until_s.clip(0.0, requests.seconds) - from_s.clip(0.0, requests.seconds)
    return float(waited_s[failed].sum() / requests.seconds)


def _delays(requests: Requests, arrivals: str) -> dict[str, Any]:
    """From when a request should have been sent to when it was, over those due in the window.

    In an open loop a request that never got a slot waited at least until the window closed.
    """
    due = (requests.due_s >= 0) & (requests.due_s < requests.seconds)
    delay_s = (requests.sent_s - requests.due_s)[due]
    unsent = requests.never_sent_due_s
    waited_s = requests.seconds - unsent[(unsent >= 0) & (unsent < requests.seconds)]
    late_at_open = int(((requests.due_s < 0) & (requests.sent_s > 0)).sum() + (unsent < 0).sum())
    overlapping = requests.complete & (requests.end_s >= 0) & (requests.sent_s < requests.seconds)
    return {
        "due_in_window": int(due.sum()) + len(waited_s),
        "due_delay_mean_ms": _ms(mean(delay_s)),
        "due_delay_p99_ms": _ms(float(np.quantile(delay_s, 0.99)) if len(delay_s) else None),
        "wait_for_slot_mean_ms": None if arrivals == "closed" else _ms(mean(np.concatenate([delay_s, waited_s]))),
        "backlog_at_open": None if arrivals == "closed" else late_at_open,
        "e2e_mean_ms": _ms(mean((requests.end_s - requests.sent_s)[overlapping])),
    }


def shares_of_window(requests: Requests) -> dict[str, Any]:
    """What the latencies of the window's complete requests look like one by one."""
    chosen = requests.complete & requests.issued
    ttft_s = (requests.first_token_s - requests.sent_s)[chosen]
    decode_s = requests.decode_s()[chosen]
    event_s = (requests.first_event_s - requests.sent_s)[chosen]
    no_ttft = ~(ttft_s > 0)
    no_tpot = ~(decode_s > 0) & (requests.output_tokens[chosen] > 1)
    early = ttft_s - event_s > np.maximum(EARLY_EVENT_SHARE * ttft_s, EARLY_EVENT_SECONDS * requests.time_factor)
    return {
        "zero_ttft_share": share(no_ttft),
        "zero_tpot_share": share(no_tpot),
        "zero_latency_share": share(no_ttft | no_tpot),
        "first_event_early_share": share(early),
        **_early(requests, "ttft", requests.first_token_s - requests.sent_s),
        **_early(requests, "tpot", requests.decode_s()),
    }


def _early(requests: Requests, name: str, values_s: np.ndarray) -> dict[str, float | None]:
    """The median over the first tenth of the requests against the median of the others, in order of sending.

    The requests are those that ended after the window opened: the slow first ones of a cold server straddle its
    opening. The one-sided Mann-Whitney p-value says whether chance explains that the first are slower.
    """
    from scipy import stats

    chosen = requests.complete & (requests.end_s >= 0) & (requests.sent_s < requests.seconds) & (values_s > 0)
    values_s = values_s[chosen][np.argsort(requests.sent_s[chosen], kind="stable")]
    if len(values_s) < REQUESTS_FOR_EARLY:
        return {f"early_ratio_{name}": None, f"early_p_{name}": None}
    first, rest = np.split(values_s, [max(1, int(EARLY_REQUESTS_SHARE * len(values_s)))])
    return {
        f"early_ratio_{name}": float(np.median(first) / np.median(rest)),
        f"early_p_{name}": float(stats.mannwhitneyu(first, rest, alternative="greater").pvalue),
    }


def _cached(table: pd.DataFrame) -> dict[str, float | None]:
    """Cached tokens that nearly every request had (a shared template), and their share of all prompts, where the server
    tells request by request; one that tells of no cached tokens had none."""
    cached, asked = numbers(table, "cached_tokens"), np.nansum(numbers(table, "prompt_tokens"))
    told = cached[~np.isnan(cached)]
    return {
        "cached_tokens_common": float(np.quantile(told, CACHED_COMMON_QUANTILE)) if len(told) else None,
        "cached_share": float(told.sum() / asked) if len(told) and asked else None,
    }


def _sd(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else None


def _ms(value_s: float | None) -> float | None:
    return None if value_s is None else 1000 * value_s
