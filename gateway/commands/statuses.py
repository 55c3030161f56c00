"""With which status a command ends, for whoever starts it again by that.

A service manager starts serve again where another time may do; it is not to where somebody has to
change something first. systemd's units name these statuses (`RestartPreventExitStatus=`).
"""

from __future__ import annotations

from models.errors import UserError

FAILED = 1
"""A port in use, no memory, a device that failed: another time may do."""

STUCK = 70
"""A run of the device did not come back (EX_SOFTWARE of sysexits.h): only another process may reach
the device again."""

MISCONFIGURED = 78
"""Wrong until somebody changes it (EX_CONFIG of sysexits.h): a setting, a file that it names, the
package, or what is installed."""

STAYS_WRONG = frozenset(
    {
        "config_unreadable",
        "insecure_address",
        "invalid_activation",
        "invalid_setting",
        "onnxruntime_missing",
        "package_invalid",
        "package_missing",
        "processor_unsuitable",
        "provider_unavailable",
        "template_error",
        "tokenizer_invalid",
        "unknown_device",
        "unknown_drafter",
        "unknown_setting",
    }
)
"""Codes of errors that no other attempt mends."""


def of_serve(error: UserError) -> int:
    return MISCONFIGURED if error.code in STAYS_WRONG else FAILED
