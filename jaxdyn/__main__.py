"""Entry point of `python -m jaxdyn`, which runs the command line."""

import sys

from .cli import main

sys.exit(main())
