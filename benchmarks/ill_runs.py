"""Small trainings, drawn by seed: what they train, and 28 ways to make them ill. The exam of the watch runs them.

Models are what users write in plain torch: perceptrons, convolutional networks, vision transformers, decoders and
recurrent networks. Pictures are the 8 x 8 digits of scikit-learn; texts are sequences in which each word follows from
the one before.
"""

from __future__ import annotations

import random

import sklearn.datasets
import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk

STEPS, BATCH, CLASSES, SIDE = 160, 64, 10, 8
WORDS, LENGTH = 16, 16


class Digits:
    """Batches of digits, as pictures of mean zero."""

    def __init__(self, seed: int):
        x, y = sklearn.datasets.load_digits(return_X_y=True)
        self.x, self.y = (torch.tensor(x, dtype=torch.float32) - 4.9) / 6.0, torch.tensor(y)
        self.chance = torch.Generator().manual_seed(seed)

    def batch(self, size: int = BATCH):
        places = torch.randint(len(self.y), (size,), generator=self.chance)
        return self.x[places], self.y[places]


class Texts:
    """Sequences of words, of which each follows from the one before but for chance."""

    def __init__(self, seed: int):
        self.chance = torch.Generator().manual_seed(seed)

    def batch(self, size: int = BATCH):
        words = [torch.randint(WORDS, (size // 4,), generator=self.chance)]
        for _ in range(LENGTH):
            noise = torch.randint(2, words[-1].shape, generator=self.chance)
            words.append((3 * words[-1] + 1 + noise) % WORDS)
        text = torch.stack(words, 1)
        return text[:, :-1], text[:, 1:]


class Attention(nn.Module):
    """Heads by torch's function, with names that are in use."""

    def __init__(self, dim: int, causal: bool, fused: bool):
        super().__init__()
        self.causal, self.heads = causal, 4
        if fused:
            self.qkv = nn.Linear(dim, 3 * dim)
        else:
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        parts = self.qkv(x).chunk(3, -1) if hasattr(self, "qkv") else (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))


class TopKRouter(nn.Module):
    """Chooses two experts for each token."""

    def __init__(self, dim: int, experts: int):
        super().__init__()
        self.gate = nn.Linear(dim, experts)

    def forward(self, x):
        weights, experts = self.gate(x).softmax(-1).topk(2, -1)
        return weights / weights.sum(-1, keepdim=True), experts


class Mixture(nn.Module):
    """A mixture of eight experts."""

    def __init__(self, dim: int):
        super().__init__()
        self.router = TopKRouter(dim, 8)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(8))

    def forward(self, x):
        weights, chosen = self.router(x)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            weight = (weights * (chosen == number)).sum(-1, keepdim=True)
            y = y + weight * F.gelu(expert(x))
        return y


class Block(nn.Module):
    """Attention and a perceptron or a mixture, with norms before them or behind the sums."""

    def __init__(self, dim: int, causal: bool, fused: bool, post: bool = False, mixed: bool = False):
        super().__init__()
        self.post = post
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, causal, fused)
        if mixed:
            self.mixture = Mixture(dim)
        else:
            self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def feed(self, x):
        return self.mixture(x) if hasattr(self, "mixture") else self.down(F.gelu(self.up(x)))

    def forward(self, x):
        if self.post:
            x = self.norm1(x + self.attn(x))
            return self.norm2(x + self.feed(x))
        x = x + self.attn(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Transformer(nn.Module):
    """A vision transformer over the rows of a digit, or a decoder over words."""

    def __init__(
        self, dim: int, depth: int, words: int = 0, fused: bool = True, post: bool = False, mixed: bool = False
    ):
        super().__init__()
        self.words, self.post = words, post
        self.inputs = nn.Embedding(words, dim) if words else nn.Linear(SIDE, dim)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH if words else SIDE, dim))
        self.blocks = nn.ModuleList(Block(dim, bool(words), fused, post, mixed) for _ in range(depth))
        self.norm = nn.Identity() if post else nn.LayerNorm(dim)
        self.head = nn.Linear(dim, WORDS if words else CLASSES)

    def forward(self, x):
        x = self.inputs(x if self.words else x.unflatten(1, (SIDE, SIDE))) + self.places
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x if self.words else x.mean(1))


class Recurrent(nn.Module):
    """Reads a digit row by row."""

    def __init__(self, kind: type[nn.RNNBase], dim: int, depth: int):
        super().__init__()
        self.rnn = kind(SIDE, dim, depth, batch_first=True)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, x):
        return self.head(self.rnn(x.unflatten(1, (SIDE, SIDE)))[0][:, -1])


