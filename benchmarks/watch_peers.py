"""Which illness of ``ill_runs.py`` each other tool can show at all, beside the watch.

python benchmarks/watch_peers.py --out benchmarks/results/watch-peers.md

``torch.autograd.detect_anomaly`` is run on one training of each illness, where that meets NaN or infinity at all: what
it raised. The others are judged by their documentation: what stands in a cell is the quantity that looks otherwise in
such a training.
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path

import torch

from ill_runs import ILL, Run

FIRST = 4000  # the seed of the first illness
PEERS = "cockpit 1.0.2", "WeightWatcher 0.7", "Lightning 2.6", "Trainer of transformers 5.23"
NO, LOSS = "-", "loss"
SHOWS = {
    "rate_too_high": ("UpdateSize, Distance", "norms", LOSS, "loss, grad_norm"),
    "rate_too_low": ("UpdateSize, Alpha", NO, LOSS, LOSS),
    "no_warm_up": ("UpdateSize, Loss", NO, LOSS, "loss, grad_norm"),
    "dead_units": ("GradNorm by parameter", NO, LOSS, LOSS),
    "saturated": ("GradNorm by parameter", "norms", LOSS, "loss, grad_norm"),
    "vanishing": ("GradNorm by parameter", NO, LOSS, LOSS),
    "exploding": ("GradNorm, HessMaxEV", "norms", LOSS, "loss, grad_norm"),
    "entropy_collapse": (NO, "norms", NO, NO),
    "logit_growth": ("Distance", "norms", NO, NO),
    "norm_growth": ("Distance", "norms", NO, NO),
    "small_batch": ("NormTest, CABS, MeanGSNR", NO, LOSS, LOSS),
    "train_eval_gap": (NO, NO, "validation loss", "validation loss"),
    "running_stale": (NO, NO, "validation loss", "validation loss"),
    "init_scale": ("GradNorm", "norms", LOSS, "loss, grad_norm"),
    "frozen": (NO, NO, "count of frozen parameters", NO),
    "detached": (NO, NO, NO, NO),
    "double_softmax": ("Loss", NO, LOSS, LOSS),
    "loss_scaled": ("GradNorm", NO, LOSS, "loss, grad_norm"),
    "shuffled_labels": ("Loss, MeanGSNR", NO, LOSS, LOSS),
    "not_normalized": ("GradNorm", NO, LOSS, "grad_norm"),
    "nan_data": ("Loss", NO, LOSS, "grad_norm; NaN is filtered from the loss"),
    "nan_log": ("Loss", NO, LOSS, "grad_norm; NaN is filtered from the loss"),
    "eps_in_half": ("Loss", NO, LOSS, "grad_norm; NaN is filtered from the loss"),
    "clipped": ("UpdateSize beside GradNorm", NO, LOSS, "grad_norm"),
    "group_forgotten": ("UpdateSize by parameter", NO, NO, NO),
    "decayed_gains": ("Distance by parameter", NO, LOSS, LOSS),
    "unseen_rows": (NO, NO, NO, NO),
    "router_collapse": (NO, NO, NO, NO),
}
"""By illness, what each of :data:`PEERS` shows."""
NOTE = """`torch.autograd.detect_anomaly` was run; it raises where a backward function gives NaN, and names the
function. The other columns are read from documentation, and no peer names a cause, a place or a remedy in any of them.

- cockpit: its [quantities](https://cockpit.readthedocs.io/en/latest/api/automod/cockpit.quantities.html). Those of
  single examples and of curvature need BackPACK, which does not know every module. Nothing of activations, attention,
  norms' statistics or data is read.
- WeightWatcher: [spectra of weights](https://github.com/CalculatedContent/WeightWatcher), as they are at one time:
  norms, the exponent of the tail, ranks. It looks at no gradient and no data.
- Lightning: the loss where `training_step` logs it, a summary of parameters, `detect_anomaly=False`
  ([Trainer](https://lightning.ai/docs/pytorch/stable/common/trainer.html)).
- `Trainer`: every 500 steps loss, `grad_norm` and rate; `logging_nan_inf_filter=True` puts the mean in the place of a
  loss that is NaN ([arguments](https://huggingface.co/docs/transformers/main_classes/trainer))."""


def anomaly(seed: int, plant) -> str:
    """Return the function that detect_anomaly named in one training; one without NaN is not asked."""
    run = trained(seed, plant)
    if all(map(math.isfinite, run.losses)) and all(p.isfinite().all() for p in run.model.parameters()):
        return NO
    try:
        with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
            warnings.simplefilter("ignore")
            run = trained(seed, plant)
    except RuntimeError as error:
        return str(error).splitlines()[0].split(" returned")[0].removeprefix("Function ").strip("'")
    return NO


def trained(seed: int, plant) -> Run:
    """Return a training that is over."""
    run = Run(seed)
    plant(run)
    run.train(run.build(), run.optimizer_of(run.model))
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = [f"| illness | watch | detect_anomaly | {' | '.join(PEERS)} |", f"| --- {'| --- ' * (2 + len(PEERS))}|"]
    for number, (plant, rules) in enumerate(ILL.items()):
        name = plant.__name__
        cells = [name.replace("_", " "), " or ".join(sorted(rules)), anomaly(FIRST + number, plant), *SHOWS[name]]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if options.out:
        last = FIRST + len(ILL) - 1
        head = f"`python benchmarks/watch_peers.py`, torch {torch.__version__}; seeds {FIRST} to {last}."
        text = ["# What other tools show of the same trainings", "", head, "", *lines, "", NOTE, ""]
        options.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
