"""All that ``compare`` takes: what varies, the settings, and what is of one call alone."""

from __future__ import annotations

import argparse
from typing import Any

from normkit.lab.plan.settings import OWN, WHAT, Option
from normkit.lab.plan.variants import SLOTS

OPTIONS = {name: Option(one.help, WHAT, name=name, many=True) for name, one in SLOTS.items()} | OWN


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Describe what ``compare`` takes.

    With argparse, since lists are written ``--norm layernorm rmsnorm``, which typer and click cannot read.
    """
    groups: dict[str, Any] = {}
    for one in OPTIONS.values():
        if one.group not in groups:
            groups[one.group] = command.add_argument_group(one.group)
        one.add_to(groups[one.group])


def open_options() -> argparse.Namespace:
    """Return what the command reads where nothing is typed."""
    return argparse.Namespace(**{name: one.open_value for name, one in OPTIONS.items()})
