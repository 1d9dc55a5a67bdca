"""Print what goldens hold."""

import sys

from normkit.contract import goldens
from normkit.contract.goldens.record import described

print("\n\n".join(f"{path}\n{described(path)}" for path in sys.argv[1:]) or goldens.__doc__)
