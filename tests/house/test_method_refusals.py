"""Refusals that belong to one method: each names the argument, whatever else is asked of all."""

from functools import partial

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.activation.batch.alpha_batchnorm import core_loss
from normkit.activation.spatial.cumulative_groupnorm import Past
from normkit.attention.attention_entropy import entropy_lower_bound, spectral_bound
from normkit.attention.attention_separation import jacobian_norm, sensitivity
from normkit.density import _convergence, _named
from normkit.density._diffusion import Diffusion
from normkit.federated import stack
from normkit.inference.retrieval import retrieve
from normkit.inference.steering import steered
from normkit.ops.rope import Frequencies
from normkit.transformer.attention import Attention
from normkit.transformer.compressed import CompressedAttention
from normkit.transformer.delta import DeltaNet
from normkit.transformer.latent import LatentAttention
from normkit.transformer.layer_input import LayerInput
from normkit.weight import apply, data_init, project, regularize
from normkit.weight.selu import lecun_normal_
from normkit.weight.simplex_classifier import hoc_loss

ONE, TWO, X = torch.ones(1), torch.ones(2), torch.ones(2, 3)
NONE = torch.zeros(0)
FIRST = torch.tensor([0, 1])
CUBE = torch.ones(2, 3, 4)
INTS = torch.ones(2, 3, dtype=torch.int64)
META = X.to("meta")
TOKENS = torch.zeros(1, 2, dtype=torch.int64)
QKV = torch.ones(3, 1, 1, 3, 4)
GRID = {"heads": 1, "size": (2, 2), "ratio": 2}
COMPRESSED = {"heads": 2, "head_dim": 2, "query_rank": 1, "groups": 1, "output_rank": 1, "window": 1}
LATENT = {"heads": 1, "rank": 1, "head_dim": 1, "shared_dim": 1, "value_dim": 1}
MEAN = {"entries": ("w",)}
BLOCK = {"channels": 4, "num_patches": 2, "head_dim": 4}


def made(name, *args, **kwargs):
    return nk.create(name, *args, **kwargs)


def meta_loss(**options):
    shares, labels = torch.ones(1, 3), torch.zeros(1, 3, dtype=torch.long)
    given = {"x": torch.ones(1, 3, 2), "target": labels, "weights": shares}
    of_held_out = {"x_meta": torch.ones(3, 2), "target_meta": labels[0], "weights_meta": shares[0]}
    return nk.storm_meta_loss(torch.ones(4, 2), **given, **of_held_out, **options)


def decoder(cls=nk.Decoder, **options):
    return cls(**{"vocab": 3, "dim": 4, "depth": 1, "heads": 1, "hidden": 2, **options})


def mixture(**options):
    return decoder(feedforward="moe", router="router:experts=2,top_k=1", **options)


def clipped(**options):
    return nk.qk_clip(X, X, ONE, heads=1, **options)


def decomposed(weight):
    method = nk.create("alds-decompose", rank=1)
    method(weight)
    return method


