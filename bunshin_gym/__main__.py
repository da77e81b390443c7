"""`python -m bunshin_gym` is `bunshin`."""

import sys

from bunshin_gym.cli import main

sys.exit(main())
