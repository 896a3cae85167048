"""How long the streams were silent: all of them at once, and single ones for good.

Without it a server that stood still for five seconds of the window, or forgot a stream in the middle of its answer,
shows as a lower rate and nothing else.

Silence is judged against the pace of the server and against the clock: `silence_limit_s` is the largest of one second,
twenty median gaps between the chunks of a stream, and half a real second (what a busy machine does to every process).
"""

from __future__ import annotations

import numpy as np

from lab.load.figures_chunks import Chunks
from lab.load.figures_requests import Requests
from lab.load.figures_server import Samples
from lab.load.record_columns import numbers

SILENCE_SECONDS = 1.0
SILENCE_GAPS = 20
SILENCE_REAL_SECONDS = 0.5
STALLED = "stalled"
# The first part of a silence, in which a server may still count what it did before.
COUNTED_LATE = 0.1


def silences(
    requests: Requests, chunks: Chunks, samples: Samples, chunk_gap_ms: float | None
) -> dict[str, float | int | None]:
    """The longest time in the window in which no stream got a token although one was in the middle of its answer; and
    the streams that fell silent for longer than the limit, until they were given up or cut. Times are server seconds.

    silence_max_s, silence_at_s (after the opening), silence_streams: the longest one, and how many streams were in the
    middle of their answers; silences_alike, silences_alike_s: how many last at least half as long, itself included, and
    how long they last together. silence_reading_s: how long the prompts that waited for their first token meanwhile
    take to read, at the median pace of all; silence_prompt_tokens: by how much the server's count of prompt tokens rose
    during the longest one, None where no samples tell. hung_streams, hung_mean: how many streams fell silent for good,
    and their mean number over the window; hung_since_s: when the first one did.
    """
    limit_s = max(
        SILENCE_SECONDS, SILENCE_GAPS * (chunk_gap_ms or 0.0) / 1000, SILENCE_REAL_SECONDS * requests.time_factor
    )
    together = _together(requests, chunks)
    return {
        "silence_limit_s": limit_s,
        **together,
        **_reading(requests, samples, together["silence_at_s"], together["silence_max_s"]),
        **_for_good(requests, chunks, limit_s),
    }


def _reading(
    requests: Requests, samples: Samples, at_s: float | None, lasts_s: float | None
) -> dict[str, float | None]:
    """What the server had to read, and what it read, in the longest silence."""
    if at_s is None or lasts_s is None:
        return {"silence_reading_s": None, "silence_prompt_tokens": None}
    first_s = np.where(np.isnan(requests.first_token_s), np.inf, requests.first_token_s)
    prompts = numbers(requests.table, "prompt_tokens")
    pending = np.nansum(prompts[(requests.sent_s < at_s + lasts_s) & (first_s > at_s)])
    with np.errstate(invalid="ignore", divide="ignore"):
        each_s = (requests.first_token_s - requests.sent_s) / prompts
    known_s = each_s[(each_s > 0) & np.isfinite(each_s)]
    counted = samples.column("prompt_tokens")
    meanwhile = (samples.t_s > at_s + COUNTED_LATE * lasts_s) & (samples.t_s < at_s + lasts_s) & ~np.isnan(counted)
    return {
        "silence_reading_s": float(pending * np.median(known_s)) if len(known_s) else None,
        "silence_prompt_tokens": float(np.ptp(counted[meanwhile])) if meanwhile.sum() > 1 else None,
    }


def _together(requests: Requests, chunks: Chunks) -> dict[str, float | int | None]:
    seconds, begun = requests.seconds, chunks.lengths > 0
    before, after = chunks.t_s[chunks.t_s < 0], chunks.t_s[chunks.t_s >= seconds]
    ends_s = before.max(initial=-np.inf), after.min(initial=np.inf)
    edges = np.concatenate([[ends_s[0]], np.sort(chunks.t_s[chunks.inside]), [ends_s[1]]])
    first_s, end_s = np.sort(chunks.first_s()[begun]), np.sort(requests.end_s[begun])
    # A stream that has begun and ends no earlier than the next token is in the middle of its answer.
    streams = np.searchsorted(first_s, edges[:-1], "right") - np.searchsorted(
        end_s, edges[1:].clip(max=seconds), "left"
    )
    lasts_s = np.where(streams > 0, np.diff(edges.clip(0.0, seconds)), 0.0)
    longest = int(lasts_s.argmax())
    if not lasts_s[longest] > 0:
        names = ("silence_max_s", "silence_at_s", "silence_streams", "silences_alike", "silences_alike_s")
        return dict.fromkeys(names)
    alike = lasts_s >= lasts_s[longest] / 2
    return {
        "silence_max_s": float(lasts_s[longest]),
        "silence_at_s": float(edges[longest].clip(0.0)),
        "silence_streams": int(streams[longest]),
        "silences_alike": int(alike.sum()),
        "silences_alike_s": float(lasts_s[alike].sum()),
    }


def _for_good(requests: Requests, chunks: Chunks, limit_s: float) -> dict[str, float | int | None]:
    given_up = requests.aborted | (requests.table.error == STALLED).to_numpy()
    last_s, end_s = chunks.last_s(), requests.end_s
    in_window_s = end_s.clip(0.0, requests.seconds) - last_s.clip(0.0, requests.seconds)
    hung = given_up & (end_s - last_s > limit_s) & (in_window_s > 0)
    return {
        "hung_streams": int(hung.sum()),
        "hung_mean": float(in_window_s[hung].sum() / requests.seconds),
        "hung_since_s": float(last_s[hung].min()) if hung.any() else None,
    }
