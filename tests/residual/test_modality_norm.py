"""Per-modality norms: the tokens of a modality are normalized as if the others were not there."""

import pytest
import torch

import normkit as nk


@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
def test_each_modality_has_a_norm_of_its_own(norm):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, 6, dtype=torch.float64, generator=generator)
    modality = torch.randint(3, (2, 7), generator=generator)
    module = nk.create("modality-norm", 6, modalities=3, norm=norm, dtype=torch.float64)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    y = module(x, modality)
    for index in range(3):
        plain = torch.nn.LayerNorm(6).double() if norm == "layernorm" else torch.nn.RMSNorm(6, eps=1e-5).double()
        with torch.no_grad():
            for name, parameter in plain.named_parameters():
                parameter.copy_(getattr(module, name)[index])
        torch.testing.assert_close(y[modality == index], plain(x[modality == index]))
