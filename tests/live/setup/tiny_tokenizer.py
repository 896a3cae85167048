"""Writes a small tokenizer, trained on Python's own standard library, into a model folder: no download, no gate.

Usage: python tiny_tokenizer.py FOLDER (needs tokenizers and transformers)
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 4096  # what the models' config.json says
FILES = 80
# Their places, 0, 1 and 2, are the bos_token_id and eos_token_id of the models' config.json.
SPECIAL = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
CHAT = "{% for m in messages %}{{m['role']}}: {{m['content']}}\n{% endfor %}assistant:"


def train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:FILES]
    tokenizer.train([str(path) for path in texts], trainer)
    return tokenizer


def main(folder: str) -> None:
    tokenizer = train()
    # A server samples any number below the config's vocabulary; each must be a token.
    if tokenizer.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"the standard library gave {tokenizer.get_vocab_size()} tokens, not {VOCABULARY}")
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL, pad_token=SPECIAL["eos_token"])
    wrapped.chat_template = CHAT
    wrapped.save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: tiny_tokenizer.py FOLDER")
    main(sys.argv[1])
