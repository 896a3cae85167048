"""`python -m lab`."""

import sys

try:
    from lab.cli import main

    code = main()
except KeyboardInterrupt:
    print("lab: interrupted", file=sys.stderr)
    code = 130
sys.exit(code)
