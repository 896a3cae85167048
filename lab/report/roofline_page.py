"""What `lab roofline` says to a person: the most a deployment can give, where its step goes, and what fits.

Without the parts beside the total, a bound is a number to quarrel about; with them it says what to change.
"""

from __future__ import annotations

import math

from lab.deployment import NOT_LIMITED, Assessment, Room
from lab.report.page import WIDTH, Page, number, tok_s
from lab.report.words import MISSING, percent
from lab.roofline.collectives import ALPHA_BETA, CLAMPED, INTERPOLATED, MEASURED, SCALED
from lab.roofline.hardware import Hardware
from lab.roofline.messages import Collective

BAR = 30
PARTS = {
    "weights": "weights",
    "experts": "experts",
    "kv": "KV cache",
    "state": "recurrent state",
    "compute": "arithmetic",
    "all_reduce": "all-reduce",
    "all_to_all": "to experts and back",
    "sends": "stage to stage",
    "draft": "drafting",
}
LIMITS = {
    "weights": "reading the weights",
    "experts": "reading the experts",
    "kv": "reading the KV cache",
    "state": "reading and writing the recurrent state",
    "compute": "arithmetic",
    "all_reduce": "all-reduces between GPUs",
    "all_to_all": "sending tokens to their experts and back",
    "sends": "passing tokens from stage to stage",
    "draft": "drafting",
}
CALLS = {
    "all_reduce": "all-reduce",
    "dispatch": "tokens to their experts",
    "combine": "and back",
    "send": "to the next stage",
}
FOUND = {
    MEASURED: "measured",
    INTERPOLATED: "interpolated between two measured sizes",
    CLAMPED: "as the smallest size that was measured",
    SCALED: "above all measured sizes, scaled by bytes",
    ALPHA_BETA: "not measured: latency and bandwidth model, may be off by 40 %",
}


def render(found: Assessment, width: int = WIDTH) -> str:
    """The whole page, for a terminal of that many columns, at most a hundred; ends with a line break."""
    page = Page(width)
    asked, limit = found.asked, found.limit
    layout, hardware = asked.layout, asked.hardware
    degrees = " ".join(f"{name} {getattr(layout, name)}" for name in ("tp", "ep", "dp", "pp") if _shown(found, name))
    page.title([asked.model.name, asked.model.format, degrees, f"{limit.devices} x {hardware.name}"])
    page.entry("hardware", f"{number(hardware.memory_bandwidth_bytes_s / 1e9, 0)} GB/s each ({_source(hardware)})")
    page.entry("taken as", _taken_as(found))
    page.blank()
    page.wrapped("", _headline(found))
    page.entry("memory", _memory(found))
    page.blank()
    _parts(page, found)
    if limit.collectives:
        page.blank()
        for name, sent in limit.collectives.items():
            page.entry("messages", f"{CALLS[name]}: {_message(sent)}")
    page.blank()
    page.entry("room", _room(found))
    if found.break_even is not None:
        page.entry("drafting", _drafting(found))
    page.blank()
    _sweep(page, found)
    return page.text()


def _source(hardware: Hardware) -> str:
    first, *others = hardware.source.split("; ")
    return f"{first}; --json names {len(others)} more" if others and hardware.key else hardware.source


def _shown(found: Assessment, name: str) -> bool:
    return name == "tp" or getattr(found.asked.layout, name) > 1


def _taken_as(found: Assessment) -> str:
    asked = found.asked
    parts = [f"KV cache {asked.kv_taken}" + ("" if asked.kv_dtype else " (none given)")]
    if asked.model.experts:
        law = asked.routing if isinstance(asked.routing, str) else f"power law {asked.routing:g}"
        parts.append(f"{law} routing")
    shared = asked.shared_prefix
    parts.append(f"{number(shared, 0)} tokens of prefix shared" if shared else "no shared prefix")
    if asked.activations:
        parts.append(f"activations {asked.activations}")
    return ", ".join(parts)


