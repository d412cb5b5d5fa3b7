"""`Chain`, its builders, configurations, and how other programs order coordinates."""

from . import layouts as layouts, robots as robots, textbook as textbook
from .build import make_chain as make_chain
from .chain import (
    Chain as Chain,
    Coupling as Coupling,
    Transmission as Transmission,
    inertial_parameters as inertial_parameters,
    with_inertial_parameters as with_inertial_parameters,
)
from .configuration import (
    difference as difference,
    integrate as integrate,
    neutral_configuration as neutral_configuration,
    normalise_configuration as normalise_configuration,
    random_configuration as random_configuration,
)
from .dh import from_dh as from_dh
from .drives import with_coupling as with_coupling, with_transmission as with_transmission
from .screws import from_screws as from_screws
