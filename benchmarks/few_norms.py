"""Which norm survives few bits: the same decoder with six norms, its weights and its activations rounded.

    python benchmarks/few_norms.py [--seeds 1] [--out FOLDER] [--write]

A decoder of two layers and 32 features is trained for 120 steps on CPython's documentation with each norm. Its weights
are then put into 4, 3 and 2 bits, to the nearest, and in turn the inputs of its linears into as many. Kurtosis and
outlier channels are those of the inputs of linears before anything is rounded. ``--write`` writes results/few-norms.md
and docs/quantize-norms.svg. A run with ``--out`` that is broken off goes on there.
"""

import argparse
import tempfile
from pathlib import Path

import normkit as nk
from normkit.lab.report.quant import FewBits, rank_correlation
from normkit.lab.report.words import with_interval
from normkit.optional import library

HERE = Path(__file__).parent / "results" / "few-norms.md"
PICTURE = Path(__file__).parents[1] / "docs" / "quantize-norms.svg"
VARIANTS = [{"name": norm, "norm": norm} for norm in ("layernorm", "rmsnorm", "l1-layernorm", "dyt", "derf")]
VARIANTS.append({"name": "layernorm, peri-norm", "norm": "layernorm", "placement": "peri-norm"})
METHODS = {"nearest": "weights", "activations": "activations"}
BITS = (4, 3, 2)


def measured(seeds: int, out: str) -> list[FewBits]:
    return nk.compare(
        **{"model": "decoder:dim=32,depth=2,heads=2", "length": 32, "batch": 16, "steps": 120, "lr": 0.01},
        **{"variants": VARIANTS, "seeds": seeds, "threads": 1, "engine": "here", "out": out},
        **{"quant": list(METHODS), "bits": list(BITS)},
    ).quantized


def ratio(one: FewBits) -> str:
    return with_interval(one.growth, 3)


def table(found: list[FewBits]) -> str:
    cells = {(one.variant, one.method, one.bits): one for one in found}
    heads = " | ".join(f"{words}, {bits} bits" for words in METHODS.values() for bits in BITS)
    lines = [
        f"| norm | loss | kurtosis | outlier channels | {heads} |",
        "| --- " * (4 + len(METHODS) * len(BITS)) + "|",
    ]
    for variant in (row["name"] for row in VARIANTS):
        first = cells[variant, "nearest", 4]
        values = [ratio(cells[variant, method, bits]) for method in METHODS for bits in BITS]
        about = f"{first.before.mean:.3f} | {first.kurtosis:.1f} | {first.outliers:.1%}"
        lines.append(f"| {variant} | {about} | {' | '.join(values)} |")
    for name, words in (("kurtosis", "rank correlation with kurtosis"), ("outliers", "with outlier channels")):
        columns = [[one for one in found if (one.method, one.bits) == (m, b)] for m in METHODS for b in BITS]
        ranks = [rank_correlation(column, name) for column in columns]
        lines.append(f"| {words} | | | | {' | '.join('' if r is None else f'{r:+.2f}' for r in ranks)} |")
    return "\n".join(lines) + "\n"


def draw(found: list[FewBits]) -> None:
    """Draw what 2 bits cost by kurtosis, of weights and of activations."""
    library("matplotlib")
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "normkit"
    from matplotlib import pyplot

    figure, sides = pyplot.subplots(1, 2, figsize=(8, 3.4))
    for axes, method in zip(sides, ("nearest", "activations"), strict=True):
        for one in (o for o in found if (o.method, o.bits) == (method, 2)):
            axes.errorbar(
                one.kurtosis,
                one.growth.mean,
                yerr=one.growth.half if one.growth.count > 1 else None,
                marker="o",
                capsize=3,
            )
            axes.annotate(one.variant, (one.kurtosis, one.growth.mean), (5, 4), textcoords="offset points", fontsize=7)
        axes.set(xlabel="kurtosis of the inputs of linears", ylabel="perplexity over the float model's")
        axes.set_title(f"{METHODS[method]}, 2 bits", fontsize=10)
        axes.margins(x=0.25)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", help="a folder, in which a run that was broken off goes on")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        found = measured(options.seeds, options.out or own)
    text = table(found)
    print(text)
    if options.write:
        about = " ".join((__doc__ or "").split("\n\n")[2].split("``")[0].split())
        HERE.write_text(
            "# Which norm survives few bits\n\n"
            f"`python benchmarks/few_norms.py --seeds {options.seeds} --write`: perplexity over the float model's, "
            f"with 95 % intervals where there are several seeds.\n\n{about}\n\n{text}",
            encoding="utf-8",
        )
        draw(found)


if __name__ == "__main__":
    main()
