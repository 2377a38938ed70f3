"""Every key of server.properties, of topics and of groups, and the loading of a node's configuration.

`keys` holds the tables, `broker` loads, `checks` compares keys with each other, `resources` answers for topics and
groups. Everything is pure but `load_file`.
"""

from pybroker.config.broker import Config, Loaded, load, load_file, load_text
from pybroker.config.problems import Problem, Severity

__all__ = ["Config", "Loaded", "Problem", "Severity", "load", "load_file", "load_text"]
