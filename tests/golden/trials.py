"""The codes about single trials, by what is at fault: the client, the server, its account, the tokens, the time."""

from __future__ import annotations

from tests.golden import trials_account, trials_client, trials_server, trials_time, trials_tokens
from tests.golden.scenario import Scenario

SCENARIOS: list[Scenario] = [
    *trials_client.SCENARIOS,
    *trials_server.SCENARIOS,
    *trials_account.SCENARIOS,
    *trials_tokens.SCENARIOS,
    *trials_time.SCENARIOS,
]
