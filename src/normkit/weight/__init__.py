"""Weights: maps of them, losses on them, classifiers that are fixed, starts, and what is done to whole models.

>>> import normkit as nk
>>> from torch import nn
>>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
>>> nk.weight.apply(model, "sigma-reparam").done
['0', '2']
>>> nk.weight.bake(model).done
['0', '2']
"""

from normkit.weight._apply import apply as apply
from normkit.weight._apply import bake as bake
from normkit.weight._project import Projection as Projection
from normkit.weight._project import project as project
from normkit.weight._project import spheres as spheres
from normkit.weight._regularize import Regularizer as Regularizer
from normkit.weight._regularize import regularize as regularize
from normkit.weight._start import data_init as data_init
