"""Refusals that belong to one method: each names the argument, whatever else is asked of all."""

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.attention.attention_entropy import spectral_bound
from normkit.density import _convergence, _named
from normkit.density._diffusion import Diffusion
from normkit.federated import stack
from normkit.inference.retrieval import retrieve
from normkit.inference.steering import steered
from normkit.weight import apply, data_init, project, regularize
from normkit.weight.selu import lecun_normal_

ONE, TWO, X = torch.ones(1), torch.ones(2), torch.ones(2, 3)
NONE = torch.zeros(0)
FIRST = torch.tensor([0, 1])
CUBE = torch.ones(2, 3, 4)
MEAN = {"entries": ("w",)}
BLOCK = {"channels": 4, "num_patches": 2, "head_dim": 4}


def made(name, *args, **kwargs):
    return nk.create(name, *args, **kwargs)


def meta_loss(**options):
    shares, labels = torch.ones(1, 3), torch.zeros(1, 3, dtype=torch.long)
    given = {"x": torch.ones(1, 3, 2), "target": labels, "weights": shares}
    of_held_out = {"x_meta": torch.ones(3, 2), "target_meta": labels[0], "weights_meta": shares[0]}
    return nk.storm_meta_loss(torch.ones(4, 2), **given, **of_held_out, **options)


