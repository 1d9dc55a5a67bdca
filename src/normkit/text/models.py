"""Models of a user's, from folders: no network is asked, what is wrong is named, and no bars are drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from normkit.optional import library, require


def loaded(owner: str, path: str | Path, load: Callable[[str], Any]) -> Any:
    """Return the model in a folder."""
    if not isinstance(path, str | Path) or not Path(path).is_dir():
        raise ValueError(f"{owner}: {path} is no folder of a model; a folder that a model was saved to is wanted")
    try:
        with quiet():
            return load(str(path))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ValueError(f"{owner}: {path} holds no model of the kind that is wanted: {first}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from drawing bars of loading and saving."""
    logging = library("transformers").utils.logging
    drawn = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if drawn:
            logging.enable_progress_bar()


def sentence_transformers() -> Any:
    """Import the library, whose transformers need a torchvision that loads."""
    require("sentence_transformers")
    library("transformers")
    return library("sentence_transformers")
