"""Models on several processes in the hands of others' trainers, and what must come before they are shared out."""

import ast
import os
import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.optional import let_torchvision_load, library
from processes import group_of, mesh_of

TOKENS = torch.arange(12).view(2, 6) * 5 % 17
STEPS = 2


def work(task, *arguments):
    return globals()[task](*arguments)


pair = group_of(2, work)
four = group_of(4, work)
alone = group_of(1, work)


def made(**options):
    torch.manual_seed(0)
    return nk.Decoder(**{"vocab": 17, "dim": 16, "depth": 2, "heads": 4, "norm": "rmsnorm", **options}).double()


def whole(x):
    return x.detach().full_tensor() if hasattr(x, "full_tensor") else x.detach()


def trained(model, optimizer, backward=torch.Tensor.backward, clip=nn.utils.clip_grad_norm_, mine=slice(None)):
    for _ in range(STEPS):
        backward(model(TOKENS[mine]).sin().mean())
        clip(model.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
    return {name.removeprefix("module."): whole(p) for name, p in model.named_parameters()}


def by_accelerate():
    """Accelerate's FSDP2 plugin, which it uses on accelerators alone: here its state is set to it."""
    library("accelerate")
    rank = torch.distributed.get_rank()
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "ACCELERATE_USE_CPU": "true"})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "ACCELERATE_USE_FSDP": "true"})
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType

    layers = {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["TransformerLayer"]}
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, cpu_ram_efficient_loading=False, **layers)
    accelerator = Accelerator(cpu=True)
    accelerator.state.distributed_type, accelerator.state.fsdp_plugin = DistributedType.FSDP, plugin
    model = made()
    optimizer = nk.NorMuon(nk.param_groups(model, "normuon"), lr=0.01, ns_dtype=None)
    model, optimizer = accelerator.prepare(model, optimizer)
    cut = sum(hasattr(p, "full_tensor") for p in model.parameters())
    return trained(model, optimizer, accelerator.backward, accelerator.clip_grad_norm_, slice(rank, rank + 1)), cut


def test_accelerate_shards_and_trains_as_one_process(pair):
    pytest.importorskip("accelerate")
    model = made()
    want = trained(model, nk.NorMuon(nk.param_groups(model, "normuon"), lr=0.01, ns_dtype=None))
    for values, cut in pair.ask("by_accelerate"):
        assert cut == len(want)
        assert list(values) == list(want)
        for name, value in want.items():
            torch.testing.assert_close(values[name], value, rtol=1e-9, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}")


def shared_out(model, way):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module

    mesh = mesh_of((4, 1) if way == "fully_shard" else (2, 2), ("data", "tp"))
    if way != "fully_shard":
        parallelize_module(model, mesh["tp"], nk.parallel_plan(model, mesh["tp"]))
    if way != "parallelize_module":
        for part in (*model.layers, model):
            fully_shard(part, mesh=mesh["data"], shard_placement_fn=by_columns)
    return model


def by_columns(p):
    """Where to cut a parameter further: a gate and what it opens, two maps in one matrix, by columns."""
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    return Shard(1) if isinstance(getattr(p, "placements", [None])[-1], _StridedShard) else None


def swapped(model):
    nk.swap(model, {"rmsnorm": "layernorm"})
    return model


def optimized(model, **blocks):
    return trained(model, nk.Muon(nk.param_groups(model, "muon", **blocks), lr=0.01, ns_dtype=None))


def blocked(model, then):
    """Muon by the parts of fused weights, which are seen in the whole model."""
    parts = nk.param_groups(model, "muon").parts
    heights = {name: part.heights for name, part in parts.items() if part.fused}
    assert heights
    return optimized(then(model), blocks=heights)


AFTER = {
    "fuse": lambda model: nk.fuse(model) and {"logits": whole(model(TOKENS))},
    "param_groups and muon": optimized,
    "streams": optimized,
    "adamw with foreach": lambda model: trained(model, torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)),
}
OPTIONS = {"parts of fused weights": {"activation": "swiglu"}, "streams": {"placement": "hyper-connections"}}
BEFORE = {
    "swap": lambda model, then: optimized(then(swapped(model))),
    "parts of fused weights": blocked,
}


