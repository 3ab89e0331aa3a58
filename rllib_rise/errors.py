"""The errors users meet. Each message names the setting, its value and what to do."""


class RiseError(ValueError):
    """Base of every error that rllib_rise raises on purpose."""


class ConfigError(RiseError):
    """A setting, or a combination of settings, that cannot work."""


class NonFiniteError(RiseError):
    """NaN or infinity where a number is needed: observations, embeddings, rewards."""


class MissingExtraError(RiseError, ImportError):
    """An optional dependency is not installed (or is installed twice)."""


class RunDirectoryError(RiseError):
    """A run directory that exists, is missing, or does not fit what was asked."""


class CheckpointError(RunDirectoryError):
    """A checkpoint that could not be written, or is not what was written."""


class ClusterError(RiseError):
    """A cluster that cannot be reached, refuses, or does not have what a run needs."""


class RunFailedError(RiseError):
    """A run that ended with an error of other code: the environment's, a library's."""


class LostProcessError(RiseError):
    """A process of the run died: a learner, or a node with it. The last checkpoint remains."""


def first_cause(error: BaseException) -> str:
    """The type and the last line of what went wrong first: libraries raise errors about errors.

    Ours say it themselves.
    """
    cause: BaseException = getattr(error, "cause", None) or error  # Ray's name for it
    while not isinstance(cause, RiseError):
        before = cause.__cause__ or cause.__context__
        if before is None:
            break
        cause = before
    return ": ".join([type(cause).__name__, *str(cause).strip().splitlines()[-1:]])
