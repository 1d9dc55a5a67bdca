"""docs/search.js, which is put before the site's own search worker; here before one that knows its answers."""

import json
import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "docs/search.js"
WORKER = """
const fs = require("fs");
const [script, query, answers, docs] = JSON.parse(fs.readFileSync(0, "utf8"));
const [listeners, sent] = [[], []];
globalThis.self = {
  addEventListener: (kind, listener) => listeners.push(listener),
  dispatchEvent: (event) => listeners.forEach((listener) => listener(event)),
  postMessage: (message) => sent.push(message),
};
require("vm").runInThisContext(script);
self.addEventListener("message", ({ data }) => {
  if (data.type === 2) self.postMessage({ type: 3, data: { items: answers[data.data] ?? [] } });
});
for (const data of [{ type: 0, data: { docs } }, { type: 2, data: query }]) self.dispatchEvent({ data });
console.log(JSON.stringify(sent));
"""

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def part(location, title, score=1.0, tags=()):
    return {"location": location, "title": title, "score": score, "tags": list(tags)}


def order(query, *items):
    """The pages that are shown for a query, where the worker answers with these items."""
    return shown(query, {query: items})


def shown(query, answers, docs=()):
    """The pages that are shown for a query, given the worker's answers to queries, in one message."""
    typed = json.dumps([SCRIPT.read_text(), query, answers, docs])
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


@pytest.mark.parametrize(
    "query, page",
    [
        ("layrnorm", "layernorm.html"),
        ("lyernorm", "layernorm.html"),
        ("Batch Nrom", "batchnorm.html"),
        ("BatchNom2d", "batchnorm.html"),
        ("rmsnrom", "rmsnorm.html"),
        ("gelu", None),
        ("rm", None),
        ("frobnicate", None),
    ],
)
def test_a_query_without_an_answer_is_asked_again_as_the_title_that_it_misspells(query, page):
    pages = [part(f"{name}.html", name) for name in ("crmsnorm", "rmsnorm", "layernorm", "batchnorm")]
    pages[-1]["tags"] = ["BatchNorm2d"]
    sections = [part("layernorm.html#frobnicates", "frobnicates")]
    answers = {name: [[page]] for page in pages for name in (page["title"], *page["tags"])}
    assert shown(query, answers, pages + sections) == ([page] if page else [])
