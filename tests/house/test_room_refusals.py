"""Refusals of whole rooms' functions, modules and settings: each names its owner and the argument."""

import math

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.density._flows import Affine
from normkit.federated import rounds, servers
from normkit.federated.fedlaw import learn
from normkit.federated.strategies import fedadam, scaffold
from normkit.gradient.agc import adaptive_clip_grad_
from normkit.gradient.blockwise_lr import blockwise_groups
from normkit.inference.generation import RejectionSampling
from normkit.inference.local_normalization_distortion import distribution
from normkit.inference.retrieval import retrieve
from normkit.inference.score_normalization import augment
from normkit.manifold.chart_step import descend
from normkit.probe.plasticity_probe import plasticity
from normkit.residual.streams import collapse, expand
from normkit.text.vocabulary import read_vocabulary

ONE, TWO, X = torch.ones(1), torch.ones(2), torch.ones(2, 3)
NONE = torch.zeros(0)
FIRST = torch.tensor([0, 1])
COLUMN = torch.ones(2, 1)
CUBE = torch.ones(2, 3, 4)
WHOLE = torch.ones(2, 3, dtype=torch.int64)
SPARSE = torch.ones(2, 3).to_sparse()
COMPLEX = torch.ones(2, 3, dtype=torch.complex64)
NAN = math.nan
MEAN = {"entries": ("w",)}
LINEAR = {"entries": ("weight", "bias")}
SCALING = {"width": 4, "base_width": 2, "lr": 0.1, "weight_decay": 0.1}
SMALL = {"vocab": 5, "dim": 4, "depth": 1, "heads": 1}
BLOCK = {"channels": 4, "num_patches": 2, "head_dim": 4}


def made(name, *args, **kwargs):
    return nk.create(name, *args, **kwargs)


def optimizer(name, x=X, **options):
    return getattr(nk, name)([nn.Parameter(x.clone())], **options)