def mlp(draw, depth, function=None, norm=None, plain=False):
    """Return a perceptron; a plain one has ReLU and no norm."""
    width = draw.choice([32, 64, 96])
    function = function or (nn.ReLU if plain else draw.choice([nn.ReLU, nn.GELU, nn.Tanh]))
    norm = norm or (None if plain else draw.choice([None, None, nn.LayerNorm, nn.BatchNorm1d]))
    parts = []
    for layer in range(depth):
        parts += [nn.Linear(SIDE * SIDE if layer == 0 else width, width), *([norm(width)] if norm else []), function()]
        if function is nn.ReLU:
            nn.init.kaiming_normal_(parts[-2 - bool(norm)].weight)
    return nn.Sequential(*parts, nn.Linear(width, CLASSES))


def cnn(draw, depth, function=nn.ReLU, norm=None):
    """Return a convolutional network."""
    width = draw.choice([8, 16])
    norm = norm or draw.choice([None, nn.BatchNorm2d, lambda width: nn.GroupNorm(4, width)])
    parts = [nn.Unflatten(1, (1, SIDE, SIDE))]
    for layer in range(depth):
        parts.append(nn.Conv2d(1 if layer == 0 else width, width, 3, padding=1))
        if function is nn.ReLU:
            nn.init.kaiming_normal_(parts[-1].weight, nonlinearity="relu")
        parts += [*([norm(width)] if norm else []), function()]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, CLASSES))


def vit(draw, depth, **options):
    """Return a vision transformer."""
    return Transformer(draw.choice([32, 48]), depth, fused=draw.random() < 0.5, **options)


def decoder(draw, depth, **options):
    """Return a decoder."""
    return Transformer(draw.choice([32, 48]), min(depth, 3), WORDS, fused=draw.random() < 0.5, **options)


def rnn(draw, depth):
    """Return a recurrent network."""
    return Recurrent(draw.choice([nn.LSTM, nn.GRU]), draw.choice([32, 64]), min(depth, 2))


MODELS = {"mlp": mlp, "cnn": cnn, "vit": vit, "decoder": decoder, "rnn": rnn}
RATES = {"adam": (1e-3, 3e-3), "momentum": (0.01, 0.03), "plain": (0.05, 0.1)}


def optimizer_of(parameters, name, rate, **options):
    """Return an optimizer by a short name."""
    if name == "adam":
        return torch.optim.AdamW(parameters, lr=rate, **options)
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9 if name == "momentum" else 0.0, **options)


class Run:
    """One training; an illness changes it before it begins."""

    def __init__(self, seed: int):
        self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.seed, self.steps, self.size = seed, STEPS, BATCH
        self.kind = self.draw.choice(sorted(MODELS))
        self.depth = self.draw.randint(2, 4)
        self.optimizer = self.draw.choice(["adam", "adam", "momentum", "plain"])
        if self.kind in ("vit", "decoder", "rnn"):
            self.optimizer = "adam"
        self.rate = self.draw.choice(RATES[self.optimizer])
        self.options: dict[str, float] = {}
        self.every = self.draw.choice([5, 10, 20, 20])
        self.tells_loss = self.draw.random() < 0.5
        self.tries = False  # trials of remedies change no order of findings
        self.clip = None
        self.scheduled = False
        self.model = self.seen = None
        self.each = lambda step, x, y: (x, y)
        self.backward = lambda step, loss: loss.backward()
        self.before = lambda step, model, optimizer: None
        self.parameters = lambda model: model.parameters()
        self.loss = lambda z, y: F.cross_entropy(z.flatten(0, -2), y.flatten())

    def use(self, kind, *options, **words):
        """Take another model."""
        self.kind, self.optimizer, self.rate = kind, "adam", 1e-3
        self.model = MODELS[kind](self.draw, self.depth, *options, **words)
        return self.model

    def build(self) -> nn.Module:
        """Return the model."""
        if self.model is None:
            self.model = MODELS[self.kind](self.draw, self.depth)
        return self.model

    def diagnosis(self):
        """Train, and ask the watch."""
        model = self.build()
        optimizer = self.optimizer_of(model)
        self.seen = nk.watch(model, optimizer, every=self.every)
        self.seen.tries = self.tries
        with self.seen:
            self.train(model, optimizer)
        return self.seen.diagnosis()

    def optimizer_of(self, model):
        """Return the optimizer of a model."""
        return optimizer_of(self.parameters(model), self.optimizer, self.rate, **self.options)

    def train(self, model, optimizer):
        """Train, and keep the losses."""
        data = (Texts if self.kind == "decoder" else Digits)(self.seed)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps) if self.scheduled else None
        self.losses = []
        for step in range(self.steps):
            self.before(step, model, optimizer)
            x, y = self.each(step, *data.batch(self.size))
            loss = self.loss(model(x), y)
            if self.seen is not None and self.tells_loss:
                self.seen.loss(loss)
            self.backward(step, loss)
            if self.clip:
                nn.utils.clip_grad_norm_(model.parameters(), self.clip)
            optimizer.step()
            optimizer.zero_grad()
            if schedule:
                schedule.step()
            self.losses.append(loss.item())

    def __str__(self) -> str:
        ends = f"{self.losses[0]:.3g} to {sum(self.losses[-10:]) / 10:.3g}"
        return f"{self.kind} {self.optimizer} {self.rate:g} depth {self.depth} every {self.every} loss {ends}"


