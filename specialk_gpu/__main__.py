"""The command line, as ``python -m specialk_gpu``."""

import sys

from specialk_gpu.cli import main

if __name__ == "__main__":
    sys.exit(main())
