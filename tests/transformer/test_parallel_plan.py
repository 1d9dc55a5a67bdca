"""A planned model on two processes: the logits and gradients of one, and errors by name for what has no plan."""

import logging
import warnings

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.optional import library
from normkit.parameters import roles
from processes import group_of, mesh_of

COUNT = 2
SHAPE = {"vocab": 17, "dim": 16, "depth": 2, "heads": 4}


def work(task, *arguments):
    return globals()[task](*arguments)


processes = group_of(COUNT, work)


def llama(**options):
    library("transformers")
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 17, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **heads, **options}))


def gptj():
    """Its layers return tuples."""
    library("transformers")
    from transformers import GPTJConfig, GPTJForCausalLM

    return GPTJForCausalLM(GPTJConfig(vocab_size=17, n_positions=32, n_embd=16, n_layer=2, n_head=4, rotary_dim=2))


def swapped():
    model = llama()
    nk.swap(model, {"rmsnorm": "layernorm"})
    return model


class Mixing(nn.Module):
    """An attention whose parts have names that nobody else gives them."""

    def __init__(self, dim, heads, grouped):
        super().__init__()
        self.n_head, self.head_dim = heads, dim // heads
        self.together = Grouped(dim, self.head_dim) if grouped else nn.Linear(dim, 3 * dim)
        self.norm_of_keys = nk.SRMSNorm(self.head_dim)
        self.back = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.together(x) if isinstance(self.together, Grouped) else self.fused(x)
        heads = [z.transpose(1, 2) for z in (q, self.norm_of_keys(k), v)]
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.back(y.transpose(1, 2).flatten(2))

    def fused(self, x):
        return [z.unflatten(-1, (self.n_head, -1)) for z in self.together(x).chunk(3, -1)]


class Grouped(nn.Module):
    """Query, key and value of a head in rows that follow each other."""

    def __init__(self, dim, size):
        super().__init__()
        self.all = nn.Linear(dim, 3 * dim)
        self.size = size

    def forward(self, x):
        return self.all(x).unflatten(-1, (-1, 3, self.size)).unbind(-2)


class Squares(nn.Module):
    """A feedforward whose three linears have one size, in an order that does not tell which is the last."""

    def __init__(self, dim):
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x):
        return self.b(self.a(x).tanh() * self.c(x))


