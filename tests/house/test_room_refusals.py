"""Refusals of whole rooms' functions, modules and settings: each names its owner and the argument."""

import math

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.density._flows import Affine
from normkit.gradient.agc import adaptive_clip_grad_
from normkit.gradient.blockwise_lr import blockwise_groups
from normkit.manifold.chart_step import descend

ONE, TWO, X = torch.ones(1), torch.ones(2), torch.ones(2, 3)
NONE = torch.zeros(0)
FIRST = torch.tensor([0, 1])
CUBE = torch.ones(2, 3, 4)
WHOLE = torch.ones(2, 3, dtype=torch.int64)
SPARSE = torch.ones(2, 3).to_sparse()
COMPLEX = torch.ones(2, 3, dtype=torch.complex64)
NAN = math.nan
MEAN = {"entries": ("w",)}
LINEAR = {"entries": ("weight", "bias")}
SCALING = {"width": 4, "base_width": 2, "lr": 0.1, "weight_decay": 0.1}
BLOCK = {"channels": 4, "num_patches": 2, "head_dim": 4}


def made(name, *args, **kwargs):
    return nk.create(name, *args, **kwargs)


def optimizer(name, x=X, **options):
    return getattr(nk, name)([nn.Parameter(x.clone())], **options)


def adapted(name, norm=None, **options):
    model = nn.Sequential(nn.Conv2d(1, 2, 1), norm or nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    return getattr(nk, name)(model, **options)


def walk(name="metropolis", start=X, **options):
    return nk.density.walk(name, lambda x: -x.square().sum(1), start, **options)


def consistency(order=(0, 1), index=1, x=(1, 1), dtype=torch.int64):
    rows = torch.tensor([order]), torch.tensor([index]), torch.tensor([x], dtype=dtype)
    return nk.marginal_consistency(*rows, ONE, ONE, torch.ones(1, 2, 3))


def gns(**options):
    return made("gradient-normalized-smoothness", **options)


def stepped(x, matrices=1, **options):
    given = {"step_size": 0.1, **options}
    return descend(x, torch.ones(matrices), [lambda p: p] * matrices, [lambda p: p] * matrices, torch.sum, **given)


def block(placement, **options):
    return nk.residual.Placement(placement, 4, **options)


CASES = {
    # density
    "Diffusion: dim must be at least 1": lambda: nk.density.Diffusion(0),
    "Diffusion: steps must be at least 1": lambda: nk.density.Diffusion(2, steps=0),
    r"Diffusion: sigma must lie in \(0": lambda: nk.density.Diffusion(2, sigma=0.0),
    "Flow: event must be at least 1": lambda: nk.density.Flow([], 0),
    "Flow: context must be at least 0": lambda: nk.density.Flow([], 2, context=-1),
    "Flow: classes must be at least 0": lambda: nk.density.Flow([], 2, classes=-1),
    "Flow: memory must be one of": lambda: nk.density.Flow([], 2, memory="lost"),
    "Flow: x must be a floating-point": lambda: nk.density.Flow([], 3).log_prob(WHOLE),
    r"Flow: context must have shape \(2, 2\)": lambda: nk.density.Flow([], 3, context=2).log_prob(X, X),
    "Law: context must be a tensor": lambda: nk.density.Flow([], 3, context=2).law([1.0, 2.0]),
    "Law: context must end in 2 numbers": lambda: nk.density.Flow([], 3, context=2).law(X),
    "Affine: z must end in 2 features": lambda: Affine(2).inverse(X),
    "FlowIMH: coefficients must lie": lambda: made("flow-imh", 2, energy="double-well", coefficients=[0.0, 0.0, NAN]),
    "flow: name must be one of": lambda: nk.density.flow("glw", 4),
    "flow: patch must be at least 1": lambda: nk.density.flow("jet", (1, 4, 4), patch=0),
    "absent.pt: there is no such file": lambda: nk.density.load("absent.pt"),
    "walk: name must be one of": lambda: walk("flow"),
    "walk: start must be a floating-point": lambda: walk(start=WHOLE),
    "walk: steps must be at least 1": lambda: walk(steps=0),
    "walk: warmup must be at least 0": lambda: walk(warmup=-1),
    r"walk: step_size must lie in \(0": lambda: walk(step_size=0.0),
    "DataMollification: iteration must be at least 0": lambda: made("data-mollification", 2)(X, X, -1),
    r"FairFlow: failing must lie in \(0": lambda: made("fair-flow", flow0=3, flow1=3).bound(X, X, failing=0.0),
    r"FairFlow: failing must lie in .*1.0\]": lambda: made("fair-flow", flow0=3, flow1=3).bound(X, X, failing=1.5),
    "JetCoupling: grid must be at least 1": lambda: made(
        "jet-coupling", 2, num_tokens=4, kind="spatial", emb_dim=4, grid=(0, 2)
    ),
    "marginal-consistency: order must lie in 0 .. 1": lambda: consistency(order=(0, 2)),
    "marginal-consistency: index must lie in": lambda: consistency(index=3),
    "marginal-consistency: x must hold whole numbers": lambda: consistency(dtype=torch.complex64),
    "marginal-consistency: x less 1 must lie in 0 .. 2": lambda: consistency(x=(4, 4)),
    "NanoFlow: z must have 4 axes": lambda: made(
        "nanoflow", 2, hidden=2, num_flows=1, embedding_channels=2, height=2, width=2
    ).inverse(X),
    "TailAdaptiveBase: tail_index must lie in": lambda: made("tail-adaptive-base", 2, tail_index=[-1.0, 2.0]),
    "TarFlowBlock: guidance must lie": lambda: made("tarflow-block", 2, **BLOCK).inverse(
        torch.ones(1, 2, 2), None, NAN
    ),
    r"TarFlowBlock: attn_temp must lie in \(0": lambda: made("tarflow-block", 2, **BLOCK).inverse(
        torch.ones(1, 2, 2), attn_temp=0.0
    ),
    "TOFlow: anchor must lie": lambda: made("to-flow", 2, anchor=NAN),
    # gradient
    "Muon: ns_coefficients must lie": lambda: optimizer("Muon", ns_coefficients=(1.0, NAN, 1.0)),
    "Muon: ns_coefficients must be three numbers": lambda: optimizer("Muon", ns_coefficients=1.0),
    "polar-factor: coefficients must lie": lambda: nk.polar_factor(X, coefficients=(1.0, NAN, 1.0)),
    "polar-factor: coefficients must be three numbers": lambda: nk.polar_factor(X, coefficients=(1.0, 2.0)),
    "adaptive_clip_grad_: clipping must lie": lambda: adaptive_clip_grad_([], clipping=-0.1),
    "adaptive_clip_grad_: eps must lie": lambda: adaptive_clip_grad_([], eps=-1e-3),
    "blockwise_groups: scheme must be one of": lambda: blockwise_groups(nn.Linear(2, 2), "own"),
    "BlockwiseLR: block must be one of": lambda: nk.BlockwiseLR([{"params": [nn.Parameter(X)], "block": "own"}]),
    "BlockwiseLR: multipliers must be one of": lambda: optimizer("BlockwiseLR", multipliers={"own": 1.0}),
    r"BlockwiseLR: multipliers\['embed'\] must lie in": lambda: optimizer("BlockwiseLR", multipliers={"embed": -1.0}),
    "GradientNormalizedSmoothness: gamma must lie": lambda: gns(gamma=-1.0),
    "GradientNormalizedSmoothness: steps must be at least 0": lambda: gns(steps=-1),
    "GradientNormalizedSmoothness: hessian must be one of": lambda: gns(hessian="whole"),
    "GradientNormalizedSmoothness: eps must lie": lambda: gns(eps=-1e-8),
    "GradientNormalizedSmoothness: gamma_min must lie": lambda: gns(gamma_min=-1e-9),
    r"GradientNormalizedSmoothness: x0 must have shape \(any\)": lambda: gns().minimize(
        torch.sum, torch.ones_like, torch.ones_like, X
    ),
    "GradientNormalizedSmoothness: features must have": lambda: gns().logistic(TWO, TWO, TWO),
    r"GradientNormalizedSmoothness: x0 must have shape \(3\)": lambda: gns().logistic(X, TWO, TWO),
    "GradNorm: losses must have": lambda: made("gradnorm", 2).gradnorm_loss(X, TWO),
    "param_groups: settings must be one of": lambda: nk.param_groups(nn.Linear(2, 2), settings={"own": {}}),
    r"param_groups: blocks\['0.weight'\] must be at least 1": lambda: nk.param_groups(
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), optimizer="muon", blocks={"0.weight": (0, 2)}
    ),
    "param_groups: weight_decay must lie": lambda: nk.param_groups(nn.Linear(2, 2), weight_decay=-0.1),
    "lmo: norm='spectral' takes no tensor": lambda: nk.lmo(TWO, norm="spectral"),
    "MuonClip: qk_clip must be one of": lambda: nk.MuonClip([{"params": [nn.Parameter(X)], "qk_clip": "own"}]),
    "Muown: row_norm_schedule must be at least 1": lambda: optimizer("Muown", row_norm_schedule=(0, 1.0, 1.0)),
    r"Muown: row_norm_schedule must lie in \(0": lambda: optimizer("Muown", row_norm_schedule=(1, 0.0, 1.0)),
    r"Muown: row_norm_schedule must lie in \[0": lambda: optimizer("Muown", row_norm_schedule=(1, 1.0, -1.0)),
    "polar-factor: dtype must be one of": lambda: nk.polar_factor(X, dtype="int8"),
    "polar-factor: x must be matrices": lambda: nk.polar_factor(TWO),
    r"polar-factor: safety must lie in \(0": lambda: nk.polar_factor(X, safety=0.0),
    "polar-factor: eps must lie": lambda: nk.polar_factor(X, eps=-1e-7),
    "Scion: norm must be one of": lambda: optimizer("Scion", norm="own"),
    "Scion: norm='spectral' takes no parameter": lambda: optimizer("Scion", TWO, norm="spectral"),
    "Scion: norm='auto' takes no parameter": lambda: optimizer("Scion", torch.ones(1, 1, 1, 1, 1)),
    "WDScaling: width must be at least 1": lambda: made("wd-scaling", **{**SCALING, "width": 0}),
    "WDScaling: base_width must be at least 1": lambda: made("wd-scaling", **{**SCALING, "base_width": 0}),
    "WDScaling: lr must lie": lambda: made("wd-scaling", **{**SCALING, "lr": -0.1}),
    "WDScaling: weight_decay must lie": lambda: made("wd-scaling", **{**SCALING, "weight_decay": -0.1}),
    "WDScaling: weight must be a floating-point": lambda: made("wd-scaling", **SCALING)(WHOLE),
    "Router: rate must lie": lambda: made("router", 2, 3, top_k=1, selection_bias=True).balance(FIRST, rate=-0.1),
}


@pytest.mark.parametrize("message", CASES)
def test_what_does_not_fit_is_refused_in_words(message):
    with pytest.raises((ValueError, TypeError), match="^" + message):
        CASES[message]()
