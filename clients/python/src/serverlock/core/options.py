"""The options of a manager and of its locks."""

import logging

from ..hooks import Hooks


class Options:
    """The options of a manager, checked."""

    def __init__(
        self, timeout: float, portable: bool, warn_without_module: bool, hooks: Hooks | None, log: logging.Logger
    ) -> None:
        self.timeout, self.portable, self.hooks, self.log = timeout, portable, hooks, log
        self.warn_without_module = warn_without_module  # until the warning was logged
