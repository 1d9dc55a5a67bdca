"""What the pages of methods show is what the methods compute: pictures, equations, examples, families, charts."""

import doctest
import html
import importlib
import json
import pathlib
import re

import pytest
import torch

import normkit as nk
from normkit import reference

pytest.importorskip("mkdocs")
ROOT = pathlib.Path(__file__).parents[2]
ONE_OF_A_KIND = [
    "rmsnorm",
    "groupnorm",
    "softmax",
    "muon",
    "pre-norm",
    "dyt",
    "circle-moebius",
    "weight-norm",
    "tent",
    "csls",
]
ORDER = [
    "Equation",
    "What it does",
    "Example",
    "When to use it",
    "Measured here",
    "What the paper claims",
    "Evidence",
    "In the world's models",
    "Family",
    "Differences",
    "Arguments",
    "State",
    "Unchanged by",
    "What it does not keep of the contract",
    "Cite",
    "Source and tests",
]


@pytest.fixture(autouse=True)
def docs(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")


def of(module):
    return importlib.import_module(module)


@pytest.mark.parametrize(
    "module",
    ["examples", "facts", "generate", "lean", "lineage", "measured", "pictures", "races", "records", "typeset"],
)
def test_the_examples_of_the_modules_behind_the_pages(module):
    assert doctest.testmod(of(module), optionflags=doctest.ELLIPSIS).failed == 0


def filled(name):
    """The filled rectangles of a grid: x, y, width, height in cells."""
    found = re.findall(
        r'<rect class="in" x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', of("pictures").picture(name).svg
    )
    cell = of("pictures").CELL
    return [(int(w) // cell, int(h) // cell) for _, _, w, h in found]


def test_a_grid_fills_the_entries_of_one_statistic():
    assert filled("rmsnorm") == [(6, 1)]  # all features of one token
    assert filled("batchnorm") == [(6, 1)] * 3  # a channel of all samples, at all positions
    assert filled("instancenorm") == [(6, 1)]
    assert filled("groupnorm") == [(6, 2)]  # half of the channels of a sample
    assert filled("layernorm2d") == [(1, 1)] * 3  # one pixel of all channels
    assert filled("spectral-norm") == [(6, 4)]


def test_what_came_later_is_not_filled():
    assert of("pictures").spans(nk.card("onlinenorm"))[0] == ("N", "past")
    assert len(filled("onlinenorm")) == 2  # the samples before the ringed one, and itself, of three


def test_a_spread_is_the_largest_over_the_smallest_and_has_an_end():
    before, after = torch.tensor([[3.0, 4.0], [0.0, 1.0]]).double(), torch.tensor([[2e-12, 0.0], [0.0, 1.0]]).double()
    spreads = {name: pair for name, *pair in reference.spreads(before, after)}
    assert spreads["entries"] == pytest.approx([4e12, 1e12])
    assert spreads["rows"] == pytest.approx([5, 5e11])
    assert spreads["columns"] == pytest.approx([17**0.5 / 3, 5e11])
    assert spreads["singular values"] == pytest.approx([torch.linalg.cond(before).item(), 5e11])


def test_a_step_is_drawn_with_the_spreads_that_it_has():
    torch.manual_seed(0)
    gradient = torch.randn(6, 4) * torch.logspace(0, -1, 6)[:, None]
    model = torch.nn.Linear(4, 6, bias=False)
    before = model.weight.detach().clone()
    model.weight.grad = gradient
    nk.Muon(model.parameters(), ns_dtype=None).step()
    spread = {name: (a, b) for name, a, b in reference.spreads(gradient, before - model.weight.detach())}
    assert spread["singular values"][0] > 5
    assert spread["singular values"][1] < 2
    assert "singular values" in of("pictures").picture("muon").legend
    legend = of("pictures").picture("lion").legend
    assert re.search(r"entries \d+ → 1;", legend), "every entry of a sign has one size"


def test_the_wiring_of_a_placement_is_the_order_of_its_calls():
    nodes, edges = of("pictures")._called(nk.card("pre-norm"))
    assert nodes == ["x", "attention_norm", "attention", "+", "feedforward_norm", "feedforward", "+", "y"]
    assert set(edges) == {(0, 1), (1, 2), (0, 3), (2, 3), (3, 4), (4, 5), (3, 6), (5, 6), (6, 7)}
    nodes, _ = of("pictures")._called(nk.card("post-norm"))
    assert nodes == ["x", "attention", "+", "attention_norm", "feedforward", "+", "feedforward_norm", "y"]


def test_a_curve_goes_through_the_values_of_the_map():
    label = re.search(r'aria-label="([^"]*)"', of("pictures").picture("dyt").svg)[1]
    assert label == "y against x, from -0.96 at -4 to 0.96 at 4"  # tanh(0.5 * 4)


@pytest.mark.parametrize(
    "line, made",
    [
        ("y = a / b c", "<mi>y</mi><mo>=</mo><mfrac><mi>a</mi><mi>b</mi></mfrac><mi>c</mi>"),
        ("x_i^2", "<msup><msub><mi>x</mi><mtext>i</mtext></msub><mn>2</mn></msup>"),
        ("sqrt(v)", "<msqrt><mi>v</mi></msqrt>"),
        ("alpha * running_mean", "<mi>\N{GREEK SMALL LETTER ALPHA}</mi><mo>·</mo><mi>running_mean</mi>"),
        ("W_Vᵀ", "<msup><msub><mi>W</mi><mtext>V</mtext></msub><mn>T</mn></msup>"),
        ('norm = "l2"', "<mi>norm</mi><mo>=</mo><mtext>&quot;l2&quot;</mtext>"),
        ("the same with a gain only", "<mtext>the same with a gain only</mtext>"),
        ("q kᵀ", "<mi>q</mi><msup><mi>k</mi><mn>T</mn></msup>"),
        (
            "w = p[i] / c",
            "<mi>w</mi><mo>=</mo><mfrac><mrow><mi>p</mi><mrow><mo>[</mo><mi>i</mi><mo>]</mo></mrow></mrow>"
            "<mi>c</mi></mfrac>",
        ),
        ("t / t'", "<mfrac><mi>t</mi><mi>t&#x27;</mi></mfrac>"),
        ("1(a) / b", "<mfrac><mrow><mn>1</mn><mrow><mo>(</mo><mi>a</mi><mo>)</mo></mrow></mrow><mi>b</mi></mfrac>"),
        ("a <- -b", "<mi>a</mi><mo>←</mo><mo>\N{MINUS SIGN}</mo><mi>b</mi>"),
    ],
)
def test_an_equation_is_typeset(line, made):
    text = of("typeset").typeset(line).replace('<mspace width="0.25em"/>', "")
    assert text == f'<div><math display="block">{made}</math></div>'


def test_a_fraction_under_a_sum_takes_the_whole_of_it():
    made = of("typeset").typeset("m = sum_k n_k m_k / sum_k n_k, v")
    assert made.count("<mfrac>") == 1
    above, below = re.search(r"<mfrac><mrow>(.*?)</mrow><mrow>(.*?)</mrow></mfrac>", made).groups()
    assert above.count("<mi>") == 3
    assert below.count("<mi>") == 2


def test_a_long_line_goes_on_below_before_an_operation():
    made = of("typeset").typeset("y = weight[0] * n(x) + weight[1] * m(x) + weight[2] * k(x) + bias")
    assert made.startswith("<div><span>")
    pieces = re.findall(r"<math.*?</math>", made)
    assert [re.sub(r"<[^>]*>", "", piece)[:8] for piece in pieces] == ["y=weight", "+weight["]
    assert pieces[-1].startswith('<math display="block"><mo form="infix">+</mo>'), "not a sign of its own"


@pytest.mark.parametrize(
    "line",
    [
        "out = r + down(feedforward_inner_norm(up(feedforward_norm(r))) + attention_output_norm(A(h)))",
        "loss = (mean(log(p(z)) - log(q(z))) + mean(log(r(z)) - log(s(z)))) / 2",
    ],
)
def test_brackets_around_a_long_line_do_not_keep_it_from_going_on_below(line):
    made = of("typeset").typeset(line)
    pieces = [html.unescape(re.sub(r"<[^>]*>", "", piece)) for piece in re.findall(r"<math.*?</math>", made)]
    assert max(map(len, pieces)) <= 38
    assert "".join(pieces).replace("\N{MINUS SIGN}", "-") == line.replace(" ", "")


def test_words_in_an_equation_stand_apart():
    made = of("typeset").typeset("k = sqrt(d), or ``scale`` where |w| is 0")
    assert re.sub(r"<[^>]*>", "", made.replace('<mspace width="0.25em"/>', " ")) == "k=d,or scale where |w| is 0"


def test_a_large_number_is_written_out():
    assert "2,560 thousand/s" in of("facts").chart([of("races").Bar("normkit", 2561.2, 0, 0)], "thousand/s", "normkit")


def test_a_long_number_does_not_leave_its_chart():
    drawing = of("facts").chart([of("races").Bar("normkit", 20123.0, 0, 0)], "ms", "normkit")
    assert "20,100 ms" in drawing
    width = float(re.search(r'width="([\d.]+)"', drawing)[1])
    assert float(re.search(r'<text x="([\d.]+)" y="15">20,100', drawing)[1]) + 6.5 * len("20,100 ms") <= width


def test_prose_keeps_its_stroke_and_every_sign():
    made = of("typeset").typeset("attention = r / (sum of r + 1)")
    assert "<mfrac>" not in made
    assert re.sub(r"<[^>]*>|\s", "", made) == "attention=r/(sumofr+1)"


def test_every_equation_of_the_catalogue_keeps_its_names_and_numbers():
    facts, typeset = of("facts"), of("typeset")
    for name in nk.methods():
        for block in facts.parts(nk.card(name)).equation.split("\n\n"):
            if block.startswith("    ") and not typeset.is_table(block):
                for line in block.splitlines():
                    made = re.sub(r"<[^>]*>", " ", typeset.typeset(line))
                    numbers = re.findall(r"(?<![\w.^])\d+(?:\.\d+)?", re.sub(r"`|\^", " ", line))
                    assert all(number in made for number in numbers), (name, line)


@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_an_example_prints_what_stands_below_it(name):
    made = of("examples").example(name)
    assert made.output
    assert of("examples").run(made.code, name)[1] == made.output


def test_an_example_shows_what_a_norm_does():
    assert of("examples").example("layernorm").output == "(4, 8) mean -0.00, deviation 1.02"


@pytest.mark.parametrize("name", ONE_OF_A_KIND)
def test_a_page_has_its_parts_in_order_and_says_its_drawings_in_words(name):
    page = of("generate").page(nk.card(name))
    titles = [title.partition(" {")[0] for title in re.findall(r"^## (.*)$", page, re.MULTILINE)]
    assert titles == sorted(titles, key=ORDER.index)
    assert {"Example", "Arguments", "Cite", "Source and tests"} <= set(titles)
    assert titles[0] == ("Equation" if '<div class="eq">' in page else "What it does")
    drawings = re.findall(r"<svg [^>]*>", page)
    assert drawings
    assert all(re.search(r'role="img" aria-label="[^"]{5,}"', drawing) for drawing in drawings)
    assert "tests/goldens/" + name in page


def test_a_page_links_what_it_names_instead_of_itself():
    page = of("generate").page(nk.card("adamp"))
    assert "it is [sgdp](../gradient/sgdp.md)" in page


def test_the_source_of_a_function_is_its_own_file():
    assert of("facts").source(nk.card("qk-clip")) == "src/normkit/attention/qk_clip.py"


def test_every_page_says_when_to_use_its_method():
    facts = of("facts")
    assert [name for name in nk.methods() if not facts.parts(nk.card(name)).use] == []


def test_a_page_does_not_say_the_paper_twice():
    page = of("generate").page(nk.card("rmsnorm"))
    assert page.count("arXiv 1910.07467") == 1
    assert page.count("one statistic instead of two") == 1


def test_a_citation_is_bibtex():
    entry = of("facts").bibtex(nk.card("weight-norm"))
    assert entry.startswith("@misc{salimans2016weight,")
    assert "author = {Salimans and Kingma}" in entry
    assert all(of("facts").bibtex(nk.card(name)).count("{") for name in nk.methods())


def test_families_come_from_the_cards():
    lineage = of("lineage")
    assert "rmsnorm" in lineage.descendants("layernorm")
    assert lineage.ancestors(nk.card("dyt")) == ["layernorm", "rmsnorm"]
    tree = lineage.tree(nk.card("dyt"), lineage.links("../../../"))
    assert tree.count("<circle") == len({"dyt", "layernorm", "rmsnorm", *lineage.descendants("dyt")})
    assert 'href="../../../methods/activation/token/rmsnorm.html"' in tree


def test_a_year_in_the_title_of_a_paper_is_not_when_it_was_published():
    assert of("lineage").year(nk.card("score-normalization")) == "2022"
    assert all(of("lineage").year(nk.card(name)) for name in nk.methods())


def test_two_years_beside_each_other_have_room_for_their_words():
    lineage = of("lineage")
    drawn = re.findall(r'<text x="([\d.]+)" y="11"[^>]*>(\d{4})<', lineage.tree(nk.card("soap"), {}))
    assert [year for _, year in drawn] == ["2024", "2025"]
    assert float(drawn[1][0]) - float(drawn[0][0]) >= 34


def test_the_map_and_the_timeline_have_every_method_once_with_its_page():
    lineage, generate = of("lineage"), of("generate")
    pages = {generate.address(card).removesuffix(".md") + ".html" for card in generate.cards()}
    for drawing in (lineage.field(lineage.links("")), lineage.timeline(lineage.links(""))):
        points = re.findall(r'<a href="([^"]*)"><title>', drawing)
        assert sorted(points) == sorted(pages)


def test_ticks_are_what_the_methods_do():
    ticks = of("facts").ticks
    assert ticks("batchnorm")["folds"]
    assert ticks("frozen-batchnorm")["folds"]
    assert not ticks("layernorm")["folds"]
    assert not ticks("batch-instance-norm")["folds"], "its gate has not moved yet"
    assert not ticks("decorrelated-batchnorm")["folds"], "its covariance has not moved yet"
    assert ticks("layernorm")["any batch"]
    assert not ticks("batchnorm")["any batch"]
    assert ticks("cumulative-groupnorm")["causal"]
    assert not ticks("instancenorm")["causal"]
    assert ticks("muon")["folds"] is None


def test_models_claims_and_records_are_those_on_file():
    facts, generate = of("facts"), of("generate")
    assert "llama" in " ".join(words for _, _, words in facts.world()["rmsnorm"])
    assert "Does not hold" in generate.claims(nk.card("eln"))
    assert "benchmarks/results/cpu.json" in generate.measurements(nk.card("rmsnorm"))
    assert "benchmarks/results/adaptation.md" in generate.measurements(nk.card("tent"))
    assert "Nothing is on file" in generate.measurements(nk.card("mala"))


def test_a_number_leads_to_its_record_with_settings_machine_and_draws():
    records, generate = of("records"), of("generate")
    for name in ("rmsnorm", "eln", "muon", "pre-norm", "spectral-norm", "csls", "homophone-normalization"):
        page = generate.measurements(nk.card(name)) + generate.claims(nk.card(name))
        links = re.findall(r'href="[./]*records/([\w-]+)\.html#([\w-]+)"', page)
        assert links, name
        pages = {records.address(record).rpartition("/")[2]: record for record in records.names()}
        assert all(f'<h2 id="{at}">' in records.page(pages[record]) for record, at in links), name
    assert page.count("<a href") == page.count("</a>")
    speed, claimed = records.page("cpu-modules.json"), records.page("claims-activation.json")
    assert "normkit bench" in speed
    assert "processor Intel" in speed
    row = next(row for row in of("measured").record("cpu-modules")["rows"] if row["method"] == "adaln-alphafold3")
    assert f"<td>{1000 * row['seconds']['normkit']:.4g}</td>" in speed
    kept = json.loads(records.raw("claims-activation.json"))["claims"]["adain"]["statistics"]
    assert ", ".join(kept["numbers"]) in claimed
    assert "seeds" in records.page("compare-transformer.json")


def test_the_name_of_a_record_in_words_is_a_link():
    mentioned = of("records").mentioned("see `benchmarks/results/lame.md` and `benchmarks/results/none.md`", "../")
    assert mentioned.startswith('see <a href="../records/lame.html"><code>benchmarks/results/lame.md</code></a> and `')


def test_a_function_of_no_tensor_is_drawn_against_its_number():
    drawn = of("pictures").picture("gaussian-normality-threshold")
    assert "from 3 at 1 to" in drawn.svg


def test_a_race_stands_beside_its_yardstick_and_says_its_clock():
    charts = of("facts").charts

    def bars(name, file):
        [race] = [race for race in charts(nk.card(name)) if race.file == file]
        assert "processor's time on one thread" in race.title
        return [bar.name for bar in race.bars]

    assert bars("peri-norm", "cpu-residual") == ["peri-norm", "pre-norm"]
    assert bars("mhc", "cpu-residual") == ["mhc", "plain mhc", "pre-norm"]
    assert bars("spectral-norm", "cpu-weight") == ["spectral-norm", "torch spectral_norm", "plain"]
    assert bars("lion", "cpu-gradient")[:2] == ["lion", "torch AdamW(foreach=True)"]
    assert bars("csls", "cpu-inference") == ["csls", "matrix product"]
    assert bars("adaln-lora", "cpu-modules") == ["normkit", "eager"]
    assert bars("gbw-batchnorm", "cpu-manifold") == ["normkit", "the authors'"]


def test_the_bar_of_a_method_is_marked_and_its_yardstick_is_not():
    facts = of("facts")
    [race] = [race for race in facts.charts(nk.card("mhc")) if race.file == "cpu-residual"]
    kinds = re.findall(r'<rect class="(\w+)"', facts.chart(race.bars, race.unit, "mhc"))
    assert kinds == ["in", "other", "other"]


def test_what_is_not_measured_says_why():
    not_raced = of("generate").not_raced
    assert not_raced(nk.card("mala")).endswith("times modules, and this is a function.")
    assert "none of the inputs" in not_raced(nk.card("tarflow-block"))
    assert "`normkit bench nkd` measures it" in not_raced(nk.card("nkd"))
    assert "`normkit bench --room attention gated-attention` measures it" in not_raced(nk.card("gated-attention"))


def test_a_chart_of_losses_has_its_intervals_and_no_bar_from_a_cut_axis():
    facts = of("facts")
    title, unit, _, bars = facts.compared()[0]
    drawing = facts.chart(bars, unit, "rmsnorm")
    assert "<rect" not in drawing
    assert drawing.count("<circle") == len(bars)
    assert "95 %" in title


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_colours_of_drawings_stand_out_from_the_page():
    style = (ROOT / "docs/style.css").read_text()
    light = dict(
        re.findall(r"^\.field (\.y\d) \{ fill: (#\w{6}); \}", style.replace("} .field", "}\n.field"), re.MULTILINE)
    )
    dark = light | dict(re.findall(r'"slate"\] \.field (\.y\d) \{ fill: (#\w{6}); \}', style))
    shades = re.findall(r"--shade: (#\w{6})", style)
    assert len(light) == 6
    assert len(shades) == 2
    for colours, paper in ((light.values(), "#ffffff"), (dark.values(), "#1e2129")):
        assert all(contrast(colour, paper) >= 3 for colour in colours)
    assert contrast(shades[0], "#ffffff") >= 3
    assert contrast(shades[1], "#1e2129") >= 3


def test_every_sign_of_an_equation_is_in_the_font_of_the_site():
    style = (ROOT / "docs/style.css").read_text()
    ranges = [part.split("-") for part in re.findall(r"U\+([\w-]+)", re.search(r"unicode-range: ([^;]*);", style)[1])]
    font = {chr(sign) for first, *last in ranges for sign in range(int(first, 16), int((last or [first])[0], 16) + 1)}
    facts, generate = of("facts"), of("generate")
    signs = {
        sign
        for name in nk.methods()
        for made in re.findall(r"<math.*?</math>", generate.equations(facts.parts(nk.card(name)).equation))
        for sign in html.unescape(re.sub(r"<[^>]*>", "", made))
    }
    assert len(signs) > 100
    assert sorted(signs - font) == []


def test_few_numbers_are_shown_and_many_by_their_mean():
    example = of("examples").example
    assert example("unselectable-keys").output.startswith("tensor([")
    assert re.fullmatch(r"\(4, 5\) mean \S+, deviation \S+", example("cosine-norm").output)
    assert re.search(r"tensor\(-?\d", example("alignment-uniformity").output)
    before, after = map(float, re.findall(r"[\d.]+(?= ->)|(?<=-> )[\d.]+", example("muown").output))
    assert after < 0.95 * before


def test_a_report_is_packed_and_unpacked_to_the_same_program():
    import base64
    import gzip

    code = "/**\n* plotly.js v1\n*/ var a = 1 < 2;"
    report = f"<body><script>{code}</script>\n<script>\nconst b = a;\n</script></body></html>"
    packed = of("generate").packed(report)
    inside = re.search(r'id="packed">([^<]*)<', packed)[1]
    assert gzip.decompress(base64.b64decode(inside)).decode() == code
    assert '<script type="text/plain" id="later">\nconst b = a;' in packed
    assert packed.count("</body>") == 1


def test_show_draws_the_keys_of_attention_and_says_what_the_fillings_mean(capsys):
    from normkit import cli

    cli.main(["show", "softmax"])
    shown = capsys.readouterr().out
    assert "    N   heads   T     C     S\n  ░░░░░ ░░░░░ ░░░░░ ░░░░░ █████\n" in shown
    assert "one statistic: █ of the whole axis, ░ of one index" in shown


@pytest.mark.parametrize(
    ("name", "meaning"), [("kivi", "heads"), ("plasticity-probe", "hidden features"), ("stain-norm", "height")]
)
def test_the_letter_h_means_what_its_neighbours_make_of_it(name, meaning):
    assert {axis.name: axis.meaning for axis in reference.axes(nk.card(name))}["H"] == meaning


def test_show_says_the_paper_once_and_names_without_marks(capsys):
    from normkit import cli

    for name in ("rmsnorm", "tent", "csls"):
        cli.main(["show", name])
        shown = capsys.readouterr().out
        assert shown.count("arXiv " + re.search(r"arXiv (\S+)", nk.card(name).paper)[1].rstrip(",;")) == 1, name
        assert not re.search(r"``|:class:|~normkit", shown), name


def test_show_draws_the_gradient_and_the_step_of_an_optimizer(capsys):
    from normkit import cli

    cli.main(["show", "lion"])
    shown = capsys.readouterr().out
    rows = re.findall(r"^  │(.{6})│ +│(.{6})│$", shown, re.MULTILINE)
    assert len(rows) == 6
    assert {after for _, after in rows} == {"██████"}, "each entry of a sign has one size"
    assert len({before for before, _ in rows}) > 3
    assert re.search(r"entries \d+ → 1;", shown)
    cli.main(["show", "muon"])
    shown = capsys.readouterr().out
    assert "N: samples" not in shown, "the axes of a matrix are no samples"
    assert "│██" in shown
    cli.main(["show", "layernorm"])
    assert "Step\n" not in capsys.readouterr().out


def test_a_line_of_a_family_leads_forward_in_time():
    lineage = of("lineage")
    assert {"groupnorm", "instancenorm"} & set(lineage.ancestors(nk.card("batchnorm")))
    wires = re.search(r'<path class="wire" d="([^"]*)"', lineage.tree(nk.card("batchnorm"), {}))[1]
    assert all(int(a) <= int(b) for a, b in re.findall(r"M(\d+) \d+V\d+H(\d+)", wires))


def test_a_method_of_text_shows_what_it_makes_of_a_text_once():
    page = of("generate").page(nk.card("homophone-normalization"))
    before, after = re.findall(r"<pre><code>(.*?)</code></pre>", page)
    assert "ሠላም" in before
    assert "ሰላም" in after
    assert page.count("ሰላም") == 1


def test_a_flow_is_drawn_with_what_it_learned():
    made, record = of("pictures").learn("ferumal"), json.loads(of("pictures").LEARNED.read_text())
    assert made["nats"] == pytest.approx(record["ferumal"]["nats"], abs=0.05), "python docs/pictures.py writes it anew"
    now, before = ("".join(own["shades"]) for own in (made, record["ferumal"]))
    assert sum(a == b for a, b in zip(now, before, strict=True)) > 0.9 * len(before)
    drawn = of("pictures").learned("ferumal")
    nats = float(re.search(r"([\d.]+) nats", drawn.legend)[1])
    with of("pictures").quiet():
        points = of("pictures").moons()
    normal = torch.distributions.MultivariateNormal(points.mean(0), points.T.cov())
    assert nats < -normal.log_prob(points).mean() - 0.2, "better than a normal law of the same mean and covariance"
    assert of("pictures").learn("glow") is None


def test_what_is_on_file_are_flows_of_vectors(tmp_path, monkeypatch):
    """The file saves the site's build their training; a flow that is not on it is trained then."""
    pictures, family = of("pictures"), nk.families.family("flow")
    record = json.loads(pictures.LEARNED.read_text())
    assert set(record) <= set(family)
    assert all(len(own["shades"]) == pictures.SIDE for own in record.values())
    monkeypatch.setattr(pictures, "LEARNED", tmp_path / "learned.json")
    pictures.LEARNED.write_text("{}")
    nats = float(re.search(r"([\d.]+) nats", pictures.learned("to-flow").legend)[1])
    assert nats == pytest.approx(record["to-flow"]["nats"], abs=0.05)
    assert pictures.learned("glow") is None
