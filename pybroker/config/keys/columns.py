"""The words that stand in the type and update columns of the tables."""

from __future__ import annotations

from pybroker.config.key import Update
from pybroker.config.types import ConfigType

BOOLEAN  = ConfigType.BOOLEAN
STRING   = ConfigType.STRING
INT      = ConfigType.INT
SHORT    = ConfigType.SHORT
LONG     = ConfigType.LONG
DOUBLE   = ConfigType.DOUBLE
LIST     = ConfigType.LIST
CLASS    = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD

READ_ONLY    = Update.READ_ONLY
PER_BROKER   = Update.PER_BROKER
CLUSTER_WIDE = Update.CLUSTER_WIDE
PER_RESOURCE = Update.PER_RESOURCE
