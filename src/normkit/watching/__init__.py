"""The watch: what goes wrong in a training, where and since when, and what would help.

    signals     what is read of a model on a sampled step, a file each
    sites       the places of a model that are watched
    sample      the hooks of one sampled step
    hook        what such a hook is, so that a copied model does not take it over
    taps        hooks that torch.compile traces into its graph
    rounds      when a step ends that several optimizers make
    onset       the first step that was not finite
    store       samples, which are joined as they grow old
    watching    the course of a training
    history     what was seen; facts: what is known of model and optimizer without a step
    rules       what is wrong, a file each; diagnosis asks them all
    finding     one thing that is wrong; causes: which of them follows from which
    certainty   how sure a finding is, and what cannot be judged
    proposals   remedies that fit the model, as lines that run
    trials      remedies tried on a copy of the model, on the last batch
    batch       that batch
    live        a training that is going on, in the terminal
    health      a model in a few numbers a block
    checkup     a minute before a long training, on copies
    inspecting  a look at a model that is not being trained
    widths      the coordinate check: a few steps at several widths
    callbacks   the watch within other people's trainers
    writers     where samples go: lines of JSON, TensorBoard, Weights & Biases
    lines       those of JSON: how they are written and read
    landscape   the loss around a model's weights; curvature: its Hessian; eigenspectra: the weights' tails;
                learning: what checkpoints can still learn
    page        the pictures of a training
    drawn       pictures as a page for a browser, on normkit.page as the lab's report is, or as static ones
    seen        what can be done with it: judged, drawn, kept, read again

The package stands beside the room of methods :mod:`normkit.probe`, whose files are methods of the catalogue, each in
itself; here is what looks at a training as a whole, and no file of it is a method.
"""

from normkit.watching.checkup import checkup as checkup
from normkit.watching.curvature import curvature as curvature
from normkit.watching.eigenspectra import eigenspectra as eigenspectra
from normkit.watching.inspecting import inspect as inspect
from normkit.watching.landscape import landscape as landscape
from normkit.watching.learning import learning as learning
from normkit.watching.seen import load as load
from normkit.watching.watching import watch
from normkit.watching.widths import coordinate_check as coordinate_check

__all__ = ["watch"]
