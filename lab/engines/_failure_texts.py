"""What an engine's last words mean: which kind of failure a root cause is.

Without it every failed start is "crashed", and a flag that can never work is tried as often as a port that was taken.
"""

from __future__ import annotations

import re
import signal

from lab.engines.base import Failure

REASON_CHARACTERS = 400
# The first pattern that the root cause holds names its kind; narrower ones stand first.
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            "bad-flag",
            r"unrecognized arguments|invalid choice|^argument -|error: argument|ambiguous option|"
            r"expected (one|at least one) argument|the following arguments are required|"
            r"Unknown vLLM environment variable|Unexpected keyword argument|: Input should be ",
        ),
        ("port-in-use", r"Address already in use|Port is already in use|is already in use|EADDRINUSE"),
        (
            "missing-checkpoint",
            r"LocalEntryNotFoundError|RepositoryNotFoundError|GatedRepoError|Cannot find any model weights|"
            r"does not appear to have a file named|No such file or directory: .*(config\.json|\.safetensors)|"
            r"is not a local folder and is not a valid model identifier|HFValidationError|OfflineModeIsEnabled",
        ),
        ("missing-cubin", r"cubin|no kernel image is available|ptxas fatal|not defined for option 'gpu-name'"),
        (
            "out-of-memory",
            r"out of memory|OutOfMemoryError|No available memory for the cache blocks|Not enough memory|"
            r"KV cache is needed, which is larger than the available|is less than desired (GPU|CPU) memory utilization|"
            r"bad_alloc|Cannot allocate memory|DefaultCPUAllocator: can't allocate",
        ),
        ("shared-memory", r"/dev/shm|No space left on device|shared memory (segment|object)|shm_open|bus error|SIGBUS"),
        ("nccl", r"\bnccl\w*|ProcessGroupNCCL"),
        ("hang", r"watchdog timeout|RPC call to .* timed out|TimeoutError|timed out|Timed out waiting for engine core"),
        (
            "unsupported",
            r"not supported|is only supported|does not support|No .* backend supports|Unsupported|NotImplementedError|"
            r"requires (x86|Intel|CUDA|compute capability)|is not valid for this configuration|must be divisible by|"
            r"does not match the quantization|is greater than the derived max_model_len|Not enough allowed NUMA nodes|"
            r"No module named|PackageNotFoundError|operator .* does not exist|expected at most 0 argument",
        ),
    )
)


def kind_of(cause: str) -> str:
    """The kind that a root cause is of; `crashed` where no text is known."""
    return next((kind for kind, pattern in KINDS if pattern.search(cause)), "crashed")


def made(cause: str, detail: str) -> Failure:
    """A failure of the kind that its cause tells, in the engine's own words."""
    return Failure(kind_of(cause), cause[:REASON_CHARACTERS], detail)


def unexplained(log: str, code: int | None, detail: str) -> Failure:
    """A failure whose log names no cause: how the process ended, and its last line."""
    last = next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "it wrote nothing")
    if code is not None and code < 0:
        how = (
            f"killed by {signal.Signals(-code).name}" if -code in list(signal.Signals) else f"killed by signal {-code}"
        )
    else:
        how = f"exit code {code}"
    return Failure("crashed", f"{how}; last line: {last[:300]}", detail)
