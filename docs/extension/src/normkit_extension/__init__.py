"""What the entry points of this package's pyproject.toml enter into normkit, and the goldens that each is held to."""
