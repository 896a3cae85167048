"""Counters that fell within a trial."""

from __future__ import annotations

from lab.audit import audit
from lab.audit.base import INVALID, Context
from lab.audit.diagnosis import diagnose
from lab.audit.reset import counter_reset
from tests.builders import trial_in_memory

RESET = {"server.restarted": True, "server.fell": ["output_tokens", "prompt_tokens"], "server.delta": {}}


def test_counters_that_fell_have_a_code_of_their_own() -> None:
    codes = audit(trial_in_memory(RESET))
    assert [(code.code, code.severity) for code in codes] == [("counter-reset", INVALID)]
    assert "(output_tokens, prompt_tokens)" in codes[0].text
    found = diagnose(trial_in_memory(RESET))
    assert (found.name, found.code) == ("not to be believed", "counter-reset")


def test_counters_that_ran_through_and_an_old_record_are_silent() -> None:
    assert counter_reset(trial_in_memory(), Context()) is None
    assert counter_reset(trial_in_memory({"server.restarted": None}), Context()) is None
    old = counter_reset(trial_in_memory({"server.restarted": True, "server.fell": None}), Context())
    assert old is not None and "(some of them)" in old.text
