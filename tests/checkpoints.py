"""Small random checkpoints of every supported architecture, with a real tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCABULARY = 300
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' +"
    " message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MERGES = (
    "t h,th e,i n,e r,a n,o n,r e,Ġ t,Ġt he,Ġ a,Ġ i,s t,e n,o r,in g,Ġ s,Ġ w,o u,Ġ o,e d,"
    "Ġi n,i s,a t,l l,Ġ c,Ġa n,Ġan d,i t,l e,Ġ f,Ġ b,Ġo f,h e,a r,e s,Ġ p,o m,Ġ m,Ġ d,r o,q u"
)
_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
    "initializer_range": 0.15,
}
_ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama3-scaling": (
        "Llama",
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {"sliding_window": 8}),
    "gemma2": (
        "Gemma2",
        {
            **_ALTERNATING,
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": (
        "Gemma3Text",
        {
            **_ALTERNATING,
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
        },
    ),
    "phi3": ("Phi3", {"head_dim": 32, "partial_rotary_factor": 0.5}),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 0]}),
}


def make_checkpoint(
    directory: Path, architecture: str = "llama", *, seed: int = 7, **overrides: Any
) -> Path:
    """Save a seeded random checkpoint of `architecture` in `directory`, in transformers' form."""
    import torch
    import transformers

    family, variant = ARCHITECTURES[architecture]
    config_name = f"{family.removesuffix('Text')}{'Text' if 'Text' in family else ''}Config"
    config = getattr(transformers, config_name)(**{**_SHAPE, **variant, **overrides})
    torch.manual_seed(seed)
    model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Norms and biases begin as constants, which would hide a mistake in reading them.
            if parameter.dim() == 1:
                parameter += 0.2 * torch.randn_like(parameter)
            assert torch.isfinite(parameter).all(), name
    model.save_pretrained(directory)
    make_tokenizer().save_pretrained(directory)
    return Path(directory)


def make_tokenizer() -> Any:
    """Byte-level BPE: every byte, a few merges, ChatML's special tokens; no unknown text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    merges = [tuple(pair.split(" ")) for pair in _MERGES.split(",")]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*_SPECIAL, *letters, *("".join(pair) for pair in merges)]
    assert len(tokens) == VOCABULARY, "no ids that only pad"
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in _SPECIAL])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
