"""Calls of the channel operations that the tests of more than one kind of kernel make."""

import torch

from normkit import ops


def fixed(x, weight, bias):
    channels = torch.arange(x.shape[1], dtype=weight.dtype, device=x.device)
    return ops.normalize_with(x, channels / 9 - 1, channels / 5 + 0.1, weight, bias)


def online(x, weight, bias):
    state = torch.arange(4 * x.shape[1], dtype=weight.dtype, device=x.device).cos().view(4, -1)
    moments, pulls = (state[0].clone(), state[1] + 1.5), (state[2].clone(), state[3].clone())
    return ops.online_norm(x, weight, bias, moments, pulls, ops.Control(1e-5, 0.9, 0.8), limit=1.5)


OPERATIONS = {
    "batch": (lambda x, w, b: ops.batch_norm(x, w, b)[0], 2),
    "fixed": (fixed, 2),
    "group": (lambda x, w, b: ops.group_norm(x, 3, w, b), 2),
    "instance": (ops.instance_norm, 2),
    "online": (online, 2),
    "layer2d": (ops.layer_norm2d, 2),
    "share": (ops.global_response_norm, 2),
    "response": (ops.filter_response_norm, 2),
    "threshold": (ops.filter_response_norm, 3),
    "learned": (lambda x, w, b, t, e: ops.filter_response_norm(x, w, b, t, eps=e.abs()), 4),
    "swish": (lambda x, w, b, v: ops.evonorm_s(x, 3, w, b, v), 3),
    "silu": (lambda x, w, b: ops.evonorm_s(x, 3, w, b, center=False), 2),
}


def draw(shape, count, dtype=torch.float64, last=False, seed=0):
    generator = torch.Generator().manual_seed(seed)
    channels = shape[1]
    x, grad = (torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2))
    parameters = [torch.rand(channels, generator=generator, dtype=torch.float64) + 0.5]
    parameters += [torch.randn(channels, generator=generator, dtype=torch.float64) for _ in range(2)]
    parameters.append(torch.tensor([0.3], dtype=torch.float64))
    return (x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x), parameters[:count], grad


def run(operation, x, parameters, grad):
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    parameters = [p.detach().clone().requires_grad_() for p in parameters]
    y = operation(x, *parameters)
    y.backward(grad)
    return [y.detach(), x.grad, *(p.grad for p in parameters)]
