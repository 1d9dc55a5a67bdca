"""Per-channel and per-group statistics of ``(N, C, *space)``: batch, group, instance, response and evolved norms.

Every function takes tensors of shape (C,), (N, C), or of one number for all, any of which may be None, takes half
precision in float32 and gives back the type and the memory format of ``x``. The formulas are the definition; the C
kernel computes the same numbers faster, in either memory format, and is taken unless `eager.runs_formula` says
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit import check, kernels
from normkit.ops import eager, gpu, paths, sharded, trial
from normkit.ops.eager import code
from normkit.ops.row import layer_norm
from normkit.running import Step
from normkit.statistics import Moments, accurate, moments, processes, root, sum_together

# What a statistic is and what is done to the normalized values, as the C code numbers them.
GIVEN, DEVIATION, RESPONSE, SHARE, POSITION, ONLINE = range(6)
AFFINE, THRESHOLD, SWISH, CLAMP = range(4)
FEW = 2**24  # entries on a GPU below which a kernel gains less than its launches from Python take: an H100's
FEW_LAST = 2**26  # with the channels last, where torch's own is quicker
SHORTER = "on so few entries its one call takes less time than three launches from Python"
POSITIONS = 4224  # of a trial: more than two tiles, and as many as 16 divides


class Size(NamedTuple):
    """What of the size of x a GPU's kernels are compiled for: images of like sizes are of one kind."""

    axes: int
    channels: int
    bits: int
    aligned: bool


def size_of(x: Tensor) -> Size | None:
    """Of x; all numbers of positions from those of a trial on are alike. Tracing, which takes no kernel, has none."""
    if torch.compiler.is_compiling():
        return None  # sizes that are asked about would be held to the answers
    space = x.shape[2:].numel()
    return Size(x.dim() - 1, x.shape[1], min(space, POSITIONS).bit_length(), space % 16 == 0)


class Kind(NamedTuple):
    """What is tried out on a GPU before its first use."""

    name: str
    eps: float
    statistic: int
    activation: int
    groups: int | None
    last: bool


class Everyone(NamedTuple):
    """Processes whose samples are normalized together, on GPUs; ``eps`` as the rule's.

    What is sent is what autograd sends for the formula, in the same order: who takes the formula is understood.
    """

    group: Any
    eps: float

    def moments(self, both: Tensor, count: int) -> None:
        """From this process' means and variances to those of all, and the number of all."""
        mean, var, total = both.view(3, -1)
        own = mean.new_full((), count)
        sums, squares, number = sum_together([own * mean, own * (var + mean.square()), own], self.group)
        mean.copy_(sums / number)
        var.copy_((squares / number - mean.square()).clamp(min=0))
        total.copy_(number.expand_as(total))

    def pulls(self, pulled: Tensor, both: Tensor, count: int) -> None:
        """The same for how the gradients pull."""
        along, level = pulled.view(2, -1)
        mean, var, total = both.view(3, -1)
        r = (var + self.eps).rsqrt()
        bend = -0.5 * r.square() * along * (count / total)
        shift = -r * level * (count / total) - 2 * mean * bend
        shift, bend, _ = sum_together([shift, bend, bend.new_zeros(())], self.group)
        still = r == 0
        along.copy_(torch.where(still, 0, -2 * bend / torch.where(still, 1, r.square())))
        level.copy_(torch.where(still, 0, -(shift + 2 * mean * bend) / torch.where(still, 1, r)))


class Rule(NamedTuple):
    """What a norm is: its name, its formula of (x, weight, bias, extra, eps, rule), the same in the kernel's terms."""

    name: str
    formula: Callable[..., Tensor]
    statistic: int
    activation: int = AFFINE
    groups: int | None = None  # statistics of a sample; None: one a channel
    over_samples: bool = False
    eps: float = 0.0
    decay: float = 0.0  # ONLINE: share of the old state
    given: tuple[Tensor, Tensor] | None = None
    everyone: Everyone | None = None
    step: Step | None = None

    def kind(self, x: Tensor) -> tuple[Kind, Size | None]:
        """What a GPU's kernel of it is, beside the tensors' types, for x of a shape and a format."""
        last = self.statistic != POSITION and not x.is_contiguous()
        return Kind(self.name, self.eps, self.statistic, self.activation, self.groups, last), size_of(x)


