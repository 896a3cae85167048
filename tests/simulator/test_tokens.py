"""One tokenizer for everything: lossless, and every word of an answer is one token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lab.simulator import tokens
from lab.simulator.answers import Answers
from lab.simulator.truth import from_flags


@given(st.text())
def test_pieces_are_the_text(text: str) -> None:
    assert "".join(tokens.pieces(text)) == text
    assert tokens.text_of(tokens.token_ids(text)) == text
    assert all(0 <= number < tokens.VOCABULARY for number in tokens.token_ids(text))


@given(st.lists(st.integers(0, tokens.WORDS - 1), min_size=1))
def test_any_list_of_word_ids_is_a_text_of_as_many_tokens(ids: list[int]) -> None:
    text = tokens.text_of(ids)
    assert tokens.token_ids(text) == ids
    assert tokens.is_synthetic(ids, text)


def test_what_people_write_is_not_synthetic() -> None:
    written = (
        "Please explain how a heat pump works, in two sentences that a child of ten understands, and give one example."
    )
    drawn = "table river quick under stone music paper green " * 4
    assert not tokens.is_synthetic(tokens.token_ids(written), written)
    assert tokens.is_synthetic(tokens.token_ids(drawn), drawn)
    assert not tokens.is_synthetic(tokens.token_ids("hello there"), "hello there")


@given(st.binary(min_size=8, max_size=8), st.integers(1, 300), st.sampled_from([0.0, 1.0]))
def test_an_answer_has_as_many_tokens_as_it_should(digest: bytes, length: int, repeats: float) -> None:
    answers = Answers(from_flags({"output.repeats": repeats}))
    said = answers.pieces(digest, "hello", length)
    assert len(said) == length
    assert len(tokens.pieces("".join(said))) == length
    if repeats and length >= 8:
        tail = said[length // 2 :]
        assert set(tail[::2]) == {tail[0]} and set(tail[1::2]) == {tail[1]}


def test_the_same_prompt_gets_the_same_answer_and_stops_early_at_the_same_place() -> None:
    answers = Answers(from_flags({"output.stop_early_share": 0.3, "output.stop_early_factor": 0.25}))
    digests = [number.to_bytes(8) for number in range(2000)]
    lengths = [answers.length(digest, "hello", 100, False) for digest in digests]
    assert lengths == [answers.length(digest, "hello", 100, False) for digest in digests]
    assert set(lengths) == {25, 100}
    assert abs(lengths.count(25) / len(lengths) - 0.3) < 0.04
    assert {answers.length(digest, "hello", 100, True) for digest in digests} == {100}


def test_sums_are_right_except_the_ordered_share() -> None:
    for share in (0.0, 0.08):
        answers = Answers(from_flags({"output.corrupt_share": share}))
        wrong = 0
        for number in range(2000):
            prompt = f"What is {number} + 17?"
            said = "".join(answers.pieces(number.to_bytes(8), prompt, 4))
            wrong += not said.startswith(f" {number + 17}.")
        assert abs(wrong / 2000 - share) < 0.02
        assert (wrong == 0) == (share == 0.0)