def ordered(case, way):
    """How far numbers are from one process', where a call comes before or after the model is shared out."""
    options = OPTIONS.get(case, {})
    one, many = made(**options), made(**options)
    if case in AFTER:
        want, got = AFTER[case](one), AFTER[case](shared_out(many, way))
    else:
        want, got = BEFORE[case](one, lambda model: model), BEFORE[case](many, lambda model: shared_out(model, way))
    return max((got[name] - value).abs().max().item() for name, value in want.items())


@pytest.mark.parametrize("way", ["fully_shard", "parallelize_module", "both"])
@pytest.mark.parametrize("case", [*AFTER, *BEFORE])
def test_calls_work_before_or_after(case, way, four):
    assert max(four.ask("ordered", case, way)) < 1e-9


def refused(way):
    if way == "both":
        return unknown_order()
    model = shared_out(made(), way)
    try:
        nk.swap(model, {"rmsnorm": "layernorm"})
    except ValueError as error:
        return str(error)


def unknown_order():
    from torch.distributed.fsdp import fully_shard

    model = shared_out(made(activation="swiglu"), "parallelize_module")
    fully_shard(model, mesh=mesh_of((2, 2), ("data", "tp"))["data"])
    try:
        optimized(model)
    except ValueError as error:
        return str(error)


def test_two_maps_in_one_matrix_are_cut_further_along_another_axis(four):
    for error in four.ask("refused", "both"):
        assert "do not say in which order the entries lie" in error
        assert "shard_placement_fn" in error


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("fully_shard", "swap: the model is sharded by fully_shard: hand in"),
        ("parallelize_module", "swap: the model has no rmsnorm to replace.*it has hooks"),
    ],
)
def test_a_swap_comes_first(way, why, four):
    for error in four.ask("refused", way):
        assert re.match(why, error, re.S)


def image_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nk.BatchNorm(6), nn.ReLU(), nn.Flatten(), nn.Linear(54, 2))
    nn.utils.parametrizations.weight_norm(model[4])
    return model.double()