def batch_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    sync: bool = False,
    group=None,
) -> tuple[Tensor, Moments]:
    """Normalize each channel over samples and space; return the result and the moments it was done with.

    The moments, joined over the processes of ``group`` with ``sync``, carry no gradient: they are for running averages.

    >>> y, found = batch_norm(torch.tensor([[1.0], [3.0]]), eps=0.0)
    >>> y.flatten(), found.var
    (tensor([-1.,  1.]), tensor([1.]))
    """
    if type(x) is not Tensor and sharded.is_sharded(x):
        joined = _batch_by_parts(x, weight, bias, eps, sync, group)
        if joined is not None:
            return joined
    everyone = Everyone(group, eps) if sync and processes(group) > 1 else None
    apart = _apart(x) if everyone else None
    rule = Rule("batch_norm", _batch_formula, DEVIATION, over_samples=True, eps=eps, everyone=everyone)
    made = _batch_without_kernel(rule, apart, x, weight, bias, sync, group)
    if made is not None:
        return made
    y, both = _run(rule, x, weight, bias)
    mean, var, *others = both.to(_type_of_moments(x)).view(-1, x.shape[1])
    return y, Moments(mean, var, others[0][0] if everyone else mean.new_full((), x.numel() // x.shape[1]))


def batch_norm_with_step(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, step: Step) -> Tensor:
    """Normalize as :func:`batch_norm` does, and move running moments, where there is a GPU's kernel by that."""
    y = batch_norm_in_one_call(x, weight, bias, step.mean, step.var, eps, step)
    if y is not None:
        return y
    rule = Rule("batch_norm", _batch_formula, DEVIATION, over_samples=True, eps=eps, step=step)
    made = _batch_without_kernel(rule, None, x, weight, bias)
    if made is not None:
        step.move(made[1].mean, made[1].var)
        return made[0]
    y, both = _run(rule, x, weight, bias)
    if not eager.on_gpu(x):
        step.move(*both.float().view(2, -1))
    return y


def batch_norm_in_one_call(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, step: Step | None
) -> Tensor | None:
    """Torch's own batch norm, by given moments or with a step, where an input is small for a GPU and all is plain."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return None
    if not eager.on_gpu(x) or x.dtype not in gpu.TYPES:
        return None
    watch, own = paths.watching(), (weight, bias, mean, var)
    few = FEW if x.is_contiguous() else FEW_LAST if _is_channels_last(x) else 0
    if (watch is not None and watch.forced) or not 0 < x.numel() < few:
        return None
    if any(t is not None and (t.dtype is not torch.float32 or t.shape != x.shape[1:2]) for t in own):
        return None
    if step is not None and step.bessel == 1:
        return None
    paths.record("batch_norm" if step else "normalize_with", "torch's own", SHORTER)
    rate = 0.0 if step is None else step.rate
    return torch.batch_norm(x, weight, bias, mean, var, step is not None, rate, eps, torch.backends.cudnn.enabled)


def _batch_without_kernel(
    rule: Rule, apart: str | None, x: Tensor, weight, bias, sync: bool = False, group=None
) -> tuple[Tensor, Moments] | None:
    """The result and the moments by torch's own function or the formula, where no kernel is taken."""
    check_channels(rule.name, x, rule.eps, weight=weight, bias=bias)
    own = lambda: None if rule.everyone else _batch_by_torch(x, weight, bias, rule.eps)  # noqa: E731
    kind = lambda: rule.kind(x)  # noqa: E731
    if not eager.runs_formula(rule.name, apart or against(x, weight, bias), x, weight, bias, kind=kind, own=own):
        return None
    made = own()
    if made is not None:
        return made()
    exact = accurate(x)
    stats = moments(exact, [0, *_space(x)], sync=sync, group=group)
    y = _normalize(exact, stats.mean, stats.var, weight, bias, rule.eps)
    return y.to(x.dtype), Moments(*(f.detach() for f in stats))


def _is_channels_last(x: Tensor) -> bool:
    """Whether torch knows the format of x as one with the channels last, which its functions keep."""
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)


def _type_of_moments(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def _apart(x: Tensor) -> str | None:
    """What speaks against a kernel for statistics of several processes."""
    if torch.compiler.is_compiling() or eager.on_gpu(x):
        return None
    return "its moments are joined over processes"


def _batch_by_parts(x, weight, bias, eps: float, sync: bool, group) -> tuple[Tensor, Moments] | None:
    """A DTensor's result; its moments are those of all samples, wherever they lie."""
    check_channels("batch_norm", x, eps, weight=weight, bias=bias)
    part = sharded.parts("batch_norm", x)
    if part is None:
        return None
    weight, bias = (part.parameter("batch_norm", n, value, 1) for n, value in (("weight", weight), ("bias", bias)))
    groups = part.groups((0, *_space(x)))
    if sync and (group is not None or part.whole.device_mesh.size() < processes()):
        groups = (*groups, sharded.beyond("batch_norm", part, group))
    y, stats = batch_norm(part.local, weight, bias, eps=eps, sync=bool(groups), group=groups)
    return part.joined(y), Moments(part.of_axis(1, stats.mean), part.of_axis(1, stats.var), stats.count)


def _batch_by_torch(x: Tensor, weight, bias, eps: float) -> Callable[[], tuple[Tensor, Moments]] | None:
    """Torch's own, where it may stand in for the kernel; its running moments of momentum 1 are those of the batch."""
    count = x.numel() // max(x.shape[1], 1)
    kind = accurate(x[:0]).dtype
    if count < 2 or against(x, weight, bias) or not eager.own_stands_in(x, weight, bias, kind=kind):
        return None

    def run() -> tuple[Tensor, Moments]:
        mean, var = x.new_zeros(2, x.shape[1], dtype=kind)
        y = torch.batch_norm(x, weight, bias, mean, var, True, 1.0, eps, torch.backends.cudnn.enabled)
        return y, Moments(mean, var * ((count - 1) / count), mean.new_full((), count))

    return run


def normalize_with(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Normalize with given moments, of shape (C,) or (N, C): y = weight (x - mean) / sqrt(var + eps) + bias."""
    rule = Rule("normalize_with", _formula_of_statistics, GIVEN, over_samples=True, eps=eps, given=(mean, var))
    check_channels(rule.name, x, eps, weight=weight, bias=bias, mean=mean, var=var)
    if type(x) is not Tensor and sharded.is_sharded(x):
        joined = _normalize_parts(rule, x, {"mean": mean, "var": var, "weight": weight, "bias": bias})
        if joined is not None:
            return joined
    moved = "the moments need a gradient" if eager.needs_grad(mean, var) else None
    why = moved or against(x, weight, bias, mean, var)
    if eager.runs_formula(rule.name, why, x, weight, bias, mean, var, kind=lambda: rule.kind(x)):
        return _with_eps(x, weight, bias, None, None, rule)
    return _run(rule, x, weight, bias)[0]


def _normalize_parts(rule: Rule, x, named: dict[str, Any]) -> Tensor | None:
    """A DTensor's result, each process working on its part."""
    part = sharded.parts(rule.name, x)
    if part is None:
        return None
    own: list[Any] = [
        part.parameter(rule.name, n, v, 0 if v is not None and v.ndim == 2 else 1) for n, v in named.items()
    ]
    return part.joined(normalize_with(part.local, *own, eps=rule.eps))


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5
) -> Tensor:
    """Normalize each run of C / ``num_groups`` neighbouring channels of each sample, over these channels and space."""
    rule = Rule("group_norm", _group_formula, DEVIATION, groups=num_groups, eps=eps)
    return _choose(rule, x, weight, bias)


def instance_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-5) -> Tensor:
    """Normalize each channel of each sample over space."""
    return _choose(Rule("instance_norm", _instance_formula, DEVIATION, eps=eps), x, weight, bias)


def instance_moments(x: Tensor) -> Moments:
    """Mean and biased variance over space, of shape (N, C)."""
    check_channels("instance_moments", x)
    return moments(x, _space(x))


def layer_norm2d(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: float = 1e-6) -> Tensor:
    """Normalize the vector of channels at each position."""
    rule = Rule("layer_norm2d", _position_formula, POSITION, eps=eps)
    check_channels(rule.name, x, eps, weight=weight, bias=bias)
    last = eager.refusal(x) is None and not x.is_contiguous() and x.movedim(1, -1).is_contiguous()
    if last and against(x, weight, bias) is None:
        return layer_norm(x.movedim(1, -1), x.shape[1:2], weight, bias, eps).movedim(-1, 1)
    return _choose(rule, x, weight, bias)


def global_response_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-6,
    channels_last: bool = False,
) -> Tensor:
    """Scale each channel by its share of the sample's response: y = weight x Q + bias + x.

    Q is the channel's L2 norm over space, divided by (the mean of these norms over the channels + ``eps``). The
    gradient of a norm of 0 is 0.
    """
    if channels_last:
        check.floating("global_response_norm", x)
        return global_response_norm(x.movedim(-1, 1), weight, bias, eps=eps).movedim(1, -1)
    return _choose(Rule("global_response_norm", _share_formula, SHARE, eps=eps), x, weight, bias)


