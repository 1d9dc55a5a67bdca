"""The page of a watched training: everything on it, nothing fetched."""

import json
import re

import numpy as np
import torch
from trainings import decoder, language, train

from normkit.watching.history import History
from normkit.watching.page import MOST, pictures
from normkit.watching.store import MEAN, Store


def test_a_page_shows_findings_and_pictures(tmp_path):
    model = decoder(norm="dyt:alpha=20", std=0.5)
    _, seen = train(model, language, steps=12, every=4)
    text = seen.plot(tmp_path / "watch.html").read_text()
    assert "1. dyt is saturated" in text
    assert "m.alpha.data.fill_(0.2)" in text
    assert "(tried on a copy: the share of" in text
    assert "default-src 'none'" in text, "a browser fetches nothing"
    drawn = json.loads(re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)[1])
    titles = re.findall(r"<h3>(.*?)</h3>", text)
    assert len(drawn) == len(titles) == len(pictures(seen.history()))
    assert {"Saturation", "Size by depth", "Attention entropy"} <= set(titles)
    [heat] = [figure["data"][0] for figure, title in zip(drawn, titles, strict=True) if title == "Saturation"]
    history = seen.history()
    assert heat["x"] == [str(step) for step in history.steps]
    assert heat["y"] == history.names("saturated")
    wanted = [history.series(name, "saturated") for name in heat["y"]]
    np.testing.assert_allclose(np.array(heat["z"]), np.array(wanted), rtol=1e-3)


def test_of_many_layers_a_map_shows_every_second_one_in_their_order():
    store, names = Store(), [f"layers.{at}" for at in range(MOST + 2)]
    store.add(1, [(name, "dead") for name in names], [MEAN] * len(names), torch.rand(len(names)))
    [drawn] = [each for each in pictures(History(store, {"blocks": []})) if each["title"] == "Dead channels"]
    assert drawn["figure"]["data"][0]["y"] == names[::2]
