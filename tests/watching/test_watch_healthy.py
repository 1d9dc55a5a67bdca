"""Every rule is silent in twelve healthy trainings: decoders, vision transformers, ResNets, with several norms."""

import functools
import json

import pytest
import torch
from torch.nn import functional as F
from trainings import LENGTH, language, pictures

import normkit as nk
from normkit.cli import main
from normkit.lab.plan import models
from normkit.lab.plan.variants import Variant
from normkit.watching.diagnosis import all_rules, join_titles

SHAPE = (1, 8, 8)


def decoder(**chosen):
    return models.decoder(Variant("v", **chosen), 0, LENGTH, {"dim": 32, "depth": 3, "heads": 4}), language


class Pictures:
    shape, classes = SHAPE, 4


def vit(**chosen):
    return models.vit(Variant("v", **chosen), 0, Pictures, {"dim": 32, "depth": 3, "heads": 4, "patch": 2}), pictures


def resnet(norm):
    return models.resnet(Variant("v", norm=norm), 0, Pictures, {"dim": 8, "depth": 1}), pictures


HEALTHY = {
    "decoder layernorm": functools.partial(decoder, norm="layernorm"),
    "decoder rmsnorm": functools.partial(decoder, norm="rmsnorm"),
    "decoder dyt": functools.partial(decoder, norm="dyt"),
    "decoder derf": functools.partial(decoder, norm="derf"),
    "decoder peri-norm": functools.partial(decoder, norm="rmsnorm", placement="peri-norm"),
    "decoder post-norm": functools.partial(decoder, norm="layernorm", placement="post-norm"),
    "decoder qk-norm": functools.partial(decoder, norm="rmsnorm", placement="qk-norm-layer"),
    "vit layernorm": functools.partial(vit, norm="layernorm"),
    "vit rmsnorm": functools.partial(vit, norm="rmsnorm"),
    "vit dyt": functools.partial(vit, norm="dyt"),
    "resnet batchnorm": functools.partial(resnet, "batchnorm"),
    "resnet groupnorm": functools.partial(resnet, "groupnorm:num_groups=4"),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found_in_a_healthy_training(name):
    model, batches = HEALTHY[name]()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with nk.watch(model, optimizer, every=9) as seen:
        for step in range(36):
            x, y = batches(step)
            loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    found = seen.diagnosis()
    assert sum(losses[-8:]) / 8 < 0.95 * losses[0], "it goes well"
    assert join_titles(found) == "nothing found"
    assert found.notes == ()


def test_there_are_twenty_rules():
    assert len(all_rules()) >= 20


def test_nothing_is_found_in_the_comparison_of_the_readme(tmp_path):
    """Its scores grow to 35 and 55 in 160 steps of a large rate, and its loss falls all the while."""
    assert main(["compare", "--norm", "layernorm", "dyt", "--seeds", "1", "--lr", "0.009", "--out", str(tmp_path)]) == 0
    events = [json.loads(line) for log in tmp_path.rglob("*.jsonl") for line in log.read_text().splitlines()]
    looks = [event for event in events if event["event"] == "found"]
    assert len(looks) == 2
    assert [finding["title"] for look in looks for finding in look["findings"]] == []
