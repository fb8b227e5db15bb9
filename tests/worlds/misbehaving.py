"""The program of ``misbehaving_world.py``: unlike its own code, Python keeps a module compiled."""

import os
import sys

sys.path.append(os.path.dirname(__file__))

from misbehaving_world import main

main()