def healthy(run):
    """A run as users have them: with and without clipping, schedules, dropout, smoothed labels, decay."""
    run.scheduled = run.draw.random() < 0.3
    run.clip = run.draw.choice([None, None, 1.0])
    if run.kind == "mlp" and run.optimizer == "plain":  # of 160 steps too many are spent on the first plateau
        run.optimizer, run.rate = "momentum", run.draw.choice(RATES["momentum"])
    if run.draw.random() < 0.2:
        run.loss = lambda z, y: F.cross_entropy(z.flatten(0, -2), y.flatten(), label_smoothing=0.1)
    if run.optimizer == "adam" and run.draw.random() < 0.3:
        run.options = {"weight_decay": 0.1}
    if run.kind == "mlp" and run.draw.random() < 0.3:
        run.build().insert(len(run.model) - 1, nn.Dropout(0.2))
    if run.kind in ("vit", "decoder") and run.draw.random() < 0.2:
        run.model = MODELS[run.kind](run.draw, 2, mixed=True)
    if run.draw.random() < 0.2:
        run.size = 32


def rate_too_high(run):
    rates = {"adam": [1.0, 0.3], "momentum": [0.5, 10.0, 100.0], "plain": [10.0, 100.0]}
    run.optimizer = run.draw.choice(sorted(rates))
    run.rate = run.draw.choice(rates[run.optimizer])
    if run.rate == 0.5:
        run.kind, run.model = "mlp", mlp(run.draw, run.depth, plain=True)


def rate_too_low(run):
    run.rate = {"adam": 1e-6, "momentum": 1e-5, "plain": 1e-5}[run.optimizer]


def no_warm_up(run):
    run.kind, run.optimizer, run.rate = run.draw.choice(["vit", "decoder"]), "adam", run.draw.choice([0.02, 0.03])
    run.model = Transformer(48, 4, WORDS if run.kind == "decoder" else 0, post=True)


def layers_of(model):
    """Return the layers with a matrix in front of a function."""
    if isinstance(model, Transformer):
        return [block.up for block in model.blocks]
    return [part for part in model[:-1] if isinstance(part, nn.Linear | nn.Conv2d)]


def dead_units(run, kind=None):
    kind = kind or run.draw.choice(["mlp", "cnn", "vit", "decoder"])
    run.use(kind, **{"mlp": {"plain": True}, "cnn": {"norm": nn.Identity}}.get(kind, {}))
    run.draw.choice(layers_of(run.model)).bias.data -= 12


def saturated(run):
    run.use(run.draw.choice(["mlp", "cnn"]), function=run.draw.choice([nn.Tanh, nn.Sigmoid]), norm=nn.Identity)
    for part in layers_of(run.model):
        part.weight.data *= run.draw.choice([60, 120])


def vanishing(run, kind=None):
    run.depth = run.draw.randint(7, 9)
    run.use(kind or run.draw.choice(["mlp", "cnn"]), function=nn.Sigmoid, norm=nn.Identity)
    run.optimizer, run.rate = "momentum", 0.01


def exploding(run):
    run.depth = 5
    if run.draw.random() < 0.5:
        run.use("mlp", plain=True)
        for part in run.model[:-1:2]:
            part.weight.data *= 5
        run.optimizer, run.rate = "plain", 1e-8
    else:
        run.use(run.draw.choice(["vit", "decoder"]))
        run.model = Transformer(48, 5, WORDS if run.kind == "decoder" else 0)
        for block in run.model.blocks:
            block.norm1, block.norm2 = nn.Identity(), nn.Identity()
            block.up.weight.data *= 4
            block.down.weight.data *= 4
        run.rate = 1e-5


