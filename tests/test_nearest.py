"""What somebody may have meant."""

from __future__ import annotations

from models.nearest import meant, nearest, unrecognized

KNOWN = ("--port", "--host", "--package")


def test_the_most_alike_is_named() -> None:
    assert nearest("--prot", KNOWN) == "--port"
    assert meant("--pakage", KNOWN) == " Did you mean --package?"


def test_what_is_like_nothing_gets_no_hint() -> None:
    assert nearest("zzz", KNOWN) is None
    assert meant("zzz", KNOWN) == ""
    assert nearest("--port", ()) is None


def test_flags_are_found_in_the_usage() -> None:
    usage = "usage: outpace serve [-h] [--config FILE] [--port N]\n    [--tls-key FILE]\n"
    assert unrecognized(["--tls_key=x", "y"], usage) == (
        "there is no flag --tls_key. Did you mean --tls-key?"
    )
    assert unrecognized(["--frobnicate"], usage) == "there is no flag --frobnicate."
    assert unrecognized(["surplus"], usage) == "the argument 'surplus' is not known here."
