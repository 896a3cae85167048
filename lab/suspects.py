"""What may fill the gap between a measured step and its bound, ranked by what the records say for and against it.

Without it the reader of a large gap has a list of everything that ever went wrong elsewhere, and starts with the one he
met last. Each suspect is one function under `@suspect`; a new one is a new function.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lab.audit.account import account
from lab.audit.concurrency import cache_bound, cache_full
from lab.audit.machine import other_cores
from lab.audit.thresholds import EAGER_SHARE, OTHER_CORES
from lab.audit.thresholds_comparison import CLOCK_SHARE, THROTTLING
from lab.gap import COLLECTIVES, COMPUTE, Gap
from lab.records import Trial

SAID, MEASURED, HINT, SILENCE = 3.0, 2.0, 1.0, 0.5
"""Weight of what the server or the driver says outright, of what figures show, of what only fits, and of a log that
does not speak of it."""
FLOOR_MS = 0.13
"""What launching the kernels of a layer leaves unexplained in stacks that have theirs: 0.05 to 0.13 ms at the lowest
batch, on RTX PRO 6000, H200, B300 and A100 (published decode figures less the bound with collectives)."""
BATCH_RATIO = 1.5
"""Batches of two windows that lie that far apart tell how a step grows."""
PROPORTIONAL, FLAT = 0.75, 0.3
"""Exponents of step time over batch from which, and up to which, a step grows with it, or hardly."""
REACHED, BUSY, IDLE = 0.95, 0.9, 0.7
"""Share of the asked batch that counts as reached; shares of its threads that a server keeps busy, and that leave it
waiting."""
SLOW_ATTENTION = {"torch_native", "torch_sdpa", "flex_attention"}
"""Attention backends that are nobody's first choice on a GPU (SGLang, vLLM: by name)."""
MOST_LINES, MOST_CHARACTERS = 3, 160

# SGLang and vLLM: `… Fallback to triton version …`, `Using default MoE kernel config. Performance might be
# sub-optimal!`, `NVFP4 linear falling back to the slow and unoptimized …`, `… supports … Falling back to …`.
_FALLBACK = re.compile(r"\bfall(?:s|ing|en)?[ -]?back\b|performance might be sub-?optimal|slow and unoptimized", re.I)
# SGLang's and vLLM's custom all-reduce; NCCL with NCCL_DEBUG=INFO names the way of every channel.
_NO_PEERS = re.compile(r"lacks GPU P2P capability or P2P test failed|\bNCCL INFO .* via SHM/", re.I)
_PEERS = re.compile(r"\bNCCL INFO .* via P2P/", re.I)


@dataclass(frozen=True)
class Suspect:
    """One thing that may fill the gap: what speaks for and against it in the records, and `weight`, which ranks it
    (that of the evidence for it less that against it)."""

    name: str
    sentence: str
    evidence_for: tuple[str, ...]
    evidence_against: tuple[str, ...]
    weight: float

    @property
    def known(self) -> bool:
        """Whether the records say anything about it."""
        return bool(self.evidence_for or self.evidence_against)


@dataclass(frozen=True)
class Case:
    """What a suspect is judged by: a trial and its gap; a judged trial of the control (None: it is one, or there is
    none); other valid windows of the same arm, at any batch; the server's log."""

    trial: Trial
    gap: Gap
    control: Trial | None = None
    others: tuple[Trial, ...] = ()
    log: str = ""

    @property
    def gpus(self) -> bool:
        """Whether the server runs on GPUs, as far as the record tells."""
        launch = self.trial.launch
        return bool(launch.record["machine"].get("gpus") or launch.effective.get("gpus"))

    def source(self, key: str) -> str:
        """Where the server said this fact of itself."""
        return self.trial.launch.record["effective"][key]["source"]


@dataclass(frozen=True)
class Evidence:
    """A sentence from the records; its weight is below zero where it speaks against the suspect."""

    text: str
    weight: float


Judge = Callable[[Case], Iterable[Evidence]]
SUSPECTS: dict[str, Callable[[Case], Suspect]] = {}


def suspect(name: str, about: str, claim: str) -> Callable[[Judge], Judge]:
    """Register a suspect under its name: what it is about, and what would be so if it were guilty. One defined twice is
    an error of the program."""

    def register(function: Judge) -> Judge:
        if name in SUSPECTS:
            raise ValueError(f"two suspects are called {name}")
        SUSPECTS[name] = lambda case: _weighed(name, about, claim, tuple(function(case)))
        return function

    return register


def ranked(case: Case) -> list[Suspect]:
    """Every suspect, the likeliest first, and last those about which the records say nothing."""
    return sorted((judged(case) for judged in SUSPECTS.values()), key=lambda found: (not found.known, -found.weight))


def _weighed(name: str, about: str, claim: str, found: tuple[Evidence, ...]) -> Suspect:
    held = tuple(one.text for one in found if one.weight > 0)
    denied = tuple(one.text for one in found if one.weight < 0)
    weight = sum(one.weight for one in found)
    if not found:
        sentence = f"nothing in the records about {about}"
    elif weight > 0:
        sentence = f"{claim}: {'; '.join(held)}" + (f" (against it: {'; '.join(denied)})" if denied else "")
    else:
        sentence = f"not likely that {claim}: {'; '.join(denied)}" + (f" (for it: {'; '.join(held)})" if held else "")
    return Suspect(name, sentence, held, denied, weight)


