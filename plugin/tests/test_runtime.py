"""What a process knows of its engine."""

from __future__ import annotations

from logproof_vllm import runtime


def test_the_bound_is_the_smaller_of_tokenizer_and_logits() -> None:
    class Tokenizer:
        eos_token_id: object = 7
        max_token_id = 959

        def __len__(self) -> int:
            return 955

    assert runtime.vocabulary_of(Tokenizer(), 1024).size == 960
    assert runtime.vocabulary_of(Tokenizer(), 950).size == 950
    assert runtime.vocabulary_of(None, 950).size == 950
    assert runtime.vocabulary_of(Tokenizer(), 1024).eos == 7
    for none in (None, True, "2", [2]):
        Tokenizer.eos_token_id = none
        assert runtime.vocabulary_of(Tokenizer(), 1024).eos is None
