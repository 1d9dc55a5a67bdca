"""docs/search.js, which stands before the site's own search worker, with a worker's answers put into its hands."""

import json
import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "docs/search.js"
WORKER = """
const fs = require("fs");
const [script, query, items] = JSON.parse(fs.readFileSync(0, "utf8"));
let listener;
let sent = [];
globalThis.self = { addEventListener: (kind, one) => (listener = one), postMessage: (message) => sent.push(message) };
require("vm").runInThisContext(script);
listener({ data: { type: 2, data: query } });
self.postMessage({ type: 3, data: { items } });
console.log(JSON.stringify(sent));
"""

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def part(location, title, score=1.0, tags=()):
    return {"location": location, "title": title, "score": score, "tags": list(tags)}


def order(query, *items):
    """The pages that are shown for a query, where the worker answers with these items."""
    typed = json.dumps([SCRIPT.read_text(), query, items])
    answers = subprocess.run(["node", "-e", WORKER], input=typed, capture_output=True, text=True, check=True).stdout
    [answer] = json.loads(answers)
    return [item[0]["location"].partition("#")[0] for item in answer["data"]["items"]]


def test_a_page_of_which_only_a_section_was_matched_is_placed_by_its_own_title_and_other_names():
    muon = [part("muon.html", "muon", 9.0), part("muon.html#torch", "From torch", 5.0)]
    batch = [
        part("batchnorm.html#differences", "Differences", 2.0),
        part("batchnorm.html", "batchnorm", 0.0, ["torch.nn.BatchNorm2d"]),
    ]
    assert order("torch.nn.BatchNorm2d", muon, batch) == ["batchnorm.html", "muon.html"]
    assert order("batch norm", muon, batch) == ["batchnorm.html", "muon.html"]
    assert order("momentum", muon, batch) == ["muon.html", "batchnorm.html"]