CASES = {
    "AttentiveBatchNorm: x must have": lambda: made("attentive-batchnorm", 3, hidden_features=2)(X),
    "AttentiveBatchNorm: one frame": lambda: made("attentive-batchnorm", 3, hidden_features=2)(torch.ones(1, 1, 3)),
    "Repair: x of shape": lambda: made("repair", 3)(torch.ones(1, 3, 1)),
    "SwitchableNorm: x is a single vector": lambda: made("switchable-norm", 3, vectors=True)(X[:1]),
    "SwitchableNorm: batch must": lambda: made("switchable-norm", 3, vectors=True, batch=False),
    "UnifiedNorm: x must have": lambda: made("unifiednorm", 3)(torch.ones(1, 1, 1, 3)),
    "UnifiedNorm: window_size": lambda: made("unifiednorm", 3, window_size=(1, 2, 3)),
    "MsgNorm: x must end": lambda: made("msgnorm")(ONE[0], ONE[0]),
    "GraphNorm: x must be a floating-point": lambda: made("graph-norm", 3)(torch.ones(2, 3, dtype=torch.int64)),
    "L2FeatureNorm: x must end": lambda: made("l2-feature-norm")(ONE[0]),
    "GCBlock: fusion": lambda: made("gcblock", 4, ratio=0.5, fusion=()),
    "GCBlock: fusion must name": lambda: made("gcblock", 4, ratio=0.5, fusion=("add", "add")),
    "GCBlock: ratio": lambda: made("gcblock", 4, ratio=0.1),
    "GlobalControlNorm: low": lambda: made("global-control-norm", low=50, high=50),
    "GRN: x must have": lambda: made("grn", 3)(torch.ones(3)),
    "GRN: x must have shape": lambda: made("grn", 3, channels_last=True)(torch.ones(3)),
    "LayerNorm: dim must name": lambda: nk.LayerNorm(()),
    "RMSNorm: p=0.5": lambda: nk.RMSNorm((2, 3), p=0.5),
    "LigerAttention: head_dim": lambda: made("liger-attention", 3, heads=1),
    "Lightning: layer must": lambda: made("lightning", 4, heads=1, layer=2, layers=2),
    "NormAwareLinear: head_dim": lambda: made("norm-aware-linear", 6, heads=1, size=(2, 2)),
    "SoftmaxFree: ratio": lambda: made("softmax-free", 4, heads=1, size=(2, 4), ratio=3),
    "TPE2D: head_dim": lambda: made("tpe-2d", 3, heads=1),
    "Diffusion: drift": lambda: Diffusion(2, 1),
    "CInCConv: kernel_size": lambda: made("cinc-conv", 2, (3, 3, 3)),
    "CNF: field": lambda: made("cnf", 2, field=1),
    "EBFlow: eps must be above": lambda: made("ebflow", 2, objective="fdssm", eps=0.0),
    "FlowIMH: base_energy": lambda: made("flow-imh", 2, energy="double-well", base_energy=1),
    "FlowIMH: coefficients must": lambda: made("flow-imh", 2, energy="double-well", coefficients=[1.0]),
    "FlowIMH: coefficients are of": lambda: made("flow-imh", 2, energy=torch.sum, coefficients=[1.0] * 3),
    "FreeFormFlow: probes must be": lambda: made("free-form-flow", 3, latent=2)(X, torch.ones(2, 2, 3)),
    "isir-step: particles": lambda: made("isir-step")(torch.ones(2, 0, 3), torch.ones(2, 0), torch.ones(2, 0), TWO),
    "ot-cfm: x0 must have": lambda: nk.ot_cfm(X[:0], X),
    "ot-cfm: x1 must have": lambda: nk.ot_cfm(X, X[:0]),
    "ot-cfm: x0 and x1 must be finite": lambda: nk.ot_cfm(X, X * torch.inf),
    "ot-cfm: i and j": lambda: nk.ot_cfm(X, X, i=FIRST),
    "ot-cfm: i and j must both": lambda: nk.ot_cfm(X, X, j=FIRST),
    "RationalQuadraticSpline: min_bin_width": lambda: made("rational-quadratic-spline", 4, min_bin_width=0.3),
    "stochastic-flow-langevin: with": lambda: made(
        "stochastic-flow-langevin", energy="double-well", kind="underdamped"
    )(torch.ones(2, 2), torch.ones(2, 2)),
    "TailAdaptiveBase: tail_index must be 2": lambda: made("tail-adaptive-base", 2, tail_index=[0.0]),
    "TailAdaptiveBase: tail_index must have its zeros": lambda: made("tail-adaptive-base", 2, tail_index=[2.0, 0.0]),
    "TailLU: eps": lambda: made("tail-lu", 3, num_heavy=1, eps=1.0),
    "TarFlowBlock: y is given": lambda: made("tarflow-block", 2, **BLOCK)(torch.ones(1, 2, 2), torch.tensor([0])),
    "draws must be at least four": lambda: _convergence.ess(torch.ones(3, 2)),
    "flow: context and classes": lambda: _named.flow("spline-coupling", 2, context=1, classes=2),
    "states must hold one client": lambda: stack([]),
    "apfl-alpha: states alpha": lambda: nk.apfl_alpha(TWO, TWO, TWO, TWO, TWO, entries=("w",), lr=0.1),
    "classwise-average: ": lambda: nk.classwise_average(X, TWO, torch.ones(2, 5), **MEAN),
    "classwise-average: states classes": lambda: nk.classwise_average(CUBE, TWO, -X, **MEAN),
    "fairness-frontier: joint": lambda: nk.fairness_frontier(torch.ones(2, 2, 3), global_limit=0.1, local_limit=0.1),
    "fedlaw: states must be": lambda: nk.fedlaw(X, entries=("weight", "bias")),
    "fedlaw-aggregate: states share_logit": lambda: nk.fedlaw_aggregate(X, torch.ones(3), torch.ones(1), **MEAN),
    "fedlaw-aggregate: states shrink_logit": lambda: nk.fedlaw_aggregate(X, TWO, TWO, **MEAN),
    "fedlog-synthetic: features": lambda: nk.fedlog_synthetic(torch.ones(0, 2, 2, 3), torch.ones(0, 2)),
    "fedlog-synthetic: class_rate": lambda: nk.fedlog_synthetic(torch.ones(1, 2, 2, 3), -torch.ones(1, 2)),
    "principal-gradient: ": lambda: nk.principal_gradient(X, CUBE[:1], entries=("w", "v")),
    "Muon: ns_coefficients": lambda: nk.Muon([nn.Parameter(X)], ns_coefficients=(1.0, 2.0)),
    "log_probs must have a token": lambda: nk.adaptive_weighted_rejection_sampling(
        torch.full((3,), -torch.inf), torch.ones(3), torch.zeros(3)
    ),
    "drm-ensemble: logits": lambda: nk.drm_ensemble(torch.ones(0, 2, 3)),
    "hubness: best must": lambda: made("hubness").counted(torch.ones(0, 3, dtype=torch.int64), 3),
    "hubness: items must": lambda: made("hubness").counted(torch.zeros(1, 1, dtype=torch.int64), 0),
    "score-normalization: background must": lambda: made("score-normalization").level(torch.ones(3)),
    "NearestMean: features has inf": lambda: made("nearest-mean", num_classes=2).fit(X * torch.inf, FIRST),
    "pcb-merge: task_vectors": lambda: nk.pcb_merge(torch.ones(0, 3)),
    "pcb-merge: base must": lambda: made("pcb-merge").merge({"w": X}, []),
    "residual-ebm-resample: energy": lambda: nk.residual_ebm_resample(torch.ones(2, 0), TWO),
    "retrieve: banks": lambda: retrieve(X, X, X[:0], method="inverted-softmax"),
    "maps: the model has no layer": lambda: steered(nn.Linear(2, 2), {"no": nk.LinEAS(2)}).__enter__(),
    "reference must have more than k=4": lambda: nk.local_dimension(torch.ones(6, 2), torch.ones(4, 2), k=9),
    "bnpo: group": lambda: nk.bnpo(TWO, TWO),
    "RewardTransform: weights must": lambda: made("reward-transform", weights=1),
    "RewardTransform: ": lambda: made("reward-transform", weights=[1.0])(X, X),
    "connection-laplacian: ": lambda: nk.connection_laplacian(torch.ones(2, 2), torch.ones(5, 5)),
    "GyroBNGrassmann: x has no points": lambda: made("gyrobn-grassmann", 4, p=2)(torch.ones(0, 1, 4, 2)),
    "num_classes=4 must not exceed in_features=3": lambda: made("sparse-etf-classifier", 3, num_classes=4, steps=0),
    "lie on the sphere": lambda: made("gyrobn", 3, geometry="sphere")(0.5 * nn.functional.normalize(CUBE[0], dim=1)),
    "but a point is opposite": lambda: made("gyrobn", 2, geometry="sphere")(torch.tensor([[-1.0, 0.0, 0.0]] * 2)),
    "labels must have shape": lambda: made("gradient-normalized-smoothness").logistic(X, torch.ones(3), torch.ones(3)),
    "lp-dictionary: atoms": lambda: nk.lp_dictionary(X, X),
    "hessian_criteria: eigenvalues must not": lambda: nk.hessian_criteria(X[:0], X[:0]),
    "x and orders must not be empty": lambda: nk.shuffling_distortion(
        torch.ones(0, 3), NONE, torch.ones(1, 0, dtype=torch.int64)
    ),
    "LearnedRounding: weight has NaN": lambda: made("learned-rounding", (2, 3)).fit(X * torch.nan),
    "LearnedRounding: shape": lambda: made("learned-rounding", ()),
    "NormTweakingLoss: target": lambda: made("norm-tweaking-loss")(ONE[0], ONE[0]),
    "apply: model": lambda: apply(1, "weight-norm"),
    "alds-error: weight must be": lambda: nk.alds_error(CUBE),
    "project: .* fits no layer": lambda: project(nn.ReLU(), torch.optim.SGD([nn.Parameter(X)], 0.1), "ngpt-weights"),
    "project: optimizer": lambda: project(nn.Linear(2, 2), 1, "ngpt-weights"),
    "regularize: .* fits no layer": lambda: regularize(nn.ReLU(), "lambda-orthogonality"),
    "shape must be a sequence": lambda: made("spectral-norm", 3),
    "data_init: no layer": lambda: data_init(nn.Linear(2, 2), X),
    "alds-allocate: weights": lambda: nk.alds_allocate(keep=0.5),
    "columns=2 needs a name": lambda: made("cross-initialization").sequence(
        torch.ones(2, 3, 4), torch.tensor([1, 0]), *torch.ones(3, 4)
    ),
    "farms: weight": lambda: nk.farms(CUBE),
    "global-magnitude-pruning: weights": lambda: nk.global_magnitude_pruning(sparsity=0.5),
    "GroupOrthogonality: weight is": lambda: made("group-orthogonality", 2)([]),
    "ibp-init: noise": lambda: nk.ibp_init(TWO),
    "IBPRegularizer: bounds": lambda: made("ibp-regularizer")(X, X, X),
    "lecun_normal_: weight": lambda: lecun_normal_(TWO),
    "spectral_bound: key_weight must": lambda: spectral_bound(CUBE, torch.ones(2, 4), torch.ones(3, 4)),
    "flow: depth must": lambda: nk.density.flow("affine-coupling", 4, depth=0),
    "flow: hidden must": lambda: nk.density.flow("affine-coupling", 4, hidden=0),
    "flow: context must": lambda: nk.density.flow("affine-coupling", 4, context=-1),
    "flow: halves of a patch=2 does not divide numbers=9": lambda: nk.density.flow("jet", (1, 3, 3), patch=3),
    "flow: classes must": lambda: nk.density.flow("affine-coupling", 4, classes=-1),
    "storm-meta-loss: normalize must": lambda: meta_loss(lr=0.1, normalize="all"),
    "storm-meta-loss: lr must": lambda: meta_loss(lr=-1.0),
    "WeightNorm: shape": lambda: made("weight-norm", ()),
    "WeightNorm: dim": lambda: made("weight-norm", (2, 3), dim=2),
    "WeightNorm: data_init": lambda: made("weight-norm", (2, 3), dim=1).data_init(X, X),
}


@pytest.mark.parametrize("message", CASES)
def test_what_does_not_fit_is_refused_in_words(message):
    with pytest.raises((ValueError, TypeError), match=message):
        CASES[message]()


def test_as_many_classes_as_features_are_taken():
    assert made("sparse-etf-classifier", 3, num_classes=3, steps=0).weight.shape == (3, 3)