def estimated(planned):
    """Moments that are estimated anew after ``fully_shard``, over weights that are parametrized before."""
    from torch.distributed.fsdp import fully_shard

    model = image_model()
    if planned:
        fully_shard(model)
    data = [torch.randn(4, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in range(3)]
    nk.recalibrate(model, data)
    model.eval()
    return whole(model[1].running_var), whole(model(data[0]))


def test_moments_are_estimated_anew_after_fully_shard(pair):
    want = estimated(planned=False)
    for found in pair.ask("estimated", True):
        for a, b in zip(found, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def environment(count, port):
    """What torchrun sets; the process' rank."""
    rank = torch.distributed.get_rank()
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": str(count)})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    return rank


def by_lightning():
    library("lightning")
    environment(2, 29512)
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.strategies import ModelParallelStrategy
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module

    class Trained(LightningModule):
        def __init__(self):
            super().__init__()
            self.model = made()

        def configure_model(self):
            tp = self.device_mesh["tensor_parallel"]
            parallelize_module(self.model, tp, nk.parallel_plan(self.model, tp))
            fully_shard(self.model, mesh=self.device_mesh["data_parallel"])

        def training_step(self, tokens, index):
            return self.model(tokens).sin().mean()

        def configure_optimizers(self):
            return nk.NorMuon(nk.param_groups(self.model, "normuon"), lr=0.01, ns_dtype=None)

    results = []
    for sizes in ((2, 1), (1, 2)):  # of the mesh: data, then tensors
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        strategy = ModelParallelStrategy(data_parallel_size=sizes[0], tensor_parallel_size=sizes[1])
        trainer = Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=STEPS, **quiet)
        module = Trained()
        trainer.fit(module, torch.utils.data.DataLoader(TOKENS, batch_size=2 // sizes[0]))
        results.append({name: whole(p) for name, p in module.model.named_parameters()})
    return results


def test_lightning_shards_and_trains_as_one_process(pair):
    let_torchvision_load()
    pytest.importorskip("lightning")
    model = made()
    optimizer = nk.NorMuon(nk.param_groups(model, "normuon"), lr=0.01, ns_dtype=None)
    want = trained(model, optimizer, clip=lambda *_: None)
    for results in pair.ask("by_lightning"):
        for values in results:
            assert list(values) == list(want)
            for name, value in want.items():
                torch.testing.assert_close(
                    values[name], value, rtol=1e-9, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}"
                )


def by_ray(folder):
    """What each of Ray Train's workers does with its half of the samples."""
    import ray.train.torch

    rank = ray.train.get_context().get_world_rank()
    model = ray.train.torch.prepare_model(made())
    optimizer = nk.NorMuon(nk.param_groups(model, "normuon"), lr=0.01, ns_dtype=None)
    torch.save(trained(model, optimizer, mine=slice(rank, rank + 1)), f"{folder}/{rank}")


@pytest.mark.ray
def test_ray_trains_as_one_process(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # a process for machines that are taken away
    monkeypatch.setenv("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")  # until Ray learns that the workers have ended
    here = {"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}}  # a worker imports this file, to find its functions
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=here)
    try:
        run = RunConfig(storage_path=str(tmp_path / "runs"))
        scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1})
        TorchTrainer(by_ray, train_loop_config=str(tmp_path), scaling_config=scaling, run_config=run).fit()
    finally:
        ray.shutdown()
    model = made()
    want = trained(model, nk.NorMuon(nk.param_groups(model, "normuon"), lr=0.01, ns_dtype=None))
    for rank in range(2):
        values = torch.load(tmp_path / str(rank))
        assert list(values) == list(want)
        for name, value in want.items():
            torch.testing.assert_close(values[name], value, rtol=1e-9, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}")


def by_deepspeed(stage, name):
    """Losses and weights of one half of the samples under ZeRO, or what an optimizer says to its vector."""
    library("deepspeed")
    rank = environment(2, 29513)
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    model = made().float()
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True}
    config["zero_optimization"] = {"stage": stage}
    engine, *_ = deepspeed.initialize(model=model, optimizer=deepspeeds(model, name), config=config)
    try:
        for _ in range(STEPS):
            engine.backward(engine(TOKENS[rank : rank + 1]).sin().mean())
            engine.step()
    except ValueError as error:
        return str(error)
    return {key: whole(p) for key, p in model.named_parameters()}


def deepspeeds(model, name):
    groups = nk.param_groups(model, name)
    return torch.optim.AdamW(groups, lr=1e-3) if name == "adamw" else nk.create(name, groups, lr=1e-3, ns_dtype=None)


@pytest.mark.peers
@pytest.mark.parametrize("stage, name", [(1, "adamw"), (2, "adamw"), (0, "normuon")])
def test_deepspeed_trains_as_one_process(stage, name, pair):
    pytest.importorskip("deepspeed")
    model = made().float()
    want = trained(model, deepspeeds(model, name), clip=lambda *_: None)
    for values in pair.ask("by_deepspeed", stage, name):
        for key, value in want.items():
            torch.testing.assert_close(values[key], value, rtol=1e-5, atol=1e-6, msg=lambda m, k=key: f"{k}: {m}")


@pytest.mark.peers
def test_an_optimizer_of_matrices_refuses_the_vector_of_zero(pair):
    pytest.importorskip("deepspeed")
    for error in pair.ask("by_deepspeed", 1, "muon"):
        assert isinstance(error, str)
        assert "matri" in error


