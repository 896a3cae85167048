"""What really happened: every arrival, every token's send time, every step. The truth that measurements meet.

Without the server's own log of its sends, a test could only compare two measurements with each other. Times are
monotonic seconds of this machine, the clock of every process here; durations of steps are server seconds.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.simulator.request import Request
from lab.simulator.scheduler import Step

_REQUEST_COLUMNS = (
    *("number", "arrival_s", "admitted_s", "first_token_s", "finished_s", "prompt_tokens", "cached_tokens"),
    *("max_tokens", "output_tokens", "drafts", "accepted", "preemptions", "rank"),
)
_ARRAYS = (
    *("chunk_request", "chunk_tokens", "chunk_s", "step_start_s", "step_end_s", "step_late_s", "step_rank"),
    *("step_running", "step_waiting", "step_tokens", "step_prefill", "step_kv"),
)


class Journal:
    """The record of one process. `real` turns server seconds into monotonic ones."""

    def __init__(self, zero_s: float, time_factor: float) -> None:
        self._zero_s = zero_s
        self._factor = time_factor
        self.requests: list[tuple[float, ...]] = []
        self.reasons: list[str] = []
        self.foreign: list[bool] = []
        self.refused = 0
        self.chunk_request, self.chunk_tokens = array("i"), array("i")
        self.chunk_s = array("d")
        self.step_start_s, self.step_end_s, self.step_late_s = array("d"), array("d"), array("d")
        self.step_rank, self.step_running, self.step_waiting = array("i"), array("i"), array("i")
        self.step_tokens, self.step_prefill, self.step_kv = array("i"), array("i"), array("i")

    def real(self, server_s: float) -> float:
        """Server seconds since the start as monotonic seconds."""
        return self._zero_s + server_s / self._factor

    def sent(self, request: Request, tokens: int, at_s: float) -> None:
        """A chunk of so many tokens went out at that monotonic second."""
        self.chunk_request.append(-1 if request.foreign else request.number)
        self.chunk_tokens.append(tokens)
        self.chunk_s.append(at_s)

    def stepped(self, step: Step, late_s: float) -> None:
        """A step ended, and was handed out so many real seconds later."""
        self.step_start_s.append(self.real(step.start_s))
        self.step_end_s.append(self.real(step.end_s))
        self.step_late_s.append(late_s)
        self.step_rank.append(step.rank)
        self.step_running.append(step.running)
        self.step_waiting.append(step.waiting)
        self.step_tokens.append(sum(tokens for _, tokens in step.tokens))
        self.step_prefill.append(step.prefill_tokens)
        self.step_kv.append(step.kv_tokens)

    def ended(self, request: Request, at_s: float, reason: str) -> None:
        """A request ended at that monotonic second: finished, aborted, cut, stalled, or an error."""
        self.requests.append(
            (
                request.number,
                self.real(request.arrival_s),
                self.real(request.admitted_s),
                self.real(request.first_token_s),
                at_s,
                request.prompt_tokens,
                request.cached_tokens,
                request.max_tokens,
                request.generated,
                request.drafts,
                request.accepted,
                request.preemptions,
                request.rank,
            )
        )
        self.reasons.append(reason)
        self.foreign.append(request.foreign)

    def summary(self, from_s: float, to_s: float, under_way: Sequence[Step] = ()) -> dict[str, Any]:
        """The truth between two monotonic seconds; rates are per server second, latenesses real milliseconds.

        under_way: steps that have begun and not ended, for what runs and waits now.
        """
        if to_s <= from_s:
            raise ValueError(f"the span {from_s} to {to_s} is empty")
        first = bisect.bisect_left(self.chunk_s, from_s)
        last = bisect.bisect_left(self.chunk_s, to_s)
        sent = sum(self.chunk_tokens[first:last])
        seconds = (to_s - from_s) * self._factor
        ended = [
            (row, reason)
            for row, reason, foreign in zip(self.requests, self.reasons, self.foreign, strict=True)
            if from_s <= row[4] < to_s and not foreign
        ]
        finished = [row for row, reason in ended if reason in ("stop", "length")]
        late = sorted(self.step_late_s[i] * 1000 for i in self._steps(from_s, to_s))
        return {
            "from_s": from_s,
            "to_s": to_s,
            "server_seconds": seconds,
            "requests_finished": len(finished),
            "requests_ended": len(ended),
            "requests_refused": self.refused,
            "output_tokens": int(sum(row[8] for row in finished)),
            "prompt_tokens": int(sum(row[5] for row in finished)),
            "cached_tokens": int(sum(row[6] for row in finished)),
            "drafts": int(sum(row[9] for row in finished)),
            "draft_accepted": int(sum(row[10] for row in finished)),
            "tokens_sent": sent,
            "foreign_tokens_sent": sum(self.chunk_tokens[i] for i in range(first, last) if self.chunk_request[i] < 0),
            "chunks_sent": last - first,
            "tok_s": sent / seconds,
            "running_mean": self._mean(self.step_running, from_s, to_s)
            + sum(step.running * self._share(step, from_s, to_s) for step in under_way),
            "waiting_mean": self._mean(self.step_waiting, from_s, to_s)
            + sum(step.waiting * self._share(step, from_s, to_s) for step in under_way),
            "steps": len(late),
            "late_p99_ms": late[int(0.99 * (len(late) - 1))] if late else None,
            "late_max_ms": late[-1] if late else None,
        }

    def _steps(self, from_s: float, to_s: float) -> range:
        """Indices of steps that may touch the span: steps are in order of their ends, those of a rank without gaps."""
        first = bisect.bisect_left(self.step_end_s, from_s)
        last = bisect.bisect_right(self.step_end_s, to_s)
        unseen = set(self.step_rank)
        while last < len(self.step_end_s) and unseen:  # of each rank the one step that began before the span's end
            unseen.discard(self.step_rank[last])
            last += 1
        return range(first, last)

    def _share(self, step: Step, from_s: float, to_s: float) -> float:
        """The share of the span that a step fills."""
        overlap = min(to_s, self.real(step.end_s)) - max(from_s, self.real(step.start_s))
        return max(0.0, overlap) / (to_s - from_s)

    def _mean(self, values: array[int], from_s: float, to_s: float) -> float:
        """Time-weighted, summed over ranks; between steps nothing runs or waits."""
        total = 0.0
        for i in self._steps(from_s, to_s):
            overlap = min(to_s, self.step_end_s[i]) - max(from_s, self.step_start_s[i])
            total += max(0.0, overlap) * values[i]
        return total / (to_s - from_s)

    def save(self, path: Path) -> None:
        """Write everything as one .npz: requests_*, chunk_*, step_* arrays."""
        import numpy as np

        columns = list(zip(*self.requests, strict=True)) or [()] * len(_REQUEST_COLUMNS)
        arrays = {
            f"request_{name}": np.asarray(column, dtype=float)
            for name, column in zip(_REQUEST_COLUMNS, columns, strict=True)
        }
        for name in _ARRAYS:
            arrays[name] = np.asarray(getattr(self, name))
        arrays["request_reason"] = np.asarray(self.reasons, dtype="U20")
        arrays["request_foreign"] = np.asarray(self.foreign, dtype=bool)
        arrays["zero_s"] = np.asarray(self._zero_s)
        arrays["time_factor"] = np.asarray(self._factor)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            np.savez_compressed(stream, **arrays)
