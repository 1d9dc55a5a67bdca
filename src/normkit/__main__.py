"""``python -m normkit`` is the command ``normkit``."""

import sys

from normkit.cli import main

sys.exit(main())