def entropy_collapse(run):
    model = run.use(run.draw.choice(["vit", "decoder"]))
    for block in model.blocks:
        for name, p in block.attn.named_parameters():
            if name == "qkv.weight":
                p.data[: 2 * p.shape[1]] *= 30
            elif name in ("q_proj.weight", "k_proj.weight"):
                p.data *= 30


def logit_growth(run):
    model = run.use(run.draw.choice(["vit", "decoder"]))
    factor = run.draw.choice([1.015, 1.02])

    def grow(step, model, optimizer):
        for block in model.blocks:
            for name, p in block.attn.named_parameters():
                if name == "qkv.weight":
                    p.data[: 2 * p.shape[1]] *= factor
                elif name in ("q_proj.weight", "k_proj.weight"):
                    p.data *= factor

    run.before = grow
    assert model is run.model


def norm_growth(run):
    kind = run.draw.choice(["mlp", "cnn"])
    run.use(kind, norm=nn.BatchNorm1d if kind == "mlp" else nn.BatchNorm2d)
    run.optimizer, run.rate, run.steps = "plain", run.draw.choice([1.0, 2.0]), 500
    for part in run.model[:-1]:
        if isinstance(part, nn.Linear | nn.Conv2d):
            part.weight.data *= 0.3 if kind == "mlp" else 0.1


def small_batch(run):
    run.use("mlp", norm=nn.BatchNorm1d)
    run.size = run.draw.choice([2, 4])


def train_eval_gap(run):
    run.use("mlp", norm=nn.BatchNorm1d)
    run.size = 10 * BATCH  # of which those of one class are a batch: the data are sorted
    run.each = lambda step, x, y: (x[y == y[0]], y[y == y[0]])


def running_stale(run):
    kind = run.draw.choice(["mlp", "cnn"])
    run.use(kind, norm=(nn.BatchNorm1d if kind == "mlp" else nn.BatchNorm2d))
    for part in run.model:
        if hasattr(part, "momentum"):
            part.momentum = run.draw.choice([0.0, 1e-4])
        elif isinstance(part, nn.Linear | nn.Conv2d):
            part.weight.data *= 0.1


def init_scale(run):
    factor = run.draw.choice([10.0, 0.02])
    run.depth = 4
    if factor < 1:
        run.use("mlp", plain=True)
        run.optimizer, run.rate = "momentum", 0.01
    else:
        kind = run.draw.choice(["mlp", "cnn", "vit", "decoder", "rnn"])
        run.use(kind, **{"mlp": {"plain": True}, "cnn": {"norm": nn.Identity}}.get(kind, {}))
    for part in run.model.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            part.weight.data *= factor
        elif isinstance(part, nn.RNNBase):
            for name, p in part.named_parameters():
                p.data *= factor if "weight" in name else 1


