"""With this folder in PYTHONPATH, every process of Python has the stand-in in the place of CuPy."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import stand_in

stand_in.install()