def filter_response_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    tau: Tensor | None = None,
    *,
    eps: float | Tensor = 1e-6,
) -> Tensor:
    """Divide each channel of each sample by its root mean square over space; with ``tau``, max(y, tau) follows."""
    learned = eps if isinstance(eps, Tensor) else None
    fixed = 0.0 if isinstance(eps, Tensor) else eps
    rule = Rule("filter_response_norm", _response_formula, RESPONSE, AFFINE if tau is None else THRESHOLD, eps=fixed)
    return _choose(rule, x, weight, bias, tau, learned, named="tau")


def threshold(x: Tensor, tau: Tensor | None) -> Tensor:
    """max(x, tau), with a threshold per channel; a tie splits the gradient in halves."""
    check_channels("threshold", x, tau=tau)
    return _threshold(x, tau)


def evonorm_s(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    slope: Tensor | None = None,
    *,
    eps: float = 1e-5,
    center: bool = True,
) -> Tensor:
    """Swish over the deviation of the group: y = weight x sigmoid(slope x) / s + bias.

    s² is the group's variance (its mean square without ``center``) plus ``eps``; a ``slope`` of None is 1. The groups
    are those of :func:`group_norm`; x itself is not centered.
    """
    rule = Rule("evonorm_s", _swish_formula, DEVIATION if center else RESPONSE, SWISH, num_groups, eps=eps)
    return _choose(rule, x, weight, bias, slope, named="slope")


