"""Which prompts a trial sends, in which order, and what goes with them.

Without prompts that are salted and the same for every arm, a server answers from its prefix cache, or one arm gets the
easier questions; without a digest of what was sent nobody can tell afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from lab.load import kinds
from lab.load.kinds.base import Ask, Item, Tokenizes

PROMPT_COUNT = 1024
"""A usual length of a trial's list: more than most trials send, since a prompt sent twice may be answered
from a cache."""
SEED = 1
"""Of the server's sampler: the same in all arms, of no effect at temperature 0."""


@dataclass(frozen=True)
class Prompts:
    """An ordered list of prompts, and how they are to be sent.

    items: `{"messages"}`, `{"text"}` or `{"input_ids"}`, with `max_tokens` where a prompt brings its own cap and `at_s`
    (seconds after the first) where it brings its time; digest: hex SHA-256 over exactly these items in this order;
    reuse: prompts share beginnings on purpose; templated: the server applies its chat template; synthetic: random
    words; left_out: prompts of the source that were not used (too long, or without a question). The other fields are
    those of the campaign's workload and of `lab.load.kinds.base.Material`.
    """

    items: list[Item]
    salt: str
    digest: str
    kind: str
    api: str
    templated: bool
    reuse: bool
    synthetic: bool
    input_tokens: int | None
    input_tokens_exact: bool | None
    length_source: str | None
    left_out: int
    ignore_eos: bool
    thinking: str
    temperature: float
    arrivals: str
    rate_rps: float | None
    slo: dict[str, float] | None

    def sampling(self) -> dict[str, Any]:
        """Sampling fields of every request, by the names that all engines share."""
        fields: dict[str, Any] = {"temperature": self.temperature, "seed": SEED}
        return fields | {"ignore_eos": True} if self.ignore_eos else fields

    def extras(self) -> dict[str, Any]:
        """Further body fields of every request: what the chat template is told about thinking, unless that is the
        model's default."""
        if self.thinking == "default":
            return {}
        return {"chat_template_kwargs": {"enable_thinking": self.thinking == "on"}}

    def record(self) -> dict[str, Any]:
        """The section `prompts` of trial.json: all but the prompts themselves, which the digest stands for."""
        fields = {name: value for name, value in vars(self).items() if name not in ("items", "temperature")}
        return fields | {"count": len(self.items), "sampling": self.sampling()}


def build(
    workload: Any,
    salt: str,
    count: int,
    *,
    tokenizer: Tokenizes | None = None,
    folder: Path | None = None,
    max_prompt_tokens: int | None = None,
) -> Prompts:
    """`count` prompts for a workload of the campaign, always the same for the same salt; a trace may hold fewer.

    tokenizer: the server's, for exact lengths; folder: where the campaign file stands; max_prompt_tokens: the longest
    prompt that fits (context of a request minus its output), longer ones are left out. All arms of a comparison must
    be given the same limit, or they get different prompts. Raises InputError for files and sizes that cannot be,
    LabError when the tokenizer breaks off.
    """
    kind = kinds.get(workload.kind)
    ask = Ask(workload, salt, count, tokenizer, folder or Path(), max_prompt_tokens)
    material = kind.compose(ask)
    ignore_eos = material.synthetic if workload.ignore_eos is None else workload.ignore_eos
    return Prompts(
        items=material.items,
        salt=salt,
        digest=sha256(orjson.dumps(material.items)).hexdigest(),
        kind=kind.name,
        api=material.api,
        templated=material.api == "chat",
        reuse=material.reuse,
        synthetic=material.synthetic,
        input_tokens=material.input_tokens,
        input_tokens_exact=material.input_tokens_exact,
        length_source=material.length_source,
        left_out=material.left_out,
        ignore_eos=ignore_eos,
        thinking=workload.thinking or "default",
        temperature=workload.temperature,
        arrivals=workload.arrivals,
        rate_rps=workload.rate_rps,
        slo=workload.slo.limits() if workload.slo else None,
    )