def by_torchtitan(cut):
    """A step of torchtitan's Llama with other norms, sharded by its own function, for given gradients."""
    from torchtitan.distributed.fsdp import apply_fsdp_to_decoder
    from torchtitan.models.llama3 import model_registry

    model = model_registry("debugmodel").model.build()
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(1.0 if p.dim() < 2 else 0.0, 0.02, generator=chance)
    nk.swap(model, {"rmsnorm": "layernorm"})
    if cut:
        mesh = mesh_of((2,), ("fsdp",))
        apply_fsdp_to_decoder(model, mesh, torch.float32, torch.float32, False)
    optimizer = nk.NorMuon(nk.param_groups(model, "normuon"), lr=0.01, ns_dtype=None)
    for p in model.parameters():
        gradient = torch.randn(p.shape, generator=chance)
        p.grad = placed_like(gradient, p) if cut else gradient
    optimizer.step()
    return {name: whole(p) for name, p in model.named_parameters()}


def placed_like(x, p):
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(x, p.device_mesh, p.placements)


@pytest.mark.peers
def test_torchtitan_shards_and_steps_as_one_process(pair):
    pytest.importorskip("torchtitan.models.llama3")
    want = by_torchtitan(cut=False)
    assert isinstance(want["norm.weight"], torch.Tensor)
    for values in pair.ask("by_torchtitan", True):
        assert list(values) == list(want)
        for name, value in want.items():
            torch.testing.assert_close(values[name], value, rtol=1e-6, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")


def titan_model(which, swap):
    """A model of torchtitan's of two layers, with other norms, in float64."""
    from importlib import import_module

    from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention

    family, flavor = which.split()
    config = import_module(f"torchtitan.models.{family}").model_registry(flavor).model
    del config.layers[2:]
    for _, _, owner, name in list(config.traverse(FlexAttention.Config)):
        setattr(owner, name, ScaledDotProductAttention.Config())
    torch.manual_seed(0)
    model = config.build()
    model.init_states()
    if swap:
        nk.swap(model, {"rmsnorm": swap})
    return model.double()


def planned_titan(which, swap, sizes):
    """How far logits and gradients of a planned model are from those of one process, and how many weights are cut."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import parallelize_module

    one, many = titan_model(which, swap), titan_model(which, swap)
    mesh = mesh_of(sizes, ("data", "tp"))
    parallelize_module(many, mesh["tp"], nk.parallel_plan(many, mesh["tp"]))
    if sizes[0] > 1:
        for part in (*many.layers.values(), many):
            fully_shard(part, mesh=mesh["data"])
    tokens = torch.arange(16).view(2, 8) * 5 % 17
    results = [model(tokens, torch.arange(8)[None]) for model in (one, many)]
    for result in results:
        result.sin().mean().backward()
    off = [(results[1] - results[0]).abs().max()]
    off += [(whole(a.grad) - b.grad).abs().max() for a, b in zip(many.parameters(), one.parameters(), strict=True)]
    cut = sum(p.to_local().numel() * sizes[1] <= p.numel() for p in many.parameters())
    return max(off).item(), cut


@pytest.mark.peers
@pytest.mark.parametrize("sizes", [(1, 2), (1, 4), (2, 2)])
@pytest.mark.parametrize("which", ["llama3 debugmodel", "qwen3 debugmodel", "qwen3 debugmodel_non_fused_qkv"])
@pytest.mark.parametrize("swap", ["", "layernorm"])
def test_torchtitans_models_are_planned(which, swap, sizes, pair, four):
    pytest.importorskip("torchtitan.models.llama3")
    for off, cut in (pair if sizes == (1, 2) else four).ask("planned_titan", which, swap, sizes):
        assert off < 1e-11
        assert cut >= 2 * (5 if which.endswith("debugmodel") else 7)


def titan_config(folder):
    """torchtitan's trainer of a Llama of two layers, for these processes."""
    from types import SimpleNamespace

    from torchtitan.components.loss import CrossEntropyLoss
    from torchtitan.config import TrainingConfig
    from torchtitan.models.llama3.config_registry import llama3_debugmodel

    config = nk.titan.use(llama3_debugmodel(), norm="layernorm", optimizer="normuon", lr=0.01, ns_dtype=None)
    del config.model_spec.model.layers[2:]
    config.loss = CrossEntropyLoss.Config(global_vocab_size=config.model_spec.model.vocab_size)
    config.tokenizer = SimpleNamespace(build=lambda **_: None)
    config.dataloader = SimpleNamespace(build=titan_batches)
    each = 4 // torch.distributed.get_world_size()
    config.training = TrainingConfig(local_batch_size=each, seq_len=16, steps=STEPS, disable_cuda_graphs=True)
    config.lr_scheduler.warmup_steps = 0
    config.checkpoint.enable = config.validator.enable = False
    config.dump_folder = folder
    return nk.titan.on_cpu(config)


@pytest.mark.parametrize(
    "arguments, error",
    [
        (
            {"norm": "batchnorm"},
            "ValueError: use: norm must be a norm of vectors, such as 'layernorm', not 'batchnorm'",
        ),
        ({"lr": 0.1}, "TypeError: use: lr are options of an optimizer, which is not named"),
    ],
)
def test_torchtitans_configuration_takes_names_of_norms_and_optimizers(arguments, error):
    from types import SimpleNamespace

    with pytest.raises((TypeError, ValueError)) as raised:
        nk.titan.use(SimpleNamespace(model_spec=SimpleNamespace(model=None)), **arguments)
    assert f"{raised.type.__name__}: {raised.value}".startswith(error)


@pytest.mark.parametrize("function", ["use", "on_cpu"])
def test_another_configuration_than_torchtitans_is_named(function):
    with pytest.raises(TypeError, match=f"{function}: config must be torchtitan's Trainer.Config .* not dict"):
        getattr(nk.titan, function)({})


def test_no_example_needs_a_helper_longer_than_three_lines():
    page = (Path(__file__).parents[2] / "docs" / "parallel.md").read_text(encoding="utf-8")
    fenced = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    indented = [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.MULTILINE)]
    trees = [ast.parse(block) for block in [*fenced, *indented]]
    assert len(trees) >= 8
    for function in [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]:
        assert function.end_lineno - function.body[0].lineno < 3, ast.unparse(function)
    assert not [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]