def adapted(name, norm=None, **options):
    model = nn.Sequential(nn.Conv2d(1, 2, 1), norm or nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    return getattr(nk, name)(model, **options)


def normalized(model):
    nk.weight.apply(model, "weight-norm")
    return model


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


def apfl(w1=X, b1=TWO, w2=X[:, :2], b2=TWO, x=CUBE):
    own = w1, b1, w2, b2
    return nk.apfl_step(*own, *own, x, WHOLE, entries=("w1", "b1", "w2", "b2"), lr=0.1)


def pgfed(weight=X, bias=TWO, risks=ONE, alpha=ONE):
    return nk.pgfed_client(*(weight, bias) * 3, risks, alpha, CUBE, WHOLE, **LINEAR, lr=0.1, alpha_lr=0.1)


def block(placement, **options):
    return nk.residual.Placement(placement, 4, **options)


def storm(losses=X, target=1):
    module = made("storm-features", 2, batch_size=3)
    return module(losses, torch.ones(2, 3, 2), torch.full((3,), target))


def allocate(table=COLUMN, base_value=ONE, sizes=TWO, target=1.0):
    return nk.allocate_bits(table, base_value, sizes, target=target)


def ranged(*batches):
    module = made("measured-range", per_channel=True)
    for x in batches:
        module(x)


CASES = {
    # activation
    "GraphSAINTNorm: coefficient must hold real numbers, not torch.bool": lambda: made(
        "graphsaint-norm", 2
    ).weighted_loss(TWO, TWO > 0),
    "StainNorm: method='reinhard' has no reference yet; call fit": lambda: made("stain-norm", method="reinhard")(
        torch.ones(1, 3, 2, 2)
    ),
    # text
    r"vocabulary: pairs \(id, name\) are wanted, not 'ab'": lambda: read_vocabulary([("a", "b"), "ab"]),
    "vocabulary: the name 'b' has no id": lambda: read_vocabulary([("", "b")]),
    # weight
    "apply: '0' has weight-norm already; bake the model": lambda: normalized(
        normalized(nn.Sequential(nn.Linear(3, 2)))
    ),
    "global-magnitude-pruning: minimum=2 leaves at most 2 of 6 weights to go, but sparsity=0.5 wants 3": lambda: (
        nk.global_magnitude_pruning(TWO, torch.ones(4), sparsity=0.5, minimum=2)
    ),
    "GroupOrthogonality: weight is an empty list": lambda: made("group-orthogonality", 2)([]),
    # density
    "stochastic-flow-langevin: with kind='underdamped' the call takes x, v and noise": lambda: made(
        "stochastic-flow-langevin", energy="double-well", kind="underdamped"
    )(X[:, :2], X[:, :2]),
    "Diffusion: dim must be at least 1": lambda: nk.density.Diffusion(0),
    "Diffusion: steps must be at least 1": lambda: nk.density.Diffusion(2, steps=0),
    r"Diffusion: sigma must lie in \(0": lambda: nk.density.Diffusion(2, sigma=0.0),
    "Flow: event must be at least 1": lambda: nk.density.Flow([], 0),
    "Flow: context must be at least 0": lambda: nk.density.Flow([], 2, context=-1),
    "Flow: classes must be at least 0": lambda: nk.density.Flow([], 2, classes=-1),
    "Flow: n must be at least 0": lambda: nk.density.Flow([], 2).sample(-1),
    "Diffusion: n must be at least 0": lambda: nk.density.Diffusion(2).draw(-1),
    "Flow: memory must be one of": lambda: nk.density.Flow([], 2, memory="lost"),
    "Flow: x must be a floating-point": lambda: nk.density.Flow([], 3).log_prob(WHOLE),
    r"Flow: context must have shape \(2, 2\)": lambda: nk.density.Flow([], 3, context=2).log_prob(X, X),
    "Law: context must be a tensor": lambda: nk.density.Flow([], 3, context=2).law([1.0, 2.0]),
    "Law: context must end in 2 numbers": lambda: nk.density.Flow([], 3, context=2).law(X),
    "Affine: z must end in 2 features": lambda: Affine(2).inverse(X),
    r"FlowIMH: coefficients must lie in \[-inf, inf": lambda: made(
        "flow-imh", 2, energy="double-well", coefficients=[0.0, 0.0, NAN]
    ),
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
    r"JetCoupling: grid must be \(rows, columns\)": lambda: made(
        "jet-coupling", 2, num_tokens=4, kind="spatial", emb_dim=4, grid=4
    ),
    "marginal-consistency: order must lie in 0 .. 1": lambda: consistency(order=(0, 2)),
    "marginal-consistency: index less 1 must lie in 0 .. 1": lambda: consistency(index=3),
    "marginal-consistency: index must be an int64 tensor": lambda: consistency(index=True),
    "marginal-consistency: x must hold whole numbers": lambda: consistency(dtype=torch.complex64),
    "marginal-consistency: x less 1 must lie in 0 .. 2": lambda: consistency(x=(4, 4)),
    "NanoFlow: z must have 4 axes": lambda: made(
        "nanoflow", 2, hidden=2, num_flows=1, embedding_channels=2, height=2, width=2
    ).inverse(X),
    r"TailAdaptiveBase: tail_index must lie in \[0": lambda: made("tail-adaptive-base", 2, tail_index=[-1.0, 2.0]),
    r"TarFlowBlock: guidance must lie in \[-inf, inf": lambda: made("tarflow-block", 2, **BLOCK).inverse(
        torch.ones(1, 2, 2), None, NAN
    ),
    r"TarFlowBlock: attn_temp must lie in \(0": lambda: made("tarflow-block", 2, **BLOCK).inverse(
        torch.ones(1, 2, 2), attn_temp=0.0
    ),
    r"TOFlow: anchor must lie in \[-inf, inf": lambda: made("to-flow", 2, anchor=NAN),
    # gradient
    "polar-factor: method='svd' takes no coefficients, safety or eps": lambda: nk.polar_factor(
        X, method="svd", eps=1e-3
    ),
    r"Muon: ns_coefficients must lie in \[-inf, inf": lambda: optimizer("Muon", ns_coefficients=(1.0, NAN, 1.0)),
    "Muon: ns_coefficients must be three numbers": lambda: optimizer("Muon", ns_coefficients=1.0),
    r"polar-factor: coefficients must lie in \[-inf, inf": lambda: nk.polar_factor(X, coefficients=(1.0, NAN, 1.0)),
    "polar-factor: coefficients must be three numbers": lambda: nk.polar_factor(X, coefficients=(1.0, 2.0)),
    r"adaptive_clip_grad_: clipping must lie in \[0": lambda: adaptive_clip_grad_([], clipping=-0.1),
    r"adaptive_clip_grad_: eps must lie in \[0": lambda: adaptive_clip_grad_([], eps=-1e-3),
    "blockwise_groups: scheme must be one of": lambda: blockwise_groups(nn.Linear(2, 2), "own"),
    "BlockwiseLR: block must be one of": lambda: nk.BlockwiseLR([{"params": [nn.Parameter(X)], "block": "own"}]),
    "BlockwiseLR: multipliers must be one of": lambda: optimizer("BlockwiseLR", multipliers={"own": 1.0}),
    r"BlockwiseLR: multipliers\['embed'\] must lie in \[0": lambda: optimizer(
        "BlockwiseLR", multipliers={"embed": -1.0}
    ),
    r"GradientNormalizedSmoothness: gamma must lie in \[0": lambda: gns(gamma=-1.0),
    "GradientNormalizedSmoothness: steps must be at least 0": lambda: gns(steps=-1),
    "GradientNormalizedSmoothness: hessian must be one of": lambda: gns(hessian="whole"),
    r"GradientNormalizedSmoothness: eps must lie in \[0": lambda: gns(eps=-1e-8),
    r"GradientNormalizedSmoothness: gamma_min must lie in \[0": lambda: gns(gamma_min=-1e-9),
    r"GradientNormalizedSmoothness: x0 must have shape \(any\)": lambda: gns().minimize(
        torch.sum, torch.ones_like, torch.ones_like, X
    ),
    "GradientNormalizedSmoothness: features must have": lambda: gns().logistic(TWO, TWO, TWO),
    r"GradientNormalizedSmoothness: x0 must have shape \(3\)": lambda: gns().logistic(X, TWO, TWO),
    "GradNorm: losses must have": lambda: made("gradnorm", 2).gradnorm_loss(X, TWO),
    "roles: override must be roles by parameter": lambda: nk.param_groups(nn.Linear(2, 2), override=["head"]),
    "param_groups: settings must be settings by role": lambda: nk.param_groups(nn.Linear(2, 2), settings=[{"lr": 1}]),
    "Flow: event must be an integer, not 'abc'": lambda: nk.density.flow("glow", "abc"),
    "param_groups: settings must be one of": lambda: nk.param_groups(nn.Linear(2, 2), settings={"own": {}}),
    r"param_groups: blocks\['0.weight'\] must be at least 1": lambda: nk.param_groups(
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), optimizer="muon", blocks={"0.weight": (0, 2)}
    ),
    r"param_groups: weight_decay must lie in \[0": lambda: nk.param_groups(nn.Linear(2, 2), weight_decay=-0.1),
    "lmo: norm='spectral' takes no tensor": lambda: nk.lmo(TWO, norm="spectral"),
    "MuonClip: qk_clip must be one of": lambda: nk.MuonClip([{"params": [nn.Parameter(X)], "qk_clip": "own"}]),
    "Muown: row_norm_schedule must be at least 1": lambda: optimizer("Muown", row_norm_schedule=(0, 1.0, 1.0)),
    r"Muown: row_norm_schedule must lie in \(0": lambda: optimizer("Muown", row_norm_schedule=(1, 0.0, 1.0)),
    r"Muown: row_norm_schedule must lie in \[0": lambda: optimizer("Muown", row_norm_schedule=(1, 1.0, -1.0)),
    "polar-factor: dtype must be one of": lambda: nk.polar_factor(X, dtype="int8"),
    "polar-factor: x must be matrices": lambda: nk.polar_factor(TWO),
    r"polar-factor: safety must lie in \(0": lambda: nk.polar_factor(X, safety=0.0),
    r"polar-factor: eps must lie in \[0": lambda: nk.polar_factor(X, eps=-1e-7),
    "Scion: norm must be one of": lambda: optimizer("Scion", norm="own"),
    "Scion: norm='spectral' takes no parameter": lambda: optimizer("Scion", TWO, norm="spectral"),
    "Scion: norm='auto' takes no parameter": lambda: optimizer("Scion", torch.ones(1, 1, 1, 1, 1)),
    "WDScaling: width must be at least 1": lambda: made("wd-scaling", **{**SCALING, "width": 0}),
    "WDScaling: base_width must be at least 1": lambda: made("wd-scaling", **{**SCALING, "base_width": 0}),
    r"WDScaling: lr must lie in \[0": lambda: made("wd-scaling", **{**SCALING, "lr": -0.1}),
    r"WDScaling: weight_decay must lie in \[0": lambda: made("wd-scaling", **{**SCALING, "weight_decay": -0.1}),
    "WDScaling: weight must be a floating-point": lambda: made("wd-scaling", **SCALING)(WHOLE),
    "Router: experts must be a tensor": lambda: made("router", 2, 3, top_k=1, selection_bias=True).balance(1),
    r"Router: rate must lie in \[0": lambda: made("router", 2, 3, top_k=1, selection_bias=True).balance(
        FIRST, rate=-0.1
    ),
    # residual
    "Placement: 'ngpt' reaches inside its sublayers": lambda: block("ngpt"),
    "Encoder: positions='learned' need a length": lambda: nk.Encoder(**SMALL, positions="learned"),
    "Encoder: inputs end at position 3, but length=2": lambda: nk.Encoder(**SMALL, positions="learned", length=2)(
        WHOLE
    ),
    r"deepnorm: alpha must lie in \[-inf, inf": lambda: block("deepnorm", alpha=NAN),
    r"keel: alpha must lie in \[-inf, inf": lambda: block("keel", alpha=NAN),
    r"ngpt: base_scale must lie in \(0": lambda: nk.TransformerLayer(
        placement="ngpt", dim=4, heads=1, hidden=4, base_scale=0.0
    ),
    r"residual-scaling: scaling must lie in \[-inf, inf": lambda: block("residual-scaling", scaling=NAN),
    "Placement: norm must be a name": lambda: block("pre-norm", norm=1),
    "Placement: sublayer must be one of": lambda: block("pre-norm", sublayer="mixer"),
    "Placement: x must be a floating-point": lambda: block("pre-norm")(WHOLE, nn.Identity()),
    "expand: x must be a floating-point": lambda: expand(WHOLE, 2),
    "collapse: x must be a floating-point": lambda: collapse(WHOLE),
    # inference
    "Tent: model must be a torch.nn.Module": lambda: nk.Tent(1),
    "Tent: norms names 'no'": lambda: adapted("Tent", norms=["no"]),
    r"DELTA: 0 \(Conv2d\) is not a batch norm": lambda: adapted("DELTA", norms=["0"]),
    "DELTA: model is a batch norm itself": lambda: nk.DELTA(nn.BatchNorm2d(2)),
    "DELTA: 1.1 has no weight or no bias": lambda: adapted(
        "DELTA", nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm2d(2, affine=False))
    ),
    "answer-choice-normalization: against must have": lambda: nk.answer_choice_normalization(X, TWO, mode="length"),
    r"CEMAFilter: low must lie in \[-inf, inf": lambda: made("cema-filter", 3, low=NAN),
    r"CEMAFilter: similarity must lie in \[-inf, inf": lambda: made("cema-filter", 3, similarity=NAN),
    r"cema-loss: max_entropy must lie in \[-inf, inf": lambda: nk.cema_loss(X, X, max_entropy=NAN),
    r"CoTTA: anchor_threshold must lie in \[-inf, inf": lambda: adapted("CoTTA", anchor_threshold=NAN),
    r"CoTTA: draws must have shape \(35\)": lambda: adapted("CoTTA").observe(torch.ones(2, 1, 2, 2), draws=TWO),
    "DELTA: loss must be one of": lambda: adapted("DELTA", loss="own"),
    "DeYO: transform must be one of": lambda: adapted("DeYO", transform="own"),
    r"DeYO: plpd_threshold must lie in \[-inf, inf": lambda: adapted("DeYO", plpd_threshold=NAN),
    r"DeYO: entropy_margin must lie in \[-inf, inf": lambda: adapted("DeYO", entropy_margin=NAN),
    "DeYO: weight_margin must be a number": lambda: adapted("DeYO", weight_margin=None),
    "DeYO: order must have": lambda: adapted("DeYO", entropy_margin=None, patches=2).observe(
        torch.ones(2, 1, 2, 2), order=FIRST
    ),
    "DeYO: patches=3 is more than": lambda: adapted("DeYO", entropy_margin=None, patches=3).observe(
        torch.ones(2, 1, 2, 2)
    ),
    r"EATA: entropy_margin must lie in \[-inf, inf": lambda: adapted("EATA", entropy_margin=NAN),
    "EATA: fisher needs at least one batch": lambda: adapted("EATA").fisher(),
    "RejectionSampling: scores must be a floating-point": lambda: RejectionSampling(bool)(WHOLE, WHOLE),
    "RejectionSampling: eos_token_id must be an integer": lambda: RejectionSampling(bool, eos_token_id="</s>"),
    "RejectionSampling: max_rejects must be at least 1": lambda: RejectionSampling(bool, max_rejects=0),
    "LinEAS: x must have shape": lambda: made("lineas", 2).wasserstein(X, X),
    "local-normalization-distortion: logits must be a tensor": lambda: distribution([1.0], mode="top_k", k=1),
    r"MEMO: views must have shape \(2, any, 1, 2, 2\)": lambda: adapted("MEMO", steps=2).observe(
        torch.ones(1, 2, 2), torch.ones(1, 2, 1, 2, 2)
    ),
    r"CoTTA: views must have shape \(any, 3, 1, 2, 2\)": lambda: adapted("CoTTA").observe(
        torch.ones(3, 1, 2, 2), torch.ones(2, 3, 1, 2, 1)
    ),
    "NearestMean: target must lie in 0 .. 1": lambda: made("nearest-mean", 3, 2).update(X, FIRST + 1),
    "retrieve: method must be one of": lambda: retrieve(X, X, method="own"),
    "retrieve: count must be at least 1": lambda: retrieve(X, X, count=0),
    "RoTTA: augment must be a function": lambda: adapted("RoTTA", augment=1),
    r"SAR: entropy_margin must lie in \[-inf, inf": lambda: adapted("SAR", entropy_margin=NAN),
    r"score-normalization: factor must lie in \[-inf, inf": lambda: augment(X, X, TWO, factor=NAN),
    # federated
    "principal-gradient: there are 2 updates for the 1 entries": lambda: nk.principal_gradient(X, X, **MEAN),
    "classwise-average: states w must be a dense": lambda: nk.classwise_average(SPARSE, TWO, X, **MEAN),
    "classwise-average: states w must be of real": lambda: nk.classwise_average(COMPLEX, TWO, X, **MEAN),
    r"classwise-average: states count must have shape \(2\)": lambda: nk.classwise_average(X, ONE, X, **MEAN),
    r"classwise-average: states classes must have shape \(2, any\)": lambda: nk.classwise_average(X, TWO, TWO, **MEAN),
    r"apfl-step: states shared:w1 must have shape \(any, any\)": lambda: apfl(w1=TWO),
    r"apfl-step: states shared:b1 must have shape \(2\)": lambda: apfl(b1=ONE),
    r"apfl-step: states shared:w2 must have shape \(any, 2\)": lambda: apfl(w2=X),
    r"apfl-step: states shared:b2 must have shape \(2\)": lambda: apfl(b2=ONE),
    "apfl-step: states x must have": lambda: apfl(x=X),
    r"fedlaw: states weight must have shape \(any, any, any\)": lambda: nk.fedlaw(X, TWO, TWO, CUBE, WHOLE, **LINEAR),
    r"fedlaw: states bias must have shape \(2, 3\)": lambda: nk.fedlaw(CUBE, TWO, TWO, CUBE, WHOLE, **LINEAR),
    "fedlaw: states x must have": lambda: nk.fedlaw(CUBE, X, TWO, X, WHOLE, **LINEAR),
    "fedlaw: states w must be a floating-point": lambda: learn([{"w": WHOLE}] * 2, TWO, lambda *_: ONE, []),
    "fedselect-step: own must be True or False": lambda: nk.fedselect_step(X, X, X[None], **MEAN, own=1),
    "fedselect-step: states gradient:w must have": lambda: nk.fedselect_step(X, X, X, **MEAN, own=[True, False]),
    r"pgfed-client: states weight must have shape \(any, any\)": lambda: pgfed(weight=TWO),
    r"pgfed-client: states bias must have shape \(2\)": lambda: pgfed(bias=ONE),
    r"pgfed-client: states risks must have shape \(any\)": lambda: pgfed(risks=X),
    r"pgfed-client: states alpha must have shape \(1\)": lambda: pgfed(alpha=TWO),
    r"pgfed-client: states x must have shape \(any, any, 3\)": lambda: pgfed(),
    "pgfed-server: states risk must have": lambda: nk.pgfed_server(X, X, ONE, X, TWO, **MEAN, mu=0.1),
    "pgfed-server: states alpha must have": lambda: nk.pgfed_server(X, X, TWO, X, TWO, **MEAN, mu=0.1),
    "disparity: groups must be at least 1": lambda: nk.federated.disparity(0),
    "simulate: clients must be at least 1": lambda: nk.federated.simulate(None, None, {}, clients=0, rounds=1),
    "simulate: rounds must be at least 1": lambda: nk.federated.simulate(None, None, {}, clients=1, rounds=0),
    r"fedadam: beta1 must lie in \[0": lambda: fedadam.adam([], {}, {}, parameters=(), beta1=-0.1),
    r"fedadam: beta2 must lie in .*1.0\]": lambda: fedadam.adam([], {}, {}, parameters=(), beta2=1.5),
    "scaffold: clients must be at least 2": lambda: scaffold.together([rounds.Update({}, 1)] * 2, {}, {}, clients=1),
    "strategy: no client that sent statistics": lambda: servers.choose([rounds.Update({}, 1)], {"answers": {"a": 1}}),
    # loss
    "NKD: target must have": lambda: made("nkd")(X, X, X[:, :2]),
    "DeltaL: mask must have": lambda: made("delta-l").weights(TWO),
    r"NDLoss: features must have shape \(any, 3\)": lambda: made("nd-loss", 3, 2).set_centers(CUBE, FIRST),
    "NDLoss: features must have shape": lambda: made("nd-loss", 4, 2)(CUBE, CUBE, FIRST),
    "regularized-relevance-reward: constrained must be a boolean": lambda: nk.regularized_relevance_reward(
        TWO, WHOLE, FIRST, TWO
    ),
    "StormFeatures: losses must have": lambda: storm(losses=TWO),
    "StormFeatures: losses must be finite": lambda: storm(losses=X * NAN),
    "StormFeatures: target must lie in 0 .. 1": lambda: storm(target=4),
    "storm-loss: normalize must be one of": lambda: nk.storm_loss(TWO, TWO, normalize="all"),
    # manifold
    "PoincareConv2d: x has a side of 2, below kernel_size=3": lambda: made("poincare-conv2d", 2, 2, 3)(
        torch.zeros(1, 2, 2, 4)
    ),
    "PoincareMidpointBatchNorm: sync=True wants use_midpoint": lambda: made(
        "poincare-midpoint-batchnorm", 2, use_midpoint=False, sync=True
    ),
    "mean: weights must be boolean or of real": lambda: nk.manifold.mean(
        torch.eye(3).expand(3, 3, 3), weights=torch.ones(3, dtype=torch.complex64)
    ),
    "chart-step: decoders must be 1": lambda: descend(TWO, ONE, [torch.exp], [], torch.sum, step_size=0.1),
    "mean: weights must have": lambda: nk.manifold.mean(torch.eye(2).expand(3, 2, 2), weights=TWO),
    r"chart-step: step_size must lie in \[-inf, inf": lambda: stepped(TWO, step_size=NAN),
    "chart-step: retraction must be one of": lambda: stepped(TWO, retraction="own"),
    "GyroBN: x must have shape": lambda: made("gyrobn", 4)(CUBE),
    r"GyroBN: curvature must lie in \[-inf, inf": lambda: made("gyrobn", 4, curvature=NAN),
    r"HyperbolicContrastive: features must hold two views of each sample, but their shape is \(0": lambda: made(
        "hyperbolic-contrastive", c=1.0
    )(X[:0]),
    r"HyperbolicContrastive: features must hold two views of each sample, but their shape is \(3": lambda: made(
        "hyperbolic-contrastive", c=1.0
    )(torch.ones(3, 2)),
    "RadiusScaling: x must end in 4": lambda: made("radius-scaling", 4).radius(X),
    # probe
    "plasticity: model must be a torch.nn.Module": lambda: plasticity(nn.Linear, X),
    "plasticity: inputs must be a tensor": lambda: plasticity(nn.Linear(3, 1), [1.0]),
    "plasticity: inputs must hold at least one": lambda: plasticity(nn.Linear(3, 1), X[:0], steps=1),
    "plasticity: steps must be at least 0": lambda: plasticity(nn.Linear(3, 1), X, steps=-1),
    "plasticity: targets must be at least 1": lambda: plasticity(nn.Linear(3, 1), X, targets=0),
    # quant
    "adaquant: weight must be": lambda: nk.adaquant(CUBE, None, *[ONE] * 9),
    "allocate-bits: table must have": lambda: allocate(table=TWO),
    "allocate-bits: base_value must be a single": lambda: allocate(base_value=TWO),
    "allocate-bits: base_value must hold finite numbers, but it holds NaN": lambda: allocate(base_value=ONE * NAN),
    "allocate-bits: base_value must hold finite numbers, but it holds inf": lambda: allocate(base_value=ONE / 0),
    "allocate-bits: sizes must hold finite numbers": lambda: allocate(sizes=TWO * NAN),
    "allocate-bits: sizes must not be below 0, but the least is -1": lambda: allocate(sizes=torch.tensor([2, -1])),
    "allocate-bits: the integer program": lambda: allocate(table=COLUMN * 1e30, target=0.2),
    "kivi: keys must have shape": lambda: nk.kivi(CUBE, CUBE),
    "LearnedRounding: weight must have": lambda: made("learned-rounding", (2, 3)).codes(TWO),
    r"LearnedRounding: weight must have shape \(2, 3\)": lambda: made("learned-rounding", (2, 3)).fit(TWO),
    "MeasuredRange: x must be a floating-point": lambda: made("measured-range")(WHOLE),
    "MeasuredRange: x has 3 channels, but before it had 2": lambda: ranged(X, torch.ones(3, 2)),
    "ReconstructionLoss: gradient must have": lambda: made("reconstruction-loss", mode="fisher-diag")(X, X, TWO),
    "rotation-fold: embedding must have": lambda: nk.rotation_fold(CUBE, ONE, X, X, X),
    r"RoundingRegularizer: start must lie in \[1": lambda: made("rounding-regularizer").anneal(0.0, start=0.5),
    "RoundingRegularizer: start must lie in .*, not inf": lambda: made("rounding-regularizer").anneal(0.0, math.inf),
    r"RoundingRegularizer: end must lie in \[1": lambda: made("rounding-regularizer").anneal(1.0, end=0.5),
    "tune-batchnorm: outputs of at least one batch": lambda: nk.tune_batchnorm(X, TWO, TWO, TWO),
}


@pytest.mark.parametrize("message", CASES)
def test_what_does_not_fit_is_refused_in_words(message):
    with pytest.raises((ValueError, TypeError, RuntimeError), match="^" + message):
        CASES[message]()
