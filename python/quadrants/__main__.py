"""`python -m quadrants`: facts, caches, a self-test and advice."""

import sys

from quadrants._command.main import main

sys.exit(main())
