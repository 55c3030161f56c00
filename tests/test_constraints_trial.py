"""Grammars that would take the process down are tried in another one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from models.constraints.compiler import GrammarCompiler, TooSlowError, grammar_text
from models.constraints.source import ConstraintSource
from models.constraints.trial import Trial
from models.errors import UserError
from models.package import Package
from tests.constraints_support import RECORD, json_schema, tokenizer_of

DEEP = 60_000
SLOW = {"allOf": [{"type": "string", "pattern": f"a{{{n}}}b"} for n in range(30)]}


def bottomless() -> str:
    """Definitions that are compiled one inside the other, more of them than a stack holds."""
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(DEEP)}
    return grammar_text(json_schema({"$defs": {**chain, f"d{DEEP}": {}}, "$ref": "#/$defs/d0"}))


@pytest.fixture
def trial() -> Iterator[Trial]:
    made = Trial(seconds=20.0)
    yield made
    made.close()


def test_what_can_be_compiled_passes_and_what_is_wrong_is_said_elsewhere(trial: Trial) -> None:
    assert trial.problem(grammar_text(json_schema(RECORD))) is None
    process = trial._process
    assert trial.problem("no grammar at all") is None
    assert trial.problem(json.dumps({"grammars": []})) is None
    assert trial._process is process, "one process for all"


def test_what_takes_too_much_ends_the_other_process_alone(trial: Trial) -> None:
    assert trial.problem(bottomless()) == "heavy"
    assert trial.problem(grammar_text(json_schema(RECORD))) is None, "there is a new one"


def test_what_takes_too_long_is_given_up() -> None:
    trial = Trial(seconds=0.05)
    assert trial.problem(grammar_text(json_schema(SLOW))) == "slow"
    assert trial._process is None
    trial.close()


def test_the_compiler_names_the_field(package: Package) -> None:
    target, trial = package.manifest.target, Trial(seconds=0.05)
    compiler = GrammarCompiler(tokenizer_of(package), target.vocab_size, target.eos_ids, trial)
    with pytest.raises(UserError, match=r"text\.format\.schema takes more than 0\.05 s") as caught:
        compiler.compile(json_schema(SLOW, "text.format.schema"))
    assert (caught.value.code, caught.value.param) == ("unsupported_value", "text.format.schema")
    compiler.close()


def test_who_is_not_patient_hears_that_it_is_slow(package: Package, trial: Trial) -> None:
    target, hasty = package.manifest.target, Trial(seconds=0.05)
    encoder = tokenizer_of(package)
    compiler = GrammarCompiler(encoder, target.vocab_size, target.eos_ids, trial, hasty)
    with pytest.raises(TooSlowError):
        compiler.compile(json_schema(SLOW), patient=False)
    assert compiler.compile(json_schema(RECORD)) is not None
    compiler.close()
    assert hasty._process is trial._process is None


def test_definitions_as_deep_as_their_text_may_be(trial: Trial, package: Package) -> None:
    """Within the limit of characters the stack of the compiler's thread holds them."""
    chain = {f"{n:x}": {"$ref": f"#/$defs/{n + 1:x}"} for n in range(4000)}
    source = json_schema({"$defs": {**chain, f"{4000:x}": {"type": "null"}}, "$ref": "#/$defs/0"})
    source.require_size()
    assert trial.problem(grammar_text(source)) is None


def test_json_objects_pass_too(trial: Trial) -> None:
    assert trial.problem(grammar_text(ConstraintSource("json_object"))) is None
