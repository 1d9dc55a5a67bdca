"""In which type norms compute and hand on: `python benchmarks/mixed.py --write` writes the table of docs/parallel.md.

A linear layer and a norm run in bfloat16, under autocast, under FSDP2's ``mp_policy`` and behind one of torchao's
float8 linears, which are emulated. What the norm takes and gives is seen. It computes in float32 if its result is that
of float64 rounded once, or rounded before the gain and after it; else in bfloat16. No time is taken.
"""

import contextlib
from pathlib import Path

import torch
from torch import distributed, nn

import normkit as nk

PAGE = Path(__file__).parents[1] / "docs" / "parallel.md"
WIDTH, ROWS = 32, 48
NORMS = {
    "rmsnorm": lambda: nk.RMSNorm(WIDTH),
    "layernorm": lambda: nk.LayerNorm(WIDTH),
    "groupnorm": lambda: nk.GroupNorm(WIDTH, num_groups=4),
    "batchnorm": lambda: nk.BatchNorm(WIDTH),
    "torch.nn.RMSNorm": lambda: nn.RMSNorm(WIDTH),
    "torch.nn.LayerNorm": lambda: nn.LayerNorm(WIDTH),
    "torch.nn.GroupNorm": lambda: nn.GroupNorm(4, WIDTH),
    "torch.nn.BatchNorm1d": lambda: nn.BatchNorm1d(WIDTH),
}


def half(model):
    """A model in bfloat16."""
    return model.bfloat16(), contextlib.nullcontext(), torch.bfloat16


def autocast(model):
    """A model in float32 under autocast."""
    return model, torch.autocast("cpu", torch.bfloat16), torch.float32


def sharded(model):
    """A model in float32 whose parameters and inputs FSDP2 casts."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import init_device_mesh

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return fully_shard(model, mesh=init_device_mesh("cpu", (1,)), mp_policy=policy), contextlib.nullcontext(), None


def eighths(model):
    """A model in bfloat16 whose linear layer multiplies in float8."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(model, config=Float8LinearConfig(emulate=True))
    return half(model)


SETTINGS = {
    "`model.bfloat16()`": half,
    "`torch.autocast`": autocast,
    "FSDP2, `mp_policy(param_dtype=bfloat16)`": sharded,
    "float8 linears, `model.bfloat16()`": eighths,
}


def cell(name, setting):
    """The types that a norm takes, computes in and gives."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), NORMS[name]())
    with torch.no_grad():
        model[1].weight.add_(0.3 * torch.randn(WIDTH))
    model, context, dtype = setting(model)
    seen = {}

    def before(norm, args):
        seen["x"] = args[0].detach()
        seen["parameters"] = {key: value.detach().double() for key, value in norm.named_parameters()}

    model[1].register_forward_pre_hook(before)
    x = torch.randn(ROWS, WIDTH, dtype=dtype or torch.float32)
    try:
        with context:
            y = model(x)
        y.float().square().sum().backward()
    except RuntimeError as error:
        return f"refused: {str(error).splitlines()[0]}"
    between = inside(y.detach(), *exact(name, **seen))
    return f"{word(seen['x'].dtype)} → {between} → {word(y.dtype)}"


def exact(name, x, parameters):
    """What a norm would give in float64 without its gain, and the gain."""
    norm = NORMS[name]().double()
    norm.load_state_dict(parameters | {"weight": torch.ones(WIDTH)}, strict=False)
    return norm(x.double()).detach(), parameters["weight"]


def inside(y, h, gain):
    """The type in which a result was computed."""
    if near(y, h * gain):
        return "float32"
    return "float32, gain in bfloat16" if near(y, h.bfloat16().double() * gain) else "bfloat16"


def near(y, value):
    """Whether a result is a value that was rounded once to the result's type."""
    place = torch.finfo(y.dtype).eps * 2.0 ** value.abs().log2().floor()
    return bool(((y.double() - value).abs() <= 0.51 * place + 1e-6).all())


def word(dtype):
    """A type without its package."""
    return str(dtype).removeprefix("torch.")


def table():
    """The lines of the table."""
    started = not distributed.is_initialized()
    if started:
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    lines = [f"| takes → computes in → gives | {' | '.join(SETTINGS)} |", "| --- " * (1 + len(SETTINGS)) + "|"]
    try:
        for name in NORMS:
            cells = [cell(name, setting) for setting in SETTINGS.values()]
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    finally:
        if started:
            distributed.destroy_process_group()
    return "\n".join([*lines, ""])


def main():
    """Write the table into the page, or print it."""
    from marked import print_or_put  # beside this file

    print_or_put(__doc__, PAGE, "types", table)


if __name__ == "__main__":
    main()
