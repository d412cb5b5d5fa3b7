"""Robot models: `Chain`, its builders, configurations, and the coordinate layouts of other programs."""

from .._exports import publish as _publish
from . import layouts as layouts
from .build import (
    attach as attach,
    from_dh as from_dh,
    from_screws as from_screws,
    make_chain as make_chain,
    with_masses as with_masses,
)
from .chain import (
    Chain as Chain,
    Coupling as Coupling,
    Friction as Friction,
    JointLimits as JointLimits,
    Springs as Springs,
    Topology as Topology,
    Transmission as Transmission,
    inertial_parameters as inertial_parameters,
    with_inertial_parameters as with_inertial_parameters,
    with_leaves as with_leaves,
)
from .configuration import (
    difference as difference,
    integrate as integrate,
    neutral_configuration as neutral_configuration,
    normalise_configuration as normalise_configuration,
    random_configuration as random_configuration,
)
from .drives import (
    with_coupling as with_coupling,
    with_transmission as with_transmission,
)

_publish(__name__, "layouts")