class Interleaved(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.a, self.b = nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        gate, up = self.a(x).unflatten(-1, (-1, 2)).unbind(-1)
        return self.b(gate.tanh() * up)


class Layer(nn.Module):
    def __init__(self, dim, heads, feedforward, grouped):
        super().__init__()
        self.first, self.second = nk.LayerNorm(dim), nn.RMSNorm(dim)
        self.mix, self.widen = Mixing(dim, heads, grouped), feedforward(dim)

    def forward(self, *, stream):
        stream = stream + self.mix(self.first(stream))
        return stream + self.widen(self.second(stream))


class Own(nn.Module):
    def __init__(self, feedforward=Squares, grouped=True):
        super().__init__()
        self.table = nn.Embedding(17, 16)
        self.blocks = nn.ModuleDict({key: Layer(16, 4, feedforward, grouped) for key in ("low", "middle", "high")})

    def forward(self, tokens):
        x = self.table(tokens)
        for block in self.blocks.values():
            x = block(stream=x)
        return x @ self.table.weight.mT


MODELS = {
    "own": Own,
    "own interleaved": lambda: Own(Interleaved),
    "decoder": lambda: nk.Decoder(**SHAPE, norm="rmsnorm"),
    "peri": lambda: nk.Decoder(**SHAPE, placement="peri-norm", kv_heads=2, query_key_norm="head", tied=False),
    "width without gains": lambda: nk.Decoder(**SHAPE, norm="srmsnorm", query_key_norm="width"),
    "width": lambda: nk.Decoder(**SHAPE, norm="rmsnorm", query_key_norm="width"),
    "gated": lambda: nk.Decoder(**SHAPE, norm="rmsnorm", activation="swiglu", bias=True),
    "post": lambda: nk.Encoder(**SHAPE, placement="post-norm", bias=True),
    "streams": lambda: nk.Decoder(**SHAPE, placement="hyper-connections", streams=3),
    "streams mixed evenly": lambda: nk.Decoder(**SHAPE, placement="mhc"),
    "streams mixed by permutations": lambda: nk.Decoder(**SHAPE, placement="mhc-lite"),
    "streams apart": lambda: nk.Decoder(**SHAPE, placement="siamese-norm"),
    "runs in a head": lambda: nk.Decoder(**SHAPE, norm="seednorm:heads=2", query_key_norm="head"),
    "norms in the core": lambda: nk.Decoder(**SHAPE, core="qkv-norm"),
    "one run in a head": lambda: nk.Decoder(**SHAPE, norm="seednorm", query_key_norm="head"),
    "norms of parts": lambda: nk.Decoder(**SHAPE, norm=lambda n: nn.Sequential(nn.RMSNorm(n)), query_key_norm="head"),
    "gptj": gptj,
    "llama": llama,
    "llama swapped": swapped,
    "llama tied": lambda: llama(tie_word_embeddings=True),
}


def made(name):
    torch.manual_seed(0)
    model = MODELS[name]().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def logits_of(model, tokens):
    result = model(tokens)
    return result if isinstance(result, torch.Tensor) else result.logits


def compared(name):
    """How far the logits and each gradient are from those of one process."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.parallel import parallelize_module

    tokens = torch.arange(12).view(2, 6) * 5 % 17
    one, many = made(name), made(name)
    mesh = mesh_of((COUNT,))
    plan = nk.parallel_plan(many, mesh)
    parallelize_module(many, mesh, plan)
    results = [logits_of(model, tokens) for model in (one, many)]
    for result in results:
        result.sin().sum().backward()
    off = {"logits": (results[1] - results[0]).abs().max().item()}
    for (key, a), b in zip(many.named_parameters(), one.parameters(), strict=True):
        grad = a.grad.full_tensor() if isinstance(a.grad, DTensor) else a.grad
        off[key] = (grad - b.grad).abs().max().item()
    assert all(isinstance(p, DTensor) for p in many.parameters())
    lengths = [nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True) for model in (one, many)]
    off["length"] = (lengths[1].full_tensor() - lengths[0]).abs().item()
    for model in (one, many):
        torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1, foreach=True).step()
    for (key, a), b in zip(many.named_parameters(), one.parameters(), strict=True):
        value = a.full_tensor() if isinstance(a, DTensor) else a
        far = (b.grad.abs() > 1e-9) * (value - b)  # the step of a gradient of 0 is that of its rounding
        off[f"{key}, stepped"] = far.abs().max().item()
    cut = sum(isinstance(p, DTensor) and p.to_local().numel() < p.numel() for p in many.parameters())
    return off, cut


@pytest.mark.parametrize("name", MODELS)
def test_two_processes_give_the_logits_and_gradients_of_one(name, processes):
    if name.startswith("llama"):
        pytest.importorskip("transformers")
    for off, cut in processes.ask("compared", name):
        assert max(off.values()) < 1e-11, off
        assert cut >= 12


def masked():
    """How far the logits are where each head has a mask of its own."""
    from torch.distributed.tensor.parallel import parallelize_module

    mask = torch.rand(1, 4, 6, 6, generator=torch.Generator().manual_seed(5)) < 0.7
    mask, tokens, one, many = mask | torch.eye(6).bool(), torch.arange(12).view(2, 6), made("peri"), made("peri")
    parallelize_module(many, mesh_of((COUNT,)), nk.parallel_plan(many, mesh_of((COUNT,))))
    return (many(tokens, mask) - one(tokens, mask)).abs().max().item(), (
        one(tokens, mask) - one(tokens)
    ).abs().max().item()


def test_a_mask_for_each_head_goes_to_the_process_that_has_the_head(processes):
    for off, effect in processes.ask("masked"):
        assert off < 1e-12
        assert effect > 0.1


def refused(name):
    """What is said to a model or a mesh that has no plan."""
    from torch.distributed.tensor.parallel import parallelize_module

    mesh = mesh_of((COUNT, 1) if name == "mesh" else (COUNT,), ("tp", "dp")[: 1 + (name == "mesh")])
    model = REFUSED[name]()
    try:
        if name == "versions" and torch.distributed.get_rank() == 1:
            torch.__version__, kept = "0.0", torch.__version__
        try:
            plan = nk.parallel_plan(model, mesh)
        finally:
            if name == "versions" and torch.distributed.get_rank() == 1:
                torch.__version__ = kept
        parallelize_module(model, mesh, plan)
        if name == "twice":
            nk.parallel_plan(model, mesh)
        model(torch.zeros(1, 5, dtype=torch.int64))
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


def counting_odd(model):
    model.layers[1].attention.core.spare_heads = 3
    return model


def parametrized():
    model = MODELS["decoder"]()
    nn.utils.parametrizations.weight_norm(model.layers[1].attention.query)
    return model


REFUSED = {
    "no layers": lambda: nn.Sequential(nn.Linear(3, 3)),
    "mesh": MODELS["decoder"],
    "heads": lambda: nk.Decoder(**{**SHAPE, "heads": 1}),
    "experts": lambda: nk.Decoder(**SHAPE, feedforward="moe", router="router:experts=4,top_k=2"),
    "parametrized": parametrized,
    "fused": lambda: Own(grouped=False),
    "hidden": lambda: nk.Decoder(**SHAPE, hidden=15),
    "scales": lambda: nk.Decoder(**SHAPE, placement="ngpt"),
    "sparsity": lambda: nk.Decoder(**SHAPE, feedforward_options={"sparsity": 0.5}),
    "decays by head": lambda: nk.Decoder(**SHAPE, core="lightning", core_options={"norm": False}),
    "joined heads": lambda: nk.Encoder(**SHAPE, core="transnormer"),
    "torch's width": lambda: nk.Decoder(**SHAPE, norm=nn.LayerNorm, query_key_norm="width"),
    "count": lambda: counting_odd(MODELS["decoder"]()),
    "layer inputs": lambda: nk.Decoder(**SHAPE, placement="peri-norm", layer_inputs=4),
    "positions": MODELS["decoder"],
    "twice": MODELS["decoder"],
    "sizes": lambda: nk.Decoder(
        **SHAPE, mixer="latent", mixer_options={"rank": 4, "head_dim": 4, "shared_dim": 2, "value_dim": 4}
    ),
    "versions": MODELS["decoder"],
}
SAID = {
    "no layers": "ValueError: parallel_plan: Sequential has no list of layers",
    "mesh": "ValueError: parallel_plan: mesh must have one axis, not 2; give one of it, as mesh['dp']",
    "heads": "ValueError: parallel_plan: layers.0.attention.query has 1 heads, which 2 processes do not divide",
    "experts": "ValueError: parallel_plan: layers.0.feedforward.router must be a Linear, not Router",
    "fused": "ValueError: parallel_plan: blocks.low.mix.together makes 48 features, and nothing says in which order",
    "hidden": "ValueError: parallel_plan: layers.0.feedforward.down takes 15 hidden features, which 2 processes do not",
    "parametrized": "ValueError: parallel_plan: layers.1.attention.query must be a Linear, not ParametrizedLinear",
    "scales": "ValueError: parallel_plan: layers.0.",
    "sparsity": "ValueError: parallel_plan: layers.0.feedforward is FeedForward, which cannot be cut: each hidden",
    "decays by head": "ValueError: parallel_plan: layers.0.attention.core is Lightning, which cannot be cut: a head's",
    "joined heads": "ValueError: parallel_plan: layers.0.attention.core is TransNormer, which cannot be cut: a head's",
    "torch's width": "ValueError: parallel_plan: layers.0.attention.query_norm is torch's LayerNorm over 16 features",
    "count": "ValueError: parallel_plan: layers.1.attention.core.spare_heads is 3, which 2 processes do not divide",
    "layer inputs": "ValueError: parallel_plan: layers.0.layer_input is LayerInput, which cannot be cut: each hidden",
    "positions": "ValueError: parallel_plan: 5 positions cannot be cut for 2 processes",
    "twice": "ValueError: parallel_plan: layers.0.attention.query.weight is a DTensor already, placed as (Shard(",
    "sizes": "ValueError: parallel_plan: all linears of layers.0.attention but the last must take 16 features",
    "versions": "RuntimeError: parallel_plan: all processes must run the same software, but process 0 has torch 2",
}


def test_a_mesh_that_is_none_is_named():
    with pytest.raises(TypeError, match="parallel_plan: mesh must be a DeviceMesh, as init_device_mesh gives, not 2"):
        nk.parallel_plan(MODELS["decoder"](), 2)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_plan_is_named(name, processes):
    for said in processes.ask("refused", name):
        assert said.startswith(SAID[name]), said


def kept_and_read(activation, folder):
    """What becomes of a planned model's state in a file, and of a whole state that one process has."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_model_state_dict
    from torch.distributed.tensor.parallel import parallelize_module

    torch.manual_seed(0)
    one, mesh, tokens = (
        nk.Decoder(**SHAPE, activation=activation).double(),
        mesh_of((COUNT,)),
        torch.arange(12).view(2, 6),
    )

    def planned():
        torch.manual_seed(3)
        many = nk.Decoder(**SHAPE, activation=activation).double()
        return parallelize_module(many, mesh, nk.parallel_plan(many, mesh))

    def by_file():
        dcp.save({"model": one.state_dict()}, checkpoint_id=f"{folder}/one")
        many, again = planned(), planned()
        for source, model in (("one", many), ("many", again)):
            if source == "many":
                dcp.save({"model": many.state_dict()}, checkpoint_id=f"{folder}/many")
            kept = {"model": model.state_dict()}
            dcp.load(kept, checkpoint_id=f"{folder}/{source}")
            model.load_state_dict(kept["model"])
        whole = {"model": nk.Decoder(**SHAPE, activation=activation).double().state_dict()}
        dcp.load(whole, checkpoint_id=f"{folder}/many")
        assert all(torch.equal(whole["model"][name], value) for name, value in one.state_dict().items())
        return again

    def by_optimizer():
        many = planned()
        optimizer = torch.optim.AdamW(many.parameters())
        many(tokens).sin().sum().backward()
        optimizer.step()
        dcp.save(get_optimizer_state_dict(many, optimizer), checkpoint_id=f"{folder}/optimizer")
        return many

    def by_message(broadcast):
        many, first = planned(), torch.distributed.get_rank() == 0
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=broadcast)
        set_model_state_dict(many, one.state_dict() if first or not broadcast else {}, options=options)
        return many

    results = []
    for way in (by_file, lambda: by_message(False), lambda: by_message(True), by_optimizer):
        try:
            results.append((way()(tokens) - one(tokens)).abs().max().item())
        except (RuntimeError, CheckpointException) as error:
            results.append(str(error))
    return results


