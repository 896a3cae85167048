"""Did the server stand still within the window?

Without this check a freeze of five seconds reads as a slower server.
"""

from __future__ import annotations

from typing import Any

from lab.audit.base import WARNING, Code, Context, check
from lab.audit.concurrency import hang
from lab.audit.thresholds import READING_SHARE, STANDSTILLS_MOST
from lab.records import Trial


@check("standstill")
def standstill(trial: Trial, context: Context) -> Code | None:
    """No stream got a token for far longer than usual, although some were in the middle of their answers.

    What happens again and again, as where each new prompt holds up all answers, is the server's pace and no standstill;
    so is one silence in which it read prompts: its counter of them rose, or those that waited explain it by length.
    For as long as the client's own event loop did not wake, nobody can say what the server did.
    """
    client, seconds = trial.client, trial.window["seconds"]
    longest_s, at_s, times = client["silence_max_s"], client["silence_at_s"], client["silences_alike"]
    limit_s, still_s = client["silence_limit_s"], client["silences_alike_s"]
    blind_s = (client["loop_lag_max_ms"] or 0.0) / 1000
    if None in (longest_s, at_s, times, limit_s, still_s) or not client["window_tokens"]:
        return None
    if longest_s - blind_s <= limit_s or times > STANDSTILLS_MOST:
        return None
    if _read(client, longest_s):
        return None
    if at_s + longest_s > seconds - limit_s and hang(trial, context):
        return None
    rate = client["window_tokens"] / seconds
    without = client["window_tokens"] / (seconds - still_s) if still_s < seconds else None
    again = f" (and {times - 1} more such pauses, {still_s:.1f} s in all)" if times > 1 else ""
    text = (
        f"no stream got a token for {longest_s:.1f} s, from {at_s:.1f} s into the window on, while "
        f"{client['silence_streams'] or 0} were in the middle of their answers{again}: the server or its machine stood "
        "still (a compile, a swap, a pause of the process?)"
    )
    if without is not None:
        text += f"; without that time the throughput is {without:.1f} tok/s, not {rate:.1f}"
    figures = {
        "silence_s": longest_s,
        "silence_at_s": at_s,
        "streams": client["silence_streams"],
        "times": times,
        "still_s": still_s,
        "limit_s": limit_s,
        "client_blind_s": blind_s,
        "output_tok_s": rate,
        "output_tok_s_without": without,
    }
    return Code("standstill", WARNING, text, figures)


def _read(client: dict[str, Any], longest_s: float) -> bool:
    reading_s, counted = client["silence_reading_s"], client["silence_prompt_tokens"]
    return bool(counted) or (reading_s is not None and reading_s >= READING_SHARE * longest_s)
