"""Right and wrong uses of normkit, for type checkers: what ends in `wrong` must be refused, and nothing else."""

import torch

import normkit as nk

x = torch.ones(2, 768)

# as ours, and as the classes that they stand in for
norm = nk.RMSNorm(768, eps=1e-5)
nk.RMSNorm([768], 1e-5, False)
nk.RMSNorm(hidden_size=768, eps=1e-5)
nk.LayerNorm([2, 5], 1e-3, False, device="cpu", dtype=torch.float64)
nk.LayerNorm(768, 1e-5, elementwise_affine=True, bias=False)
nk.LayerNorm(dim=(2, 5), affine=False)
nk.BatchNorm2d(10, 1e-3, None, False, True)
nk.GroupNorm(3, 6)
nk.GroupNorm(6, num_groups=3)
nk.GroupNorm(num_groups=3, num_channels=6, bias=False)
nk.InstanceNorm1d(3, affine=True)
nk.GemmaRMSNorm(768)
nk.create("derf", 768)
nk.AdamP(norm.parameters(), lr=1e-3)
y: torch.Tensor = norm(x)
shape: tuple[int, ...] = norm.normalized_shape
both: tuple[torch.Tensor, torch.Tensor] = norm.add_norm(x, x)
bound: torch.Tensor = nk.inverted_softmax(torch.ones(3, 4), torch.ones(5, 4), beta=3.0)


class Own(nk.RMSNorm):
    """A class of a user's."""

    def __init__(self, dim: int):
        super().__init__(dim, eps=0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize twice."""
        return super().forward(super().forward(x))


own: nk.Norm = Own(8)
eps: float = Own(8).eps

nk.RMSNorm(768, epss=1)  # wrong
nk.RMSNorm("768")  # wrong
nk.RMSNorm()  # wrong
nk.LayerNorm(768, elementwise_afine=True)  # wrong
nk.LayerNorm(768, dtype="float32")  # wrong
nk.GroupNorm(6, groups=3)  # wrong
nk.RMSNrm(768)  # wrong
nk.inverted_softmax(x, x, betta=3.0)  # wrong