def test_states_pass_through_files_of_one_process_and_of_several(processes, tmp_path):
    for results in processes.ask("kept_and_read", "gelu", str(tmp_path)):
        assert max(results[:3]) < 1e-12


def test_where_a_process_has_rows_of_both_halves_a_file_has_both_and_what_is_misread_is_refused(processes, tmp_path):
    for by_file, whole, *others in processes.ask("kept_and_read", "swiglu", str(tmp_path)):
        assert max(by_file, whole) < 1e-12
        for error in others:
            assert "rows of both halves of a gated matrix" in error


def parts_on_meta():
    with torch.device("meta"):
        model = MODELS["norms in the core"]()
    return [*nk.parallel_plan(model, mesh_of((COUNT,)))] == [
        *nk.parallel_plan(MODELS["norms in the core"](), mesh_of((COUNT,)))
    ]


def test_a_model_without_numbers_yet_has_the_same_plan(processes):
    assert all(processes.ask("parts_on_meta"))


def outside():
    from torch.distributed.tensor import DeviceMesh

    mesh = DeviceMesh("cpu", [1])
    try:
        return len(nk.parallel_plan(MODELS["decoder"](), mesh))
    except ValueError as error:
        return str(error)


def test_a_mesh_of_others_is_named(processes):
    error, parts = processes.ask("outside")
    assert error == "parallel_plan: mesh [1] must have process 0, which calls it"
    assert parts > 12


