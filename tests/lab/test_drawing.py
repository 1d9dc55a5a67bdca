"""A picture for a paper has the colours, widths and symbols of the page."""

import pytest

pytest.importorskip("matplotlib")

from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from normkit.lab.report.drawing import _draw_trace

RED, BLUE = "rgba(255, 0, 0, 0.5)", "#0000ff"


def test_a_band_has_its_colour_and_no_edge():
    axes = Figure().add_subplot()
    _draw_trace(axes, {"fill": "toself", "x": [0, 1, 1], "y": [0, 0, 1], "fillcolor": RED})
    [band] = axes.patches
    assert band.get_facecolor() == (1, 0, 0, 0.5)
    assert band.get_linewidth() == 0
    assert band.get_xy()[:3].tolist() == [[0, 0], [1, 0], [1, 1]]


def test_a_line_with_points_has_its_colours_dash_and_sizes():
    axes = Figure().add_subplot()
    line = {"color": BLUE, "dash": "dash", "width": 2}
    marker = {"symbol": ["circle", "circle-open"], "size": 8, "color": [RED, BLUE]}
    trace = {"mode": "lines+markers", "name": "a", "x": [0, 2], "y": [1, 3], "line": line, "marker": marker}
    _draw_trace(axes, trace)
    drawn, *points = axes.lines
    assert (drawn.get_color(), drawn.get_linestyle(), drawn.get_linewidth()) == (BLUE, "--", 1.5)
    assert drawn.get_label() == "a"
    assert drawn.get_xydata().tolist() == [[0, 1], [2, 3]]
    assert [point.get_xydata().tolist() for point in points] == [[[0, 1]], [[2, 3]]]
    assert [to_rgba(point.get_color()) for point in points] == [(1, 0, 0, 0.5), (0, 0, 1, 1)]
    assert [point.get_markerfacecolor() for point in points] == [(1, 0, 0, 0.5), "none"]
    assert [point.get_markersize() for point in points] == [6, 6]
    assert not any(point.get_clip_on() for point in points)