def frozen(run):
    model = run.build()
    names = [name for name, p in model.named_parameters() if p.dim() > 1]
    count = max(1, len(names) // 3)
    place = run.draw.randint(0, len(names) - count - 1)
    layers = {name.rpartition(".")[0] for name in names[place : place + count]}
    for name, p in model.named_parameters():
        p.requires_grad_(name.rpartition(".")[0] not in layers)
    run.parameters = lambda model: [p for p in model.parameters() if p.requires_grad]


def detached(run):
    if run.kind == "rnn":
        run.kind = "mlp"
    model = run.build()
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d | nn.Embedding)]
    run.draw.choice(layers[: max(1, len(layers) // 2)]).register_forward_hook(lambda module, x, y: y.detach())


def double_softmax(run):
    if run.draw.random() < 0.5:
        run.loss = lambda z, y: F.cross_entropy(z.flatten(0, -2).softmax(-1), y.flatten())
    else:
        run.build().register_forward_hook(lambda module, x, z: z.softmax(-1))


def loss_scaled(run):
    factor = run.draw.choice([1024.0, 1 / 64])
    run.optimizer = run.draw.choice(["momentum", "plain"]) if run.kind in ("mlp", "cnn") else "adam"
    run.rate = RATES[run.optimizer][0]
    plain = run.loss
    run.loss = lambda z, y: factor * plain(z, y)


def shuffled_labels(run):
    chance = torch.Generator().manual_seed(run.seed)
    run.each = lambda step, x, y: (x, y.flatten()[torch.randperm(y.numel(), generator=chance)].view_as(y))


def not_normalized(run):
    run.kind = run.draw.choice(["mlp", "cnn", "vit", "rnn"])
    run.optimizer = "adam" if run.kind in ("vit", "rnn") else run.draw.choice(["adam", "momentum"])
    run.rate = RATES[run.optimizer][0]
    change = run.draw.choice([lambda x: 100 * x, lambda x: x * 42 + 85, lambda x: x + 50])
    run.each = lambda step, x, y: (change(x), y)


def nan_data(run):
    run.kind = run.draw.choice(["mlp", "cnn", "vit", "rnn"])
    run.optimizer = "adam"
    run.rate = 1e-3
    begins = run.draw.randint(10, 120)

    def change(step, x, y):
        if step >= begins:
            x = x.clone()
            x[0, 3] = float("nan")
        return x, y

    run.each = change


def nan_log(run):
    begins, plain = run.draw.randint(10, 120), run.loss
    calls = []

    def loss(z, y):
        calls.append(1)
        z = plain(z, y) + 0 * z.sum()
        return z + (z * 0).log().clamp(min=-1e30) * 0 if len(calls) > begins else z

    run.loss = loss


def eps_in_half(run):
    run.kind, run.optimizer, run.rate = run.draw.choice(["mlp", "cnn", "vit"]), "adam", 1e-3
    run.model = None
    run.build().half()
    run.each = lambda step, x, y: (x.half(), y)
    run.loss = lambda z, y: F.cross_entropy(z.float(), y)


def clipped(run):
    run.optimizer, run.rate = "plain", 0.05
    run.clip = run.draw.choice([1e-2, 1e-3])


def group_forgotten(run):
    model = run.build()
    layers = [name for name, m in model.named_modules() if any(p.dim() > 1 for p in m.parameters(recurse=False))]
    lost = run.draw.choice(layers)
    run.parameters = lambda model: [p for n, p in model.named_parameters() if n.rpartition(".")[0] != lost]


def decayed_gains(run):
    kind = run.draw.choice(["mlp", "cnn", "vit", "decoder"])
    norms = {"mlp": {"norm": nn.LayerNorm}, "cnn": {"norm": lambda width: nn.GroupNorm(4, width)}}
    run.use(kind, **norms.get(kind, {}))
    run.options, run.rate = {"weight_decay": run.draw.choice([10.0, 20.0])}, 3e-3


def unseen_rows(run):
    run.kind, run.optimizer, run.rate = "decoder", "adam", 1e-3
    run.model = decoder(run.draw, run.depth)
    run.model.inputs = nn.Embedding(run.draw.choice([300, 1000]), run.model.head.in_features)


def router_collapse(run):
    run.depth = 2
    run.use(run.draw.choice(["vit", "decoder"]), mixed=True)
    for block in run.model.blocks:
        block.mixture.router.gate.bias.data[: run.draw.choice([2, 3])] += 10


def evaluated(run):
    kind = run.draw.choice(["mlp", "cnn"])
    run.use(kind, norm=(nn.BatchNorm1d if kind == "mlp" else nn.BatchNorm2d)).eval()


def dropped(run):
    run.use("mlp")
    share = run.draw.choice([0.9, 0.95, 0.98])
    dropout = [
        part
        for layer in run.model
        for part in (layer, nn.Dropout(share))[: 1 + isinstance(layer, nn.ReLU | nn.GELU | nn.Tanh)]
    ]
    run.model = nn.Sequential(*dropout)


ILL = {
    rate_too_high: {"rate-too-high"},
    rate_too_low: {"rate-too-low", "stalled-weights"},
    no_warm_up: {"no-warm-up", "rate-too-high"},
    dead_units: {"dead-units"},
    saturated: {"saturated-function"},
    vanishing: {"vanishing-gradient"},
    exploding: {"initial-scale", "residual-growth"},
    entropy_collapse: {"entropy-collapse"},
    logit_growth: {"score-growth", "entropy-collapse"},
    norm_growth: {"effective-step"},
    small_batch: {"small-batch"},
    train_eval_gap: {"running-statistics"},
    running_stale: {"running-statistics"},
    init_scale: {"initial-scale"},
    frozen: {"frozen-layers"},
    detached: {"no-gradient"},
    double_softmax: {"double-softmax"},
    loss_scaled: {"scaled-loss"},
    shuffled_labels: {"labels-apart"},
    not_normalized: {"data-scale"},
    nan_data: {"data-not-finite"},
    nan_log: {"loss-not-finite"},
    eps_in_half: {"eps-underflow"},
    clipped: {"always-clipped"},
    group_forgotten: {"left-out"},
    decayed_gains: {"lost-gains", "strong-decay"},  # the decay of 10 and more takes the matrices too
    unseen_rows: {"unseen-rows"},
    router_collapse: {"router-collapse"},
    evaluated: {"evaluation-mode"},
    dropped: {"strong-dropout"},
}
"""Each illness, and the rules whose findings name it."""