def roles_when_cut(sharded):
    """The roles of parameters before and after, and what torch has logged of shapes that do not fit."""
    from torch._subclasses import fake_tensor
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module

    mesh, model, lines, handler = mesh_of((COUNT,)), llama(), [], logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    before = [(row.name, row.role) for row in roles(model)]
    if sharded:
        fully_shard(model, mesh=mesh)
    else:
        parallelize_module(model, mesh, nk.parallel_plan(model, mesh))
    fake_tensor.log.addHandler(handler)
    after = [(row.name, row.role) for row in roles(model)]
    fake_tensor.log.removeHandler(handler)
    return before, after, lines


@pytest.mark.parametrize("sharded", [False, True])
def test_a_norm_of_transformers_is_one_when_it_is_cut(sharded, processes):
    pytest.importorskip("transformers")
    for before, after, lines in processes.ask("roles_when_cut", sharded):
        assert ("model.norm.weight", "gain") in before
        assert after == before
        assert lines == []


def stepped_by_muon(sharded, known):
    """How far a gated model's matrices are from those of one process after a step, and what is warned of."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module

    one, many, mesh, tokens = made("gated"), made("gated"), mesh_of((COUNT,)), torch.arange(12).view(2, 6)
    parts = nk.param_groups(many, "muon").parts
    if sharded:
        fully_shard(many, mesh=mesh)
    else:
        parallelize_module(many, mesh, nk.parallel_plan(many, mesh))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        heights = {name: part.heights for name, part in parts.items()} if known else True
        groups = [nk.param_groups(one, "muon"), nk.param_groups(many, "muon", blocks=heights)]
    for model, own in zip((one, many), groups, strict=True):
        model(tokens).sin().sum().backward()
        nk.Muon(own, lr=0.1, ns_dtype=None).step()
    pairs = zip(many.parameters(), one.parameters(), strict=True)
    return max((a.full_tensor() - b).abs().max().item() for a, b in pairs), [str(w.message) for w in caught]


@pytest.mark.parametrize("sharded", [False, True])
def test_fused_weights_that_are_sharded_are_named_unless_their_parts_are_given(sharded, processes):
    for off, (said,) in processes.ask("stepped_by_muon", sharded, False):
        assert said.startswith("param_groups: layers.0.attention.query.weight, layers.0.attention.key.weight,")
        assert "and 9 more will be stepped whole" in said
        assert off > 1e-3
    for off, said in processes.ask("stepped_by_muon", sharded, True):
        assert said == []
        assert off < 1e-11
