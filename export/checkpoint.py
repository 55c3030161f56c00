"""A checkpoint in memory: the transformers model, its tokenizer, its chat template."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from export.architectures import Architecture, check_config, check_supported
from export.gguf_header import read_architecture
from export.sources import Source
from models.errors import UserError
from models.sampling.parameters import ADVISED, Sampling

_GGUF_TYPES = {"gemma3": "gemma3_text", "qwen3next": "qwen3_next", "falcon-h1": "falcon_h1"}
_LISTED = 6
GENERATION_CONFIG = "generation_config.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
Renderer = Callable[[Sequence[Mapping[str, str]]], str]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`tokenizer` is transformers' fast tokenizer; the model's weights are fp32.

    `sampling` is how its makers advise to sample it. `vocab_size` is the number of
    logits: the ids the tokenizer knows, of which the checkpoint may embed more. `model` is None
    once the weights are no longer needed.
    """

    source: Source
    architecture: Architecture
    model_type: str
    model: Any
    config: Any
    tokenizer: Any
    vocab_size: int
    chat_template: str | None
    bos: tuple[int, str] | None
    eos_ids: tuple[int, ...]
    eos_text: str
    sampling: Mapping[str, float]

    def without_model(self) -> Checkpoint:
        return dataclasses.replace(self, model=None)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids)

    def renderer(self) -> Renderer | None:
        """Makes the text of a conversation, with the generation prompt; None without a template."""
        if self.chat_template is None:
            return None

        def render(messages: Sequence[Mapping[str, str]]) -> str:
            return str(
                self.tokenizer.apply_chat_template(
                    messages,
                    chat_template=self.chat_template,
                    tokenize=False,
                    add_generation_prompt=True,
                )
            )

        return render


def inspect_source(source: Source) -> str:
    """The checkpoint's model type, once it is known to be supported."""
    if source.gguf is not None:
        model_type = _gguf_type(source.directory / source.gguf)
    else:
        model_type = _declared_type(source)
    check_supported(model_type, source.name)
    return model_type


def load_checkpoint(source: Source, model_type: str) -> Checkpoint:
    directory = str(source.directory)
    load_tokenizer: Any = AutoTokenizer.from_pretrained
    load_model: Any = AutoModelForCausalLM.from_pretrained
    try:
        options: dict[str, Any] = {"gguf_file": source.gguf} if source.gguf else {}
        # Handed on, because transformers reads a GGUF file again for each config it lacks.
        options["config"] = AutoConfig.from_pretrained(directory, **options)
        check_config(options["config"], source.name)
        there = [name for name in _TOKENIZERS if (source.directory / name).exists()]
        if not source.gguf and not there:
            raise _unreadable(source, "has no tokenizer (tokenizer.json).")
        tokenizer = load_tokenizer(directory, **options)
        options |= {"dtype": torch.float32, "attn_implementation": "eager"}
        model, loaded = load_model(directory, output_loading_info=True, **options)
    except UserError:
        raise
    except Exception as error:  # each file format has its own family of errors
        raise _unreadable(source, f"could not be read: {_first_line(error)}") from error
    if loaded["missing_keys"]:
        raise _unreadable(source, f"lacks {_listed(sorted(loaded['missing_keys']))}.")
    _check_numbers(source, model)
    if not tokenizer.is_fast:
        raise _unreadable(source, "has no fast tokenizer (tokenizer.json), which is needed.")
    distinct = tokenizer.eos_token_id != tokenizer.bos_token_id
    eos_ids = _eos_ids(model, tokenizer, trust_tokenizer=source.gguf is None and distinct)
    return Checkpoint(
        source=source,
        architecture=check_supported(model_type, source.name),
        model_type=model_type,
        model=model.eval().requires_grad_(False),
        config=model.config,
        tokenizer=tokenizer,
        vocab_size=_drop_padding(model, tokenizer),
        chat_template=_template(tokenizer.chat_template),
        bos=(tokenizer.bos_token_id, tokenizer.bos_token) if tokenizer.bos_token else None,
        eos_ids=eos_ids,
        eos_text=_eos_text(tokenizer, eos_ids),
        sampling=advised_sampling(source),
    )


