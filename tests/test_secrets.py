"""Secrets never reach a record, and harmless names stay."""

from __future__ import annotations

import pytest

from lab.secrets import HIDDEN, redacted, redacted_text


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


def test_a_number_of_tokens_is_no_secret_whatever_kind_of_tokens() -> None:
    counts = {"max_total_tokens": 32768, "max_num_batched_tokens": "8192", "num_reserved_decode_tokens": 512}
    assert redacted(counts) == counts
    assert redacted({"api_tokens": "hf_1", "pin_password": 1234}) == {"api_tokens": HIDDEN, "pin_password": HIDDEN}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--api-key s3cr3t --port 1", f"--api-key {HIDDEN} --port 1"),
        ("--admin-api-key=s3cr3t", f"--admin-api-key={HIDDEN}"),
        ("--ssl-keyfile-password 's3 cr3t' -x", f"--ssl-keyfile-password {HIDDEN} -x"),
        ("serve --enable-metrics --api-key s3cr3t", f"serve --enable-metrics --api-key {HIDDEN}"),
        ("HF_TOKEN=s3cr3t python -m x", f"HF_TOKEN={HIDDEN} python -m x"),
        ("{'api_key': 's3cr3t', 'tp_size': 1}", f"{{'api_key': {HIDDEN}, 'tp_size': 1}}"),
        ('{"hf_token": "s3cr3t"}', f'{{"hf_token": {HIDDEN}}}'),
        ("--proxy http://me:s3cr3t@host/x", f"--proxy http://{HIDDEN}@host/x"),
    ],
)
def test_secrets_in_a_command_line_or_a_log_are_removed(text: str, expected: str) -> None:
    assert redacted_text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "--max-total-tokens 32768 --tokenizer-path /m --enable-metrics --api-key",
        "{'api_key': None, 'max_prefill_tokens': 16384, 'tokenizer_mode': 'auto'}",
        "[12:00:00] Decode batch, #token: 136, token usage: 0.00, #queue-req: 12",
    ],
)
def test_a_harmless_text_stays_as_it_is(text: str) -> None:
    assert redacted_text(text) == text