def titan_batches(dp_rank, dp_world_size, **_):
    """A process' part of batches of four samples."""
    tokens = torch.randint(2048, (STEPS, 4, 17), generator=torch.Generator().manual_seed(1))
    own = tokens.chunk(dp_world_size, 1)[dp_rank]
    return [({"input": batch[:, :-1].contiguous()}, batch[:, 1:].contiguous()) for batch in own]


def by_titan_trainer(folder):
    """What torchtitan's trainer makes of given weights, and the norms that it trained."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    os.environ["LOCAL_RANK"] = str(torch.distributed.get_rank())
    from torchtitan.trainer import Trainer

    trainer = Trainer(titan_config(folder))
    begin = [whole(p) for name, p in trainer.model_parts[0].named_parameters() if name.endswith("_norm.weight")]
    assert all(torch.equal(gain, torch.ones_like(gain)) for gain in begin)
    (model,), chance = trainer.model_parts, torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            value = torch.randn(p.shape, generator=chance) * 0.02 + (p.dim() < 2)
            p.copy_(placed_like(value, p) if hasattr(p, "placements") else value)
    trainer.train()
    names = [name for name, module in model.named_modules() if isinstance(module, nk.LayerNorm)]
    saved = trainer.optimizers.state_dict()
    assert any(key.startswith("state.layers.0.attention.wo.weight") for key in saved)
    trainer.optimizers.load_state_dict(saved)
    return names, {name: whole(p) for name, p in model.named_parameters()}


@pytest.mark.peers
def test_torchtitans_trainer_gives_the_weights_of_one_process(four, alone, tmp_path):
    pytest.importorskip("torchtitan.models.llama3")
    ((norms, want),) = alone.ask("by_titan_trainer", str(tmp_path))
    assert len(norms) == 5
    for _, values in four.ask("by_titan_trainer", str(tmp_path)):
        assert list(values) == list(want)
        for name, value in want.items():
            torch.testing.assert_close(values[name], value, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