def advised_sampling(source: Source) -> Mapping[str, float]:
    """What `generation_config.json` says, and else what is known.

    A repetition penalty always counts, the rest only where it wants draws; their temperature is
    then 1 where it names none (transformers' default). A null says nothing.
    """
    path = source.directory / GENERATION_CONFIG
    if source.gguf is not None or not path.is_file():
        return source.sampling
    try:
        config = json.loads(path.read_bytes())
        if not isinstance(config, dict):
            raise ValueError("no object")
    except ValueError as error:
        raise _unreadable(source, f"has a {GENERATION_CONFIG} that is no JSON ({error}).") from None
    draws = config.get("do_sample") is True
    counted = ADVISED if draws else ("repetition_penalty",)
    said = {name: config[name] for name in counted if config.get(name) is not None}
    if not (said or draws):
        return source.sampling
    said.setdefault("temperature", 1.0 if draws else 0.0)
    try:
        Sampling().advised(said, ())
    except (TypeError, ValueError, UserError) as error:
        raise _unreadable(source, f"advises sampling that cannot be had: {error}") from None
    return {name: float(value) for name, value in said.items()}


def _check_numbers(source: Source, model: Any) -> None:
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise _unreadable(source, f"has values in {name} that are no numbers.")


def _drop_padding(model: Any, tokenizer: Any) -> int:
    """Take from the LM head the rows of ids that no tokenizer's text has; return those that stay.

    Padded to a round number of rows, a checkpoint would give a probability to ids that nothing can
    print.
    """
    known: int = 1 + max(tokenizer.backend_tokenizer.get_vocab(with_added_tokens=True).values())
    cut_head(model, known)
    return int(model.get_output_embeddings().weight.shape[0])


def cut_head(model: Any, most: int) -> None:
    """Keep the first `most` rows of the LM head.

    Embeddings keep theirs, also where the head shares their weights.
    """
    head = model.get_output_embeddings()
    rows, width = head.weight.shape
    if most >= rows:
        return
    smaller = torch.nn.Linear(width, most, bias=head.bias is not None, dtype=head.weight.dtype)
    with torch.no_grad():
        smaller.weight.copy_(head.weight[:most])
        if head.bias is not None:
            smaller.bias.copy_(head.bias[:most])
    model.set_output_embeddings(smaller)


def _declared_type(source: Source) -> str:
    try:
        config = json.loads((source.directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(source, f"has no readable config.json: {_first_line(error)}") from error
    return str(config.get("model_type", "")) if isinstance(config, dict) else ""


def _gguf_type(path: Path) -> str:
    name = read_architecture(path)
    return _GGUF_TYPES.get(name, name)


def _template(found: Any) -> str | None:
    if isinstance(found, dict):
        found = found.get("default")
    return found if isinstance(found, str) else None


def _eos_ids(model: Any, tokenizer: Any, *, trust_tokenizer: bool) -> tuple[int, ...]:
    """Every id that ends an answer: generation config, model config and tokenizer may each know.

    A tokenizer made from a GGUF file carries its class's defaults (often one token for begin and
    end); the file's own id is in the config.
    """
    generation = getattr(model.generation_config, "eos_token_id", None)
    ids = {id_ for value in (generation, model.config.eos_token_id) for id_ in _ids(value)}
    if not ids or trust_tokenizer:
        ids.update(_ids(tokenizer.eos_token_id))
    return tuple(sorted(ids))


def _eos_text(tokenizer: Any, eos_ids: tuple[int, ...]) -> str:
    if tokenizer.eos_token_id in eos_ids or not eos_ids:
        return tokenizer.eos_token or ""
    return str(tokenizer.convert_ids_to_tokens(eos_ids[0]))


def _ids(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} tensors more" if more > 0 else "")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _unreadable(source: Source, problem: str) -> UserError:
    return UserError(
        f"{source.name} in {source.directory} {problem}",
        code="source_unreadable",
        param="--target",
    )
