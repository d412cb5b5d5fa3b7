"""Robot models: `Chain`, its builders, configurations, and the coordinate layouts of other programs."""

from . import layouts as layouts
from ._build import attach as attach, make_chain as make_chain, with_masses as with_masses
from ._chain import (
    Chain as Chain,
    Coupling as Coupling,
    Topology as Topology,
    Transmission as Transmission,
    inertial_parameters as inertial_parameters,
    with_inertial_parameters as with_inertial_parameters,
    with_leaves as with_leaves,
)
from ._configuration import (
    difference as difference,
    integrate as integrate,
    neutral_configuration as neutral_configuration,
    normalise_configuration as normalise_configuration,
    random_configuration as random_configuration,
)
from ._dh import from_dh as from_dh
from ._drives import with_coupling as with_coupling, with_transmission as with_transmission
from ._examples import robots as robots, textbook as textbook
from ._joint_properties import Friction as Friction, JointLimits as JointLimits, Springs as Springs
from ._screws import from_screws as from_screws