@suspect("kernel-fallback", "fallback kernels", "a slow kernel stands in for the fast one")
def kernel_fallback(case: Case) -> Iterable[Evidence]:
    """The server's own lines, its attention backend, and what a layer takes beyond launching its kernels."""
    backend = case.trial.launch.effective.get("attention_backend")
    lines = [line for line in _lines(case.log, _FALLBACK) if not _NO_PEERS.search(line)]
    for line in lines:
        yield Evidence(f"the log says '{line}'", SAID)
    if case.log and not lines:
        yield Evidence("no line of the log speaks of a fallback", -SILENCE)
    if case.gpus and backend is not None and str(backend).lower() in SLOW_ATTENTION:
        yield Evidence(f"attention runs on {backend} ({case.source('attention_backend')})", SAID)
    if not case.gpus:
        return
    over_ms = case.gap.unexplained_ms / case.gap.layers
    if over_ms <= FLOOR_MS:
        yield Evidence(f"{over_ms:.2f} ms of a layer are unexplained, no more than launching its kernels", -MEASURED)
    else:
        yield Evidence(f"{over_ms:.3g} ms of each layer are unexplained, launching its kernels takes {FLOOR_MS}", HINT)
    yield from _growth(case, "as of a kernel that works on one sequence after another")


@suspect("eager-mode", "captured graphs", "decoding runs without captured graphs")
def eager_mode(case: Case) -> Iterable[Evidence]:
    """What the server says of its graphs, the batch that they hold, and the steps that it counted outside of them."""
    facts, server = case.trial.launch.effective, case.trial.server
    key = "graphs" if facts.get("graphs") is not None else "graph_reuse"
    on, largest, most = facts.get(key), facts.get("graph_max_batch"), server["running_p95"]
    theirs = case.control.launch.effective.get(key) if case.control else None
    if on is False:
        beside = "; the control has them" if theirs else ""
        yield Evidence(f"the server has no graphs ({case.source(key)}){beside}", SAID)
    missed = bool(on) and largest is not None and most is not None and most > largest
    if missed:
        yield Evidence(f"up to {most:g} requests ran, the largest captured graph holds {largest:g}", MEASURED)
    steps = server["window_delta"] if "eager_steps" in server["window_delta"] else server["delta"]
    eager, graph = steps.get("eager_steps"), steps.get("graph_steps")
    if eager is not None and graph is not None and eager + graph:
        share = eager / (eager + graph)
        weight = MEASURED if share > EAGER_SHARE else -MEASURED
        yield Evidence(f"{100 * share:.0f} % of {eager + graph:.0f} steps ran outside captured graphs", weight)
    if on and not missed:
        yield Evidence(f"the server has its graphs ({case.source(key)})", -SAID)


@suspect("peer-to-peer-off", "peer-to-peer traffic", "the GPUs do not reach each other directly")
def peer_to_peer_off(case: Case) -> Iterable[Evidence]:
    """NCCL's channels, the switch that turns peers off, and the width of every card's link."""
    launch = case.trial.launch
    gpus = launch.record["machine"].get("gpus") or []
    if COLLECTIVES not in case.gap.parts_ms and (launch.effective.get("gpus") or 1) == 1:
        yield Evidence("one device serves: nothing travels between devices", -SAID)
        return
    if str(launch.record["arm"].get("env", {}).get("NCCL_P2P_DISABLE", "0")) not in ("0", ""):
        yield Evidence("the arm sets NCCL_P2P_DISABLE", SAID)
    for line in _lines(case.log, _NO_PEERS):
        yield Evidence(f"the log says '{line}'", SAID)
    for line in _lines(case.log, _PEERS)[:1]:
        yield Evidence(f"the log says '{line}'", -SAID)
    for gpu in gpus:
        width, widest = gpu.get("pcie_width"), gpu.get("pcie_width_max")
        if width and widest and width < widest:
            yield Evidence(f"GPU {gpu['index']} is linked by {width} of {widest} PCIe lanes", MEASURED)


@suspect("batch-not-reached", "the batch", "the server runs a smaller batch than was asked")
def batch_not_reached(case: Case) -> Iterable[Evidence]:
    """Running against asked, and whether the room in the cache explains the difference; else who set the cap."""
    ran, asked = case.gap.running, case.gap.asked
    said = f"{ran:.1f} of {asked} asked ran"
    if ran >= REACHED * asked:
        yield Evidence(said, -SAID)
        return
    yield Evidence(f"{said}, {_why_smaller(case)}", SAID)


