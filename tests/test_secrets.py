"""Secrets never reach a record, and harmless names stay."""

from __future__ import annotations

import pytest

from lab.secrets import HIDDEN, redacted


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "HF_TOKENS", "hf_token", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PRIVATE_KEY", "api_keys"),
        *("PASSWD", "DB_PASSWORD", "Authorization", "credentials", "PGPASS", "auth"),
    ],
)
def test_a_value_under_a_secrets_name_is_removed_at_any_depth(name: str) -> None:
    assert redacted({"server": [{"env": {name: "s3cr3t"}}]}) == {"server": [{"env": {name: HIDDEN}}]}


@pytest.mark.parametrize("name", ["output_tokens", "eos_token", "max_tokens", "draft_tokens", "n_parallel", "monkey"])
def test_a_harmless_name_keeps_its_value(name: str) -> None:
    assert redacted({name: 4}) == {name: 4}


def test_user_and_password_of_a_url_are_removed_wherever_it_stands() -> None:
    said = redacted({"proxy": "http://me:pw@host:8080/x", "plain": "http://host/x"})
    assert said == {"proxy": f"http://{HIDDEN}@host:8080/x", "plain": "http://host/x"}


def test_an_empty_value_is_no_secret() -> None:
    assert redacted({"HF_TOKEN": ""}) == {"HF_TOKEN": ""}