def held_by_name(model):
    return project(model, torch.optim.SGD(model.parameters(), 0.1), "normalize-and-project", where=["1"])


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
    "WeightNorm: x must hold at least 2 samples, not 1": lambda: made("weight-norm", (2, 3)).data_init(X, X[:1]),
    "WeightNorm: data_init": lambda: made("weight-norm", (2, 3), dim=1).data_init(X, X),
}
CASES |= {
    "Attention: core 'differential' needs a head_dim that 2": lambda: decoder(core="differential", heads=4),
    "Attention: norm_over must be one of": lambda: Attention(4, 1, norm_over="layer"),
    "DeltaNet: gate must be one of": lambda: DeltaNet(4, 2, gate="tanh"),
    "DeltaNet: heads=3 does not divide dim=4": lambda: DeltaNet(4, 3),
    "Decoder: rotary_base must": lambda: decoder(rotary_base=0.0),
    "Decoder: length must": lambda: decoder(positions="learned", length=0),
    "Decoder: temperature must": lambda: decoder().generate(TOKENS, 1, temperature=-0.1),
    "Decoder: mask must be a boolean tensor": lambda: decoder().generate(TOKENS, 1, mask=TOKENS),
    "Decoder: count must": lambda: decoder().generate(TOKENS, -1),
    "Decoder: dim must": lambda: decoder(dim=0),
    "Decoder: depth must": lambda: decoder(depth=0),
    "Decoder: positions must be one of": lambda: decoder(positions="rotary"),
    "Decoder: logit_softcap must": lambda: decoder(logit_softcap=0.0),
    "Decoder: each has 'layer_inputs'": lambda: decoder(
        placement="peri-norm", layer_inputs=2, each=[{"layer_inputs": 3}]
    ),
    "Decoder: window must be a number": lambda: decoder(window=2.5),
    "Encoder: inputs must end in 4": lambda: decoder(nk.Encoder, vocab=None)(torch.ones(1, 2, 3)),
    "Encoder: inputs must have shape": lambda: decoder(nk.Encoder, vocab=None)(torch.ones(2, 4)),
    "Encoder: vocab must": lambda: decoder(nk.Encoder, vocab=0),
    "LayerInput: activation must be one of": lambda: LayerInput(4, 2, activation="tanh"),
    "MixtureOfExperts: hidden must": lambda: mixture(hidden=0),
    "MixtureOfExperts: activation must be one of": lambda: mixture(activation="tanh"),
    "MixtureOfExperts: shared must": lambda: mixture(feedforward_options={"shared": -1}),
    "ScoreClip: bound must": lambda: nk.ScoreClip(decoder(), bound=0.0),
    "ScoreClip: balance must .* not -0.1": lambda: nk.ScoreClip(decoder(), balance=-0.1),
    "ScoreClip: balance must .* not 1.1": lambda: nk.ScoreClip(decoder(), balance=1.1),
    "ScoreClip: queries must": lambda: nk.ScoreClip(decoder(), queries=0),
    "entropy_lower_bound: sigma must be": lambda: entropy_lower_bound(FIRST, 2),
    "spectral_bound: x must be": lambda: spectral_bound(INTS, X, X),
    "spectral_bound: x must have": lambda: spectral_bound(X, X, X),
    "sensitivity: logits must be": lambda: sensitivity(INTS, X),
    "sensitivity: logits must have": lambda: sensitivity(TWO, TWO),
    "sensitivity: temperature must": lambda: sensitivity(X, X, temperature=0.0),
    "sensitivity: step must": lambda: sensitivity(X, X, step=0.0),
    "jacobian_norm: logits must be": lambda: jacobian_norm(INTS),
    "jacobian_norm: logits must have": lambda: jacobian_norm(TWO),
    "qk-clip: rope_dim must": lambda: clipped(rope_dim=-1, value_dim=0),
    "qk-clip: value_dim must": lambda: clipped(rope_dim=0, value_dim=-1),
    "Galerkin: pos is missing": lambda: made("galerkin", 4, heads=1, pos_dim=1)(*QKV),
    "NormAwareLinear: q must have": lambda: made("norm-aware-linear", 4, heads=1, size=(2, 2))(*QKV),
    "QKNorm: scale must": lambda: made("qk-norm", 4, heads=1, norm="l2", scale="1"),
    "Softmax: scale must": lambda: made("softmax", 4, heads=1, scale="1"),
    "SoftmaxFree: size must be at least 1, not 0": lambda: made("softmax-free", 4, **{**GRID, "size": (0, 2)}),
    "SoftmaxFree: size must be at least 1, not -1": lambda: made("softmax-free", 4, **{**GRID, "size": (2, -1)}),
    "SoftmaxFree: norm must be one of": lambda: made("softmax-free", 4, norm="l2", **GRID),
    "core_loss: logits must be": lambda: core_loss(INTS),
    "BatchNormLinearBounded: force_factor must": lambda: made("batchnorm-linear-bounded", 3, force_factor="1"),
    "AdaptiveRMSNormZero: dim must be an integer": lambda: made("adaptive-rmsnorm-zero", "3"),
    "ModulatedRMSNorm: scale is on meta, but x": lambda: made("modulated-rmsnorm", 3, affine=False)(X, META),
    "MotionLayerNorm: condition is on cpu, but x": lambda: made(
        "motion-layernorm", 3, condition_features=3, device="meta"
    )(META, X),
    "GraphSAINTNorm: edge_target must lie in 0 .. 1": lambda: made("graphsaint-norm", 2).aggregate(
        X, FIRST + 1, FIRST, TWO, TWO
    ),
    "GraphSAINTNorm: edge_source must lie in 0 .. 1": lambda: made("graphsaint-norm", 2).aggregate(
        X, FIRST, FIRST + 1, TWO, TWO
    ),
    "CumulativeGroupNorm: past.steps must have": lambda: made("cumulative-groupnorm", 3).stream(
        torch.ones(1, 2, 3), Past(ONE, ONE, TWO)
    ),
    "CumulativeGroupNorm: past must be": lambda: made("cumulative-groupnorm", 3).stream(torch.ones(1, 2, 3), TWO),
    "EvoNormS0: x must have": lambda: made("evonorm-s0", 4, apply_act=False, divide=True)(X),
    r"PlacementSearch: outputs\[0\] is on cpu": lambda: made("placement-search", 1, device="meta")(
        ONE.to("meta"), ONE.to("meta"), X
    ),
    "SCNorm: x must have shape": lambda: made("scnorm", 3, channels_last=True)(X),
    "LayerNorm: x must end in 3": lambda: nk.LayerNorm(3).norm_rotate(CUBE, (X, X)),
    "LayerNorm: eps must": lambda: setattr(nk.LayerNorm(3), "eps", -1.0),
    "SRMSNorm: eps must": lambda: setattr(made("srmsnorm", 3), "eps", -1.0),
    "RMSNorm: x must be a floating-point": lambda: nk.RMSNorm(3, heads=2)(INTS),
    "RMSNorm: x must be a floating-point tensor": lambda: nk.RMSNorm(3, eps=None)(INTS),
    r"RMSNorm: int\(dim \* p\) must": lambda: nk.RMSNorm(2, p=0.1),
    "RMSNorm: dim must": lambda: nk.RMSNorm(0, p=0.5),
    "MeanScaleNorm: y must have": lambda: made("mean-scale-norm").denormalize(X, X, X),
    "BHyTVariance: x must be": lambda: made("bhyt-variance", sequence_length=2, heads=1, key_value_heads=1).predict(
        INTS, ONE, ONE, ONE
    ),
    "FeatureNorm: scale must": lambda: made("feature-norm", 3, scale="1"),
    "RevIN: y must end in 4": lambda: made("revin", 4).denormalize(
        X, made("revin", 4).normalize(torch.ones(1, 2, 4))[1]
    ),
    "SimpleNorm: x must have": lambda: made("simplenorm", 4, channels_last=False)(X),
    "TaperNorm: x must end in 4": lambda: made("tapernorm", 4).root(X),
    "TaperNorm: start must": lambda: made("tapernorm", 4).gate_at(0, -1, 2),
    "apply: .* has weight-norm already": lambda: [apply(one, "weight-norm") for one in [nn.Linear(2, 2)] * 2],
    "project: normalize-and-project does not fit '1'": lambda: held_by_name(nn.Sequential(nn.Linear(2, 2), nn.PReLU())),
    "project: every must": lambda: project(nn.Linear(2, 2), torch.optim.SGD([nn.Parameter(X)], 0.1), every=0),
    "regularize: strength must": lambda: regularize(nn.Linear(2, 2), "lambda-orthogonality", strength="1"),
    "data_init: init_scale must": lambda: data_init(nn.Linear(2, 2), X, init_scale=0.0),
    "SigmaReparam: shape must be at most": lambda: made("sigma-reparam", (2**16, 2**15)),
    "SigmaReparam: gamma_init must": lambda: made("sigma-reparam", (2, 3), gamma_init="1"),
    "SigmaReparam: raw must": lambda: made("sigma-reparam", (2, 3)).reset(TWO),
    "ALDSDecompose: rank must": lambda: made("alds-decompose", rank=0),
    "ALDSDecompose: splits must": lambda: made("alds-decompose", rank=1, splits=0),
    "ALDSDecompose: x must be": lambda: decomposed(X).project(INTS),
    "ALDSDecompose: x must end in 3": lambda: decomposed(X).project(torch.ones(2, 5)),
    "CrossInitialization: lengths must lie in 0 .. 3": lambda: made("cross-initialization").sequence(
        CUBE, 4 * FIRST, *torch.ones(3, 4)
    ),
    "CrossInitialization: eos must have": lambda: made("cross-initialization").sequence(
        CUBE, FIRST, torch.ones(4), TWO, torch.ones(4)
    ),
    "FixupBlock: out_channels must be a multiple of 4": lambda: made("fixup-block", 6, bottleneck=True),
    "GeneralizedGaussianInit: tensor must have": lambda: made("generalized-gaussian-init", (2, 3)).init_(TWO),
    "GeneralizedGaussianInit: weight must be a": lambda: made("generalized-gaussian-init", (2, 3)).fit(INTS),
    "GeneralizedGaussianInit: weight must be finite": lambda: made("generalized-gaussian-init", (2, 3)).fit(0 * X),
    "IBPRegularizer: terms must be one of": lambda: made("ibp-regularizer", terms=("relu", "elu")),
    "IBPRegularizer: terms must be some of": lambda: made("ibp-regularizer", terms=3),
    "NormalizeAndProject: offset must": lambda: made("normalize-and-project", (2, 3)).project_affine(TWO, ONE),
    "NormalizeAndProject: raw must": lambda: made("normalize-and-project", (2, 3)).reset(TWO),
    "lecun_normal_: weight must be": lambda: lecun_normal_(INTS),
    "hoc_loss: features must": lambda: hoc_loss(TWO, TWO, FIRST),
    "hoc_loss: old must": lambda: hoc_loss(X, TWO, FIRST),
    "hoc_loss: target must": lambda: hoc_loss(X, X, FIRST[:1]),
    "SimplexClassifier: num_classes must be at most": lambda: made("simplex-classifier", 2**15 + 1),
    "SparseETFClassifier: weight must": lambda: made("sparse-etf-classifier", 3, num_classes=2, steps=0).objective(TWO),
    "WassersteinInitRegularizer: weight must": lambda: made("wasserstein-init-regularizer", (2, 3)).reset(TWO),
    "WeightCompander: weight must": lambda: made("weight-compander", (2, 3)).reset(TWO),
    "LearnedRounding: shape must be a sequence": lambda: made("learned-rounding", 3),
    "WeightNorm: shape must be a sequence": lambda: made("weight-norm", 3),
    "WeightNorm: raw must": lambda: made("weight-norm", (2, 3)).reset(TWO),
    "WeightNorm: raw must have": lambda: made("weight-norm", (2, 3)).data_init(TWO, X),
    "WeightNorm: init_scale must": lambda: made("weight-norm", (2, 3)).data_init(X, X, init_scale=0.0),
}
CASES |= {
    f"CompressedAttention: {name} must be at least 1": partial(
        CompressedAttention, 4, frequencies=Frequencies((1.0,)), **{**COMPRESSED, name: 0}
    )
    for name in COMPRESSED
}
CASES |= {f"LatentAttention: {name} must be": partial(LatentAttention, 4, **{**LATENT, name: 0}) for name in LATENT}
OPTIONS = {"core_options": {}, "cross_options": {"cross": "softmax"}, "feedforward_options": {}}
OPTIONS |= {"mixer_options": {"mixer": "delta-net"}}
CASES |= {
    f"TransformerLayer: {name} must be a dictionary": partial(decoder, **more, **{name: 3})
    for name, more in OPTIONS.items()
}
CASES |= {
    f"DeltaNet: {name} must be": partial(DeltaNet, 4, **{"heads": 2, name: 0})
    for name in ("heads", "key_heads", "key_dim", "value_dim")
}
CASES |= {
    "RevIN: scale must be what normalize returned": lambda: made("revin", 4).denormalize(CUBE, TWO),
    "RevIN: scale.center must broadcast to y": lambda: made("revin", 4).denormalize(
        CUBE, made("revin", 4).normalize(torch.ones(3, 3, 4))[1]
    ),
    "RevIN: scale.deviation must broadcast to y": lambda: made("revin", 4).denormalize(
        CUBE, (torch.ones(2, 1, 4), torch.ones(1, 2, 1, 4))
    ),
    "ALDSDecompose: bias must have shape": lambda: decomposed(X).project(X, X[0]),
    "ALDSDecompose: bias must be": lambda: decomposed(torch.ones(2, 3, 1, 1)).project(torch.ones(1, 3, 1, 1), FIRST),
    "entropy_lower_bound: length must broadcast to sigma": lambda: entropy_lower_bound(X, FIRST + 1),
    r"entropy_lower_bound: length must .* sigma of shape \(1,\)": lambda: entropy_lower_bound(ONE, FIRST + 1),
    "entropy_lower_bound: length must be at least 1": lambda: entropy_lower_bound(TWO, FIRST),
    "lecun_normal_: weight must have an input": lambda: lecun_normal_(torch.ones(2, 0)),
    "BHyTVariance: factor must be a tensor": lambda: made(
        "bhyt-variance", sequence_length=2, heads=1, key_value_heads=1
    ).predict(X, 0.5, ONE, X[0]),
    "norm_rotate: angles must be a pair": lambda: nk.LayerNorm(4).norm_rotate(CUBE, None),
    "rotate: angles must be a pair": lambda: nk.ops.rotate(CUBE, (1, 0)),
    "hoc_loss: mu must": lambda: hoc_loss(X, X, FIRST, mu="10"),
    "TaperNorm: step must": lambda: made("tapernorm", 4).gate_at("0", 1, 2),
    "TaperNorm: target must": lambda: made("tapernorm", 3).anchor(X, "1"),
}


@pytest.mark.parametrize("message", CASES)
def test_what_does_not_fit_is_refused_in_words(message):
    with pytest.raises((ValueError, TypeError), match=message):
        CASES[message]()


def test_as_many_classes_as_features_are_taken():
    assert made("sparse-etf-classifier", 3, num_classes=3, steps=0).weight.shape == (3, 3)
