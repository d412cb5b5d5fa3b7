"""The errors jaxdyn raises, all of them `ValueError`s: what is wrong, where it is, and what to do about it."""


class JaxdynError(ValueError):
    """Base class of every error that jaxdyn raises on bad input."""


class ModelError(JaxdynError):
    """A robot model that cannot be built: no body has such an inertia, an axis is zero, names clash, a link is missing."""


class LogError(JaxdynError):
    """A log that cannot be used: missing columns, NaN, time that does not increase, degrees instead of radians."""


class IdentificationError(JaxdynError):
    """An identification that cannot be carried out: nothing moves, the data and the model do not belong together."""


class TrajectoryError(JaxdynError):
    """A motion that cannot be posed or solved as asked: no steps, shapes that do not fit, limits that are missing."""


class OutputError(JaxdynError):
    """Results that cannot be written: the folder is a file, there is no permission, the disk is full."""


class DeploymentError(JaxdynError):
    """A function that cannot be exported, or an exported file that cannot be used here: damaged, of another version."""