def affine(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Multiply by ``weight`` and add ``bias``, per channel on axis 1."""
    check_channels("affine", x, weight=weight, bias=bias)
    return _affine(x, weight, bias)


def mean_over_space(x: Tensor) -> Tensor:
    """Mean over the axes after the channels, which are kept as 1; the tensor itself where there are none."""
    return x.mean(tuple(_space(x)), keepdim=True) if x.dim() > 2 else x


def check_channels(owner: object, x: Tensor, eps: float = 0.0, **parameters: Tensor | None) -> None:
    """An error unless x is (N, C, *space) and each parameter (C,), (N, C) or a single number."""
    check.floating(owner, x)
    if x.dim() < 2:
        raise ValueError(f"{check.whose(owner)}: x must be (N, C, *space), but its shape is {tuple(x.shape)}")
    check.number(owner, "eps", eps)
    for name, parameter in parameters.items():
        if parameter is not None and parameter.shape != x.shape[1:2] and parameter.shape not in ((1,), (), x.shape[:2]):
            raise ValueError(
                f"{check.whose(owner)}: {name} must have shape ({x.shape[1]},) or {tuple(x.shape[:2])}, or be a single "
                f"number, but its shape is {tuple(parameter.shape)}"
            )


# The formulas, of x in the type of the arithmetic: widened once, so that the parts of its gradient meet there too.


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        x = x * along(weight, x)
    return x if bias is None else x + along(bias, x)


def _threshold(x: Tensor, tau: Tensor | None) -> Tensor:
    return x if tau is None else torch.maximum(x, along(tau.to(x.dtype), x))


def _normalize(x, mean, var, weight, bias, eps) -> Tensor:
    var = var.to(torch.promote_types(var.dtype, x.dtype))
    return _affine((x - along(mean, x)) * along((var + eps).rsqrt(), x), weight, bias)


def _batch_formula(x, weight, bias, extra, eps, rule) -> Tensor:
    everyone = rule.everyone
    stats = moments(x, [0, *_space(x)], sync=everyone is not None, group=None if everyone is None else everyone.group)
    return _normalize(x, stats.mean, stats.var, weight, bias, eps)


def _formula_of_statistics(x, weight, bias, extra, eps, rule) -> Tensor:
    mean, var = rule.given
    return _normalize(x, mean, var, weight, bias, eps)


def _group_formula(x, weight, bias, extra, eps, rule) -> Tensor:
    mean, var = _group_moments(x, rule.groups)
    return _normalize(x, mean, var, weight, bias, eps)


def _instance_formula(x, weight, bias, extra, eps, rule) -> Tensor:
    stats = instance_moments(x)
    return _normalize(x, stats.mean, stats.var, weight, bias, eps)


def _position_formula(x, weight, bias, extra, eps, rule) -> Tensor:
    stats = moments(x, (1,))
    h = (x - stats.mean.unsqueeze(1)) * (stats.var + eps).rsqrt().unsqueeze(1)
    return _affine(h, weight, bias)


def _share_formula(x, weight, bias, extra, eps, rule) -> Tensor:
    length = torch.linalg.vector_norm(x.flatten(2) if x.dim() > 2 else x.unsqueeze(-1), dim=-1)
    share = along(length / (length.mean(1, keepdim=True) + eps), x)
    return _affine(x * share, weight, bias) + x


def _response_formula(x, weight, bias, tau, eps, rule) -> Tensor:
    return _threshold(_affine(x * (mean_over_space(x.square()) + eps).rsqrt(), weight, bias), tau)


def _swish_formula(x, weight, bias, slope, eps, rule) -> Tensor:
    if rule.statistic == DEVIATION:
        spread = _group_moments(x, rule.groups)[1]
    else:
        square = x.unflatten(1, (rule.groups, -1)).square()
        spread = _per_channel(square.mean(tuple(range(2, square.dim()))), x)
    gate = torch.sigmoid(x if slope is None else x * along(slope, x))
    return _affine(x * gate * along((spread + eps).rsqrt(), x), weight, bias)


def _space(x: Tensor) -> range:
    return range(2, x.dim())


def along(value: Tensor, x: Tensor) -> Tensor:
    """View numbers of shape (C,) or (N, C) so that they broadcast with ``x``."""
    return value.reshape(value.shape + (1,) * (x.dim() - 2))


def _group_moments(x: Tensor, num_groups: int) -> tuple[Tensor, Tensor]:
    grouped = x.unflatten(1, (num_groups, -1))
    stats = moments(grouped, range(2, grouped.dim()))
    return _per_channel(stats.mean, x), _per_channel(stats.var, x)


def _per_channel(value: Tensor, x: Tensor) -> Tensor:
    """Repeat numbers per group, (N, G), to numbers per channel, (N, C)."""
    return value.unsqueeze(-1).expand(-1, -1, x.shape[1] // value.shape[1]).flatten(1)


# The kernel.


def _plan(
    rule: Rule, x: Tensor, parameters: tuple[Tensor | None, ...], learned: Tensor | None
) -> tuple[bytes, int, int]:
    """A dense ``x`` as ChannelPlan of `kernels/cpu/normkit.h`, its samples, and how many numbers its statistics are.

    Channels last, a statistic over samples is one sample with all of space.
    """
    samples, channels = x.shape[0], x.shape[1]
    space = x.numel() // (samples * channels)
    over_samples, alone = rule.over_samples, space == 1 and not eager.on_gpu(x)
    last = rule.statistic != POSITION and (alone or (space == 1 and over_samples) or not x.is_contiguous())
    if last and over_samples:
        samples, space, over_samples = 1, space * samples, False
    groups = channels if rule.groups is None else rule.groups
    kept = _numbers_kept(rule) * (groups if over_samples else samples * groups)
    kinds = rule.statistic, rule.activation, over_samples, last
    eps = rule.eps if learned is None else float(learned)
    plan = kernels.CHANNEL.pack(*kinds, *map(code, (x, *parameters)), channels, groups, space, eps, rule.decay)
    return plan, samples, kept


def _numbers_kept(rule: Rule) -> int:
    """How many numbers the statistics of a group are, for the backward pass."""
    if rule.statistic == POSITION:
        return 0
    return 4 if rule.statistic == ONLINE else 2


def against(x: Tensor, *parameters: Tensor | None) -> str | None:
    """What speaks against the kernel beside what the tensors are: it takes one number a channel."""
    for parameter in parameters:
        if parameter is not None and parameter.shape != x.shape[1:2]:
            return f"a parameter of shape {tuple(parameter.shape)} is not one number a channel"
    return None


def _choose(rule: Rule, x: Tensor, weight, bias, extra=None, learned: Tensor | None = None, named="extra") -> Tensor:
    """The checks, then the kernel or the formula."""
    check_channels(rule.name, x, rule.eps, weight=weight, bias=bias, **{named: extra})
    if rule.groups is not None:
        check.size(rule.name, "num_groups", rule.groups)
        check.divides(rule.name, "num_groups", rule.groups, "channels", x.shape[1])
    if learned is not None and learned.numel() != 1:
        raise ValueError(f"{rule.name}: eps must be a single number, but its shape is {tuple(learned.shape)}")
    if type(x) is not Tensor and sharded.is_sharded(x):
        joined = _by_parts(rule, x, {"weight": weight, "bias": bias, named: extra, "eps": learned})
        if joined is not None:
            return joined
    why = against(x, weight, bias, extra)
    own = lambda: _group_by_torch(rule, x, weight, bias)  # noqa: E731
    kind = lambda: rule.kind(x)  # noqa: E731
    if eager.runs_formula(rule.name, why, x, weight, bias, extra, learned, kind=kind, own=own):
        made = own()
        if made is not None:
            return made()
        return _with_eps(x, weight, bias, extra, learned, rule)
    return _run(rule, x, weight, bias, extra, learned)[0]


def _by_parts(rule: Rule, x, parameters: dict[str, Tensor | None]) -> Tensor | None:
    """A DTensor's result, each process working on its part; None where the formula must see it all."""
    part = sharded.parts(rule.name, x)
    if part is None:
        return None
    if rule.groups is not None and part.along((1,)):
        among = math.prod([part.whole.device_mesh.size(at) for at in part.along((1,))])
        if rule.groups % among:
            return None  # a group lies on several processes
        rule = rule._replace(groups=rule.groups // among)
    weight, bias, extra, learned = (
        part.parameter(rule.name, name, value, 0 if value is not None and value.ndim == 2 else 1)
        for name, value in parameters.items()
    )
    cut = _cut_axes(rule, part, x)
    if not cut:
        named = [name for name in parameters if name not in ("weight", "bias", "eps")]
        return part.joined(_choose(rule, part.local, weight, bias, extra, learned, *named))
    if not torch.compiler.is_compiling():
        paths.record(rule.name, "formula", "the values of a statistic lie on several processes")
    eps = rule.eps if learned is None else learned
    y = _over_processes(part, accurate(part.local), weight, bias, extra, eps, rule, cut)
    return part.joined(y.to(x.dtype))


def _cut_axes(rule: Rule, part: sharded.Parts, x: Tensor) -> list[int]:
    """The axes of the mesh that the values of a statistic lie along."""
    axes = [1] if rule.statistic == POSITION else [*_space(x)]
    return part.along([1, *axes] if rule.statistic == SHARE else axes)


def _over_processes(part: sharded.Parts, x: Tensor, weight, bias, extra, eps, rule: Rule, cut: list[int]) -> Tensor:
    """The formulas for statistics whose values lie across processes: the sums are theirs together."""
    if rule.statistic == SHARE:
        square = x.square().sum(tuple(_space(x)))
        lengths = root(sharded.sum_over_mesh(square, part, part.along(_space(x))))
        mean = sharded.sum_over_mesh(lengths.sum(1, keepdim=True), part, part.along((1,))) / part.whole.shape[1]
        return _affine(x * along(lengths / (mean + eps), x), weight, bias) + x
    grouped = x if rule.groups is None else x.unflatten(1, (rule.groups, -1))
    axes = (1,) if rule.statistic == POSITION else tuple(range(2, grouped.ndim))
    total = part.size((1,) if rule.statistic == POSITION else _space(x))
    total *= 1 if rule.groups is None else x.shape[1] // rule.groups
    if rule.statistic == RESPONSE:
        z, square = grouped, grouped.square().sum(axes, keepdim=True)
        square = sharded.sum_over_mesh(square, part, cut)
    else:
        z, square = sharded.centered(part, grouped, axes, cut, total)
    r = (square / total + eps).rsqrt().to(x.dtype)
    if rule.activation == SWISH:
        gate = torch.sigmoid(x if extra is None else x * along(extra, x))
        z = (x * gate).reshape(grouped.shape)
    return _threshold(_affine((z * r).reshape(x.shape), weight, bias), extra if rule.activation == THRESHOLD else None)


_CALLS: dict[str, Callable[..., Tensor]] = {
    "batch_norm": lambda k, x, w, b: batch_norm(x, w, b, eps=k.eps)[0],
    "normalize_with": lambda k, x, w, b, mean, var: normalize_with(x, mean, var, w, b, eps=k.eps),
    "group_norm": lambda k, x, w, b, *_: group_norm(x, k.groups, w, b, eps=k.eps),
    "instance_norm": lambda k, x, w, b, *_: instance_norm(x, w, b, eps=k.eps),
    "layer_norm2d": lambda k, x, w, b, *_: layer_norm2d(x, w, b, eps=k.eps),
    "global_response_norm": lambda k, x, w, b, *_: global_response_norm(x, w, b, eps=k.eps),
    "filter_response_norm": lambda k, x, w, b, tau, learned: filter_response_norm(
        x, w, b, tau, eps=k.eps if learned is None else learned
    ),
    "evonorm_s": lambda k, x, w, b, slope, _: evonorm_s(
        x, k.groups, w, b, slope, eps=k.eps, center=k.statistic == DEVIATION
    ),
}
for _name, _call in _CALLS.items():
    trial.call(_name, lambda kind: kind[1].axes, most=POSITIONS)(lambda kind, tensors, c=_call: c(kind[0], *tensors))


def _group_by_torch(rule: Rule, x: Tensor, weight, bias) -> Callable[[], Tensor] | None:
    """Torch's own for groups, where it may stand in for the kernel and keeps the format of x."""
    if rule.name != "group_norm" or not x.is_contiguous() or against(x, weight, bias):
        return None
    if not x.numel() or not eager.own_stands_in(x, weight, bias):
        return None
    return lambda: torch.nn.functional.group_norm(x, rule.groups, weight, bias, rule.eps)  # type: ignore[arg-type]


def _run(rule: Rule, x: Tensor, weight, bias, extra=None, learned: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The kernel's result and its statistics: per unit the means, then the variances, in float64."""
    x, (weight, bias, extra) = arrange(x, rule), map(eager.pack, (weight, bias, extra))
    if eager.needs_grad(x, weight, bias, extra, learned):
        return _Channel.apply(x, weight, bias, extra, learned, rule)
    return kernel_forward(rule, x, weight, bias, extra, learned)


def arrange(x: Tensor, rule: Rule) -> Tensor:
    """``x`` in one of the two memory formats that the kernel reads, copied only if it is in neither."""
    last = rule.statistic != POSITION and x.movedim(1, -1).is_contiguous()
    return x if last else x.contiguous()


def kernel_forward(rule: Rule, x, weight, bias, extra, learned, state=None) -> tuple[Tensor, Tensor]:
    """The result and the statistics, those of ONLINE followed by each unit's own; ``state`` moves in place."""
    kernel, held = eager.library(x), _eps_on_gpu(x, learned)
    plan, samples, kept = _plan(rule, x, (weight, bias, extra), None if held else learned)
    y = torch.empty_like(x)
    if rule.given is not None:
        both = torch.cat(rule.given).double()
    elif eager.on_gpu(x) and rule.statistic == DEVIATION:
        both = x.new_empty(kept, dtype=torch.float64)  # its kernels write each number
    else:
        both = x.new_zeros(kept, dtype=torch.float64)
    if rule.everyone is not None:
        both = torch.cat([both, both[: kept // 2]])  # room for what the processes tell each other
        held["join"] = lambda: rule.everyone.moments(both, x.numel() // x.shape[1])
    if rule.step is not None and eager.on_gpu(x):
        held["step"] = rule.step
        for running in rule.step[:2]:
            torch.autograd.graph.increment_version(running)
    kernel.channel_forward(plan, samples, x, weight, bias, extra, both, state, y, **held)
    return y, both


def kernel_backward(
    rule: Rule, x, weight, bias, extra, learned, both, grad, wanted, state=None
) -> tuple[Tensor | None, ...]:
    """Gradients of x, weight, bias, extra and the learned eps; those not wanted are None. ``state`` moves in place."""
    held = _eps_on_gpu(x, learned)
    plan, samples, _ = _plan(rule, x, (weight, bias, extra), None if held else learned)
    made = [torch.empty_like(t) if want else None for t, want in zip((x, weight, bias, extra), wanted, strict=False)]
    deps = x.new_empty((), dtype=torch.float64) if wanted[4] else None
    kernel, grad = eager.library(x), eager.dense(grad, x)
    if rule.everyone is not None:
        held["join"] = lambda pulled: rule.everyone.pulls(pulled, both, x.numel() // x.shape[1])
    kernel.channel_backward(plan, samples, x, grad, weight, bias, extra, both, state, *made, deps, **held)
    return (*made, None if deps is None else deps.to(learned.dtype).view(learned.shape))


def _eps_on_gpu(x: Tensor, learned: Tensor | None) -> dict[str, Any]:
    """A learned eps that a GPU's kernel reads itself, so that nobody waits for the GPU to tell it."""
    return {} if learned is None or isinstance(eager.library(x), kernels.Library) else {"eps": learned}


class _Channel(torch.autograd.Function):
    """Keeps x and two numbers a statistic; higher derivatives are those of the formula."""

    @staticmethod
    def forward(ctx, x, weight, bias, extra, learned, rule):
        y, both = kernel_forward(rule, x, weight, bias, extra, learned)
        ctx.save_for_backward(x, weight, bias, extra, learned, both)
        ctx.mark_non_differentiable(both)
        ctx.set_materialize_grads(False)
        ctx.rule = rule
        return y, both

    @staticmethod
    def backward(ctx, grad, _):
        x, weight, bias, extra, learned, both = ctx.saved_tensors
        tensors = x, weight, bias, extra, learned
        rule, needs = ctx.rule, ctx.needs_input_grad
        if grad is None:
            return (None,) * 6
        if eager.runs_formula(f"{rule.name} backward", eager.derived_again(), grad, x):
            if rule.given is not None:
                rule = rule._replace(given=tuple(both.to(accurate(grad[:0]).dtype).view(2, -1)))
            return (*eager.differentiate(_with_eps, tensors, (rule,), grad, needs), None)
        return (*kernel_backward(rule, x, weight, bias, extra, learned, both, grad, needs), None)


def _with_eps(x, weight, bias, extra, learned, rule: Rule) -> Tensor:
    y = rule.formula(accurate(x), weight, bias, extra, rule.eps if learned is None else learned, rule)
    return y.to(x.dtype)
