"""What is claimed of Conda's speed."""

from normkit.claims.steps import fewer_steps

CLAIMS = [fewer_steps("conda", paper="2 to 2.5 times faster")]
