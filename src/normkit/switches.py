"""Variables of the environment that switch something on or off, in the words that people use for it."""

from __future__ import annotations

import os

ON, OFF = ("", "on", "1", "yes", "true"), ("off", "0", "no", "false")


def word_of(variable: str) -> str:
    """Return the word in a variable, empty where it is not set."""
    return os.environ.get(variable, "").strip().lower()


def is_off(variable: str) -> bool:
    """Whether a variable switches something off."""
    return word_of(variable) in OFF
