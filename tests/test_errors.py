"""The exception type for what a user did wrong."""

from __future__ import annotations

from models.errors import UserError


def test_its_text_is_the_message_and_its_code_and_param_are_kept() -> None:
    error = UserError("no such model.", code="model_not_found", param="model")
    assert (str(error), error.message) == ("no such model.", "no such model.")
    assert (error.code, error.param) == ("model_not_found", "model")
    assert UserError("x", code="y").param is None
