"""Normalized gradient descent on the logistic loss: a soft perceptron."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate


@method(
    "normalized-logistic-gd",
    paper="From Logistic Regression to the Perceptron Algorithm: Exploring Gradient Descent with Large Step Sizes "
    "(Tyurin, 2024), arXiv 2412.08424",
    evidence="abstract",
    shape="N C",
    over="N",
    inputs={"labels": "N", "theta": "C"},
    provenance="equations worked out in float64 from the paper's abstract",
)
def normalized_logistic_gd(features: Tensor, labels: Tensor, theta: Tensor, *, lr: float = 1.0) -> Tensor:
    """Step along the mean of the samples, each weighted by the probability of its wrong class.

    For logistic regression on separable data, where plain descent slows as the loss falls; this goes on at one pace, as
    a perceptron does. For any other loss take ``normalized-gd``.

    In one step,

        m_i = y_i <a_i, theta>,    s_i = 1 / (1 + exp(m_i))
        theta' = theta + lr (sum_i s_i y_i a_i) / (sum_i s_i)

    The shares s_i / sum s are worked out as a softmax of logarithms, so that they hold where all m_i are large.

    Args:
        features: the samples, (N, C).
        labels: -1 or 1 each, (N,).
        theta: the weights, (C,).
        lr: what that mean is multiplied by.

    From Logistic Regression to the Perceptron Algorithm (Tyurin, 2024), arXiv 2412.08424.
    """
    check.values("normalized-logistic-gd", "features", features, (None, None), features)
    check.values("normalized-logistic-gd", "labels", labels, features.shape[:1], features)
    check.values("normalized-logistic-gd", "theta", theta, features.shape[1:], features)
    lr = check.number("normalized-logistic-gd", "lr", lr, 0.0)
    signed = accurate(labels)[:, None] * accurate(features)
    share = torch.softmax(F.logsigmoid(-signed @ accurate(theta)), 0)
    return (theta + lr * (share @ signed)).to(theta.dtype)
