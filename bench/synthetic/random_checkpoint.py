"""Writes a checkpoint of random weights: `python -m bench.synthetic.random_checkpoint DIR`.

Reads the model's config from its standard input. A process of its own, for the sake of memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' +"
    " message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
FEWEST_TOKENS = 256 + len(SPECIAL)
"""Every byte has one."""

_SEED = 0
_EMBEDDING, _OUTPUT = 8.0, 0.05
_OUTPUTS = ("o_proj.weight", "down_proj.weight")
"""What layers add to the residual stream comes out of these."""


def write_checkpoint(config: Mapping[str, Any], directory: Path) -> None:
    """In transformers' form, in half precision: the weights say nothing anyway.

    Layers add little to the embedding. So where the head shares its weights such a model says its
    last token again and again, too surely for any rounding to change it.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    known = {name: value for name, value in config.items() if name != "model_type"}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    made = AutoConfig.for_model(config["model_type"], **{**known, **ids})
    make_model: Any = AutoModelForCausalLM.from_config
    torch.manual_seed(_SEED)
    model = make_model(made, dtype=torch.bfloat16)
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(_EMBEDDING)
        for name, weight in model.named_parameters():
            if name.endswith(_OUTPUTS):
                weight.mul_(_OUTPUT)
    model.save_pretrained(directory)
    tokenizer_of(int(made.vocab_size)).save_pretrained(directory)


def tokenizer_of(vocabulary: int) -> Any:
    """Byte-level without merges, filled up with tokens that no text has: all ids are known, as the
    head needs a row for each of them."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokens += [f"<{number}>" for number in range(len(tokens), vocabulary)]
    known = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=known, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    pad, bos, eos = SPECIAL
    make_fast: Any = PreTrainedTokenizerFast
    fast = make_fast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token=pad)
    fast.chat_template = CHAT_TEMPLATE
    return fast


if __name__ == "__main__":
    write_checkpoint(json.load(sys.stdin), Path(sys.argv[1]))
