"""Distributions: invertible maps whose log-determinant is known, what is built of them, and samplers.

Beside the methods there are whole flows by name, whose laws are those of ``torch.distributions``, and Markov chains:

>>> import torch, normkit as nk
>>> flow = nk.density.flow("spline-coupling", 3, context=2)
>>> law = flow.law(torch.randn(5, 2))
>>> law.rsample((7,)).shape, law.log_prob(torch.randn(3)).shape
(torch.Size([7, 5, 3]), torch.Size([5]))
>>> chains = nk.density.walk("mala", lambda x: -x.square().sum(-1) / 2, torch.randn(4, 3), steps=20, step_size=0.5)
>>> chains.draws.shape
torch.Size([20, 4, 3])
"""

from normkit.density._diffusion import Diffusion as Diffusion
from normkit.density._flow import Flow as Flow
from normkit.density._flow import Law as Law
from normkit.density._named import FLOWS as FLOWS
from normkit.density._named import flow as flow
from normkit.density._parts import FlowCondition as FlowCondition
from normkit.density._parts import Part as Part
from normkit.density._recipe import FlowSizes as FlowSizes
from normkit.density._recipe import Recipe as Recipe
from normkit.density._sampler import Sampler as Sampler
from normkit.density._saved import load as load
from normkit.density._walk import SAMPLERS as SAMPLERS
from normkit.density._walk import Chains as Chains
from normkit.density._walk import walk as walk
