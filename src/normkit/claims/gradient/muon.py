"""What is claimed of Muon on hidden matrices."""

from normkit.claims.steps import fewer_steps

CLAIMS = [fewer_steps("muon", paper="about half of the computation (arXiv 2502.16982)")]
