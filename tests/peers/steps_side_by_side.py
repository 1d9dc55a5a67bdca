"""Two optimizers from the same parameters along the same gradients."""

import torch


def step_both(makers, shapes, **options):
    """The parameters of each after six steps."""
    start = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    lists = [[torch.nn.Parameter(p.clone()) for p in start] for _ in makers]
    both = [make(params, lr=0.01, **options) for make, params in zip(makers, lists, strict=True)]
    for _ in range(6):
        for p, q in zip(*lists, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        for optimizer in both:
            optimizer.step()
    return lists
