"""Workers that share the cores must not each start a thread for every core: they would wait for one another."""

import os

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