def _headline(found: Assessment) -> str:
    asked, limit = found.asked, found.limit
    text = (
        f"at most {tok_s(limit.bound_tok_s)} tok/s at batch {asked.batch:g} and context {number(asked.context, 0)} "
        f"({number(limit.bound_tok_s_per_user)} tok/s each, {tok_s(limit.bound_tok_s_per_gpu)} per GPU), "
        f"step {number(limit.step_ms, 3)} ms, limited by {LIMITS[str(limit.limited_by)]}"
    )
    if (larger := found.quicker_filled_up) is not None:
        batch, step_ms = larger
        text += f" ({number(step_ms, 3)} ms if filled up to batch {batch}, whose messages were measured quicker)"
    too_many = found.max_batch is not None and asked.batch > found.max_batch
    return f"{text}; but batch {asked.batch:g} does not fit in memory" if too_many else text


def _memory(found: Assessment) -> str:
    limit = found.limit
    text = f"{tok_s(limit.bound_memory_tok_s)} tok/s if only its bandwidth counted; nothing can exceed "
    if limit.bound_hard_tok_s is not None:
        return f"{text}{tok_s(limit.bound_hard_tok_s)} (all that is not known at its cheapest)"
    why = "the last-level cache is not known" if found.asked.hardware.cache_bytes is None else "the cache can hold all"
    return f"{text}{MISSING} ({why})"


def _parts(page: Page, found: Assessment) -> None:
    total = found.limit.step_ms
    page.row(f"  {'a step':<20}{'ms':>9}{'share':>8}")
    for name, taken_ms in sorted(found.limit.components_ms.items(), key=lambda part: -part[1]):
        if not taken_ms:
            continue
        share = taken_ms / total
        bar = "█" * round(min(BAR, page.width - 42) * share)
        page.row(f"  {PARTS[name]:<20}{number(taken_ms, 3):>9}{percent(100 * share):>6} %  {bar}")


def _message(sent: Collective) -> str:
    latency = sent.latency
    how = FOUND[str(latency.found)]
    where = f"{latency.library}, measured on a card that stands in" if latency.borrowed else latency.library
    return (
        f"{sent.count} x {number(sent.message_bytes / 1024)} KiB at {number(latency.us)} µs = {number(sent.ms, 3)} ms "
        f"({where}; {how})"
    )


def _room(found: Assessment) -> str:
    room, drafting, asked = found.room, found.room_drafting, found.asked
    if room.capacity is None:
        return f"{MISSING} ({room.why})"
    tokens = room.capacity.kv_tokens
    held = "the cache does not grow with the context" if tokens is None else f"{number(tokens, 0)} tokens of KV cache"
    if room.max_batch == math.inf:
        each = f"no limit to the sequences at once: {NOT_LIMITED}"
    else:
        each = f"at most {number(room.max_batch, 0)} sequences of {number(asked.context, 0)} tokens at once"
        each += _beside_drafts(drafting)
    return f"{held}; {each}; the engine takes {asked.memory_fraction:g} of the memory"


def _beside_drafts(drafting: Room | None) -> str:
    return "" if drafting is None else f", {number(drafting.max_batch, 0)} with the draft layers loaded"


def _drafting(found: Assessment) -> str:
    asked, gained, needed = found.asked, found.limit.tokens_per_step, found.break_even
    pays = "pays" if needed is not None and gained > needed else "does not pay"
    cost = (
        f"a draft token takes {number(found.draft_ms, 3)} ms"
        if found.draft_ms is not None
        else "the drafter's own time is not counted (the checkpoint has no draft layer)"
    )
    return (
        f"{gained:.2f} tokens a step with {len(asked.acceptance)} drafted, {number(needed, 2)} needed to break even: "
        f"it {pays} at this batch; {cost}"
    )


def _sweep(page: Page, found: Assessment) -> None:
    """Columns from the left as far as the page is wide."""
    titles = [("batch", 6), ("step ms", 10), ("tok/s", 10), ("each", 8), ("per GPU", 9), ("fits", 6)]
    titles += [("experts", 9)] if found.limit.distinct_experts is not None else []
    while sum(width for _, width in titles) > page.width:
        titles.pop()
    page.row("".join(f"{title:>{width}}" for title, width in titles))
    for row in found.rows():
        cells = [
            str(row["batch"]),
            number(row["step_ms"], 2),
            tok_s(row["bound_tok_s"]),
            number(row["bound_tok_s_per_user"]),
            tok_s(row["bound_tok_s_per_gpu"]),
            {True: "yes", False: "no", None: MISSING}[row["fits"]],
            number(row["distinct_experts"]),
        ]
        page.row("".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, titles, strict=False)))
