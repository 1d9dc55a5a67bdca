"""On a GPU: models recognized, changed, trained and watched where they are. NORMKIT_TEST_DEVICE=cuda runs it."""

import pytest
import torch

import normkit as nk
from normkit import ops
from normkit.ops import paths
from normkit.optional import let_torchvision_load
from place import DEVICE, KERNEL, ON_GPU

pytestmark = pytest.mark.skipif(not ON_GPU, reason="it needs a GPU: NORMKIT_TEST_DEVICE=cuda")
IDS = torch.arange(128).view(2, 64) % 97


@pytest.fixture(autouse=True)
def _exact(monkeypatch):
    """Convolutions of ten bits would hide what a change does."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def llama():
    let_torchvision_load()
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=512, num_key_value_heads=2, **sizes)).to(DEVICE)


def resnet():
    let_torchvision_load()
    import timm

    torch.manual_seed(0)
    return timm.create_model("resnet18", num_classes=10).to(DEVICE)


@pytest.mark.parametrize("build, sites", [(llama, 5), (resnet, 20)])
@pytest.mark.parametrize("prove", [False, True])
def test_every_norm_is_recognized_and_stands_where_it_was(build, sites, prove):
    model = build()
    norms = nk.recognize(model, prove=prove)
    assert len(norms.found) == sites
    assert not norms.rest
    assert {p.device.type for match in norms.found.values() for p in match.module.parameters()} == {DEVICE.type}


@torch.no_grad()
def test_a_fused_llama_gives_the_same_logits_by_the_kernel():
    model = llama().bfloat16().eval()
    before = model(IDS.to(DEVICE)).logits
    report = nk.fuse(model)
    with paths.watch() as taken:
        after = model(IDS.to(DEVICE)).logits
    assert len(report) == 5
    assert {str(path) for path in taken} == {KERNEL}
    assert (after - before).abs().max() <= 2.0**-7 * before.abs().max()


@pytest.mark.parametrize("norm", ["derf", "layernorm", "scalenorm"])
def test_a_swapped_llama_trains(norm):
    model = llama()
    nk.swap(model, norm)
    optimizer = nk.create("muon", [p for p in model.parameters() if p.ndim == 2], lr=0.02)
    assert {p.device.type for p in model.parameters()} == {DEVICE.type}
    losses = []
    for _ in range(6):
        loss = model(IDS.to(DEVICE), labels=IDS.to(DEVICE)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)


@torch.no_grad()
def test_a_folded_resnet_gives_the_same_numbers():
    model, x = resnet().eval(), torch.randn(2, 3, 64, 64, device=DEVICE)
    before = model(x)
    report = nk.fold(model, x)
    assert len(report) == 20
    torch.testing.assert_close(report.model(x), before, rtol=1e-4, atol=1e-4)


def test_channels_last_and_autocast_go_by_the_kernels():
    model = resnet().to(memory_format=torch.channels_last)
    nk.swap(model, "groupnorm:num_groups=8")
    x = torch.randn(4, 3, 64, 64, device=DEVICE).to(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16), paths.watch() as taken:
        loss = model(x).float().square().mean()
        loss.backward()
    assert {str(path) for path in taken} == {KERNEL}
    assert loss.isfinite()


def test_batches_on_the_processor_are_brought_to_the_model():
    model, data = resnet(), [torch.randn(8, 3, 64, 64) for _ in range(3)]
    here = resnet().cpu()
    nk.recalibrate(model, data)
    nk.recalibrate(here, data)
    for a, b in zip(model.buffers(), here.buffers(), strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-4)


def test_a_training_step_stands_in_a_cuda_graph():
    rows, images = nk.RMSNorm(1024).to(DEVICE), nk.create("batchnorm", 32).to(DEVICE)
    x = torch.randn(64, 1024, device=DEVICE, requires_grad=True)
    image = torch.randn(4, 32, 8, 8, device=DEVICE, requires_grad=True)

    def step():
        loss = rows(x).square().sum() + images(image).square().sum()
        return torch.autograd.grad(loss, [x, image, *rows.parameters(), *images.parameters()])

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            expected = step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), paths.watch() as taken:
        actual = step()
    graph.replay()
    assert {path.by for path in taken} == {KERNEL, "torch's own"}
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


WAITLESS = ("rmsnorm", "layernorm", "batchnorm", "groupnorm", "instancenorm", "dyt", "derf", "scalenorm", "grn", "frn")


@pytest.mark.parametrize("name", [*WAITLESS, "evonorm-s0", "powernorm", "seednorm", "mhc"])
def test_nothing_waits_for_the_gpu(name):
    module, inputs = nk.card(name).small(64).to(DEVICE), nk.card(name).draw(64, 4, dtype=torch.float32)
    inputs = [i.to(DEVICE).requires_grad_(i.is_floating_point()) for i in inputs]
    module(*inputs).sum().backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        module(*inputs).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [8, 64, 768, 1024, 4096, 5120, 16384, 32768, 40000])
@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "dyt"])
@torch.no_grad()
def test_a_row_has_the_same_bits_in_any_batch(name, width, dtype):
    module, x = nk.create(name, width).to(DEVICE), torch.randn(517, width, device=DEVICE, dtype=dtype)
    whole = module(x)
    for first, last in ((0, 1), (3, 10), (100, 517)):
        assert torch.equal(module(x[first:last]), whole[first:last])


@pytest.mark.parametrize("width", [64, 768, 4096, 32768])
def test_gradients_of_gains_have_the_same_bits_each_time(width):
    x, w = (torch.randn(*shape, device=DEVICE, requires_grad=True) for shape in ((3000, width), (width,)))
    one, other = (torch.autograd.grad(ops.layer_norm(x, (width,), w, w).square().sum(), [x, w]) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@torch.no_grad()
def test_tensors_of_more_than_2_to_the_32_entries():
    x = torch.randn(2**20 + 3, 4096, device=DEVICE, dtype=torch.bfloat16)
    y = ops.rms_norm(x, (4096,))
    for row in (0, 2**19, 2**20 + 2):
        expected = torch.nn.functional.rms_norm(x[row].double(), (4096,), eps=1e-6)
        assert (y[row].double() - expected).abs().max() <= 2.0**-8 * expected.abs().max()


@pytest.mark.parametrize("width", [1000, 4096, 16384, 32768])
def test_an_offset_costs_no_digits(width):
    x = torch.randn(8, width, device=DEVICE) + 1e4
    expected = torch.nn.functional.layer_norm(x.double(), (width,))
    assert (ops.layer_norm(x, (width,)).double() - expected).abs().max() < 2e-6


def test_a_watch_reads_a_model_there():
    model = llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with nk.watch(model, optimizer) as watch:
        for _ in range(6):
            model(IDS.to(DEVICE), labels=IDS.to(DEVICE)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert watch.step >= 5


@torch.no_grad()
def test_a_decoder_of_ours_gives_llamas_logits():
    theirs = llama().eval()
    ours = nk.Decoder.like("llama", theirs.config).to(DEVICE).eval()
    ours.load_theirs(theirs.state_dict())
    expected = theirs(IDS.to(DEVICE)).logits
    torch.testing.assert_close(ours(IDS.to(DEVICE)), expected, rtol=1e-4, atol=1e-4)


def test_a_comparison_trains_there(tmp_path):
    result = nk.compare(norms=["layernorm", "derf"], device="cuda", steps=20, seeds=2, out=tmp_path / "runs")
    assert {row.variant for row in result.rows} == {"layernorm", "derf"}