@suspect("throttling", "throttling", "heat or power holds the clocks down")
def throttling(case: Case) -> Iterable[Evidence]:
    """The driver's reasons, and the clocks against the control's."""
    here, control = case.trial.machine, case.control.machine if case.control else {}
    reasons = here["gpu_throttle"]
    held = [reason for reason in reasons or [] if reason in THROTTLING]
    if held:
        yield Evidence(f"the driver gives as reasons {', '.join(held)}", SAID)
    elif reasons is not None:
        yield Evidence("the driver gives neither heat nor power as a reason", -SAID)
    for name, words in (("gpu_clock_mhz", "SM"), ("gpu_memory_clock_mhz", "memory")):
        mine, theirs = here[name], control.get(name)
        if mine and theirs and mine < (1 - CLOCK_SHARE) * theirs:
            yield Evidence(f"the {words} clock was {mine:.0f} MHz, in the control {theirs:.0f}", MEASURED)


@suspect("other-programs", "other programs on the cores", "other programs run on the same cores")
def other_programs(case: Case) -> Iterable[Evidence]:
    """The machine's busy cores less the server's and the client's."""
    others = other_cores(case.trial)
    if others is None:
        return
    cores, busy_pct = case.trial.launch.record["machine"]["cpu_cores_logical"], case.trial.server["machine_cpu_pct"]
    text = f"programs beside server and client used {max(0.0, others):.1f} of {cores} cores ({busy_pct:.0f} % busy)"
    yield Evidence(text, MEASURED if others >= OTHER_CORES else -MEASURED)


@suspect("compute-bound", "the time that arithmetic takes", "arithmetic takes longer than reading")
def compute_bound(case: Case) -> Iterable[Evidence]:
    """On GPUs whose peaks are known the bound has the arithmetic; on a CPU busy cores, and a step that grows."""
    compute_ms = case.gap.parts_ms.get(COMPUTE)
    if compute_ms is not None:
        text = f"at the known peaks arithmetic adds {compute_ms:.2f} ms to the reading, and the bound has it"
        yield Evidence(text, -MEASURED)
        return
    if case.gpus:
        return
    threads, used = case.trial.launch.effective.get("n_threads"), case.trial.server["cores"]
    if used is not None and threads:
        text = f"the server kept {used:.1f} of its {threads:g} threads busy"
        if used >= BUSY * threads:
            yield Evidence(text, HINT)
        elif used < IDLE * threads:
            yield Evidence(text, -MEASURED)
    yield from _growth(case, "as of arithmetic, while reading the weights costs a larger batch nothing more")


def _growth(case: Case, like: str) -> Iterable[Evidence]:
    """How the step grows with the batch, by another window of the same arm: reading the weights does not."""
    trial, running = case.trial, case.gap.running
    known = [
        (other.server["running"], other.metrics["output_tok_s"])
        for other in case.others
        if other.workload == trial.workload and other.server["running"] and other.metrics["output_tok_s"]
    ]
    fewest, tok_s = min(known, default=(running, 0.0))
    if running < BATCH_RATIO * fewest or not tok_s or case.gap.unexplained_ms < case.gap.step_ms / 2:
        return
    before_ms = 1e3 * fewest * case.gap.tokens_per_step / tok_s
    exponent = math.log(case.gap.step_ms / before_ms) / math.log(running / fewest)
    text = f"a step takes {before_ms:,.1f} ms at batch {fewest:.1f} and {case.gap.step_ms:,.1f} ms at {running:.1f}"
    if exponent >= PROPORTIONAL:
        yield Evidence(f"{text}: it grows almost in proportion, {like}", MEASURED)
    elif exponent <= FLAT:
        yield Evidence(f"{text}: it hardly grows", -MEASURED)


def _why_smaller(case: Case) -> str:
    """Whether KV capacity explains the smaller batch; where it does not, who set the cap, in the server's words."""
    trial, load, facts = case.trial, account(case.trial), case.trial.launch.effective
    used, room, context = load.kv_usage_max, facts.get("kv_tokens"), trial.metrics["mean_context_tokens"]
    if cache_bound(load) or cache_full(load):
        full = "of an unknown share" if used is None else f"at most {100 * used:.0f} % full"
        return f"explained by KV capacity: the cache was {full}, {load.preemptions or 0:.0f} requests lost their place"
    if used is not None:
        why = f"not explained by KV capacity (the cache was at most {100 * used:.0f} % full)"
    elif room and context:
        fit = room / context
        if fit < trial.concurrency:
            return f"explained by KV capacity: its {room:,.0f} tokens hold {fit:.0f} sequences of {context:,.0f}"
        why = f"not explained by KV capacity (its {room:,.0f} tokens hold {fit:.0f} sequences of {context:,.0f})"
    else:
        why = "the server does not show how full its cache was"
    if facts.get("cap") is None:
        return f"{why}; the server does not say how many it can run"
    said = facts.get("cap_source") or case.source("cap")
    return f"{why}; the server runs at most {facts['cap']:g}, and says why: '{said}' (from {case.source('cap')})"


def _lines(log: str, pattern: re.Pattern[str]) -> list[str]:
    """The first different lines that match, cut short."""
    found = dict.fromkeys(line.strip()[:MOST_CHARACTERS] for line in log.splitlines() if pattern.search(line))
    return list(found)[:MOST_LINES]
