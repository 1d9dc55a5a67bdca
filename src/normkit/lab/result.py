"""What a comparison came to, as Python sees it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from normkit.columns import number_of
from normkit.files import replace_file
from normkit.lab.files import Folder
from normkit.lab.plan.factor import Interaction
from normkit.lab.plan.findings import Finding
from normkit.lab.plan.trends import Trend
from normkit.lab.report import conclusion, drawing, exports, factor, ladder, page, quant, shift
from normkit.lab.report.history import Comparison, load
from normkit.lab.report.quant import FewBits
from normkit.lab.report.ranking import Row, rank
from normkit.lab.report.shift import Adapted
from normkit.lab.report.tables import section_text
from normkit.optional import at_hand


class Result:
    """A comparison that has ended, or as far as it came: its table, findings, pictures and report.

    It is read from the comparison's folder, and can be again: ``Result("normkit-report")``.

    folder: where logs and report lie; report: the page among them.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.report = Folder(folder).report
        load(folder)  # so that a folder that is none is refused now

    @cached_property
    def comparison(self) -> Comparison:
        """The plan and the runs."""
        return load(self.folder)

    @cached_property
    def rows(self) -> list[Row]:
        """What became of each variant, the best first."""
        return rank(self.comparison)

    @property
    def table(self) -> Any:
        """The numbers, a row a variant, the best first: a data frame where pandas is installed, else dictionaries."""
        records, pandas = exports.records(self.rows), at_hand("pandas")
        return records if pandas is None else pandas.DataFrame(records)

    @property
    def findings(self) -> dict[str, Finding]:
        """How each variant compares with the baseline, in a word and in numbers."""
        return {row.variant: row.finding for row in self.rows if row.finding}

    @property
    def headline(self) -> str:
        """What to do, in a line."""
        return conclusion.headline(self.comparison, self.rows)

    @property
    def answer(self) -> list[str]:
        """What was found, in sentences."""
        return conclusion.answer(self.comparison, self.rows)

    @property
    def trends(self) -> dict[str, Trend]:
        """How each variant's gap to the baseline develops along a ladder; empty where there is none."""
        return ladder.trends_of(self.comparison)

    @property
    def interactions(self) -> list[Interaction]:
        """How each gap changes with the other of two choices that are crossed; empty where none are."""
        return factor.interactions_of(self.comparison)

    @property
    def adapted(self) -> list[Adapted]:
        """What adapters made of shifted streams, by variant, stream and adapter; empty without ``shift``."""
        return shift.adapters_of(self.comparison)

    @property
    def quantized(self) -> list[FewBits]:
        """What few bits made of each variant, by method and bits; empty without ``quant``."""
        return quant.in_few_bits(self.comparison)

    def plot(self, title: str | None = None) -> Any:
        """Return a picture of the report as a figure of plotly, by a part of its title; the first by default."""
        import plotly.graph_objects

        return plotly.graph_objects.Figure(exports.paint(exports.picture(self.comparison, title)["figure"]))

    def draw(self, title: str | None = None) -> Any:
        """Return the same picture as a figure of matplotlib: ``result.draw().savefig("loss.pdf")``."""
        return drawing.draw(exports.picture(self.comparison, title))

    def save_pictures(self, folder: str | Path | None = None, form: str = "svg") -> list[Path]:
        """Write all pictures, as ``"svg"`` or ``"png"``, and return where: in ``pictures`` beside the report."""
        return drawing.save(self.comparison, Path(folder or self.folder / "pictures"), form)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return the table as CSV, and write it where ``path`` says so."""
        return _write(exports.csv_text(self.rows), path)

    def to_latex(self, path: str | Path | None = None) -> str:
        """Return the table as LaTeX with the rules of booktabs, and write it where ``path`` says so."""
        return _write(exports.latex_text(self.rows), path)

    def __str__(self) -> str:
        width = page.terminal_width()
        beside = [section_text(one, width) for one in conclusion.sections(self.comparison, self.rows)]
        return "\n".join(
            [page.table(self.rows, width), *beside, f"{self.headline}.", *self.answer, f"report: {self.report}"]
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {number_of(len(self.rows), 'variant')} in {self.folder}: {self.headline}>"

    def _repr_html_(self) -> str:
        return exports.html_text(self.comparison)


def _write(text: str, path: str | Path | None) -> str:
    if path is not None:
        replace_file(Path(path), text)
    return text
